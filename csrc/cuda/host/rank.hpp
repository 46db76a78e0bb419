// One rank's end of a device communicator: its segment, those of its peers, and the launch of calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/host/direct_call.hpp"
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

// The same for a native kernel.
struct PreparedDirect {
  CallOptions options;
  DirectLayout layout;
  Kernel kernel;
  bool overwrites;    // an input is overwritten while peers read it, where it is the output, too
  bool always_stage;  // also what peers can reach: for tests
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
                                        CallOptions options);

  std::shared_ptr<PreparedDirect> prepare_direct(const DirectOptions& direct, const CallOptions& options,
                                                 bool always_stage);

  // Stream-ordered: returns when the call is queued on `stream` (null: the rank's own). Throws Error; that of an earlier call, too.
  void launch(const PreparedCall& call, const void* in, void* out, cudaStream_t stream);
  void launch_direct(const PreparedDirect& call, const void* in, void* out, cudaStream_t stream);
  void synchronize();  // waits for the rank's own stream, and raises what its calls found
  void abort();        // from any thread: kernels that wait end, of all ranks
  bool done();

  const Segment& segment() const { return segment_; }
  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }

 private:
  void raise_failure();
  cudaStream_t begin(cudaStream_t stream);
  void start(const Kernel& kernel, uint32_t blocks, uint32_t threads, const void* call, size_t bytes,
             size_t shared, cudaStream_t stream);
  uint64_t place_of(const void* memory) const;
  void reserve(DeviceMemory& memory, size_t bytes);

  const int rank_, size_, device_;
  Segment segment_;
  DeviceMemory memory_, table_, regions_, work_, scratch_;
  std::vector<DeviceMemory> retired_;  // that calls on their way, and captured graphs, still use
  std::vector<char*> segments_;
  std::vector<void*> opened_;  // through IPC
  Status* status_ = nullptr;   // host memory that the device sees
  cudaStream_t stream_ = nullptr, last_stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
  bool open_ = false, one_process_ = true;
};

}  // namespace pc::cuda
