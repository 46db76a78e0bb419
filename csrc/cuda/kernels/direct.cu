// The native kernels of the direct algorithms.
#include "cuda/kernels/direct.cuh"
#include "cuda/kernels/list.cuh"

namespace pc::cuda {

Kernel find_direct(const Wanted& wanted) {
  return choose_reducer(
      wanted, []<class R>(R*, const char* name) { return kernel_of<&direct<R>, DirectCall>(name); });
}

}  // namespace pc::cuda
