// The native kernels of the direct algorithms by the switch: one for each thing that it combines.
#include "cuda/kernels/list.cuh"
#include "cuda/kernels/multicast.cuh"

namespace pc::cuda {

Kernel find_multicast(Multimem form) {
  switch (form) {
#define PC_FORM(one)  \
  case Multimem::one: \
    return kernel_of<&multicast<Multimem::one>, DirectCall>("multicast " #one);
    PC_FORM(none)
    PC_FORM(add_f32)
    PC_FORM(add_f64)
    PC_FORM(add_f16)
    PC_FORM(add_bf16)
    PC_FORM(add_u32)
    PC_FORM(add_u64)
    PC_FORM(min_s32)
    PC_FORM(max_s32)
    PC_FORM(min_u32)
    PC_FORM(max_u32)
    PC_FORM(min_s64)
    PC_FORM(max_s64)
    PC_FORM(min_u64)
    PC_FORM(max_u64)
    PC_FORM(and_b32)
    PC_FORM(or_b32)
    PC_FORM(xor_b32)
#undef PC_FORM
  }
  return {};
}

}  // namespace pc::cuda
