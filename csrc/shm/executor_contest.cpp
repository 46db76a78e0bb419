// The ways that are tried for the messages and results of a kind of call (contest.hpp), and what all ranks say they took.
#include <type_traits>

#include "shm/executor.hpp"

namespace pc {

// The same on all ranks.
Ways Executor::open_ways() const {
  const bool plain = stores_.chooses() && prepared_->slot_bytes >= kContested && !group_.mirror();
  Ways open;
  if (plain && !prepared_->long_data) open.add(Way::plain_stores);
  if (prepared_->may_stream_output) open.add(Way::streamed_results);
  if (plain && prepared_->may_stream_output) open.add(Way::plain_streamed);
  if (prepared_->single_copy != SIZE_MAX) open.add(Way::single_copy);
  return open;
}

// Chooses how this rank writes its longer messages and results. nullptr: there is one way only.
Contest* Executor::begin_contest(const Call& call) {
  way_ = Way::as_usual;
  has_streamed_ = false;
  stream_results_ = prepared_->stream_output;
  if (size_ == 1 || prepared_->brief) return nullptr;
  const Ways open = open_ways();
  if (open.empty()) return nullptr;
  begun_ = ticks();
  const bool symmetric = all_symmetric(call);
  Contest& contest = prepared_->ways[symmetric];
  if (contest.due()) contest.decide(times_of_all(contest, prepared_->tried[symmetric]));
  way_ = contest.next(open);
  if (way_ == Way::single_copy && !own_arrays_readable(call)) way_ = Way::as_usual;
  stream_results_ |= way_ == Way::streamed_results || way_ == Way::plain_streamed;
  return &contest;
}

void Executor::tell_times(const Contest& contest) {
  static_assert(kWays <= std::extent_v<decltype(TrialTimes::took)>);
  TrialTimes& told = group_.control(rank_).trials[call_->sequence % kTold];
  const Contest::Times times = contest.times();
  told.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t way = 0; way < kWays; ++way) told.took[way].store(times[way], std::memory_order_relaxed);
  told.sequence.store(call_->sequence, std::memory_order_release);
  prepared_->tried[&contest == &prepared_->ways[1]] = call_->sequence;
}

// With what the other ranks of this host have told of the same trial. One that has not got so far, or has told of others since,
// is left out.
Contest::Times Executor::times_of_all(const Contest& contest, uint64_t sequence) const {
  Contest::Times sum = contest.times();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || group_.remote(peer)) continue;
    const TrialTimes& told = group_.control(peer).trials[sequence % kTold];
    if (told.sequence.load(std::memory_order_acquire) != sequence) continue;
    for (size_t way = 0; way < kWays; ++way) sum[way] += told.took[way].load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace pc
