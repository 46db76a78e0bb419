// Which of several ways has taken the least time lately? All are tried in the first calls and again now and then, since data
// that are rewritten before each call, other cores, or other programs change the answer. Every rank counts the same calls, so
// all try the same way at a time; what each concludes concerns only how it sends.
//
//     calls    0 0 0 0 0 0 1 1 1 1 1 1 2 2 2 2 2 2 x x x x x x x ...    x: another way than 0 if it has been faster by so much
//     timed      . . . . .   . . . . .   . . . . .                      not the first of its way: the last one has left the
//                                                                       caches to it
//
//     0   as_usual       through slots, written as the reader's distance suggests
//     1   plain_stores   through slots, written by ordinary stores       faster by a twentieth, where as_usual has streamed
//     2   single_copy    read in the sender's own memory                 faster by a fifth
//
// A fifth, because what single copy costs the caller afterwards is not seen here: lines that a peer has read in an array have to
// be taken back when the array is written. Data that no cache holds until then (`long_data`) cost nothing more, and their calls
// are long themselves: a twentieth is enough, three calls of each way, and the next trial later. They are tried in turns, since
// the first calls of a program bring the data nearer one by one. Plain stores are not tried.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace pc {

enum class Way : uint8_t { as_usual, plain_stores, single_copy };
inline constexpr size_t kWays = 3;

class Contest {
 public:
  explicit Contest(bool long_data = false)
      : long_data_(long_data),
        trials_(long_data ? 3 : kMostTrials),
        part_{0, 20, long_data ? 20u : 5u},
        until_(long_data ? 2 * kShortest : kShortest) {}

  // The way of the next call, among those that are open: the same in all calls.
  Way next(bool plain_stores, bool single_copy) {
    turn_ = calls_++;
    if (turn_ == 0) begin(plain_stores, single_copy);
    if (turn_ == trials_ * open_) decide();
    if (calls_ == until_) {
      calls_ = 0;
      until_ = std::min(4 * until_, kLongest);
    }
    if (!tries()) return best_;
    return hopeless() ? Way::as_usual : ways_[entrant()];
  }
  // How long it took; whether messages were streamed.
  void note(uint64_t ticks, bool streamed) {
    if (!tries() || hopeless()) return;
    took_[entrant()][trial()] = ticks;
    streamed_ |= streamed;
  }

 private:
  static constexpr uint32_t kMostTrials = 6;  // of each way
  // Calls from one trial to the next: the first calls of a program are often unlike the others.
  static constexpr uint32_t kShortest = 64, kLongest = 1024;
  using Times = std::array<uint64_t, kMostTrials>;

  bool tries() const { return turn_ < trials_ * open_; }
  uint32_t entrant() const { return long_data_ ? turn_ % open_ : turn_ / trials_; }
  uint32_t trial() const { return long_data_ ? turn_ / open_ : turn_ % trials_; }

  void begin(bool plain_stores, bool single_copy) {
    open_ = 1;
    if (plain_stores && !long_data_) ways_[open_++] = Way::plain_stores;
    if (single_copy) ways_[open_++] = Way::single_copy;
    for (Times& times : took_) times.fill(UINT64_MAX);
    streamed_ = false;
  }

  // Two calls were enough to see that this way is the wrong one.
  bool hopeless() const {
    if (entrant() == 0 || trial() < 2) return false;
    const Times& times = took_[entrant()];
    return std::min(times[0], times[1]) / 2 > typical(0);
  }

  void decide() {
    best_ = Way::as_usual;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 1; i < open_; ++i) {
      const uint64_t part = part_[static_cast<size_t>(ways_[i])], time = typical(i);
      if (ways_[i] == Way::plain_stores && !streamed_) continue;
      if (time / (part - 1) >= typical(0) / part || time >= least) continue;
      least = time;
      best_ = ways_[i];
    }
  }

  uint64_t typical(uint32_t i) const {  // few were disturbed
    Times times = took_[i];
    std::sort(times.begin() + 1, times.end());  // what was not taken is the last
    return times[1 + (trials_ - 2) / 2];
  }

  bool long_data_;
  uint32_t trials_, part_[kWays], until_;
  std::array<Way, kWays> ways_{};
  std::array<Times, kWays> took_{};
  uint32_t open_ = 1, calls_ = 0, turn_ = 0;
  bool streamed_ = false;
  Way best_ = Way::as_usual;
};

}  // namespace pc
