// The interpreters of protocol LL.
#include "cuda/kernels/list.cuh"

namespace pc::cuda {

Kernel find_ll(const Wanted& wanted) { return find_in<LL>(wanted); }

}  // namespace pc::cuda
