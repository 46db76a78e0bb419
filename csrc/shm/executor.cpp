#include "shm/executor.hpp"

#include <algorithm>

#include "core/chaos.hpp"
#include "core/stream_copy.hpp"

namespace pc {

Executor::Executor(Group& group, Patience patience, Stores stores)
    : group_(group),
      patience_(patience),
      rank_(group.rank()),
      size_(group.size()),
      sent_(static_cast<size_t>(size_)),
      acked_(static_cast<size_t>(size_)),
      received_(static_cast<size_t>(size_)),
      pointed_(static_cast<size_t>(size_), 0),
      sources_(static_cast<size_t>(size_) + 2),
      arrived_(static_cast<size_t>(size_) + 2),
      unsettled_(static_cast<size_t>(size_)),
      stores_(stores, size_) {
  if (size_ > 1) stores_.calibrate(group.pool(rank_), group.pool_bytes());
}

void Executor::reserve(const Prepared& prepared) {
  if (work_.size() < prepared.work_bytes) work_.resize(prepared.work_bytes);
  if (scratch_.size() < prepared.scratch_bytes) scratch_.resize(prepared.scratch_bytes);
  if (prepared.single_copy != SIZE_MAX && size_ > 1)
    fetched_.resize(std::max({fetched_.size(), kFetched + kLine,
                              static_cast<size_t>(size_) * round_up(prepared.wide_element, kLine) + kLine}));
  if (size_ > 1) map_slots(prepared);
  const Plan& plan = *prepared.plan;
  const size_t readers = prepared.flow.slots < kLargeDepth ? std::max<size_t>(1, plan.peers.size()) *
                                                                 prepared.flow.lanes * prepared.flow.slots
                                                           : 0;
  if (slot_reader_.size() < readers) slot_reader_.resize(readers);
  if (slot_turn_.size() < size_t{kMaxLanes} * plan.max_connections)
    slot_turn_.resize(size_t{kMaxLanes} * plan.max_connections);
}

// All slots of such calls at once: page by page the first turn round the ring would take twice as long as the others, and trials
// would see that.
void Executor::map_slots(const Prepared& prepared) {
  const size_t bytes = std::min(prepared.ring_bytes(), group_.pool_bytes());
  if (prepared.flow.slot_bytes < kContested || bytes <= mapped_slots_) return;
  mapped_slots_ = bytes;
  for (int peer = 0; peer < size_; ++peer)
    if (!group_.remote(peer)) map_pages(group_.pool(peer), bytes, peer == rank_);
}

void Executor::add_region(Region region) { regions_.push_back(std::move(region)); }

void Executor::remove_region(uint32_t id) {
  std::erase_if(regions_, [id](const Region& region) { return region.id == id; });
}

void Executor::begin(const Call& call) {
  call_ = &call;
  prepared_ = call.prepared;
  flow_ = &prepared_->flow;
  agreed_ = 0;
  any_pointed_ = false;
  streamed_ = false;
  waiting_since_ = 0;
  fingerprint_ = prepared_->fingerprint + call.sequence * 0x9e3779b97f4a7c15u;
  auto* in = const_cast<std::byte*>(call.in);  // only ever read, unless it is the output too
  base_ = {in, call.out, work_.data(), in, call.out, scratch_.data()};
  const size_t narrow = prepared_->element, wide = prepared_->wide_element;
  unit_ = {narrow, narrow, wide, narrow, narrow, wide};
  if (call.probe && call.probe->trace) [[unlikely]]
    std::fill_n(scratch_.data(), prepared_->scratch_bytes, call.probe->blank);
  core_.tell(group_);
  in_place_ = call.in < call.out + prepared_->out_bytes && call.out < call.in + prepared_->in_bytes;
}

// Tells all that this rank enters the call.
void Executor::announce(const Call& call) {
  if (!group_.recorder(rank_).kinds.fresh(prepared_->kind)) [[unlikely]]
    describe_kind();
  group_.enter(call.sequence, fingerprint_, prepared_->kind, call.site);
  if (group_.mirror()) [[unlikely]] {
    group_.progress_all();
    if (prepared_->plan->waits_for_all && !prepared_->plan->proves_all)
      group_.mirror()->publish_record(call.sequence);
  }
}

// Puts the kind of the call into the recorder.
void Executor::describe_kind() const {
  RecordedKind kind{};
  kind.count = prepared_->count;
  kind.root = prepared_->root;
  kind.verb = prepared_->verb;
  kind.dtype = prepared_->dtype;
  kind.op = prepared_->op;
  kind.deterministic = prepared_->deterministic;
  copy_text(kind.algorithm, prepared_->algorithm_name);
  if (prepared_->user) copy_text(kind.user_op, prepared_->user->code().name);
  prepared_->kind = group_.recorder(rank_).kinds.add(kind);
}

// The messages that this plan will receive from other hosts.
void Executor::listen(const Plan& plan) {
  group_.mirror()->listen_to_none();
  for (uint32_t c = 0; c < plan.channels.size(); ++c) {
    const Instruction* program = plan.instructions.data() + plan.channels[c].instruction;
    for (uint32_t i = 0; i < plan.channels[c].ninstructions; ++i)
      for (uint32_t k = 0; k < program[i].noperands; ++k) {
        const int32_t peer = plan.operands[program[i].operand + k].peer;
        if (peer < 0 || !group_.remote(peer)) continue;
        for (uint32_t lane = 0; lane < flow_->lanes; ++lane)
          group_.mirror()->listen(peer, c * flow_->lanes + lane);
      }
  }
}

// New places for slots: see settled(). The ring of slots goes on where it was left.
void Executor::lay_out_slots() {
  settled_ = false;
  std::copy(sent_.begin(), sent_.end(), unsettled_.begin());
  std::fill(slot_reader_.begin(), slot_reader_.end(), 0);
  const uint32_t turn = slot_turn_.empty() ? 0 : *std::max_element(slot_turn_.begin(), slot_turn_.end());
  const auto next = static_cast<uint32_t>(uint64_t{turn} * flow_->slots / std::max(last_slots_, 1u));
  std::fill(slot_turn_.begin(), slot_turn_.end(), next);
  last_plan_ = prepared_->plan.get();
  last_lanes_ = flow_->lanes;
  last_slots_ = flow_->slots;
  last_slot_bytes_ = flow_->slot_bytes;
  keep_plan_ = prepared_->plan;
}

// Until MPI has taken all that this rank sends: nobody else would move it once the call has returned.
void Executor::hand_over(Waiter& waiter) {
  while (group_.mirror()->sending())
    if (group_.progress())
      waiter.progress();
    else if (waiter.pause() || group_.poisoned()) [[unlikely]]
      look_after_peers(-1);
}

void Executor::run(const Call& call) {
  begin(call);
  Contest* const contest = begin_contest(call);
  announce(call);
  Waiter waiter(group_.control(rank_), patience_);
  try {
    if (group_.poisoned()) [[unlikely]]
      group_.raise_poison(call.sequence);
    const Plan* plan = prepared_->plan.get();
    if (whole_) [[unlikely]] {  // no slots: what was laid out stays
      prepare_to_stage();
    } else if (plan != last_plan_ || flow_->lanes != last_lanes_ || flow_->slots != last_slots_ ||
               flow_->slot_bytes != last_slot_bytes_) {
      if (group_.mirror()) drain(waiter, false);  // MPI receives for the lanes of this plan come next
      if (!prepared_->brief || group_.mirror()) lay_out_slots();
      if (group_.mirror()) listen(*plan);
    }
    nlanes_ = 0;
    for (uint32_t c = 0; c < plan->channels.size(); ++c) {
      const Channel& channel = plan->channels[c];
      if (channel.ninstructions == 0) continue;
      for (uint32_t i = 0; i < std::min(flow_->lanes, flow_->slices); ++i) {
        Lane& lane = lanes_[nlanes_++];
        lane.program = plan->instructions.data() + channel.instruction;
        lane.connections = plan->connections.data() + channel.connection;
        lane.id = c * flow_->lanes + i;
        lane.index = i;
        lane.channel = c;
        lane.length = channel.ninstructions;
        lane.pc = 0;
        lane.slice = i;
        lane.arrived = 0;
        lane.taken = 0;
        lane.done = false;
      }
    }
    work(waiter);
    if (any_pointed_) drain(waiter, true);
    if (group_.mirror()) hand_over(waiter);
    if (streamed_) stream_fence();                        // the caller may hand the output to another thread
    std::atomic_thread_fence(std::memory_order_acquire);  // the look at the poison comes after the last read
    if (group_.poisoned()) [[unlikely]]                   // what was read last may have been changing
      group_.raise_poison(call.sequence);
    if (contest) end_contest(*contest);
    if (contest && may_be_whole()) hear_of_cut(waiter);
    group_.leave(call.sequence, CallState::done);
  } catch (Error& error) {
    error.rank = rank_;
    error.verb = prepared_->verb;
    error.sequence = call.sequence;
    group_.leave(call.sequence, CallState::failed);
    group_.fail(error, call.sequence);
    throw;
  }
}

void Executor::work(Waiter& waiter) {
  for (uint32_t left = nlanes_; left > 0;) {
    bool moved = group_.progress();
    for (uint32_t i = 0; i < nlanes_; ++i) {
      Lane& lane = lanes_[i];
      if (lane.done) continue;
      while (advance(lane)) {
        moved = true;
        if (lane.done) {
          --left;
          break;
        }
        if (nlanes_ > 1 && lane.pc == 0) break;  // a new slice: the other lanes' turn
      }
    }
    if (moved) {
      waiter.progress();
      continue;
    }
    if ((patience_.crowded || waiter.yields()) && waits_for_own_core()) [[unlikely]] {
      core_.leave(group_);
      if (patience_.crowded) waiter.give_way();
    }
    if (waiter.pause() || group_.poisoned()) [[unlikely]]
      look_after_peers(awaited());
  }
}

// Makes one instruction if all it needs is there, or a part of it if messages that grow allow that. Nothing is changed otherwise.
bool Executor::advance(Lane& lane) {
  const Plan& plan = *prepared_->plan;
  const Instruction& in = lane.program[lane.pc];
  const Operand* operands = plan.operands.data() + in.operand;
  for (; lane.arrived < in.noperands; ++lane.arrived) {
    const int32_t peer = operands[lane.arrived].peer;
    if (peer < 0) continue;
    const Header* header = next_arrived(lane, peer);
    if (!header) return false;
    if (!is_complete(lane, in, *header)) return follow(lane, in);
  }
  if (in.connection >= 0 && !writable(lane, static_cast<uint32_t>(in.connection))) return false;
  if (!settled_ && !whole_ && in.connection >= 0 && !prepared_->brief && !settled(lane, in)) [[unlikely]]
    return false;
  if (kAgreement && (in.flags & Instruction::first_output) && !agreed()) return false;
  chaos();
  prepared_->brief ? compute_brief(lane, in) : compute(lane, in);
  if (call_->probe) [[unlikely]]
    observe(lane, in);
  finish(lane);
  return true;
}

// May this lane publish its next message to the connection? Headers and slots are reused when all readers are
// through. Where there are as many slots as headers, a header that is free says that the slot is.
bool Executor::writable(const Lane& lane, uint32_t index) {
  const Connection& connection = lane.connections[index];
  const int32_t* peers = prepared_->plan->peers.data() + connection.first;
  const bool scarce = flow_->slots < kLargeDepth;
  const uint32_t turn = slot_turn_[slot_index(lane, index)];
  for (uint32_t k = 0; k < connection.npeers; ++k) {
    const auto peer = static_cast<size_t>(peers[k]);
    uint64_t needed = 0;
    if (sent_[peer][lane.id] + 1 > depth()) needed = sent_[peer][lane.id] + 1 - depth();
    if (scarce) needed = std::max(needed, slot_reader_[reader_index(lane, connection, k, turn)]);
    if (acked_[peer][lane.id] >= needed) continue;
    acked_[peer][lane.id] = group_.ack(peers[k], rank_, lane.id).load(std::memory_order_acquire);
    if (acked_[peer][lane.id] < needed) {
      blocking_ = peers[k];
      return false;
    }
  }
  return true;
}

// The slots of this call lie elsewhere than those of the one before: the first message that goes into one waits until all
// that was sent before has been read. Readers need nothing of this call for that, so it is no deadlock.
bool Executor::settled(const Lane& lane, const Instruction& in) {
  if (message_bytes(in, lane.channel * flow_->slices + lane.slice) <= kInline) return true;
  for (int peer = 0; peer < size_; ++peer) {
    const auto p = static_cast<size_t>(peer);
    for (uint32_t i = 0; i < kMaxLanes; ++i) {
      if (acked_[p][i] >= unsettled_[p][i]) continue;
      acked_[p][i] = group_.ack(peer, rank_, i).load(std::memory_order_acquire);
      if (acked_[p][i] < unsettled_[p][i]) return false;
    }
  }
  settled_ = true;
  return true;
}

// Before the caller's output changes for the first time: has every rank that is here called the same? Where
// the result depends on all ranks, all are waited for; they publish their record when they enter the call, so
// this is no extra round.
bool Executor::agreed() {
  for (; agreed_ < size_; ++agreed_) {
    if (prepared_->plan->proves_all && group_.remote(agreed_)) continue;
    const Record& theirs = group_.record(agreed_, call_->sequence);
    const uint64_t reached = theirs.sequence.load(std::memory_order_acquire);
    if (reached < call_->sequence) {
      if (prepared_->plan->waits_for_all) return false;
    } else if (reached == call_->sequence &&
               Group::fingerprint_of(theirs, reached).value_or(fingerprint_) != fingerprint_) [[unlikely]] {
      group_.raise_mismatch(call_->sequence);
    }
  }
  return true;
}

// Acknowledges what the instruction consumed and moves on.
void Executor::finish(Lane& lane) {
  const Instruction& in = lane.program[lane.pc];
  const Operand* operands = prepared_->plan->operands.data() + in.operand;
  for (uint32_t k = 0; k < in.noperands; ++k) {
    const int32_t peer = operands[k].peer;
    if (peer < 0) continue;
    chaos();
    group_.ack(rank_, peer, lane.id)
        .store(++received_[static_cast<size_t>(peer)][lane.id], std::memory_order_release);
    ring(group_.control(peer));
  }
  lane.arrived = 0;
  lane.taken = 0;
  if (++lane.pc < lane.length) return;
  lane.pc = 0;
  lane.slice += flow_->lanes;
  lane.done = lane.slice >= flow_->slices;
}

// Waits until peers have consumed what was sent to them: all of it, or only what they read in this rank's own
// buffers.
void Executor::drain(Waiter& waiter, bool pointers_only) {
  for (int peer = 0; peer < size_; ++peer) {
    const auto p = static_cast<size_t>(peer);
    if (pointers_only && !pointed_[p]) continue;
    pointed_[p] = 0;
    for (uint32_t lane = 0; lane < kMaxLanes; ++lane) {
      while (acked_[p][lane] < sent_[p][lane]) {
        acked_[p][lane] = group_.ack(peer, rank_, lane).load(std::memory_order_acquire);
        if (acked_[p][lane] >= sent_[p][lane] || group_.progress())
          waiter.progress();
        else if (waiter.pause() || group_.poisoned()) [[unlikely]]
          look_after_peers(peer);
      }
    }
  }
}

void Executor::observe(const Lane& lane, const Instruction& in) {
  if (call_->probe->fault) call_->probe->fault->step();
  if (!call_->probe->trace) return;
  TraceEvent event{lane.channel, lane.slice, lane.pc, in.step, now_ns(), {}};
  event.state.assign(call_->out, call_->out + prepared_->out_bytes);
  event.state.insert(event.state.end(), scratch_.data(), scratch_.data() + prepared_->scratch_bytes);
  call_->probe->trace->push_back(std::move(event));
}

}  // namespace pc
