// The kernels for operators of the caller's, compiled for the emulated device, by name.
#include "cuda/host/user_kernels.hpp"

#include <string>

#include "core/error.hpp"
#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/user.cu"

namespace pc::cuda {
namespace {

struct Named {
  const char* name;
  Kernel kernel;
};

#define PC_NAMED(function, C)                 \
  {#function,                                 \
   {reinterpret_cast<const void*>(&function), \
    [](const void* call) { function(*static_cast<const C*>(call)); }, "user"}},
#define PC_NAMED_INTERPRETERS(form, ...) \
  PC_NAMED(pc_user_ll_##form, Call) PC_NAMED(pc_user_ll128_##form, Call) PC_NAMED(pc_user_simple_##form, Call)
#define PC_NAMED_DIRECT(form, ...) PC_NAMED(pc_user_direct_##form, DirectCall)
#define PC_NAMED_FUSED(form, ...)              \
  PC_NAMED(pc_user_fused_ll_##form, FusedCall) \
  PC_NAMED(pc_user_fused_ll128_##form, FusedCall) PC_NAMED(pc_user_fused_simple_##form, FusedCall)
#define PC_NAMED_FUSED_DIRECT(form, ...) PC_NAMED(pc_user_fused_direct_##form, FusedCall)

const Named kKernels[] = {PC_FORMS(PC_NAMED_INTERPRETERS) PC_NARROW_FORMS(PC_NAMED_DIRECT)
                              PC_FORMS(PC_NAMED_FUSED) PC_NARROW_FORMS(PC_NAMED_FUSED_DIRECT)};

}  // namespace

Kernel find_user(const std::string& name) {
  for (const Named& one : kKernels)
    if (name == one.name) return one.kernel;
  throw Error(ErrorKind::device, "there is no kernel " + name);
}

}  // namespace pc::cuda
