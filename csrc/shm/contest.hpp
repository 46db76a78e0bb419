// Which of several ways has taken the least time lately? All are tried in the first calls and again now and then, since data
// that are rewritten before each call, other cores, or other programs change the answer. Every rank counts the same calls, so
// all try the same way at a time, and each tells the others what it took: a rank that comes late in one call is early in the
// next, so single ranks would conclude this and that (trial_times.hpp). They conclude one call later: in calls that wait for all,
// all have told by then. What each concludes concerns only how it sends, so it needs no proof that all have heard the same.
//
//     calls    0 0 0 0 0 0 1 1 1 1 1 1 2 2 2 2 2 2 y x x x x x x ...    x: another than the first if it was faster by so much
//     timed      . . . . .   . . . . .   . . . . .                      not the first of its way: the last one has left the
//                                                                       caches to it
//                                                                       y: as before these trials
//
//     0   as_usual           through slots, written as the reader's distance suggests        faster by a twentieth, or the first
//     1   plain_stores       through slots, written by ordinary stores      faster by a twentieth, where as_usual has streamed
//     2   single_copy        read in the sender's own memory                faster by a tenth
//     3   streamed_results   as_usual, results written past the caches      faster by a tenth
//     4   plain_streamed     the same by plain_stores                       faster by a tenth
//
// A tenth, because what single copy costs the caller afterwards is not seen here: lines that a peer has read in an array have to
// be taken back when the array is written. But where arrays are written before each call, single copy finds their lines in the
// writer's cache, is slower by itself, and not taken. Data that no cache holds until then (`long_data`) cost nothing more, and
// their calls are long themselves: a twentieth is enough, five calls of each way, three where they are longer still, and the next
// trial later. The first calls of a program bring the data nearer one by one, so two more of them are not timed. Only their
// results are streamed: one that a core's own cache could hold is read there next. A tenth, because the others come from memory
// then and not from the last level. Plain stores alone are not tried for them. Where ranks have cores of their own, single copy
// is the first for long data: it copies once what comes from memory. In the first trials of a program another way has to be
// faster than that by a quarter: they see data that are far from all cores, where all ways take as long.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace pc {

enum class Way : uint8_t { as_usual, plain_stores, single_copy, streamed_results, plain_streamed };
inline constexpr size_t kWays = 5;

class Ways {  // a set
 public:
  void add(Way way) { bits_ |= 1u << static_cast<uint32_t>(way); }
  bool has(Way way) const { return bits_ >> static_cast<uint32_t>(way) & 1; }
  bool empty() const { return bits_ == 0; }

 private:
  uint32_t bits_ = 0;
};

class Contest {
 public:
  using Times = std::array<uint64_t, kWays>;  // by way; 0: was not open

  enum class Data { short_data, long_data, very_long_data };

  // `first`: the way of the first calls, which another one has to beat; as_usual if it is not open.
  explicit Contest(Data data = Data::short_data, Way first = Way::as_usual)
      : lead_(data == Data::short_data ? 0 : 2),
        trials_(data == Data::short_data  ? kMostTrials
                : data == Data::long_data ? kLongTrials
                                          : kFewTrials),
        part_{20, 20, data == Data::short_data ? 10u : 20u, 10, 10},
        until_(data == Data::short_data ? kShortest : 2 * kShortest),
        longest_(data == Data::short_data ? kLongest / 4 : kLongest),
        first_(first),
        best_(first) {}

  // Have all ways been tried since the last decision?
  bool due() const { return calls_ == end() + 1; }
  // `times`: of all ranks together, see `times()`.
  void decide(const Times& times) {
    best_ = ways_[0];
    const uint64_t first = times[static_cast<size_t>(best_)];
    const bool cold = best_ == Way::single_copy && !std::exchange(decided_, true);
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 1; i < open_; ++i) {
      const auto way = static_cast<size_t>(ways_[i]);
      const uint64_t part = cold ? 4 : part_[way];
      if (times[way] / (part - 1) >= first / part || times[way] >= least) continue;
      least = times[way];
      best_ = ways_[i];
    }
  }

  // The way of the call after the one that `next` was asked for, as far as it is known before that has ended.
  Way upcoming() const {
    if (calls_ == 0) return first_;
    return calls_ < end() ? ways_[entrant(calls_)] : best_;
  }

  // The way of the next call: the first, as_usual or one of `others`, which are the same in all calls.
  Way next(Ways others) {
    turn_ = calls_++;
    if (turn_ == 0) begin(others);
    if (calls_ == until_) {
      calls_ = 0;
      until_ = std::min(4 * until_, longest_);
    }
    if (!tries()) return best_;
    return ways_[hopeless() ? 0 : entrant()];
  }
  // How long it took; whether messages were streamed; the number of the call. True after the last trial.
  bool note(uint64_t ticks, bool streamed, uint64_t sequence) {
    if (!tries()) return false;
    if (turn_ >= lead_ && !hopeless()) {
      took_[entrant()][trial()] = ticks;
      streamed_ |= streamed;
    }
    last_trial_ = sequence;
    return turn_ + 1 == end();
  }

  uint64_t last_trial() const { return last_trial_; }

  // What a call takes on this rank.
  Times times() const {
    Times found{};
    for (uint32_t i = 0; i < open_; ++i) found[static_cast<size_t>(ways_[i])] = typical(i);
    auto& plain = found[static_cast<size_t>(Way::plain_stores)];
    if (plain && !streamed_) plain = found[static_cast<size_t>(Way::as_usual)];  // nothing new
    return found;
  }

 private:
  static constexpr uint32_t kMostTrials = 6, kLongTrials = 5, kFewTrials = 3;  // of each way
  // Calls from one trial to the next: the first calls of a program are often unlike the others, and what it does with short data
  // may change every few milliseconds.
  static constexpr uint32_t kShortest = 64, kLongest = 1024;
  static constexpr uint64_t kNever = UINT64_MAX;

  uint32_t end() const { return lead_ + trials_ * open_; }
  bool tries() const { return turn_ < end(); }
  uint32_t entrant(uint32_t turn) const { return (turn - std::min(turn, lead_)) / trials_; }
  uint32_t entrant() const { return entrant(turn_); }
  uint32_t trial() const { return (turn_ - std::min(turn_, lead_)) % trials_; }

  void begin(Ways others) {
    others.add(Way::as_usual);
    if (!others.has(first_)) first_ = best_ = Way::as_usual;
    ways_[0] = first_;
    open_ = 1;
    for (uint32_t i = 0; i < kWays; ++i)
      if (const auto way = static_cast<Way>(i); way != first_ && others.has(way)) ways_[open_++] = way;
    for (auto& times : took_) times.fill(kNever);
    streamed_ = false;
  }

  // Two calls were enough to see that this way is the wrong one, by far.
  bool hopeless() const {
    if (entrant() == 0 || trial() < 2) return false;
    const auto& times = took_[entrant()];
    return std::min(times[0], times[1]) / 2 > typical(0);
  }

  uint64_t typical(uint32_t i) const {
    auto times = took_[i];
    if (times[trials_ - 1] == kNever) return std::min(times[0], times[1]);  // it was hopeless
    if (trials_ < kMostTrials) {  // a call that comes late makes up for one that came early
      uint64_t sum = 0;
      for (uint32_t k = trials_ / 2; k < trials_; ++k) sum += times[k];
      return sum / (trials_ - trials_ / 2);
    }
    std::sort(times.begin() + 1, times.end());  // few were disturbed; what was not taken is the last
    return times[1 + (trials_ - 2) / 2];
  }

  uint32_t lead_, trials_, part_[kWays], until_, longest_;
  std::array<Way, kWays> ways_{};
  std::array<std::array<uint64_t, kMostTrials>, kWays> took_{};
  uint32_t open_ = 1, calls_ = 0, turn_ = 0;
  uint64_t last_trial_ = 0;
  bool streamed_ = false, decided_ = false;
  Way first_, best_;
};

}  // namespace pc
