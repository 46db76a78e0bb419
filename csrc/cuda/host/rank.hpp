// One rank's end of a device communicator: its segment, those of its peers, and the launch of calls.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/host/direct_call.hpp"
#include "cuda/host/event.hpp"
#include "cuda/host/fusion.hpp"
#include "cuda/host/host_copies.hpp"
#include "cuda/host/multicast.hpp"
#include "cuda/host/regions.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/host/segment_pool.hpp"
#include "cuda/kernels/kernels.hpp"

namespace pc::cuda {

// A call with everything that its arguments decide, but for the addresses. `tables` belong to the Rank that made it.
struct PreparedCall {
  std::shared_ptr<const Plan> plan;
  CallOptions options;
  DevicePlan layout;
  Kernel kernel;
  const char* tables = nullptr;
};

// The same for a native kernel.
struct PreparedDirect {
  CallOptions options;
  DirectLayout layout;
  Kernel kernel;
  bool overwrites;    // an input is overwritten while peers read it, where it is the output, too
  bool always_stage;  // also what peers can reach: for tests
  bool by_switch;     // kernels/multicast.cuh
};

class Rank {
 public:
  // `name`: the same on all ranks, and of this communicator only. `fused`: one launch for its ranks of this process on this device.
  // `stages_host`: there will be calls on arrays in host memory.
  Rank(const std::string& name, int rank, int device, const SegmentOptions& options, bool fused,
       bool stages_host);
  ~Rank();
  Rank(const Rank&) = delete;

  // What peers need to reach this rank's segment.
  std::string handle() const;
  void attach(int peer, const std::string& handle);
  void open();  // all peers are attached

  // Memory that is reached by a multicast address (multicast.hpp); each step when all ranks have made the one before.
  int make_multicast(size_t bytes);  // by one rank: a descriptor for all
  void join_multicast(int descriptor, size_t bytes);
  void bind_multicast();
  std::shared_ptr<MulticastMemory> take_multicast() { return std::move(new_multicast_); }  // what was made
  size_t multicast_bytes() const { return cuda::multicast_bytes(segment_); }
  // Native kernels go by the switch from now on, and it is there that they copy arrays to which it does not reach; nullptr: no more.
  void use_multicast(std::shared_ptr<MulticastMemory> memory) { multicast_ = std::move(memory); }

  // Throw Error(unsupported, device).
  std::shared_ptr<PreparedCall> prepare(std::shared_ptr<const Plan> plan, const Extent& extent,
                                        CallOptions options);
  // By the switch where it gives the right result, and `any_order` is right.
  std::shared_ptr<PreparedDirect> prepare_direct(const DirectOptions& direct, const CallOptions& options,
                                                 bool always_stage, bool any_order);

  // The kernels of an operator of the caller's, for blocks of so many threads. No kernel may be running that waits for a rank of this
  // process (see drain).
  std::shared_ptr<const UserKernels> load(const std::string& image, const std::string& form,
                                          const UserItem& item, uint32_t threads) const;

  // Stream-ordered: returns when the call is queued on `stream` (null: the rank's own), or handed in where launches are fused: then
  // `settle` must say that it is launched before anything else is queued behind it. Throws Error; that of an earlier call, too.
  void launch(const PreparedCall& call, const void* in, void* out, cudaStream_t stream);
  void launch(const PreparedDirect& call, const void* in, void* out, cudaStream_t stream);

  // Arrays in host memory, through device memory, on the own stream.
  template <class Prepared>
  void launch_staged(const Prepared& call, const void* in, void* out) {
    launch_staged([&](const void* from, void* to) { launch(call, from, to, nullptr); }, in,
                  call.layout.in_bytes, out, call.layout.out_bytes);
  }

  uint64_t handed_in() const { return handed_in_; }  // calls, so far; 0 where launches are not fused
  bool settle(uint64_t call, double seconds);  // waits for its launch on the host; throws what was found

  void follow(cudaStream_t stream);        // the own stream's next call begins when `stream` has come here
  std::shared_ptr<Event> mark();           // of the own stream, or of the last call that was handed in
  void synchronize();                      // waits for the own stream, and raises what its calls found
  void drain();                            // waits for all calls that were made so far, and raises the same
  bool busy() const;                       // is the last call on its way? From any thread
  void check_calls() { raise_failure(); }  // raises it without waiting
  // From any thread: kernels that wait end, of all ranks. `lost`: the rank that is gone, if it is for that; it may be this one.
  void abort(int lost = -1);

  const Segment& segment() const { return segment_; }
  Regions& regions() const { return *regions_; }
  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }  // the own one
  // Is LL128 right on the way to all attached peers? (links.hpp)
  bool keeps_lines_whole() const { return whole_lines_; }

 private:
  void raise_failure();
  cudaStream_t begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  void claim(cudaStream_t stream);
  void give_claims();
  bool is_captured(cudaStream_t stream) const;  // throws Error(unsupported) where launches are fused
  std::shared_ptr<Event> last() const;          // nullptr where nothing was handed in
  void start(const Kernel& kernel, const CallOptions& options, uint32_t blocks, const void* call,
             size_t bytes, size_t shared, cudaStream_t stream);
  void hand_in(const Kernel& kernel, const CallOptions& options, uint32_t blocks, const void* call,
               size_t bytes, size_t shared, cudaStream_t stream);
  void require_room(const Kernel& kernel, uint32_t threads, size_t shared) const;
  uint64_t place_of(const void* memory, uint64_t bytes) const;
  void place_on_switch(DirectCall& call, const PreparedDirect& prepared) const;
  void reserve(StreamMemory& memory, size_t bytes);
  void launch_staged(const std::function<void(const void*, void*)>& call, const void* in, uint64_t in_bytes,
                     void* out, uint64_t out_bytes);
  const char* upload(const void* data, size_t bytes);
  size_t mark_of(int rank) const;

  const std::string name_;
  const int rank_, size_, device_;
  int here_ = 1;  // ranks of this process
  Segment segment_;
  SegmentMemory memory_;
  cudaStream_t stream_ = nullptr, service_ = nullptr;  // for calls, for memory
  StreamMemory work_, scratch_, stage_;
  std::unique_ptr<HostCopies> host_copies_;
  std::shared_ptr<MulticastMemory> multicast_, new_multicast_;
  std::vector<StreamMemory> kept_;  // tables; and what calls on their way, and captured graphs, still use
  std::vector<char*> segments_;
  std::vector<PeerMemory> attached_;
  std::unique_ptr<Regions> regions_;
  const char *table_ = nullptr, *region_table_ = nullptr;
  cudaStream_t last_stream_ = nullptr;
  std::unique_ptr<Event> order_,
      arrival_;  // the end of the last call; where a caller's stream stands
  const bool fused_;
  std::vector<int> fellows_;    // ranks of this process on this device
  std::vector<int> devices_;    // of the ranks of this process
  std::vector<int> elsewhere_;  // ranks of other processes
  std::vector<int> unreached_;  // ranks whose memory could not be opened
  uint32_t on_device_ = 1;      // ranks of any process
  std::shared_ptr<Fusion> fusion_;
  uint64_t handed_in_ = 0;
  mutable std::mutex last_mutex_;
  std::shared_ptr<Event> last_;           // the end of what was handed in last
  bool held_ = true;                      // does the stream of this thread wait for it?
  std::shared_ptr<Event> followed_;       // where the next call begins
  std::function<void()> before_, after_;  // what its stream does besides
  bool open_ = false, direct_ = true, captured_ = false, whole_lines_ = true;
};

}  // namespace pc::cuda
