// The core that a rank is on: told to the others, and left where others have fewer ranks.
//
// The kernel puts a process that is woken near the one that woke it. Ranks that answer each other within microseconds then take
// turns on one core, which looks idle enough to be left like that: a small call takes tens of microseconds instead of
// half of one; three ranks on one core and one on the other need twice the time of two and two. So a rank that waits for one
// that was last on its own core goes to the core with the fewest ranks, if that evens them out:
//
//     rank 0   on core 0, waits for rank 1           -> goes to core 1, may run anywhere again
//     rank 1   on core 0, publishes, waits for rank 0
#pragma once

#include <cstdint>

#include "shm/group.hpp"

namespace pc {

class OwnCore {
 public:
  // Tells the others; at the begin of each call, so it must be cheap.
  void tell(Group& group);

  bool shared_with(const Group& group, int peer) const {
    return !group.remote(peer) && group.control(peer).core.load(std::memory_order_relaxed) == core_;
  }

  // Goes to another core, now and then at most: the kernel may have had a reason. Changes nothing where each core that this
  // thread may use has as many ranks as its own, or one less.
  void leave(Group& group);

 private:
  static constexpr uint64_t kShortest = 1'000'000, kLongest = 1'000'000'000;  // ns between two moves

  int core_ = -1;
  uint64_t next_look_ = 0, moved_ = 0, rest_ = kShortest;
};

}  // namespace pc
