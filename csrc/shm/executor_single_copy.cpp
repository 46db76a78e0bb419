// Messages that lie in the sender's own memory: the kernel copies them, straight to their place where they are only to be
// stored, and block by block into memory that stays in the caches where they are operands of a reduction.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "core/stream_copy.hpp"
#include "shm/executor.hpp"
#include "shm/single_copy.hpp"

namespace pc {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(10);
// How long a sender that cannot be read is looked after. One that ends loses its memory first, and is seen to be dead later.
constexpr uint64_t kEnding = 30'000'000'000, kRefusing = 1'000'000'000;  // ns

}  // namespace

// Can all readers of these messages read this rank's memory?
bool Executor::readable(const Connection& connection) const {
  for (uint32_t k = 0; k < connection.npeers; ++k) {
    const int32_t peer = prepared_->plan->peers[connection.first + k];
    if (group_.remote(peer) || !group_.can_read(peer, rank_)) return false;
  }
  return true;
}

// Can the kernel read the arrays of this call for others? Not what is mapped from devices.
bool Executor::own_arrays_readable(const Call& call) const {
  std::byte probe;
  return (!prepared_->in_bytes || read_memory(::getpid(), call.in, &probe, 1) == 0) &&
         (!prepared_->out_bytes || read_memory(::getpid(), call.out, &probe, 1) == 0);
}

// One piece of memory of the sender, who keeps it as it is until the message has been acknowledged.
void Executor::fetch(int peer, const std::byte* there, void* here, size_t bytes) {
  const int error = read_memory(group_.control(peer).pid.load(std::memory_order_relaxed), there, here, bytes);
  std::atomic_thread_fence(
      std::memory_order_acquire);  // who gives a call up says so before its arrays change
  if (group_.poisoned()) group_.raise_poison(call_->sequence);
  if (!error && !group_.died(peer)) return;  // the number of a dead process may be another one's by now
  const uint64_t patience = !error || error == ESRCH || error == EFAULT ? kEnding : kRefusing;
  for (const uint64_t begin = now_ns(); now_ns() - begin < patience;) {
    look_after_peers(peer);
    std::this_thread::sleep_for(kBetweenLooks);
  }
  throw Error(ErrorKind::transport,
              "the memory of rank " + std::to_string(peer) + " cannot be read: " + std::strerror(error) +
                  "; PYCOLLECTIVES_SINGLE_COPY_BYTES=0 avoids this",
              peer);
}

void Executor::combine_single_copy(const Lane& lane, const Instruction& in, uint32_t part,
                                   const Message& message) {
  static constexpr Epilogue nothing{};
  const Plan& plan = *prepared_->plan;
  const Operand* operands = plan.operands.data() + in.operand;
  const Piece piece = part_of(plan.refs[in.shape], part);  // such a message has one chunk
  const Epilogue& epilogue = in.flags & Instruction::final_value ? prepared_->epilogue : nothing;
  const auto size = [this](bool wide) { return size_t{wide ? prepared_->wide_element : prepared_->element}; };
  Sink targets[2];
  int ntargets = 0;
  if (in.store >= 0)
    targets[ntargets++] = {
        address(plan.refs[static_cast<uint32_t>(in.store)], piece.offset),
        (in.flags & Instruction::store_wide) != 0,
        stream_results_ && (in.flags & Instruction::last_use) && message.carrier != Carrier::region};
  if (message.target)
    targets[ntargets++] = {message.target, (in.flags & Instruction::send_wide) != 0, message.stream};

  if (in.noperands == 1 && !operands[0].wide && !targets[0].wide && !targets[ntargets - 1].wide &&
      epilogue.kind == Epilogue::none && !prepared_->is_bool()) {
    const int32_t peer = operands[0].peer;
    const std::byte* from = payload(peer, next_header(lane, peer));
    const size_t bytes = piece.length * prepared_->element, block = ntargets == 1 ? bytes : kFetched;
    for (size_t done = 0; done < bytes; done += block) {
      const size_t now = std::min(block, bytes - done);
      auto* first = static_cast<std::byte*>(targets[0].data) + done;
      fetch(peer, from + done, first, now);
      if (ntargets == 1) continue;
      sources_[0] = {first, false};
      const Sink second{static_cast<std::byte*>(targets[1].data) + done, false, targets[1].stream};
      copy_piece(&second, 1, now, -1);
    }
    return;
  }

  size_t fetched = 0;  // operands
  for (uint32_t k = 0; k < in.noperands; ++k) {
    const int32_t peer = operands[k].peer;
    const bool wide = operands[k].wide != 0;
    arrived_[k] = {peer < 0 ? address(plan.refs[operands[k].refs], piece.offset)
                            : payload(peer, next_header(lane, peer)),
                   wide};
    if (peer >= 0 && is_elsewhere(peer, next_header(lane, peer))) ++fetched;
  }
  const size_t room = std::max(kFetched / fetched / kLine * kLine, round_up(prepared_->wide_element, kLine));
  const uint64_t block = room / prepared_->wide_element;
  for (uint64_t done = 0; done < piece.length; done += block) {
    const uint64_t now = std::min(block, piece.length - done);
    auto* place = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(fetched_.data()), kLine));
    for (uint32_t k = 0; k < in.noperands; ++k) {
      const int32_t peer = operands[k].peer;
      const auto* from = static_cast<const std::byte*>(arrived_[k].data) + done * size(arrived_[k].wide);
      sources_[k] = {from, arrived_[k].wide};
      if (peer < 0 || !is_elsewhere(peer, next_header(lane, peer))) continue;
      fetch(peer, from, place, now * size(arrived_[k].wide));
      sources_[k].data = place;
      place += room;
    }
    Sink sinks[2];
    for (int i = 0; i < ntargets; ++i)
      sinks[i] = {static_cast<std::byte*>(targets[i].data) + done * size(targets[i].wide), targets[i].wide,
                  targets[i].stream};
    fold_piece(static_cast<int>(in.noperands), sinks, ntargets, now, epilogue);
  }
}

}  // namespace pc
