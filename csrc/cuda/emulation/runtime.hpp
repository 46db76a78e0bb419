// The part of the CUDA runtime that the host side uses, on the emulated device: the same names, arguments and meaning.
//
// A stream is a queue of launches, copies and waits. Nothing runs until it has to: a thread that waits for its stream waits until all
// ranks of its gang wait for theirs; the last one runs the machine, so that one seed always gives one interleaving.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "cuda/emulation/machine.hpp"

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorCapturedEvent = 907,
  // of the emulated device's own: what a GPU would do is to wait for ever
  cudaErrorNotLoaded = 10001,
  cudaErrorNeverReturns = 10002,
};

namespace pc::emulation {
inline constexpr int kDevices = 8;
struct Stream;
struct Event;
}  // namespace pc::emulation
using cudaStream_t = pc::emulation::Stream*;
using cudaEvent_t = pc::emulation::Event*;
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

struct cudaIpcMemHandle_t {
  char reserved[64];
};

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrCooperativeLaunch = 95
};
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0,
                          cudaIpcMemLazyEnablePeerAccess = 1;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device);
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text);
enum cudaDeviceP2PAttr { cudaDevP2PAttrNativeAtomicSupported = 3 };
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device, int peer);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream);
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeRelaxed = 2 };
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
struct cudaFuncAttributes {
  int numRegs;
  size_t localSizeBytes;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function);
enum cudaLimit { cudaLimitStackSize = 0 };
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit);
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer);
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void* pointer);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t shared_bytes);

namespace pc::emulation {

// A kernel: what is loaded, and what calls it with its one argument.
struct Function {
  const void* address;
  void (*invoke)(const void*);
};

// `bytes` of the argument are copied at launch. `home`: the own stream of its rank. `meets`: it waits for those of the other ranks.
cudaError_t launch(const Function& function, dim3 grid, dim3 block, const void* argument, size_t bytes,
                   size_t shared_bytes, cudaStream_t stream, cudaStream_t home, bool meets = true);

// The same for several ranks in one grid, `share` blocks each: all begin at once.
cudaError_t launch_cooperative(const Function& function, dim3 grid, dim3 block, const void* argument,
                               size_t bytes, size_t shared_bytes, cudaStream_t stream, cudaStream_t home,
                               const std::vector<int>& ranks, unsigned share);

// Nothing is loaded at a launch, as it would be on a GPU: that waits for all kernels of the device (loading.cpp).
bool is_loaded(const void* function);  // on the current device, which has the stack that it needs
void unload();                         // all kernels, of all devices

// `act` is what waits for all kernels of the current device: "memory is freed", say. cudaErrorNeverReturns, and the end of their ranks,
// if one of them waits for a kernel that the very thread would launch later, or some other one that the thread holds up.
cudaError_t wait_for_kernels(const char* act);
// Does the current thread hold up all others of this process? (Python's lock)
void ask_for_lock(bool (*holds)());

void between_runs(const std::function<void()>& act);  // at once, while no kernel runs

void belong(cudaStream_t stream, cudaStream_t home);  // to the rank that works on it

void later(cudaStream_t stream, std::function<void()> act);  // the host does it when the stream comes there

// What is queued in between runs at each launch of the graph instead.
void begin_capture(cudaStream_t stream);
std::function<void(cudaStream_t)> end_capture(cudaStream_t stream);

// The stream belongs to rank `rank` of the `size` ranks of this process that are known by `name`. `elsewhere`: there are others in
// other processes, for which kernels wait while other threads of this process go on.
void join(cudaStream_t stream, const std::string& name, int rank, int size, bool elsewhere);
// Device memory from now on can be opened by other processes.
void share_memory(bool shared);
// The first devices are not visible to this process: the next one has number 0.
void hide_devices(int count);
void abandon(cudaStream_t stream);  // its rank waits no more, and nobody waits for it

void set_options(const Options& options);
Options options();
Statistics statistics();
std::string last_trouble();  // of the last run that hung

}  // namespace pc::emulation
