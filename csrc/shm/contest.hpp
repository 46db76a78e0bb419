// Which of two ways has taken less time lately? Both are tried in the first calls and again now and then, since data that are
// rewritten before each call, other cores, or other programs change the answer. Every rank counts the same calls, so all try
// the same way at a time; what each concludes concerns only how it sends.
//
//     calls    1 1 1 1 1 1 2 2 2 2 2 2 x x x x x x x ...    x: the second way if it has been a fifth faster
//     timed      . . . . .   . . . . .                      not the first of its way: the other one has left the caches to it
//
// A fifth, because what the second way costs the caller afterwards is not seen here: lines that a peer has read in an array
// have to be taken back when the array is written. Data that no cache holds until then (`long_data`) cost nothing more, and
// their calls are long themselves: a twentieth is enough, and three calls of each way.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace pc {

class Contest {
 public:
  explicit Contest(bool long_data = false) : trials_(long_data ? 3 : kMostTrials), part_(long_data ? 20 : 5) {
    for (Times& times : took_) times.fill(UINT64_MAX);
  }

  // The way of the next call: the first (false) or the second one.
  bool next() {
    turn_ = calls_++;
    if (turn_ == 2 * trials_) second_is_faster_ = part_ * typical(1) < (part_ - 1) * typical(0);
    if (calls_ == until_) {
      calls_ = 0;
      until_ = std::min(4 * until_, kLongest);
    }
    return turn_ < 2 * trials_ ? turn_ >= trials_ : second_is_faster_;
  }
  // How long it took.
  void note(uint64_t ticks) {
    if (turn_ < 2 * trials_) took_[turn_ / trials_][turn_ % trials_] = ticks;
  }

 private:
  static constexpr uint32_t kMostTrials = 6;  // of each way
  // Calls from one trial to the next: the first calls of a program are often unlike the others.
  static constexpr uint32_t kShortest = 32, kLongest = 512;

  using Times = std::array<uint64_t, kMostTrials>;

  uint64_t typical(size_t way) const {  // few were disturbed
    Times times = took_[way];
    std::sort(times.begin() + 1, times.end());  // what was not taken is the last
    return times[1 + (trials_ - 2) / 2];
  }

  uint32_t trials_, part_;
  std::array<Times, 2> took_;
  uint32_t calls_ = 0, turn_ = 0, until_ = kShortest;
  bool second_is_faster_ = false;
};

}  // namespace pc
