// The kernels for several ranks in one grid.
#include "cuda/kernels/fused.cuh"
#include "cuda/kernels/list.cuh"

namespace pc::cuda {

// Words are stored one by one: kernels elsewhere may be looking at them.
PC_KERNEL(Parcel::kThreads)
void deliver(PC_PARAMETER Parcel parcel) {
  for (uint32_t i = threadIdx.x; i < parcel.count; i += blockDim.x)
    store_relaxed_sys(parcel.to + i, parcel.word[i]);
}

namespace {

template <class P>
Kernel choose(const Wanted& wanted) {
  if (wanted.moves) return kernel_of<&interpret_fused<Copy, P>, FusedCall>("fused copy");
  return kernel_of<&interpret_fused<AnyReducer, P>, FusedCall>("fused any");
}

}  // namespace

Kernel find_fused(const Wanted& wanted) {
  switch (wanted.protocol) {
    case Protocol::ll:
      return choose<LL>(wanted);
    case Protocol::ll128:
      return choose<LL128>(wanted);
    case Protocol::simple:
      return choose<Simple>(wanted);
  }
  return {};
}

Kernel find_fused_direct(const Wanted& wanted) {
  if (wanted.moves) return kernel_of<&direct_fused<Copy>, FusedCall>("fused copy");
  return kernel_of<&direct_fused<AnyReducer>, FusedCall>("fused any");
}

Kernel find_delivery() { return kernel_of<&deliver, Parcel>("delivery"); }

}  // namespace pc::cuda
