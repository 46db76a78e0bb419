// Copies between device memory and pinned host memory, beside the kernels: the way to other hosts where MPI takes no device pointers.
//
//     caller's stream     ... -- arrival -----------------------------------------------> hold --
//     to the host                  |-> piece 0 -> piece 1 ->        piece 2 ->              ^
//     MPI, on the host                     |----> piece 0 --------> piece 1 -------->       |
//     to the device                                    |----------> piece 0 ------> piece 1-|
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/host/event.hpp"

namespace pc::cuda {

enum class Way : uint32_t { to_host, to_device };

// One contiguous copy: target, source, bytes.
using Copy = std::array<uint64_t, 3>;

class Copies {
 public:
  static constexpr uint32_t kBuffers = 4;  // two for each way
  static constexpr uint32_t kScratches = 5;

  explicit Copies(int device);
  ~Copies();
  Copies(const Copies&) = delete;

  // Pinned memory of at least so many bytes. Nothing may be using the buffer. Throws Error(device).
  char* buffer(uint32_t which, size_t bytes);
  // Device memory for what lies between two steps; the same rules. MPI may be given it, so it is cudaMalloc's, which other processes
  // and network adapters can map.
  char* scratch(uint32_t which, size_t bytes);
  // The copies to come wait for what `event` marks.
  void follow(Way way, const Event& event);
  // Queues copies; the event marks their end.
  std::shared_ptr<Event> copy(Way way, const std::vector<Copy>& copies);

 private:
  void free_outgrown() noexcept;  // and what others have left

  const int device_;
  cudaStream_t streams_[2] = {};
  std::array<char*, kBuffers> memory_{};
  std::array<size_t, kBuffers> bytes_{};
  std::array<char*, kScratches> scratch_{};
  std::array<size_t, kScratches> scratch_bytes_{};
  std::vector<std::pair<char*, size_t>> outgrown_;  // copies on their way may use it
};

// Copies from device memory to device memory, on the caller's stream.
void copy_on(cudaStream_t stream, const std::vector<Copy>& copies);

// Where a caller's stream of `device` stands. Throws Error(unsupported) while it is captured: the host has to wait for it.
std::shared_ptr<Event> record_on(int device, cudaStream_t stream);

}  // namespace pc::cuda
