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

// Device memory that is freed with its owner.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&data_, bytes), "allocating device memory");
  }
  ~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceMemory& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace pc::cuda
