// Messages that grow while they are read (Header::written): where one rank only writes and another only reads, they do so at the
// same time.
//
//     writer   | block 0 | block 1 | block 2 | block 3 |
//     reader             | block 0 | block 1 | block 2 | block 3 |
#include <algorithm>

#include "core/chaos.hpp"
#include "core/stream_copy.hpp"
#include "shm/executor.hpp"

namespace pc {

bool Executor::grows(const Instruction& in, const Message& message) const {
  return prepared_->grows && message.carrier == Carrier::slot && in.nrefs == 1 &&
         message.bytes >= 2 * kGrowth && !group_.mirror();
}

bool Executor::is_complete(const Lane& lane, const Instruction& in, const Header& header) const {
  const uint32_t part = lane.channel * flow_->slices + lane.slice;
  return !header.grows() || header.written().load(std::memory_order_acquire) ==
                                part_of(prepared_->plan->refs[in.shape], part).length;
}

// The message is told of before there is anything in it.
void Executor::send_growing(const Lane& lane, const Instruction& in, uint32_t part, Message& message) {
  const Connection& connection = lane.connections[in.connection];
  const int32_t* peers = prepared_->plan->peers.data() + connection.first;
  const uint64_t length = part_of(prepared_->plan->refs[in.shape], part).length;
  const uint64_t step = std::max<uint64_t>(kGrowth / prepared_->wide_element / kLine, 1) * kLine;
  message.region = Header::kGrows >> 2;
  publish(lane, in, message);
  for (uint64_t begin = 0; begin < length; begin += step) {
    const uint64_t end = std::min(begin + step, length);
    combine(lane, in, part, message, begin, end);
    if (streamed_) stream_fence();
    streamed_ = false;
    chaos();
    for (uint32_t k = 0; k < connection.npeers; ++k) {
      const auto peer = static_cast<size_t>(peers[k]);
      group_.header(rank_, peers[k], lane.id, sent_[peer][lane.id]).written().store(end, kPublish);
      if (end == length) ring(group_.control(peers[k]));
    }
    if (call_->probe && call_->probe->fault) [[unlikely]]
      call_->probe->fault->step();
  }
}

// An instruction of which some message is not complete: the elements that all of them have by now, if any. Only where they are
// just stored: who sends them on would have to let its own message grow.
bool Executor::follow(Lane& lane, const Instruction& in) {
  if (in.connection >= 0 || in.nrefs != 1) return false;
  const Plan& plan = *prepared_->plan;
  const Operand* operands = plan.operands.data() + in.operand;
  uint64_t end = UINT64_MAX;
  for (uint32_t k = 0; k < in.noperands; ++k) {
    const int32_t peer = operands[k].peer;
    if (peer < 0) continue;
    const Header* header = next_arrived(lane, peer);
    if (!header) return false;
    if (is_elsewhere(peer, *header)) return false;
    if (header->grows()) end = std::min(end, header->written().load(std::memory_order_acquire));
  }
  if (end <= lane.taken || (in.flags & Instruction::first_output && !agreed())) return false;
  combine(lane, in, lane.channel * flow_->slices + lane.slice, Message{}, lane.taken, end);
  lane.taken = end;
  return true;
}

}  // namespace pc
