#include "shm/own_core.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "shm/wait.hpp"

namespace pc {

void OwnCore::tell(Group& group) {
  core_ = sched_getcpu();
  std::atomic<int32_t>& told = group.control(group.rank()).core;
  if (told.load(std::memory_order_relaxed) != core_) told.store(core_, std::memory_order_relaxed);
}

void OwnCore::leave(Group& group) {
  const uint64_t now = now_ns();
  if (now < next_look_) return;
  next_look_ = now + kShortest;
  const int before = core_;
  tell(group);
  if (core_ != before) return;  // the kernel has moved it meanwhile
  std::array<uint32_t, CPU_SETSIZE> ranks{};
  for (int rank = 0; rank < group.size(); ++rank)
    if (!group.remote(rank))
      ++ranks[static_cast<uint32_t>(group.control(rank).core.load(std::memory_order_relaxed)) % CPU_SETSIZE];
  cpu_set_t allowed, there;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  uint32_t fewest = ranks[static_cast<uint32_t>(core_) % CPU_SETSIZE];
  fewest -= std::min(fewest, 2u);  // more would not even them out
  CPU_ZERO(&there);
  for (uint32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || ranks[core] > fewest) continue;
    if (ranks[core] < fewest) CPU_ZERO(&there);
    fewest = ranks[core];
    CPU_SET(core, &there);
  }
  if (CPU_COUNT(&there) == 0 || sched_setaffinity(0, sizeof there, &there) != 0) return;
  while (sched_setaffinity(0, sizeof allowed, &allowed) != 0 && errno == EINTR) {
  }
  rest_ = now - moved_ > kLongest ? kShortest : std::min(2 * rest_, kLongest);
  moved_ = now;
  next_look_ = now + rest_;
  tell(group);
}

}  // namespace pc
