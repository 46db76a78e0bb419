// The state of the calling thread, for a while.
#pragma once

#include "cuda/host/runtime.hpp"

namespace pc::cuda {

// Its device.
class On {
 public:
  explicit On(int device) : device_(device) {
    check(cudaGetDevice(&before_), "asking for the current device");
    if (before_ != device_) check(cudaSetDevice(device_), "choosing the device");
  }
  ~On() {
    if (before_ != device_) static_cast<void>(cudaSetDevice(before_));
  }
  On(const On&) = delete;

 private:
  const int device_;
  int before_ = 0;
};

// While a stream of this thread is being captured, CUDA refuses much that could belong to the capture; nothing of ours does.
class NotCaptured {
 public:
  NotCaptured() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~NotCaptured() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  NotCaptured(const NotCaptured&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace pc::cuda
