#include "shm/executor.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pc {
namespace {

constexpr size_t kSlotSkew = 33 * kLine;
constexpr size_t kSmallCopy = 4096;
constexpr size_t kPieceAlign = 16;  // pieces of a message in a slot
constexpr size_t kPointFrom =
    16 * 1024;  // shorter messages are staged: a copy is cheaper than waiting for the reader

constexpr size_t round_up(size_t x, size_t to) { return (x + to - 1) / to * to; }

}  // namespace

void Prepared::fit(size_t pool_bytes, size_t segment_bytes) {
  const auto channels = static_cast<uint32_t>(plan->channels.size());
  // Two slots at least: a schedule that is free of deadlock with one message in flight stays so when a
  // reduction is fused with the send of its result only if there are two, since the fused one takes its
  // message when its own can go.
  const uint32_t most =
      std::clamp<uint32_t>(kMaxLanes / std::max(channels, 1u), 1, plan->max_connections > 16 ? 2 : 4);
  const size_t share = pool_bytes / (size_t{channels} * most * 2 * plan->max_connections);
  // An odd number of lines, so that slots do not all fall into the same sets of the caches.
  const size_t least =
      round_up(wide_element, kPieceAlign) * plan->max_message;  // one item of each chunk: those are never cut
  slot_bytes = std::min(share / kLine * kLine,
                        std::max(segment_bytes / kLine * kLine, round_up(least, kLine)) + kSlotSkew);
  if (channels > kMaxLanes)
    throw Error(ErrorKind::unsupported,
                "a schedule may have 16 channels, this one has " + std::to_string(channels));
  if (slot_bytes < least)
    throw Error(ErrorKind::unsupported, "PYCOLLECTIVES_POOL_BYTES=" + std::to_string(pool_bytes) +
                                            " is too small for this schedule: its messages have " +
                                            std::to_string(plan->max_message) + " chunks of items of " +
                                            std::to_string(wide_element) + " bytes, and there is room for " +
                                            std::to_string(slot_bytes) + " bytes");
  const size_t message = std::min(slot_bytes, segment_bytes);
  chunking.grain = std::max<uint32_t>(1, static_cast<uint32_t>(kLine / element));
  for (chunking.slices = 1;; ++chunking.slices) {
    chunking.parts = channels * chunking.slices;
    const size_t piece = round_up(chunking.longest_part() * wide_element, kPieceAlign);
    const size_t bytes = piece * plan->max_message;
    if (bytes <= message || (bytes <= slot_bytes && chunking.longest_part() <= chunking.grain * 3 + 1)) break;
    if (bytes > message * 2)
      chunking.slices =
          std::max<uint32_t>(chunking.slices, static_cast<uint32_t>(chunking.slices * (bytes / message)) - 1);
    if (chunking.longest_part() <= 2 * chunking.grain + 1 && bytes > slot_bytes)
      chunking.grain = std::max(1u, chunking.grain / 2);
  }
  // A slice is in flight for as many steps as there are; more slices at a time would only fill the caches.
  lanes = std::min({most, chunking.slices, std::max(plan->steps, 2u)});
  slots = std::max(2u, std::min(2 * most / lanes, kDepth));
}

Executor::Executor(Group& group, Patience patience)
    : group_(group),
      patience_(patience),
      rank_(group.rank()),
      size_(group.size()),
      sent_(static_cast<size_t>(size_)),
      acked_(static_cast<size_t>(size_)),
      received_(static_cast<size_t>(size_)),
      pointed_(static_cast<size_t>(size_), 0),
      sources_(static_cast<size_t>(size_) + 2),
      source_at_(static_cast<size_t>(size_) + 2) {}

void Executor::reserve(const Prepared& prepared) {
  if (work_.size() < prepared.work_bytes) work_.resize(prepared.work_bytes);
  if (scratch_.size() < prepared.scratch_bytes) scratch_.resize(prepared.scratch_bytes);
  const Plan& plan = *prepared.plan;
  const size_t readers = std::max<size_t>(1, plan.peers.size()) * prepared.lanes * prepared.slots;
  if (slot_reader_.size() < readers) slot_reader_.resize(readers);
  if (slot_turn_.size() < size_t{kMaxLanes} * plan.max_connections)
    slot_turn_.resize(size_t{kMaxLanes} * plan.max_connections);
}

void Executor::add_region(Region region) { regions_.push_back(std::move(region)); }

void Executor::remove_region(uint32_t id) {
  std::erase_if(regions_, [id](const Region& region) { return region.id == id; });
}

void Executor::begin(const Call& call) {
  call_ = &call;
  prepared_ = call.prepared;
  agreed_ = 0;
  any_pointed_ = false;
  waiting_since_ = 0;
  fingerprint_ = prepared_->fingerprint + call.sequence * 0x9e3779b97f4a7c15u;
  auto* in = const_cast<std::byte*>(call.in);  // only ever read, unless it is the output too
  base_ = {in, call.out, work_.data(), in, call.out, scratch_.data()};
  const size_t narrow = prepared_->element, wide = prepared_->wide_element;
  unit_ = {narrow, narrow, wide, narrow, narrow, wide};
  in_place_ = call.in < call.out + prepared_->out_bytes && call.out < call.in + prepared_->in_bytes;

  Record& record = group_.record(rank_, call.sequence);
  record.sequence.store(0, std::memory_order_relaxed);  // a rank far behind may still read the old call here
  std::atomic_thread_fence(std::memory_order_release);
  record.count = prepared_->count;
  record.started = ticks();
  record.code = call.code;
  record.instruction = call.instruction;
  record.root = prepared_->root;
  record.verb = prepared_->verb;
  record.algorithm = prepared_->algorithm;
  record.dtype = prepared_->dtype;
  record.op = prepared_->op;
  if (prepared_->user)
    record.user_op[prepared_->user->code().name.copy(record.user_op, sizeof record.user_op - 1)] = '\0';
  record.deterministic = prepared_->deterministic;
  record.state.store(CallState::running, std::memory_order_relaxed);
  record.fingerprint.store(fingerprint_, std::memory_order_relaxed);
  record.sequence.store(call.sequence, std::memory_order_release);
}

void Executor::run(const Call& call) {
  begin(call);
  Waiter waiter(group_.control(rank_), patience_);
  Record& record = group_.record(rank_, call.sequence);
  try {
    if (group_.poisoned()) [[unlikely]]
      group_.raise_poison(call.sequence);
    const Plan* plan = prepared_->plan.get();
    if (plan != last_plan_ || prepared_->lanes != last_lanes_ ||
        prepared_->slot_bytes !=
            last_slot_bytes_) {  // new places for slots: nobody may still read the old ones
      drain(waiter, false);
      std::fill(slot_reader_.begin(), slot_reader_.end(), 0);
      std::fill(slot_turn_.begin(), slot_turn_.end(), 0);
      last_plan_ = plan;
      last_lanes_ = prepared_->lanes;
      last_slot_bytes_ = prepared_->slot_bytes;
      keep_plan_ = prepared_->plan;
    }
    nlanes_ = 0;
    for (uint32_t c = 0; c < plan->channels.size(); ++c) {
      const Channel& channel = plan->channels[c];
      if (channel.ninstructions == 0) continue;
      for (uint32_t i = 0; i < std::min(prepared_->lanes, prepared_->chunking.slices); ++i) {
        Lane& lane = lanes_[nlanes_++];
        lane.program = plan->instructions.data() + channel.instruction;
        lane.connections = plan->connections.data() + channel.connection;
        lane.id = c * prepared_->lanes + i;
        lane.index = i;
        lane.channel = c;
        lane.length = channel.ninstructions;
        lane.pc = 0;
        lane.slice = i;
        lane.arrived = 0;
        lane.done = false;
      }
    }
    work(waiter);
    if (any_pointed_) drain(waiter, true);
    if (group_.poisoned()) [[unlikely]]  // what was read last may have been changing
      group_.raise_poison(call.sequence);
    record.ended = ticks();
    record.state.store(CallState::done, std::memory_order_release);
  } catch (Error& error) {
    error.rank = rank_;
    error.verb = prepared_->verb;
    error.sequence = call.sequence;
    record.ended = ticks();
    record.state.store(CallState::failed, std::memory_order_release);
    group_.poison(error.kind(), error.peer());
    throw;
  }
}

void Executor::work(Waiter& waiter) {
  for (uint32_t left = nlanes_; left > 0;) {
    bool moved = false;
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
    if (moved)
      waiter.progress();
    else if (waiter.pause() || group_.poisoned()) [[unlikely]]
      look_after_peers(waiter);
  }
}

void Executor::look_after_peers(Waiter&) {
  const uint64_t now = now_ns();
  if (waiting_since_ == 0) waiting_since_ = now;
  group_.check_peers(call_->sequence, now - waiting_since_);
  if (now - waiting_since_ > call_->timeout_ns) {
    const std::string missing = group_.missing(call_->sequence);
    throw Error(ErrorKind::timeout,
                "call " + std::to_string(call_->sequence) + " " +
                    describe_call(group_.record(rank_, call_->sequence)) + " timed out after " +
                    std::to_string(static_cast<double>(call_->timeout_ns) / 1e9) + " s, waiting for " +
                    (missing.empty() ? "ranks that are in it but do not move" : missing));
  }
  if (call_->interruptible && interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
}

// Makes one instruction if all it needs is there. Nothing is changed otherwise.
bool Executor::advance(Lane& lane) {
  const Plan& plan = *prepared_->plan;
  const Instruction& in = lane.program[lane.pc];
  const Operand* operands = plan.operands.data() + in.operand;
  for (; lane.arrived < in.noperands; ++lane.arrived) {
    const int32_t peer = operands[lane.arrived].peer;
    if (peer < 0) continue;
    const uint64_t number = received_[static_cast<size_t>(peer)][lane.id] + 1;
    const Header& header = group_.header(peer, rank_, lane.id, number);
    if (header.flag.load(std::memory_order_acquire) != number) return false;
    if (header.fingerprint != fingerprint_) [[unlikely]]
      group_.raise_mismatch(call_->sequence);
  }
  if (in.connection >= 0 && !writable(lane, static_cast<uint32_t>(in.connection))) return false;
  if ((in.flags & Instruction::first_output) && !agreed()) return false;
  compute(lane, in);
  if (call_->trace) [[unlikely]]
    record_trace(lane, in);
  finish(lane);
  return true;
}

// May this lane publish its next message to the connection? Headers and slots are reused when all readers are
// through.
bool Executor::writable(const Lane& lane, uint32_t index) {
  const Connection& connection = lane.connections[index];
  const int32_t* peers = prepared_->plan->peers.data() + connection.first;
  const uint32_t turn = slot_turn_[slot_index(lane, index)] % prepared_->slots;
  for (uint32_t k = 0; k < connection.npeers; ++k) {
    const auto peer = static_cast<size_t>(peers[k]);
    uint64_t needed = 0;
    if (sent_[peer][lane.id] + 1 > kDepth) needed = sent_[peer][lane.id] + 1 - kDepth;
    needed = std::max(needed, slot_reader_[reader_index(lane, connection, k, turn)]);
    if (acked_[peer][lane.id] >= needed) continue;
    acked_[peer][lane.id] = group_.ack(peers[k], rank_, lane.id).load(std::memory_order_acquire);
    if (acked_[peer][lane.id] < needed) return false;
  }
  return true;
}

// Before the caller's output changes for the first time: has every rank that is here called the same? Where
// the result depends on all ranks, all are waited for; they publish their record when they enter the call, so
// this is no extra round.
bool Executor::agreed() {
  for (; agreed_ < size_; ++agreed_) {
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

const std::byte* Executor::payload(int peer, const Header& header) const {
  switch (static_cast<Carrier>(header.carrier & 3)) {
    case Carrier::inlined:
      return header.payload;
    case Carrier::slot:
      return group_.pool(peer) + header.location;
    case Carrier::pointer:
      return reinterpret_cast<const std::byte*>(header.location);
    case Carrier::region:
      for (const Region& region : regions_)
        if (region.id == header.carrier >> 2) return region.base[static_cast<size_t>(peer)] + header.location;
  }
  throw Error(ErrorKind::transport,
              "rank " + std::to_string(peer) + " published memory that this rank has not mapped", peer);
}

const Region* Executor::region_of(const std::byte* address, size_t bytes) const {
  for (const Region& region : regions_) {
    const std::byte* base = region.base[static_cast<size_t>(rank_)];
    if (address >= base && address + bytes <= base + region.bytes) return &region;
  }
  return nullptr;
}

// Bytes that one chunk's part takes in a message.
size_t Executor::piece_bytes(const Instruction& in, uint64_t length, size_t element) {
  return in.nrefs == 1 ? length * element : round_up(length * element, kPieceAlign);
}

std::byte* Executor::address(const Ref& ref, uint64_t begin) const {
  const auto where = static_cast<size_t>(ref.where);
  return base_[where] + (prepared_->chunking.table[where][ref.chunk].offset + begin) * unit_[where];
}

Piece Executor::part_of(const Ref& shape, uint32_t part) const {
  const Chunking& chunking = prepared_->chunking;
  return chunking.cut(chunking.table[static_cast<size_t>(shape.where)][shape.chunk].length, part);
}

void Executor::compute(Lane& lane, const Instruction& in) {
  const uint32_t part = lane.channel * prepared_->chunking.slices + lane.slice;
  Message message{};
  if (in.connection >= 0) message = way_out(lane, in, part);
  if (message.target || in.store >= 0) combine(lane, in, part, message.target);
  if (in.connection >= 0) publish(lane, in, message);
}

// Where the instruction's message goes: into the header, into a slot, or nowhere (peers read it in place).
Executor::Message Executor::way_out(const Lane& lane, const Instruction& in, uint32_t part) {
  const Plan& plan = *prepared_->plan;
  const size_t element = in.flags & Instruction::send_wide ? prepared_->wide_element : prepared_->element;
  Message message{};
  for (uint32_t j = 0; j < in.nrefs; ++j)
    message.bytes += piece_bytes(in, part_of(plan.refs[in.shape + j], part).length, element);
  if (message.bytes <= kInline) {
    message.target = inlined_;
    return message;
  }
  const uint32_t pointable =
      in_place_ ? Instruction::may_point : Instruction::may_point | Instruction::may_point_apart;
  if ((in.flags & pointable) && message.bytes >= kPointFrom && !regions_.empty()) {
    const Ref& ref =
        plan.refs[in.store >= 0 ? static_cast<uint32_t>(in.store) : plan.operands[in.operand].refs];
    const std::byte* at = address(ref, part_of(ref, part).offset);
    if (const Region* region = region_of(at, message.bytes)) {
      message.carrier = Carrier::region;
      message.region = region->id;
      message.location = static_cast<uint64_t>(at - region->base[static_cast<size_t>(rank_)]);
      return message;
    }
  }
  const size_t slot = slot_index(lane, static_cast<uint32_t>(in.connection));
  message.carrier = Carrier::slot;
  message.location = (slot * prepared_->slots + slot_turn_[slot] % prepared_->slots) * prepared_->slot_bytes;
  message.target = group_.pool(rank_) + message.location;
  return message;
}

// The data: every chunk of the message in one pass over all operands, into the message, the store, or both.
void Executor::combine(const Lane& lane, const Instruction& in, uint32_t part, std::byte* message) {
  static constexpr Epilogue nothing{};
  const Plan& plan = *prepared_->plan;
  const Operand* operands = plan.operands.data() + in.operand;
  const bool send_wide = in.flags & Instruction::send_wide, store_wide = in.flags & Instruction::store_wide;
  const size_t send_element = send_wide ? prepared_->wide_element : prepared_->element;
  const Epilogue& epilogue = in.flags & Instruction::final_value ? prepared_->epilogue : nothing;
  const bool moves_bytes = !send_wide && !store_wide && !operands[0].wide &&
                           epilogue.kind == Epilogue::none && !prepared_->is_bool();
  for (uint32_t k = 0; k < in.noperands; ++k) {
    const int32_t peer = operands[k].peer;
    if (peer < 0) continue;
    const uint64_t number = received_[static_cast<size_t>(peer)][lane.id] + 1;
    source_at_[k] = payload(peer, group_.header(peer, rank_, lane.id, number));
  }
  for (uint32_t j = 0; j < in.nrefs; ++j) {
    const Piece piece = part_of(plan.refs[in.shape + j], part);
    for (uint32_t k = 0; k < in.noperands; ++k) {
      const bool wide = operands[k].wide != 0;
      if (operands[k].peer >= 0) {
        sources_[k] = {source_at_[k], wide};
        source_at_[k] += piece_bytes(in, piece.length, wide ? prepared_->wide_element : prepared_->element);
      } else {
        sources_[k] = {address(plan.refs[operands[k].refs + j], piece.offset), wide};
      }
    }
    Sink sinks[2];
    int nsinks = 0;
    if (in.store >= 0) {
      std::byte* target = address(plan.refs[static_cast<uint32_t>(in.store) + j], piece.offset);
      const bool unchanged =
          in.noperands == 1 && target == sources_[0].data && epilogue.kind == Epilogue::none;
      if (!unchanged) sinks[nsinks++] = {target, store_wide};
    }
    if (message) {
      sinks[nsinks++] = {message, send_wide};
      message += piece_bytes(in, piece.length, send_element);
    }
    if (!nsinks || !piece.length) continue;
    if (in.noperands == 1 && moves_bytes &&
        piece.length * send_element <= kSmallCopy) {  // not worth a call of a kernel
      for (int i = 0; i < nsinks; ++i)
        std::memcpy(sinks[i].data, sources_[0].data, piece.length * prepared_->element);
      continue;
    }
    if (prepared_->user) [[unlikely]]
      prepared_->user->combine(sources_.data(), static_cast<int>(in.noperands), sinks, nsinks, piece.length);
    else
      prepared_->kernel(sources_.data(), static_cast<int>(in.noperands), sinks, nsinks, piece.length,
                        epilogue);
  }
}

void Executor::publish(const Lane& lane, const Instruction& in, const Message& message) {
  const Connection& connection = lane.connections[in.connection];
  const size_t slot = slot_index(lane, static_cast<uint32_t>(in.connection));
  const uint32_t turn = slot_turn_[slot] % prepared_->slots;
  for (uint32_t k = 0; k < connection.npeers; ++k) {
    const int32_t peer = prepared_->plan->peers[connection.first + k];
    const uint64_t number = ++sent_[static_cast<size_t>(peer)][lane.id];
    Header& header = group_.header(rank_, peer, lane.id, number);
    header.fingerprint = fingerprint_;
    header.location = message.location;
    header.bytes = static_cast<uint32_t>(message.bytes);
    header.carrier = static_cast<uint32_t>(message.carrier) | message.region << 2;
    if (message.carrier == Carrier::inlined) std::memcpy(header.payload, inlined_, kInline);
    header.flag.store(number, std::memory_order_release);
    ring(group_.control(peer));
    if (message.carrier == Carrier::slot) {
      slot_reader_[reader_index(lane, connection, k, turn)] = number;
    } else if (message.carrier == Carrier::region) {
      pointed_[static_cast<size_t>(peer)] = 1;
      any_pointed_ = true;
    }
  }
  if (message.carrier == Carrier::slot) ++slot_turn_[slot];
}

// Acknowledges what the instruction consumed and moves on.
void Executor::finish(Lane& lane) {
  const Instruction& in = lane.program[lane.pc];
  const Operand* operands = prepared_->plan->operands.data() + in.operand;
  for (uint32_t k = 0; k < in.noperands; ++k) {
    const int32_t peer = operands[k].peer;
    if (peer < 0) continue;
    group_.ack(rank_, peer, lane.id)
        .store(++received_[static_cast<size_t>(peer)][lane.id], std::memory_order_release);
    ring(group_.control(peer));
  }
  lane.arrived = 0;
  if (++lane.pc < lane.length) return;
  lane.pc = 0;
  lane.slice += prepared_->lanes;
  lane.done = lane.slice >= prepared_->chunking.slices;
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
        if (acked_[p][lane] >= sent_[p][lane])
          waiter.progress();
        else if (waiter.pause() || group_.poisoned()) [[unlikely]]
          look_after_peers(waiter);
      }
    }
  }
}

void Executor::record_trace(const Lane& lane, const Instruction& in) {
  TraceEvent event{lane.channel, lane.slice, lane.pc, in.step, now_ns(), {}};
  event.state.assign(call_->out, call_->out + prepared_->out_bytes);
  call_->trace->push_back(std::move(event));
}

}  // namespace pc
