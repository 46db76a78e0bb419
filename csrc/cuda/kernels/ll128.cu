// The interpreters of protocol LL128.
#include "cuda/kernels/interpreter.cuh"
#include "cuda/kernels/list.cuh"

namespace pc::cuda {

Kernel find_ll128(const Wanted& wanted) {
  return choose_reducer(
      wanted, []<class R>(R*, const char* name) { return kernel_of<&interpret<R, LL128>, Call>(name); });
}

}  // namespace pc::cuda
