// The native kernel of the direct algorithms by the switch.
#include "cuda/kernels/list.cuh"
#include "cuda/kernels/multicast.cuh"

namespace pc::cuda {

Kernel find_multicast() { return kernel_of<&multicast, DirectCall>("multicast"); }

}  // namespace pc::cuda
