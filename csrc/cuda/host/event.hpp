// When what has been queued on a stream so far is over.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>

#include "cuda/host/on_device.hpp"

namespace pc::cuda {

// It belongs to the device that is the current one when it is made, and is recorded on streams of that one only.
class Event {
 public:
  // `later`: it will be recorded, and is not over before.
  explicit Event(bool later = false) : recorded_(!later) {
    check(cudaGetDevice(&device_), "asking for the current device");
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  void record(cudaStream_t stream) {
    check(cudaEventRecord(event_, stream), "recording an event");
    recorded_.store(true, std::memory_order_release);
  }
  void give_up() { recorded_.store(true, std::memory_order_release); }  // there will be nothing to wait for
  int device() const { return device_; }
  // Also where it cannot come any more, since a kernel has failed: whoever asks next is told why.
  bool done() const {
    if (!recorded_.load(std::memory_order_acquire)) return false;
    const NotCaptured mode;
    return !pending(cudaEventQuery(event_));
  }
  void wait() const { static_cast<void>(cudaEventSynchronize(event_)); }
  void hold(cudaStream_t stream) const {
    check(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event");
  }

  // False if it is not over in time. Throws Error(device) if it cannot come.
  bool wait_for(std::chrono::nanoseconds limit) const {
#ifdef PC_EMULATED
    if (recorded_.load(std::memory_order_acquire)) wait();  // there nothing runs by itself
#endif
    const NotCaptured mode;
    const auto until = std::chrono::steady_clock::now() + limit;
    for (uint32_t turn = 1;; ++turn) {
      if (recorded_.load(std::memory_order_acquire)) {
        const cudaError_t state = cudaEventQuery(event_);
        if (state == cudaSuccess) return true;
        if (!pending(state)) check(state, "waiting for an event");
      }
      if (turn % 64 == 0) sched_yield();
      if (std::chrono::steady_clock::now() > until) return false;
    }
  }

 private:
  // Or refused, since something is being captured.
  static bool pending(cudaError_t state) {
    return state == cudaErrorNotReady || state == cudaErrorStreamCaptureUnsupported ||
           state == cudaErrorCapturedEvent;
  }
  cudaEvent_t event_ = nullptr;
  int device_ = 0;
  std::atomic<bool> recorded_;
};

}  // namespace pc::cuda
