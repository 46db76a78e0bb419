// A ring all-reduce written by hand, for float32 sums: the yardstick for the executor (bench/ring_gate.py),
// and a loop that a student can follow. It uses the same segments, headers and slots, and the last lane,
// which plans rarely need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/group.hpp"

namespace pc {

class ReferenceRing {
 public:
  ReferenceRing(Group& group, const Patience& patience) : group_(group), patience_(patience) {}

  // out = the sum of `in` over all ranks; `count` elements. Throws Error if a peer dies.
  void all_reduce(const float* in, float* out, size_t count);

 private:
  static constexpr uint32_t kLane = kMaxLanes - 1;

  const float* receive(Waiter& waiter);
  void acknowledge();
  float* slot(Waiter& waiter);
  void publish(size_t bytes);

  Group& group_;
  Patience patience_;
  uint64_t sent_ = 0, received_ = 0, call_ = 0;
  size_t slot_bytes_ = 0;
};

}  // namespace pc
