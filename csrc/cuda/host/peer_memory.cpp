#include "cuda/host/peer_memory.hpp"

#include <unistd.h>

#include <cstring>

#include "cuda/host/multicast.hpp"

namespace pc::cuda {
namespace {

struct Handle {
  cudaIpcMemHandle_t memory;
  uint64_t address, bytes;  // `bytes`: of memory that is opened by a descriptor, else 0
  int32_t pid;
  cudaError_t refused;  // why other processes cannot open it
  char bus[32];         // of the device, whose number may be another one in another process
};

Handle about(void* memory, int device) {
  Handle handle{};
  handle.address = reinterpret_cast<uint64_t>(memory);
  handle.pid = getpid();
  check(cudaDeviceGetPCIBusId(handle.bus, sizeof handle.bus, device), "asking for the device");
  return handle;
}

std::string text_of(const Handle& handle) { return {reinterpret_cast<const char*>(&handle), sizeof handle}; }

// The number that a peer's device has here.
int device_of(const Handle& handle, int peer) {
  int device = 0;
  if (cudaDeviceGetByPCIBusId(&device, handle.bus) == cudaSuccess) return device;
  static_cast<void>(cudaGetLastError());
  throw Error(ErrorKind::device,
              "the device of rank " + std::to_string(peer) + " (" + handle.bus +
                  ") is hidden from this process: let the ranks of a host see all their devices "
                  "(CUDA_VISIBLE_DEVICES)",
              peer);
}

}  // namespace

std::string export_memory(void* memory, int device) {
  Handle handle = about(memory, device);
  handle.refused = cudaIpcGetMemHandle(&handle.memory, memory);  // ranks of this process need none
  if (handle.refused != cudaSuccess) static_cast<void>(cudaGetLastError());
  return text_of(handle);
}

std::string export_mapped(void* memory, int device, size_t bytes) {
  Handle handle = about(memory, device);
  handle.bytes = bytes;
  return text_of(handle);
}

PeerMemory open_memory(const std::string& exported, int peer, int device, int descriptor) {
  Handle handle;
  if (exported.size() != sizeof handle)
    throw Error(ErrorKind::bootstrap, "rank " + std::to_string(peer) + " sent no handle of its memory", peer);
  std::memcpy(&handle, exported.data(), sizeof handle);
  void* memory = reinterpret_cast<void*>(handle.address);
  const bool same_process = handle.pid == getpid();
  const int theirs = device_of(handle, peer);
  const Link link = link_between(device, theirs);
  std::shared_ptr<void> mapped;
  if (handle.bytes) {  // in this process it is mapped for all devices
    if (!same_process) memory = (mapped = map_shared(descriptor, device, handle.bytes)).get();
  } else if (!same_process) {
    check(handle.refused, "exporting device memory to another process");
    check(cudaIpcOpenMemHandle(&memory, handle.memory, cudaIpcMemLazyEnablePeerAccess),
          "opening a peer's device memory");
  } else if (theirs != device) {
    const cudaError_t error = cudaDeviceEnablePeerAccess(theirs, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
      static_cast<void>(cudaGetLastError());
    else
      check(error, "enabling peer access");
  }
  return {static_cast<char*>(memory), theirs, link, same_process, std::move(mapped)};
}

void close_memory(const PeerMemory& memory) noexcept {
  if (!memory.same_process && !memory.mapped) static_cast<void>(cudaIpcCloseMemHandle(memory.data));
}

}  // namespace pc::cuda
