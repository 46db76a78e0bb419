// Polite waiting: spin briefly, yield, then sleep on the own doorbell until a peer rings.
//
// The sleeper counts itself in `asleep`, then looks at the flags once more; the waker stores its flag, then looks
// at `asleep`. One of the two must see the other's store. The waker is the hot path, so it has no fence: the
// sleeper's membarrier() makes every running thread of the registered processes order its accesses. Where the
// kernel has no membarrier, sleeps are short.
//
// Several threads of a rank may sleep at once (a collective and some receives): one ring wakes all, and each looks
// whether it was meant. A thread that does another one's work (messages.cpp) rings the doorbell of its own rank.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/chaos.hpp"
#include "shm/layout.hpp"

namespace pc {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint64_t now_ns();  // steady clock, the same for all processes of the host

// The processor's own steady counter, the same for all cores: some nanoseconds cheaper than the clock.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#else
  return now_ns();
#endif
}

// The same, after everything before it and before everything after it.
inline uint64_t ordered_ticks() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
  const uint64_t value = ticks();
  __builtin_ia32_lfence();
  return value;
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
  const uint64_t value = ticks();
  asm volatile("isb" ::: "memory");
  return value;
#else
  return ticks();
#endif
}
uint64_t ticks_to_ns(uint64_t ticks);  // on the scale of now_ns()

// Registers this process for membarrier; false where it is not available.
bool register_membarrier();

void wake(Control& control);  // out of line: rings the doorbell of a rank that sleeps

inline void ring(Control& control) {
  if (control.asleep.load(std::memory_order_relaxed)) [[unlikely]]
    wake(control);
}

struct Patience {
  uint32_t spins = 2000;  // short: a peer that runs answers within microseconds
  uint32_t yields = 200;  // gives the core to a peer that shares it
  bool membarrier = false;
  uint32_t nap_us = 50'000;  // the longest; short where somebody has to look after the network
  bool crowded = false;      // ranks share cores
};

// One wait of one rank. `pause` is called each time nothing could be done; it returns true when it has slept,
// that is when there is time to look after the peers.
class Waiter {
 public:
  Waiter(Control& own, const Patience& patience) : own_(own), patience_(patience) {}
  ~Waiter() { disarm(); }
  Waiter(const Waiter&) = delete;

  // Will the next `pause` sleep? Whatever may end the wait must be looked at before.
  bool armed() const { return armed_; }

  bool pause() {
    chaos();
    const uint32_t turn = turns_++;
    if (turn < patience_.spins) {
      cpu_relax();
      return false;
    }
    return pause_longer(turn);
  }

  // Does the next `pause` give the core away for a moment?
  bool yields() const { return turns_ >= patience_.spins && turns_ < patience_.spins + patience_.yields; }

  // The next pause gives the core away: who is waited for needs it.
  void give_way() { turns_ = std::max(turns_, patience_.spins); }

  void progress() {
    turns_ = 0;
    if (armed_) [[unlikely]]
      disarm();
  }

 private:
  bool pause_longer(uint32_t turn);
  void disarm();

  Control& own_;
  const Patience& patience_;
  uint32_t turns_ = 0, seen_ = 0, naps_ = 0;
  bool armed_ = false;
};

}  // namespace pc
