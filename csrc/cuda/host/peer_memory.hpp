// Device memory of other ranks: of this process, or of others through CUDA IPC or a descriptor.
#pragma once

#include <memory>
#include <string>

#include "cuda/host/links.hpp"

namespace pc::cuda {

// Made with room to a multiple of this: of smaller pieces CUDA IPC shares the block that the driver has cut them from.
inline constexpr size_t kSharedBytes = size_t{2} << 20;

// What peers need to reach `memory`, which cudaMalloc has made on `device`; or the driver, so that a descriptor is passed besides.
std::string export_memory(void* memory, int device);
std::string export_mapped(void* memory, int device, size_t bytes);

struct PeerMemory {
  char* data;
  int device;
  Link link;
  bool same_process;             // else it was opened, and is to be closed
  std::shared_ptr<void> mapped;  // closes it where it came by a descriptor
};

// The memory that `peer` has exported, from `device`. `descriptor`: of memory that the driver made, -1 for none; the caller's.
// Throws Error(bootstrap, device, unsupported).
PeerMemory open_memory(const std::string& exported, int peer, int device, int descriptor = -1);
void close_memory(const PeerMemory& memory) noexcept;

}  // namespace pc::cuda
