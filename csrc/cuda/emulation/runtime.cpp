// Memory and devices; streams are in streams.cpp.
#include "cuda/emulation/runtime.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

thread_local int device_ = 0;

// Device memory that other processes can open, and theirs.
struct Shared {
  int fd;  // -1: another process's
  size_t bytes;
};
struct Exported {
  void* pointer;
  int pid, fd;
  size_t bytes;
};
std::atomic<bool> shared_{false};
std::mutex mutex_;
std::map<void*, Shared> pieces;
std::map<char*, size_t> pinned;    // host memory
std::atomic<int> first_device{0};  // that this process sees

bool is_pinned(char* at, size_t bytes) {
  const std::scoped_lock lock(mutex_);
  auto found = pinned.upper_bound(at);
  if (found == pinned.begin()) return false;
  --found;
  return at + bytes <= found->first + found->second;
}

cudaError_t allocate(void** pointer, size_t bytes) {
  if (bytes > size_t{1} << 40) return cudaErrorMemoryAllocation;  // no device has so much
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!*pointer) return cudaErrorMemoryAllocation;
  std::memset(*pointer, 0x5a, bytes);  // as on a GPU, it holds anything
  return cudaSuccess;
}

cudaError_t share(void** pointer, size_t bytes) {
  const int fd = memfd_create("emulated device memory", MFD_CLOEXEC);
  if (fd < 0) return cudaErrorMemoryAllocation;
  void* mapped = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0)
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    close(fd);
    return cudaErrorMemoryAllocation;
  }
  std::memset(mapped, 0x5a, bytes);
  *pointer = mapped;
  const std::scoped_lock lock(mutex_);
  pieces[mapped] = {fd, bytes};
  return cudaSuccess;
}

// False for memory of another kind.
bool forget_shared(void* pointer) {
  const std::scoped_lock lock(mutex_);
  const auto found = pieces.find(pointer);
  if (found == pieces.end()) return false;
  munmap(pointer, found->second.bytes);
  if (found->second.fd >= 0) close(found->second.fd);
  pieces.erase(found);
  return true;
}

}  // namespace

void pc::emulation::share_memory(bool shared) { shared_ = shared; }
void pc::emulation::hide_devices(int count) { first_device = count; }

using namespace pc::emulation;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "peer access is already enabled";
    case cudaErrorCooperativeLaunchTooLarge:
      return "too many blocks in cooperative launch";
    case cudaErrorNotSupported:
      return "operation not supported";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorLaunchFailure:
      return "the kernels of a stream hang";
    case cudaErrorNotLoaded:
      return "the kernel was not loaded before, or needs a larger stack: either waits for kernels that run";
    case cudaErrorNeverReturns:
      return "it would wait for a kernel that waits for this thread";
  }
  return "unknown error";
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = device_;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= kDevices) return cudaErrorInvalidDevice;
  device_ = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount      ? static_cast<int>(options().processors)
           : attribute == cudaDevAttrComputeCapabilityMajor ? 9
           : attribute == cudaDevAttrCooperativeLaunch      ? 1
                                                            : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<size_t>(bytes), "emulated:%d", first_device.load() + device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  int number = 0;
  if (std::sscanf(text, "emulated:%d", &number) != 1) return cudaErrorInvalidDevice;
  *device = number - first_device;
  return *device >= 0 && *device < kDevices ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int device, int peer) {
  *value = device / 4 == peer / 4;  // two boards, of four devices each
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

// Plain allocation and its end may wait for all kernels of the device: here they always do.
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (const cudaError_t error = wait_for_kernels("device memory is allocated")) return error;
  if (shared_.load()) return share(pointer, bytes);
  return allocate(pointer, bytes);
}
cudaError_t cudaFree(void* pointer) {
  if (const cudaError_t error = wait_for_kernels("device memory is freed")) return error;
  if (!forget_shared(pointer)) std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) { return allocate(pointer, bytes); }
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  later(stream, [=] { std::free(pointer); });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (const cudaError_t error = wait_for_kernels("pinned memory is allocated")) return error;
  const cudaError_t error = allocate(pointer, bytes);
  const std::scoped_lock lock(mutex_);
  if (!error) pinned[static_cast<char*>(*pointer)] = bytes;
  return error;
}
cudaError_t cudaFreeHost(void* pointer) {
  if (const cudaError_t error = wait_for_kernels("pinned memory is freed")) return error;
  {
    const std::scoped_lock lock(mutex_);
    pinned.erase(static_cast<char*>(pointer));
  }
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  later(stream, [=] { std::memset(pointer, value, bytes); });
  return cudaSuccess;
}
// A device waits with a copy to memory that is not pinned until the stream has come there: whoever calls is to avoid that.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToHost && !is_pinned(static_cast<char*>(to), bytes))
    return cudaErrorInvalidValue;
  later(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  later(stream, [=] { function(data); });
  return cudaSuccess;
}

// As where CUDA IPC is missing, unless memory is to be shared.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  const std::scoped_lock lock(mutex_);
  const auto found = pieces.find(pointer);
  if (found == pieces.end()) return cudaErrorNotSupported;
  const Exported exported{pointer, getpid(), found->second.fd, found->second.bytes};
  static_assert(sizeof exported <= sizeof handle->reserved);
  std::memcpy(handle->reserved, &exported, sizeof exported);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned) {
  Exported exported;
  std::memcpy(&exported, handle.reserved, sizeof exported);
  *pointer = exported.pointer;
  if (exported.pid == getpid()) return cudaSuccess;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", exported.pid, exported.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return cudaErrorInvalidValue;
  void* mapped = mmap(nullptr, exported.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return cudaErrorMemoryAllocation;
  *pointer = mapped;
  const std::scoped_lock lock(mutex_);
  pieces[mapped] = {-1, exported.bytes};
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  static_cast<void>(forget_shared(pointer));
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t) {
  *blocks = static_cast<int>(options().resident_threads) / threads;
  return cudaSuccess;
}
