#include "shm/own_core.hpp"

#include <sched.h>

#include <algorithm>
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
  if (now - last_ < rest_) return;
  const int before = core_;
  tell(group);
  if (core_ != before) return;  // the kernel has moved it meanwhile
  rest_ = now - last_ > kLongest ? kShortest : std::min(2 * rest_, kLongest);
  last_ = now;
  cpu_set_t allowed, there;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&there);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || core == core_) continue;
    bool taken = false;
    for (int peer = 0; peer < group.size() && !taken; ++peer)
      taken = !group.remote(peer) && group.control(peer).core.load(std::memory_order_relaxed) == core;
    if (!taken) CPU_SET(core, &there);
  }
  if (CPU_COUNT(&there) == 0 || sched_setaffinity(0, sizeof there, &there) != 0) return;
  while (sched_setaffinity(0, sizeof allowed, &allowed) != 0 && errno == EINTR) {
  }
  tell(group);
}

}  // namespace pc
