#include "cuda/host/copies.hpp"

#include <algorithm>
#include <utility>

#include "cuda/host/on_device.hpp"

namespace pc::cuda {

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
  for (char* memory : memory_)
    if (memory) static_cast<void>(cudaFreeHost(memory));
  free_outgrown();
  for (char* memory : scratch_)
    if (memory) static_cast<void>(cudaFree(memory));
}

char* Copies::buffer(uint32_t which, size_t bytes) {
  char*& memory = memory_.at(which);
  if (bytes_[which] >= bytes) return memory;
  const On on(device_);
  const NotCaptured mode;
  void* larger = nullptr;
  check(cudaHostAlloc(&larger, bytes, cudaHostAllocDefault), "allocating pinned memory");
  if (memory) static_cast<void>(cudaFreeHost(memory));
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
  void* larger = nullptr;
  const size_t ample = std::max(bytes, had + had / 2);  // so that what is outgrown stays little
  if (memory) outgrown_.push_back(std::exchange(memory, nullptr));
  had = 0;
  if (cudaMalloc(&larger, ample) == cudaSuccess) {
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
  for (char* memory : std::exchange(outgrown_, {})) static_cast<void>(cudaFree(memory));
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
