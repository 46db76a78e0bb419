// The CUDA runtime, or the emulated one; and its errors as ours.
#pragma once

#ifdef PC_EMULATED
#include "cuda/emulation/runtime.hpp"
#else
#include <cuda_runtime_api.h>
#endif

#include <string>
#include <utility>

#include "core/error.hpp"

namespace pc::cuda {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error(ErrorKind::device, std::string(what) + ": " + cudaGetErrorString(error));
}

// Throws Error(device) where there is no driver, or none that is new enough.
inline void require_driver() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
    throw Error(ErrorKind::device, "there is no CUDA driver on this machine");
}

// Memory of this rank only, made and given back in the order of its stream: plain allocation may wait for kernels that run, and
// these for a rank that waits here.
class StreamMemory {
 public:
  StreamMemory() = default;
  StreamMemory(size_t bytes, cudaStream_t stream) : bytes_(bytes), stream_(stream) {
    if (bytes) check(cudaMallocAsync(&data_, bytes, stream), "allocating device memory");
  }
  ~StreamMemory() {
    if (data_) static_cast<void>(cudaFreeAsync(data_, stream_));
  }
  StreamMemory(StreamMemory&& other) noexcept { swap(other); }
  StreamMemory& operator=(StreamMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void swap(StreamMemory& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(stream_, other.stream_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace pc::cuda
