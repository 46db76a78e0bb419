// Device memory that is bound to a multicast object: one address stands for the same place on all devices (kernels/multicast.cuh).
//
//     rank 0 creates the object, gives its descriptor to all      create
//     each rank opens it and adds its device                       add
//     when all have: each makes memory, binds and maps it          bind
//
// By the driver's interface, which is looked up when it is needed: the extension can be imported without a driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/host/runtime.hpp"

namespace pc::cuda {

// Can a device be reached by multicast addresses?
bool has_multicast(int device);

// Memory of another process, of which this one has a descriptor, for use by `device`. Throws Error(device).
std::shared_ptr<void> map_shared(int descriptor, int device, size_t bytes);

class MulticastMemory {
 public:
  // Of at least so many bytes, for `size` devices.
  MulticastMemory(int device, uint32_t size, size_t bytes);
  ~MulticastMemory();
  MulticastMemory(const MulticastMemory&) = delete;

  // Throw Error(device). A descriptor belongs to the caller. `devices`: of the ranks of this process, which may all use local().
  int create();
  void add(int descriptor);
  void bind(cudaStream_t stream, const std::vector<int>& devices);
  int descriptor() const;  // of the own memory, for `map_shared` in another process

  char* local() const { return reinterpret_cast<char*>(local_); }
  char* everywhere() const { return reinterpret_cast<char*>(everywhere_); }
  size_t bytes() const { return bytes_; }

 private:
  const int device_;
  const uint32_t size_;
  size_t bytes_ = 0, grain_ = 1;
  unsigned long long object_ = 0, memory_ = 0;  // handles
  unsigned long long local_ = 0, everywhere_ = 0;
  bool bound_ = false, local_mapped_ = false, everywhere_mapped_ = false;
};

}  // namespace pc::cuda
