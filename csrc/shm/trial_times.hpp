// What each rank tells the others of its trials (contest.hpp): one line per contest, written by its owner.
//
//     writer   sequence = 0, fence, times, sequence = number of the last trial's call (release)
//     reader   sequence (acquire), times, fence, sequence again
#pragma once

#include <atomic>
#include <cstdint>

#include "shm/contest.hpp"

namespace pc {

struct alignas(64) TrialTimes {
  std::atomic<uint64_t> sequence;             // 0: none, or being written
  std::atomic<uint64_t> present, challenger;  // ticks
};

// Those of the last contests: as many as may end in one step of a program, so that none is lost before it is heard.
struct TrialBoard {
  static constexpr uint32_t kLines = 64;
  TrialTimes lines[kLines];

  void tell(uint64_t sequence, const Contest::Times& times) {
    TrialTimes& line = lines[sequence % kLines];
    line.sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    line.present.store(times.present, std::memory_order_relaxed);
    line.challenger.store(times.challenger, std::memory_order_relaxed);
    line.sequence.store(sequence, std::memory_order_release);
  }

  // Adds what was told of the contest whose last trial was this call; nothing if that is not known, or no longer.
  void add_to(Contest::Times& sum, uint64_t sequence) const {
    const TrialTimes& line = lines[sequence % kLines];
    if (line.sequence.load(std::memory_order_acquire) != sequence) return;
    const Contest::Times told{line.present.load(std::memory_order_relaxed),
                              line.challenger.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (line.sequence.load(std::memory_order_relaxed) != sequence) return;
    sum.present += told.present;
    sum.challenger += told.challenger;
  }
};

}  // namespace pc
