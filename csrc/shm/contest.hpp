// Which of two ways has taken less time lately? Both are tried in the first calls and again now and then, since data that are
// rewritten before each call, other cores, or other programs change the answer. Every rank counts the same calls, so all try
// the same way at a time; what each concludes concerns only how it sends.
//
//     calls    1 1 1 1 1 1 2 2 2 2 2 2 x x x x x x x ...    x: the second way if it has been a fifth faster
//     timed      . . . . .   . . . . .                      not the first of its way: the other one has left the caches to it
//
// A fifth, because what the second way costs the caller afterwards is not seen here: lines that a peer has read in an array
// have to be taken back when the array is written.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace pc {

class Contest {
 public:
  // The way of the next call: the first (false) or the second one.
  bool next() {
    turn_ = calls_++;
    if (turn_ == 2 * kTrials) second_is_faster_ = 5 * typical(took_[1]) < 4 * typical(took_[0]);
    if (calls_ == until_) {
      calls_ = 0;
      until_ = std::min(4 * until_, kLongest);
    }
    return turn_ < 2 * kTrials ? turn_ >= kTrials : second_is_faster_;
  }
  // How long it took.
  void note(uint64_t ticks) {
    if (turn_ < 2 * kTrials) took_[turn_ / kTrials][turn_ % kTrials] = ticks;
  }

 private:
  static constexpr uint32_t kTrials = 6;  // of each way
  // Calls from one trial to the next: the first calls of a program are often unlike the others.
  static constexpr uint32_t kShortest = 32, kLongest = 512;
  using Times = std::array<uint64_t, kTrials>;

  static uint64_t typical(Times times) {  // few were disturbed
    std::sort(times.begin() + 1, times.end());
    return times[1 + (kTrials - 1) / 2];
  }

  std::array<Times, 2> took_{};
  uint32_t calls_ = 0, turn_ = 0, until_ = kShortest;
  bool second_is_faster_ = false;
};

}  // namespace pc
