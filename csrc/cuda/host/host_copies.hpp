// Arrays in host memory on their way to a device and back, in the order of a stream. Nothing waits for the device here: a plain copy
// from or to memory that is not pinned does, also for kernels before it on the stream, and these for ranks that have not called yet.
//
//     array --function on the host--> pinned memory --copy--> device         piece by piece; the way back alike
#pragma once

#include <cstddef>

#include "cuda/host/runtime.hpp"
#include "cuda/kernels/layout.hpp"

namespace pc::cuda {

class HostCopies {
 public:
  static constexpr size_t kPiece = size_t{1} << 20;

  // `status`: of the rank. Once that has failed or was aborted, arrays may be gone: they are left alone. Throws Error(device).
  explicit HostCopies(Status* status);
  ~HostCopies();  // the stream has ended
  HostCopies(const HostCopies&) = delete;

  // Always on the same stream. Throw Error(device).
  void to_device(char* to, const char* from, size_t bytes, cudaStream_t stream);
  void to_host(char* to, const char* from, size_t bytes, cudaStream_t stream);

 private:
  void later(char* to, const char* from, size_t bytes, cudaStream_t stream);

  Status* const status_;
  char* pinned_ = nullptr;
};

}  // namespace pc::cuda
