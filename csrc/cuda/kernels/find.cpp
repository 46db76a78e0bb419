#include "cuda/kernels/kernels.hpp"

namespace pc::cuda {

Kernel find_kernel(const Wanted& wanted) {
  switch (wanted.protocol) {
    case Protocol::ll:
      return find_ll(wanted);
    case Protocol::ll128:
      return find_ll128(wanted);
    case Protocol::simple:
      return find_simple(wanted);
  }
  return {};
}

}  // namespace pc::cuda
