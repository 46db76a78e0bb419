// The interpreters of protocol Simple.
#include "cuda/kernels/list.cuh"

namespace pc::cuda {

Kernel find_simple(const Wanted& wanted) { return find_in<Simple>(wanted); }

}  // namespace pc::cuda
