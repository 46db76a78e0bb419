// One launch for the ranks of one process on one device, where grids of their own could not all be there at once.
//
// Ranks hand in their calls. When all have, the one that came last launches a grid for all of them (kernels/fused.cuh), on a stream of
// the lowest rank that waits for all of theirs; theirs wait for its end. The grid is cooperative: it begins when all its blocks fit.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/host/event.hpp"
#include "cuda/kernels/kernels.hpp"

namespace pc::cuda {

// A rank's part of a launch.
struct HandedIn {
  Kernel kernel;
  uint32_t blocks = 0, threads = 0;
  size_t shared_bytes = 0;  // without the call
  uint64_t fingerprint = 0;
  bool by_user = false;                 // the kernel combines by an operator of the caller's
  std::vector<uint64_t> part;           // as in device memory: a PartHead, and the call
  cudaStream_t stream = nullptr;        // the call's
  std::function<void()> before, after;  // what else the stream does; either may be empty
  std::shared_ptr<Event> arrival;       // the stream as it stands
  std::shared_ptr<Event> over;          // recorded on the stream after all
};

class Fusion {
 public:
  struct Member {
    Status* status = nullptr;
    cudaStream_t stream = nullptr;       // its own
    std::vector<uint64_t*> abort_words;  // of all ranks of the communicator
    std::deque<HandedIn> calls = {};
    uint64_t handed_in = 0, launched = 0;
    bool here = false;
  };

  // That of communicator `name` on a device; `ranks`: all that will join.
  static std::shared_ptr<Fusion> find(const std::string& name, int device, const std::vector<int>& ranks);

  // Throws Error(device).
  void join(int rank, Member member);
  void leave(int rank);

  // Returns the number of the call, from 1 on. Launches it if all others have handed in theirs.
  uint64_t hand_in(int rank, HandedIn call);

  // Waits until a call is launched, so many seconds at most: is it? Throws what ended the launches.
  bool wait(int rank, uint64_t number, double seconds);

  // From any thread: there are no more launches, for `rank` has given up, since it has lost rank `lost` (which may be itself; -1: not
  // for that). When this returns nothing is launched any more that was handed in.
  void abort(int rank, int lost);

 private:
  bool complete() const;
  void launch();
  void deliver(uint64_t* to, const uint64_t* words, size_t count);
  bool agree();
  void launch_grid();
  void give_up(const Error& why);
  void raise_trouble(int rank) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Member> members_;
  std::optional<Error> trouble_;
  StreamMemory parts_;
  std::unique_ptr<Event> end_;
};

}  // namespace pc::cuda
