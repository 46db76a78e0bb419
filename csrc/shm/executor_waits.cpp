// A rank that can make no step: whom it waits for, what it looks after meanwhile, what it says of a long wait.
#include <string>

#include "shm/executor.hpp"

namespace pc {

// Is a rank waited for whose message cannot come while this one keeps the core?
bool Executor::waits_for_own_core() const {
  for (int peer = 0; peer < size_; ++peer)  // whatever it waits for: these have not even begun
    if (peer != rank_ && core_.shared_with(group_, peer) &&
        group_.record(peer, call_->sequence).sequence.load(std::memory_order_relaxed) < call_->sequence)
      return true;
  for (uint32_t i = 0; i < nlanes_; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.done) continue;
    const Instruction& in = lane.program[lane.pc];
    const Operand* operands = prepared_->plan->operands.data() + in.operand;
    for (uint32_t k = lane.arrived; k < in.noperands; ++k) {
      const int32_t peer = operands[k].peer;
      if (peer < 0 || !core_.shared_with(group_, peer)) continue;
      const uint64_t number = received_[static_cast<size_t>(peer)][lane.id] + 1;
      const Header& header = group_.header(peer, rank_, lane.id, number);
      if (header.flag.load(std::memory_order_acquire) != number || !is_complete(lane, in, header))
        return true;
    }
    if (lane.arrived < in.noperands || in.connection < 0) continue;
    const Connection& connection = lane.connections[in.connection];  // headers are not free, or slots
    for (uint32_t k = 0; k < connection.npeers; ++k) {
      const int32_t peer = prepared_->plan->peers[connection.first + k];
      const auto p = static_cast<size_t>(peer);
      if (core_.shared_with(group_, peer) &&
          group_.ack(peer, rank_, lane.id).load(std::memory_order_relaxed) < sent_[p][lane.id])
        return true;
    }
  }
  return false;
}

// Whom the first lane that is not done waits for.
int Executor::awaited() {
  for (uint32_t i = 0; i < nlanes_; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.done) continue;
    const Instruction& in = lane.program[lane.pc];
    if (lane.arrived < in.noperands) return prepared_->plan->operands[in.operand + lane.arrived].peer;
    if (in.connection >= 0 && !writable(lane, static_cast<uint32_t>(in.connection))) return blocking_;
    return agreed_ < size_ ? agreed_ : -1;
  }
  return -1;
}

// Made while waiting, some twenty times a second or more seldom.
void Executor::look_after_peers(int awaited) {
  const uint64_t now = now_ns();
  if (waiting_since_ == 0) {
    waiting_since_ = looked_ = now;
    warning_due_ = warn_after_ns_;
  }
  if (now - looked_ > kLongestNap)  // this process was stopped, perhaps with all others: that does not count
    waiting_since_ += now - looked_;
  looked_ = now;
  const uint64_t waited = now - waiting_since_;
  group_.control(rank_).awaits.store(call_->sequence << 16 | static_cast<uint64_t>(awaited + 1),
                                     std::memory_order_relaxed);
  group_.check_peers(call_->sequence, waited);
  if (waited > call_->timeout_ns) {
    const Group::Awaited whom = group_.awaited(call_->sequence);
    throw Error(ErrorKind::timeout,
                group_.own_call(call_->sequence) + " timed out after " + in_seconds(call_->timeout_ns) +
                    ", waiting for " + whom.text,
                whom.first);
  }
  if (!call_->interruptible) return;
  if (waited > warning_due_ && warning_due_) say_who_is_awaited(waited);
  if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
}

void Executor::say_who_is_awaited(uint64_t waited) {
  std::string text;
  if (!group_.waits_below(call_->sequence))  // one rank speaks for all
    text = "rank " + std::to_string(rank_) + " waits in " + group_.own_call(call_->sequence) + " for " +
           in_seconds(waited) + ": for " + group_.awaited(call_->sequence).text;
  warn(waited, warning_due_, text);
}

void Executor::warn(uint64_t waited_ns, uint64_t& due_ns, const std::string& text) {
  if (!due_ns || waited_ns < due_ns) return;
  while (due_ns <= waited_ns) due_ns *= 2;
  if (warn_ && !text.empty() && !warn_(text)) throw Error(ErrorKind::interrupted, "interrupted");
}

}  // namespace pc
