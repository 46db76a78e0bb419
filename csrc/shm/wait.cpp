#include "shm/wait.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace pc {
namespace {

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

uint64_t ticks_to_ns(uint64_t value) {
  // Two readings of both clocks, the first when the library was loaded, give the rate.
  static const std::pair<uint64_t, uint64_t> first{ticks(), now_ns()};
  uint64_t ticks_now = ticks(), ns_now = now_ns();
  while (ns_now - first.second < 1'000'000) ticks_now = ticks(), ns_now = now_ns();
  const double rate =
      static_cast<double>(ns_now - first.second) / static_cast<double>(ticks_now - first.first);
  return static_cast<uint64_t>(static_cast<double>(ns_now) -
                               static_cast<double>(static_cast<int64_t>(ticks_now - value)) * rate);
}

bool register_membarrier() {
  static const bool available = [] {
    const long commands = membarrier(MEMBARRIER_CMD_QUERY);
    return commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) &&
           membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
  }();
  return available;
}

void wake(Control& control) {
  control.doorbell.fetch_add(1, std::memory_order_release);
  futex(control.doorbell, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr);
}

bool Waiter::pause_longer(uint32_t turn) {
  if (turn < patience_.spins + patience_.yields) {
    sched_yield();
    return false;
  }
  if (!armed_) {  // announce the sleep, then look at everything once more
    seen_ = own_.doorbell.load(std::memory_order_acquire);
    own_.asleep.fetch_add(1, std::memory_order_seq_cst);
    if (patience_.membarrier) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    armed_ = true;
    return false;
  }
  // With membarrier no ring is lost, and a nap only bounds how late a death is noticed.
  const long most = std::min(patience_.membarrier ? 50'000'000L : 2'000'000L, patience_.nap_us * 1000L);
  const timespec nap{0, std::min(most, 1'000'000L << std::min(naps_++, 6u))};
  futex(own_.doorbell, FUTEX_WAIT, seen_, &nap);
  seen_ = own_.doorbell.load(std::memory_order_acquire);
  return true;
}

void Waiter::disarm() {
  if (armed_) own_.asleep.fetch_sub(1, std::memory_order_relaxed);
  armed_ = false;
  naps_ = 0;
}

}  // namespace pc
