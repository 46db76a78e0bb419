// What each rank tells the others of its trials (contest.hpp): one line per contest, written by its owner.
//
//     writer   sequence = 0, fence, times, sequence = number of the last trial's call (release)
//     reader   sequence (acquire), times, fence, sequence again
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "shm/contest.hpp"

namespace pc {

struct alignas(64) TrialTimes {
  std::atomic<uint64_t> sequence;  // 0: none, or being written
  std::atomic<uint64_t> took[7];   // ticks, by way
};
static_assert(kWays <= 7 && sizeof(TrialTimes) == 64);

// Those of the last contests: as many as may end in one step of a program, so that none is lost before it is heard.
struct TrialBoard {
  static constexpr uint32_t kLines = 64;
  TrialTimes lines[kLines];

  void tell(uint64_t sequence, const Contest::Times& times) {
    TrialTimes& line = lines[sequence % kLines];
    line.sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (size_t way = 0; way < kWays; ++way) line.took[way].store(times[way], std::memory_order_relaxed);
    line.sequence.store(sequence, std::memory_order_release);
  }

  // Adds what was told of the contest whose last trial was this call; nothing if that is not known, or no longer.
  void add_to(Contest::Times& sum, uint64_t sequence) const {
    const TrialTimes& line = lines[sequence % kLines];
    if (line.sequence.load(std::memory_order_acquire) != sequence) return;
    Contest::Times told;
    for (size_t way = 0; way < kWays; ++way) told[way] = line.took[way].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (line.sequence.load(std::memory_order_relaxed) != sequence) return;
    for (size_t way = 0; way < kWays; ++way) sum[way] += told[way];
  }
};

}  // namespace pc
