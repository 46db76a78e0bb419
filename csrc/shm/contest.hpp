// Which of several ways of a kind of call takes the least time? Data that are rewritten before each call, other cores or other
// programs change the answer, so one way after the other challenges the present one, again and again:
//
//     calls    0 0 0 0 0 0 0 0 c c c 0 - 0 0 ...  gap  ... 0 0 0 d d d 0 - ...    0: the present way   c, d: challengers
//                        . .     . .     |                   . .   . .    |       .: timed, not the first of its way: the
//              <---- gap ----> trials    decision                                    last one has left the caches to it
//
// Every rank counts the same calls, so all try the same way at a time, and each tells the others what it took: a rank that comes
// late in one call is early in the next, so single ranks would conclude this and that (trial_times.hpp). They conclude one call
// later: in calls that wait for all, all have told by then. What each concludes concerns only how it sends, so it needs no proof
// that all have heard the same; but for how calls are cut, see agreed_cut.hpp. Gaps grow, so trials soon cost next to nothing.
//
//     0   as_usual           through slots, written as the reader's distance suggests
//     1   plain_stores       through slots, written by ordinary stores, where as_usual has streamed    faster by a twentieth
//     2   single_copy        read in the sender's own memory                                           faster by a tenth
//     3   streamed_results   as_usual, results written past the caches                                 faster by a tenth
//     4   plain_streamed     the same by plain_stores                                                  faster by a tenth
//
// A kind of call begins with what has mostly been the fastest for such calls; others have to be faster than that by so much.
//
// A tenth for single copy, because what it costs the caller afterwards is not seen here: lines that a peer has read in an array have
// to be taken back when the array is written. But where arrays are written before each call, single copy finds their lines in the
// writer's cache, is slower by itself, and not taken. Data that no cache holds until then (`long_data`) cost nothing more: a
// twentieth is enough. Their calls are long themselves, and those after a trial find other caches, so fewer are tried, and later.
// Only their results are streamed: one that a core's own cache could hold is read there next. A tenth for that, because they come
// from memory then and not from the last level.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pc {

enum class Way : uint8_t { as_usual, plain_stores, single_copy, streamed_results, plain_streamed };

class Ways {  // a set
 public:
  static constexpr size_t kAll = 5;
  void add(Way way) { bits_ |= 1u << static_cast<uint32_t>(way); }
  bool has(Way way) const { return bits_ >> static_cast<uint32_t>(way) & 1; }
  bool empty() const { return bits_ == 0; }

 private:
  uint32_t bits_ = 0;
};

class Contest {
 public:
  struct Times {  // ticks of the present way and of its challenger
    uint64_t present = 0, challenger = 0;
    bool operator==(const Times&) const = default;
  };

  enum class Data { short_data, long_data, very_long_data };

  // `first`: the way of the first calls; as_usual if it is not open.
  explicit Contest(Data data = Data::short_data, Way first = Way::as_usual)
      : long_data_(data != Data::short_data),
        trials_(data == Data::short_data  ? kMostTrials
                : data == Data::long_data ? 4
                                          : 3),
        gap_(data == Data::short_data ? kShortest : 3 * kShortest),
        best_(first) {}

  // Has a challenger been tried since the last decision?
  bool due() const { return calls_ == gap_ + trials_ + 1; }
  // `times`: of all ranks together, see `times()`.
  void decide(const Times& times) {
    if (beats(times)) best_ = challenger();
    ++round_;
    calls_ = 0;
    gap_ = std::min(2 * gap_, (long_data_ ? kLongest : kLongest / 4) / open_);
    for (auto& each : took_) each.fill(kNever);
    streamed_ = false;
  }

  // The way of the next call: the first, as_usual or one of `others`, which are the same in all calls.
  Way next(Ways others) {
    if (open_ == 0) begin(others);
    turn_ = calls_++;
    return tries(turn_) && !hopeless() ? challenger() : best_;
  }
  // That of the call after it, as far as it is known before this one has ended.
  Way upcoming() const { return tries(calls_) && !hopeless() ? challenger() : best_; }

  // How long the call took; whether messages were streamed; its number. True after the last trial.
  bool note(uint64_t ticks, bool streamed, uint64_t sequence) {
    if (turn_ + trials_ < gap_ || turn_ >= gap_ + trials_) return false;
    if (turn_ < gap_ || !hopeless()) took_[turn_ >= gap_][(turn_ + trials_ - gap_) % trials_] = ticks;
    streamed_ |= streamed;
    last_trial_ = sequence;
    return turn_ + 1 == gap_ + trials_;
  }

  uint64_t last_trial() const { return last_trial_; }

  // What a call takes on this rank.
  Times times() const {
    const bool alike = std::min(best_, challenger()) == Way::as_usual &&
                       std::max(best_, challenger()) == Way::plain_stores && !streamed_;
    return {typical(0), typical(alike ? 0 : 1)};
  }

 private:
  // Calls: of a challenger, before the first one, from one time that a way is tried to the next.
  static constexpr uint32_t kMostTrials = 6, kShortest = 8, kLongest = 1024;
  static constexpr uint64_t kNever = UINT64_MAX;

  void begin(Ways others) {
    others.add(Way::as_usual);
    if (!others.has(best_)) best_ = Way::as_usual;
    ways_[open_++] = best_;
    for (Way way :
         {Way::single_copy, Way::plain_stores, Way::streamed_results, Way::plain_streamed, Way::as_usual})
      if (way != best_ && others.has(way)) ways_[open_++] = way;
    for (auto& each : took_) each.fill(kNever);
  }

  bool tries(uint32_t turn) const { return turn >= gap_ && turn < gap_ + trials_; }
  // By turns, whichever the present one is, so that ranks that have concluded otherwise meet again.
  Way challenger() const { return ways_[(round_ + 1) % open_]; }

  // The challenger, by the margin of whichever of the two is not the first.
  bool beats(const Times& times) const {
    const Way first = ways_[0];
    if (challenger() == first) return !faster(times.present, times.challenger, margin(best_));
    return faster(times.challenger, times.present, best_ == first ? margin(challenger()) : 20);
  }
  static bool faster(uint64_t one, uint64_t than, uint64_t part) { return one / (part - 1) < than / part; }
  uint64_t margin(Way way) const {
    const bool costs_later = way == Way::streamed_results || way == Way::plain_streamed ||
                             (way == Way::single_copy && !long_data_);
    return costs_later ? 10 : 20;
  }

  // Two calls were enough to see that the challenger is the wrong one, by far.
  bool hopeless() const {
    const auto& tried = took_[1];
    return turn_ >= gap_ + 2 && std::min(tried[0], tried[1]) / 2 > typical(0);
  }

  uint64_t typical(size_t which) const {
    auto times = took_[which];
    if (times[trials_ - 1] == kNever) return std::min(times[0], times[1]);  // it was hopeless
    if (long_data_) {  // a call that comes late makes up for one that came early
      uint64_t sum = 0;
      for (uint32_t k = trials_ / 2; k < trials_; ++k) sum += times[k];
      return sum / (trials_ - trials_ / 2);
    }
    std::sort(times.begin() + 1, times.end());  // few were disturbed
    return times[1 + (trials_ - 2) / 2];
  }

  bool long_data_;
  uint32_t trials_;  // calls of a challenger
  uint32_t gap_, calls_ = 0, turn_ = 0, round_ = 0, open_ = 0;
  std::array<Way, Ways::kAll> ways_{};                       // that are open; the first one first
  std::array<std::array<uint64_t, kMostTrials>, 2> took_{};  // the present way, its challenger
  uint64_t last_trial_ = 0;
  bool streamed_ = false;
  Way best_;
};

}  // namespace pc
