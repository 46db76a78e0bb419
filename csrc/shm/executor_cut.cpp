// Single copy of whole blocks (agreed_cut.hpp).
#include "shm/executor.hpp"

namespace pc {

bool Executor::may_be_whole() const { return kAgreement && prepared_->whole.slices && !group_.mirror(); }

// Takes the cut that was agreed on for this call. Rank 0 says how the next one is cut if that is to change.
void Executor::choose_cut(const Contest& contest) {
  whole_ = cuts_.whole(prepared_->fingerprint);
  if (whole_) {
    flow_ = &prepared_->whole;
    way_ = Way::single_copy;
    ++whole_calls_;
  }
  if (rank_ != 0) return;
  const bool wanted = &contest == &prepared_->ways[0] && contest.upcoming() == Way::single_copy &&
                      prepared_->all_point(in_place_) && all_readable();
  if (wanted != whole_) group_.control(0).cuts.say(call_->sequence, prepared_->fingerprint, wanted);
}

// At the end of such a call.
void Executor::hear_of_cut(Waiter& waiter) {
  while (!agreed()) {
    if (waiter.pause() || group_.poisoned()) [[unlikely]]
      look_after_peers(agreed_);
  }
  if (const CutNews::Line* line = group_.control(0).cuts.said_in(call_->sequence)) cuts_.learn(*line);
}

// Can all ranks read the memory of all others? They have tried when they have entered their first call.
bool Executor::all_readable() {
  for (int reader = 0; reader < size_ && !all_readable_; ++reader)
    for (int owner = 0; owner < size_; ++owner)
      if (reader != owner && !group_.can_read(reader, owner)) return false;
  return all_readable_ = true;
}

// Memory for messages that cannot be read in this rank's arrays: few programs ever need it.
void Executor::prepare_to_stage() {
  staged_ = 0;
  if (staging_.size() >= prepared_->staged_bytes || (arrays_readable_ && prepared_->all_point(in_place_)))
    return;
  staging_ = {};
  staging_ = Mapping::alone(prepared_->staged_bytes);
}

// Where such a message is put until the end of the call, when all have been read.
std::byte* Executor::staged(size_t bytes) {
  std::byte* place = staging_.data() + staged_;
  staged_ += round_up(bytes, kLine);
  return place;
}

}  // namespace pc
