// The kernels that operators of the caller's are linked into. nvcc makes LTO-IR of this file, which nvJitLink completes with
// `pc_user_operator` when an operator is first used (pycollectives/device/operators.py). On the emulated device they are ordinary
// functions (emulation/user_kernels.cpp).
#include "cuda/kernels/fused.cuh"
#include "cuda/kernels/user.cuh"

namespace pc::cuda {

// Items that fill single vectors, items of several vectors, and floats that are combined in float32.
#define PC_NARROW_FORMS(X)               \
  X(items, Items<1>)                     \
  X(float16, Floats<Half>)               \
  X(bfloat16, Floats<BFloat16>)          \
  X(float8_e4m3fn, Floats<Float8E4M3FN>) \
  X(float8_e5m2, Floats<Float8E5M2>)
#define PC_FORMS(X) PC_NARROW_FORMS(X) X(blocks, Items<16>)

#define PC_INTERPRETER(name, P, ...)                                                                     \
  extern "C" PC_KERNEL(kMostThreads[static_cast<uint32_t>(P::kind)]) void name(PC_PARAMETER Call call) { \
    PC_SHARED_MEMORY(shared);                                                                            \
    Interpreter<UserReducer<__VA_ARGS__>, P>(call, shared, blockIdx.x).run();                            \
  }
#define PC_INTERPRETERS(form, ...)                         \
  PC_INTERPRETER(pc_user_ll_##form, LL, __VA_ARGS__)       \
  PC_INTERPRETER(pc_user_ll128_##form, LL128, __VA_ARGS__) \
  PC_INTERPRETER(pc_user_simple_##form, Simple, __VA_ARGS__)
#define PC_DIRECT(form, ...)                                                                \
  extern "C" PC_KERNEL(kThreads) void pc_user_direct_##form(PC_PARAMETER DirectCall call) { \
    PC_SHARED_MEMORY(shared);                                                               \
    Direct<UserReducer<__VA_ARGS__>>(call, shared, blockIdx.x, gridDim.x).run();            \
  }

// The same for several ranks in one grid.
#define PC_FUSED_INTERPRETER(name, P, ...)                                      \
  extern "C" PC_KERNEL(kMostThreads[static_cast<uint32_t>(P::kind)]) void name( \
      PC_PARAMETER FusedCall fused) {                                           \
    PC_SHARED_MEMORY(shared);                                                   \
    interpret_part<UserReducer<__VA_ARGS__>, P>(fused, shared);                 \
  }
#define PC_FUSED_INTERPRETERS(form, ...)                               \
  PC_FUSED_INTERPRETER(pc_user_fused_ll_##form, LL, __VA_ARGS__)       \
  PC_FUSED_INTERPRETER(pc_user_fused_ll128_##form, LL128, __VA_ARGS__) \
  PC_FUSED_INTERPRETER(pc_user_fused_simple_##form, Simple, __VA_ARGS__)
#define PC_FUSED_DIRECT(form, ...)                                                                \
  extern "C" PC_KERNEL(kThreads) void pc_user_fused_direct_##form(PC_PARAMETER FusedCall fused) { \
    PC_SHARED_MEMORY(shared);                                                                     \
    direct_part<UserReducer<__VA_ARGS__>>(fused, shared);                                         \
  }

PC_FORMS(PC_INTERPRETERS)
PC_NARROW_FORMS(PC_DIRECT)  // native kernels move single vectors
PC_FORMS(PC_FUSED_INTERPRETERS)
PC_NARROW_FORMS(PC_FUSED_DIRECT)

}  // namespace pc::cuda
