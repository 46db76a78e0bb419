// The interpreters of protocol Simple.
#include "cuda/kernels/interpreter.cuh"
#include "cuda/kernels/list.cuh"

namespace pc::cuda {

Kernel find_simple(const Wanted& wanted) {
  return choose_reducer(
      wanted, []<class R>(R*, const char* name) { return kernel_of<&interpret<R, Simple>, Call>(name); });
}

}  // namespace pc::cuda
