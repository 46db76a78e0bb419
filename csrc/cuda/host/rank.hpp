// One rank's end of a device communicator: its segment, those of its peers, and the launch of calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/host/device_plan.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/kernels/kernels.hpp"

namespace pc::cuda {

class Rank;

// A call with everything that its arguments decide, but for the addresses. Belongs to one Rank.
struct PreparedCall {
  std::shared_ptr<const Plan> plan;
  CallOptions options;
  DevicePlan layout;
  Kernel kernel;
  DeviceMemory tables;
};

class Rank {
 public:
  // `name`: the same on all ranks, and of this communicator only.
  Rank(const std::string& name, int rank, int device, const SegmentOptions& options);
  ~Rank();
  Rank(const Rank&) = delete;

  // What peers need to reach this rank's segment.
  std::string handle() const;
  void attach(int peer, const std::string& handle);
  void open();  // all peers are attached

  // Throws Error(unsupported, device).
  std::shared_ptr<PreparedCall> prepare(std::shared_ptr<const Plan> plan, const Extent& extent,
                                        const CallOptions& options);

  // Stream-ordered: returns when the call is queued on `stream` (null: the rank's own). Throws Error; that of an earlier call, too.
  void launch(const PreparedCall& call, const void* in, void* out, cudaStream_t stream);
  void synchronize();  // waits for the rank's own stream, and raises what its calls found
  void abort();        // from any thread: kernels that wait end, of all ranks
  bool done();

  const Segment& segment() const { return segment_; }
  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }

 private:
  void raise_failure();
  void reserve(DeviceMemory& memory, size_t bytes);

  const int rank_, size_, device_;
  Segment segment_;
  DeviceMemory memory_, table_, work_, scratch_;
  std::vector<DeviceMemory> retired_;  // that calls on their way, and captured graphs, still use
  std::vector<char*> segments_;
  std::vector<void*> opened_;  // through IPC
  Status* status_ = nullptr;   // host memory that the device sees
  cudaStream_t stream_ = nullptr, last_stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  bool open_ = false;
};

}  // namespace pc::cuda
