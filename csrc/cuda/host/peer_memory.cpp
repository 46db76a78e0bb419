#include "cuda/host/peer_memory.hpp"

#include <unistd.h>

#include <cstring>

namespace pc::cuda {
namespace {

struct Handle {
  cudaIpcMemHandle_t memory;
  uint64_t address;
  int32_t pid, device;
};

}  // namespace

std::string export_memory(void* memory, int device) {
  Handle handle{};
  check(cudaIpcGetMemHandle(&handle.memory, memory), "exporting device memory");
  handle.address = reinterpret_cast<uint64_t>(memory);
  handle.pid = getpid();
  handle.device = device;
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

PeerMemory open_memory(const std::string& exported, int peer, int device) {
  Handle handle;
  if (exported.size() != sizeof handle)
    throw Error(ErrorKind::bootstrap, "rank " + std::to_string(peer) + " sent no handle of its memory", peer);
  std::memcpy(&handle, exported.data(), sizeof handle);
  void* memory = reinterpret_cast<void*>(handle.address);
  const bool same_process = handle.pid == getpid();
  const Link link = link_between(device, handle.device);
  if (!same_process) {
    check(cudaIpcOpenMemHandle(&memory, handle.memory, cudaIpcMemLazyEnablePeerAccess),
          "opening a peer's device memory");
  } else if (handle.device != device) {
    const cudaError_t error = cudaDeviceEnablePeerAccess(handle.device, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
      static_cast<void>(cudaGetLastError());
    else
      check(error, "enabling peer access");
  }
  return {static_cast<char*>(memory), handle.device, link, same_process};
}

void close_memory(const PeerMemory& memory) noexcept {
  if (!memory.same_process) static_cast<void>(cudaIpcCloseMemHandle(memory.data));
}

}  // namespace pc::cuda
