// The right to execute, as a lock: two atomic instructions where nobody else wants it, naps where somebody
// has it. The wait is rare (a second thread of the rank, or the progress thread) and may be long (a whole
// collective).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace pc {

class BusyLock {
 public:
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }
  void lock() {
    while (!try_lock_for(std::chrono::hours(1))) {
    }
  }

  template <class Rep, class Period>
  bool try_lock_for(std::chrono::duration<Rep, Period> limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (auto nap = std::chrono::microseconds(20); !try_lock();
         nap = std::min(2 * nap, std::chrono::microseconds(2000))) {
      if (std::chrono::steady_clock::now() >= end) return false;
      std::this_thread::sleep_for(nap);
    }
    return true;
  }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace pc
