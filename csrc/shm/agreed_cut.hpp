// How calls are cut in which all ranks wait for all and send alike: into slices for slots, or into whole blocks for single
// copy, which needs no short messages. All ranks have to cut a call alike, and each has to know how when it enters it. So rank
// 0 says in one call how the following ones of the kind are cut, before it enters; the others look when they are through with
// it, since they have seen by then that rank 0 has entered:
//
//     rank 0    says "whole"  enters call 7 ................ enters call 8, whole
//     rank 1                     enters call 7 .... looks ...... enters call 8, whole
//
// Invariant: after a call all ranks have the same table. Rank 0 says one thing at most in a call, in two lines by turns, and
// cannot leave the next such call before all have entered it, which they do after they have looked: no line is written again
// before all have read it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace pc {

// What rank 0 says, in its segment.
struct CutNews {
  struct alignas(64) Line {
    std::atomic<uint64_t> sequence;  // of the call in which it was said; written last
    std::atomic<uint64_t> kind;      // fingerprint
    std::atomic<uint32_t> whole;
  };
  Line lines[2];

  void say(uint64_t sequence, uint64_t kind, bool whole) {
    const bool second =
        lines[0].sequence.load(std::memory_order_relaxed) > lines[1].sequence.load(std::memory_order_relaxed);
    Line& line = lines[second];
    line.kind.store(kind, std::memory_order_relaxed);
    line.whole.store(whole, std::memory_order_relaxed);
    line.sequence.store(sequence, std::memory_order_release);
  }
  // What was said in this call, if anything.
  const Line* said_in(uint64_t sequence) const {
    for (const Line& line : lines)
      if (line.sequence.load(std::memory_order_acquire) == sequence) return &line;
    return nullptr;
  }
};

// What has been agreed on, by kind. A kind that puts another one out of its place does so on all ranks.
class AgreedCuts {
 public:
  bool whole(uint64_t kind) const { return kind && kinds_[kind % kPlaces] == kind; }
  void learn(const CutNews::Line& line) {
    const uint64_t kind = line.kind.load(std::memory_order_relaxed);
    kinds_[kind % kPlaces] = line.whole.load(std::memory_order_relaxed) ? kind : 0;
  }

 private:
  static constexpr size_t kPlaces = 256;
  std::array<uint64_t, kPlaces> kinds_{};
};

}  // namespace pc
