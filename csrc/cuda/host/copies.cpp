#include "cuda/host/copies.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "cuda/host/on_device.hpp"

namespace pc::cuda {

namespace {

// What Copies that are gone have had: to free it might wait for kernels, and these for the thread that does.
struct Spare {
  int device;  // -1: pinned host memory
  size_t bytes;
  char* data;
};
std::mutex mutex;
std::vector<Spare> spares;

void give_spare(int device, size_t bytes, char* data) {
  if (!data) return;
  const std::scoped_lock lock(mutex);
  spares.push_back({device, bytes, data});
}

// The smallest that is large enough, and not wastefully so; nullptr if there is none. `bytes`: how many it has.
char* take_spare(int device, size_t& bytes) {
  const std::scoped_lock lock(mutex);
  auto found = spares.end();
  for (auto one = spares.begin(); one != spares.end(); ++one)
    if (one->device == device && one->bytes >= bytes && one->bytes / 2 <= bytes &&
        (found == spares.end() || one->bytes < found->bytes))
      found = one;
  if (found == spares.end()) return nullptr;
  char* data = found->data;
  bytes = found->bytes;
  spares.erase(found);
  return data;
}

}  // namespace

Copies::Copies(int device) : device_(device) {
  require_driver();
  const On on(device_);
  for (cudaStream_t& stream : streams_)
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
}

Copies::~Copies() {
  const NotCaptured mode;
  for (cudaStream_t stream : streams_) {
    if (!stream) continue;
    static_cast<void>(cudaStreamSynchronize(stream));
    static_cast<void>(cudaStreamDestroy(stream));
  }
  for (size_t i = 0; i < memory_.size(); ++i) give_spare(-1, bytes_[i], memory_[i]);
  for (size_t i = 0; i < scratch_.size(); ++i) give_spare(device_, scratch_bytes_[i], scratch_[i]);
  for (const auto& [memory, bytes] : outgrown_) give_spare(device_, bytes, memory);
}

char* Copies::buffer(uint32_t which, size_t bytes) {
  char*& memory = memory_.at(which);
  if (bytes_[which] >= bytes) return memory;
  const On on(device_);
  const NotCaptured mode;
  void* larger = take_spare(-1, bytes);
  if (!larger) check(cudaHostAlloc(&larger, bytes, cudaHostAllocDefault), "allocating pinned memory");
  give_spare(-1, bytes_[which], memory);
  memory = static_cast<char*>(larger);
  bytes_[which] = bytes;
  return memory;
}

char* Copies::scratch(uint32_t which, size_t bytes) {
  char*& memory = scratch_.at(which);
  size_t& had = scratch_bytes_[which];
  if (had >= bytes) return memory;
  const On on(device_);
  const NotCaptured mode;
  size_t ample = std::max(bytes, had + had / 2);  // so that what is outgrown stays little
  if (memory) outgrown_.emplace_back(std::exchange(memory, nullptr), had);
  had = 0;
  void* larger = take_spare(device_, ample);
  if (larger || cudaMalloc(&larger, ample) == cudaSuccess) {
    had = ample;
  } else {
    static_cast<void>(cudaGetLastError());
    free_outgrown();
    check(cudaMalloc(&larger, bytes), "allocating device memory");
    had = bytes;
  }
  return memory = static_cast<char*>(larger);
}

void Copies::free_outgrown() noexcept {
  for (const auto& [memory, bytes] : std::exchange(outgrown_, {})) static_cast<void>(cudaFree(memory));
  const std::scoped_lock lock(mutex);
  std::erase_if(spares,
                [&](const Spare& one) { return one.device == device_ && cudaFree(one.data) == cudaSuccess; });
}

void Copies::follow(Way way, const Event& event) {
  const On on(device_);
  event.hold(streams_[static_cast<uint32_t>(way)]);
}

std::shared_ptr<Event> Copies::copy(Way way, const std::vector<Copy>& copies) {
  const On on(device_);
  const NotCaptured mode;
  const auto index = static_cast<uint32_t>(way);
  for (const auto& [to, from, bytes] : copies)
    if (bytes)
      check(cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes,
                            cudaMemcpyDefault, streams_[index]),
            "copying to or from the device");
  auto event = std::make_shared<Event>();
  event->record(streams_[index]);
  return event;
}

void copy_on(cudaStream_t stream, const std::vector<Copy>& copies) {
  for (const auto& [to, from, bytes] : copies)
    if (bytes && to != from)
      check(cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes,
                            cudaMemcpyDefault, stream),
            "copying on the device");
}

std::shared_ptr<Event> record_on(int device, cudaStream_t stream) {
  const On on(device);  // the handles of the default streams mean those of the current one
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking for a capture");
  if (status != cudaStreamCaptureStatusNone)
    throw Error(ErrorKind::unsupported,
                "a call between hosts cannot be captured: the host moves its data, and waits for the stream");
  auto event = std::make_shared<Event>();
  event->record(stream);
  return event;
}

}  // namespace pc::cuda
