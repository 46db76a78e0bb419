// The ways that are tried for the messages and results of a kind of call (contest.hpp).
#include "shm/executor.hpp"

namespace pc {

// The same on all ranks.
Ways Executor::open_ways() const {
  const bool plain = stores_.chooses() && flow_->slot_bytes >= kContested && !group_.mirror();
  Ways open;
  if (plain)
    open.add(prepared_->long_data ? Way::plain_streamed : Way::plain_stores);
  else if (prepared_->may_stream_output)
    open.add(Way::streamed_results);
  if (prepared_->single_copy != SIZE_MAX) open.add(Way::single_copy);
  return open;
}

// Chooses how this rank writes its longer messages and results. nullptr: there is one way only.
Contest* Executor::begin_contest(const Call& call) {
  way_ = Way::as_usual;
  has_streamed_ = false;
  stream_results_ = prepared_->stream_output;
  whole_ = false;
  arrays_readable_ = true;
  if (size_ == 1 || prepared_->brief) return nullptr;
  const Ways open = open_ways();
  if (open.empty()) return nullptr;
  begun_ = ticks();
  Contest& contest = prepared_->ways[all_symmetric(call)];
  if (contest.due()) contest.decide(times_of_all(contest));
  way_ = contest.next(open);
  if (may_be_whole()) choose_cut(contest);
  if (way_ == Way::single_copy && !own_arrays_readable(call)) {
    arrays_readable_ = false;
    if (!whole_) way_ = Way::as_usual;
  }
  stream_results_ |= (way_ == Way::streamed_results || way_ == Way::plain_streamed) && prepared_->long_output;
  return &contest;
}

// With what the other ranks of this host have told of the same trials.
Contest::Times Executor::times_of_all(const Contest& contest) const {
  Contest::Times sum = contest.times();
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && !group_.remote(peer)) group_.control(peer).trials.add_to(sum, contest.last_trial());
  return sum;
}

void Executor::end_contest(Contest& contest) {
  if (contest.note(ticks() - begun_, has_streamed_, call_->sequence))
    group_.control(rank_).trials.tell(call_->sequence, contest.times());
}

}  // namespace pc
