// The interpreters of protocol LL128.
#include "cuda/kernels/list.cuh"

namespace pc::cuda {

Kernel find_ll128(const Wanted& wanted) { return find_in<LL128>(wanted); }

}  // namespace pc::cuda
