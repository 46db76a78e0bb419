// Device memory of other ranks: of this process, or of others through CUDA IPC.
#pragma once

#include <string>

#include "cuda/host/links.hpp"

namespace pc::cuda {

// What peers need to reach `memory`, which cudaMalloc has made on `device`.
std::string export_memory(void* memory, int device);

struct PeerMemory {
  char* data;
  int device;
  Link link;
  bool same_process;  // else it was opened, and is to be closed
};

// The memory that `peer` has exported, from `device`. Throws Error(bootstrap, device, unsupported).
PeerMemory open_memory(const std::string& exported, int peer, int device);
void close_memory(const PeerMemory& memory) noexcept;

}  // namespace pc::cuda
