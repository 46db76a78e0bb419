#include "cuda/emulation/runtime.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace pc::emulation {

struct Gang {
  int size = 0;
  std::vector<Stream*> streams;
  bool broken = false;
  uint64_t runs = 0;
};

struct Job {
  Grid grid;
  std::function<void()> copy;
};

struct Stream {
  std::deque<Job> queue;
  std::shared_ptr<Gang> gang;
  std::string name;
  int rank = 0, device = 0;
  bool running = false, broken = false, waits = false;
};

struct Event {
  Stream* stream = nullptr;
  size_t position = 0;
};

namespace {

constexpr int kDevices = 8;
std::mutex mutex_;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<Gang>> gangs;
Options options_;
std::string trouble_;
thread_local int device_ = 0;

// Starts what is at the head of a stream. From outside a run, or when a grid has ended.
void advance(Stream& stream) {
  while (!stream.running && !stream.queue.empty()) {
    Job& job = stream.queue.front();
    if (job.copy) {
      job.copy();
      stream.queue.pop_front();
      continue;
    }
    stream.running = true;
    Grid grid = std::move(job.grid);
    grid.done = [&stream] {
      stream.running = false;
      stream.queue.pop_front();
      advance(stream);
    };
    Machine::instance().start(std::move(grid));
  }
}

void run(Gang& gang) {
  Options options = options_;
  options.seed += 7919 * gang.runs++;
  for (Stream* stream : gang.streams) {
    stream->waits = false;
    advance(*stream);
  }
  std::string trouble = Machine::instance().run(options);
  if (trouble.empty()) return;
  trouble_ = std::move(trouble);
  gang.broken = true;
  for (Stream* stream : gang.streams) {
    stream->queue.clear();
    stream->running = false;
    stream->broken = true;
  }
}

// All ranks of the gang wait, or all that are left.
bool complete(const Gang& gang) {
  return (gang.broken || static_cast<int>(gang.streams.size()) == gang.size) &&
         std::all_of(gang.streams.begin(), gang.streams.end(), [](const Stream* s) { return s->waits; });
}

}  // namespace

cudaError_t launch(void (*invoke)(const void*), dim3 grid, dim3 block, const void* argument, size_t bytes,
                   size_t shared_bytes, cudaStream_t stream) {
  const auto copy = std::make_shared<std::vector<char>>(static_cast<const char*>(argument),
                                                        static_cast<const char*>(argument) + bytes);
  const std::scoped_lock lock(mutex_);
  if (stream->broken) return cudaErrorLaunchFailure;
  Job job;
  job.grid.rank = stream->rank;
  job.grid.device = stream->rank;  // each rank as if on a device of its own: scopes are checked between ranks
  job.grid.blocks = grid.x;
  job.grid.threads = block.x;
  job.grid.shared_bytes = shared_bytes;
  job.grid.kernel = [invoke, copy] { invoke(copy->data()); };
  stream->queue.push_back(std::move(job));
  return cudaSuccess;
}

void join(cudaStream_t stream, const std::string& name, int rank, int size) {
  const std::scoped_lock lock(mutex_);
  auto& gang = gangs[name];
  if (!gang) gang = std::make_shared<Gang>();
  gang->size = size;
  gang->streams.push_back(stream);
  stream->gang = gang;
  stream->name = name;
  stream->rank = rank;
}

void abandon(cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  if (!stream->gang) return;
  stream->gang->broken = true;  // those that are left no longer wait for all
  std::erase(stream->gang->streams, stream);
  if (stream->gang->streams.empty()) gangs.erase(stream->name);
  stream->gang.reset();
  changed.notify_all();
}

void set_options(const Options& options) {
  const std::scoped_lock lock(mutex_);
  options_ = options;
}

Statistics statistics() {
  const std::scoped_lock lock(mutex_);
  return Machine::instance().statistics();
}

std::string last_trouble() {
  const std::scoped_lock lock(mutex_);
  return trouble_;
}

}  // namespace pc::emulation

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
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "peer access is already enabled";
    case cudaErrorLaunchFailure:
      return "the kernels of a stream hang";
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
  *value = attribute == cudaDevAttrMultiProcessorCount      ? 4
           : attribute == cudaDevAttrComputeCapabilityMajor ? 9
                                                            : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (!*pointer) return cudaErrorMemoryAllocation;
  std::memset(*pointer, 0x5a, bytes);  // as on a GPU, it holds anything
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return cudaMalloc(pointer, bytes); }
cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  std::memset(pointer, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  Job job;
  job.copy = [=] { std::memcpy(to, from, bytes); };
  stream->queue.push_back(std::move(job));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new Stream;
  (*stream)->device = device_;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  abandon(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Gang> gang = stream->gang;
  if (!gang || stream->broken || stream->queue.empty())
    return stream->broken ? cudaErrorLaunchFailure : cudaSuccess;
  stream->waits = true;
  changed.wait(lock, [&] { return !stream->waits || complete(*gang) || !stream->gang; });
  if (stream->waits) {
    run(*gang);
    stream->waits = false;
    changed.notify_all();
  }
  return stream->broken ? cudaErrorLaunchFailure : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  return stream->broken ? cudaErrorLaunchFailure : stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->stream = stream;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->stream ? cudaStreamQuery(event->stream) : cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  std::memcpy(handle->reserved, &pointer, sizeof pointer);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned) {
  std::memcpy(pointer, handle.reserved, sizeof *pointer);
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 4;
  return cudaSuccess;
}
