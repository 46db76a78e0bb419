// The data's part of an instruction: from the operands, through the kernel, into the store and the message.
#include <algorithm>
#include <cstring>
#include <string>

#include "core/chaos.hpp"
#include "core/stream_copy.hpp"
#include "shm/executor.hpp"

namespace pc {
namespace {

constexpr size_t kCopyBlock = 16384;  // of a copy to two places
constexpr size_t kPointFrom =
    16 * 1024;  // shorter messages are staged: a copy is cheaper than waiting for the reader

// The way of a message of `bytes`, if all the rank's arrays lie in symmetric memory or if none does. What the call itself
// writes is read in place only if it is large: a small result is still in its reader's cache from the last time, and would
// have to be taken away line by line, while messages in slots go round a ring.
Carrier way_of(const Prepared& prepared, const Instruction& in, size_t bytes, bool in_place, bool symmetric,
               bool single_copy) {
  if (bytes <= kInline) return Carrier::inlined;
  if (!prepared.points(in, in_place)) return Carrier::slot;
  if (symmetric && bytes >= kPointFrom && (in.store < 0 || prepared.long_output)) return Carrier::region;
  return single_copy && bytes >= prepared.single_copy ? Carrier::pointer : Carrier::slot;
}

#ifdef PC_CHECKED
void check_bytes(int peer, const Header& header, size_t expected) {
  if (header.bytes == static_cast<uint32_t>(expected)) return;
  throw Error(ErrorKind::transport,
              "a message of " + std::to_string(header.bytes) + " bytes came, " + std::to_string(expected) +
                  " were expected",
              peer);
}
#endif

}  // namespace

Traffic Executor::traffic(const Prepared& prepared, bool in_place, bool symmetric) {
  const Plan& plan = *prepared.plan;
  const Flow& flow = prepared.flow;
  Traffic traffic;
  for (uint32_t c = 0; c < plan.channels.size(); ++c) {
    for (uint32_t i = 0; i < plan.channels[c].ninstructions; ++i) {
      const Instruction& in = plan.instructions[plan.channels[c].instruction + i];
      if (in.connection < 0) continue;
      const size_t element = in.flags & Instruction::send_wide ? prepared.wide_element : prepared.element;
      for (uint32_t slice = 0; slice < flow.slices; ++slice) {
        size_t bytes = 0;
        for (uint32_t j = 0; j < in.nrefs; ++j) {
          const Ref& shape = plan.refs[in.shape + j];
          const uint64_t length = prepared.chunking.piece(shape).length;
          bytes += piece_bytes(in, flow.piece(length, c * flow.slices + slice).length, element);
        }
        const auto way = static_cast<size_t>(way_of(prepared, in, bytes, in_place, symmetric, true));
        traffic.messages[way] += 1;
        traffic.bytes[way] += bytes;
      }
    }
  }
  return traffic;
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

// What is faster for such calls says nothing about those of other arrays.
bool Executor::all_symmetric(const Call& call) const {
  return (!prepared_->in_bytes || region_of(call.in, prepared_->in_bytes)) &&
         (!prepared_->out_bytes || region_of(call.out, prepared_->out_bytes));
}

bool Executor::comes_from_far(int peer, const Header& header) const {
  return static_cast<Carrier>(header.carrier & 3) == Carrier::slot && stores_.seems_far(peer);
}

// Bytes that one chunk's part takes in a message.
size_t Executor::piece_bytes(const Instruction& in, uint64_t length, size_t element) {
  return in.nrefs == 1 ? length * element : round_up(length * element, kPieceAlign);
}

std::byte* Executor::address(const Ref& ref, uint64_t begin) const {
  const auto where = static_cast<size_t>(ref.where);
  return base_[where] + (prepared_->chunking.piece(ref).offset + begin) * unit_[where];
}

Piece Executor::part_of(const Ref& shape, uint32_t part) const {
  return flow_->piece(prepared_->chunking.piece(shape).length, part);
}

size_t Executor::message_bytes(const Instruction& in, uint32_t part) const {
  const size_t element = in.flags & Instruction::send_wide ? prepared_->wide_element : prepared_->element;
  size_t bytes = 0;
  for (uint32_t j = 0; j < in.nrefs; ++j)
    bytes += piece_bytes(in, part_of(prepared_->plan->refs[in.shape + j], part).length, element);
  return bytes;
}

void Executor::compute(const Lane& lane, const Instruction& in) {
  const uint32_t part = lane.channel * flow_->slices + lane.slice;
  Message message{};
  if (in.connection >= 0) message = way_out(lane, in, part);
  if (grows(in, message)) return send_growing(lane, in, part, message);
  if (message.target || in.store >= 0) combine(lane, in, part, message, lane.taken);
  if (in.connection >= 0) publish(lane, in, message);
}

// The same where Prepared::brief leaves nothing to choose: small calls spend most of their own time here.
void Executor::compute_brief(const Lane& lane, const Instruction& in) {
  const Plan& plan = *prepared_->plan;
  const Operand* operands = plan.operands.data() + in.operand;
  const Ref& shape = plan.refs[in.shape];
  const uint64_t length = prepared_->chunking.piece(shape).length;
  for (uint32_t k = 0; k < in.noperands; ++k) {
    const int32_t peer = operands[k].peer;
    if (peer < 0) {
      sources_[k] = {address(plan.refs[operands[k].refs], 0), false};
      continue;
    }
    const uint64_t number = received_[static_cast<size_t>(peer)][lane.id] + 1;
    const Header& header = group_.header(peer, rank_, lane.id, number);
    sources_[k] = {header.payload, false};
#ifdef PC_CHECKED
    check_bytes(peer, header, length * prepared_->element);
#endif
  }
  const bool copies = in.noperands == 1 &&
                      !(in.flags & Instruction::final_value && prepared_->epilogue.kind != Epilogue::none);
  Message message{};
  Sink sinks[2];
  int nsinks = 0;
  if (in.store >= 0) {
    std::byte* target = address(plan.refs[static_cast<uint32_t>(in.store)], 0);
    if (!copies || target != sources_[0].data) sinks[nsinks++] = {target, false};
  }
  if (in.connection >= 0) {
    const Connection& connection = lane.connections[in.connection];
    const int32_t peer = plan.peers[connection.first];
    message.bytes = length * prepared_->element;
    message.target =
        connection.npeers > 1
            ? inlined_
            : group_.header(rank_, peer, lane.id, sent_[static_cast<size_t>(peer)][lane.id] + 1).payload;
    sinks[nsinks++] = {message.target, false};
  }
  if (length && copies)
    for (int i = 0; i < nsinks; ++i)
      std::memcpy(sinks[i].data, sources_[0].data, length * prepared_->element);
  else if (length && nsinks)
    prepared_->kernel(sources_.data(), static_cast<int>(in.noperands), sinks, nsinks, length,
                      in.flags & Instruction::final_value ? prepared_->epilogue : Epilogue{});
  if (in.connection >= 0) publish(lane, in, message);
}

// Where the instruction's message goes: into the header, into a slot, or nowhere (peers read it in place).
Executor::Message Executor::way_out(const Lane& lane, const Instruction& in, uint32_t part) {
  Message message{};
  message.bytes = message_bytes(in, part);
  const Carrier way =
      way_of(*prepared_, in, message.bytes, in_place_, !regions_.empty(), way_ == Way::single_copy);
  if (way == Carrier::inlined) {
    message.target = inlined_;
    return message;
  }
  const Ref& ref = prepared_->sent_chunk(in);
  const std::byte* at = address(ref, part_of(ref, part).offset);
  message.stream = !whole_ && streams(lane, lane.connections[in.connection], message.bytes);
  if (way == Carrier::region && !(in.store >= 0 && message.stream)) {
    if (const Region* region = region_of(at, message.bytes)) {
      message.carrier = Carrier::region;
      message.stream = false;
      message.payload = at;
      message.region = region->id;
      message.location = static_cast<uint64_t>(at - region->base[static_cast<size_t>(rank_)]);
      return message;
    }
  }
  const bool pointed = whole_ ? arrays_readable_ && prepared_->points(in, in_place_)
                              : way_of(*prepared_, in, message.bytes, in_place_, false,
                                       way_ == Way::single_copy) == Carrier::pointer &&
                                    readable(lane.connections[in.connection]);
  if (pointed || whole_) {
    message.carrier = Carrier::pointer;
    message.stream = false;
    message.payload = pointed ? at : message.target = staged(message.bytes);
    message.location = reinterpret_cast<uintptr_t>(message.payload);
    return message;
  }
  const size_t slot = slot_index(lane, static_cast<uint32_t>(in.connection));
  message.carrier = Carrier::slot;
  message.location = (slot * flow_->slots + slot_turn_[slot]) * flow_->slot_bytes;
  message.payload = message.target = group_.pool(rank_) + message.location;
  return message;
}

// Is a message into a slot written past the caches? It is if one of its readers is far.
bool Executor::streams(const Lane& lane, const Connection& connection, size_t bytes) {
  bool far = false;
  for (uint32_t k = 0; k < connection.npeers; ++k) {
    const int32_t peer = prepared_->plan->peers[connection.first + k];
    if (group_.remote(peer)) continue;
    if (bytes >= StorePath::kFrom && stores_.due(peer)) [[unlikely]] {
      const uint64_t last = group_.ack(peer, rank_, lane.id).load(std::memory_order_relaxed);
      if (last) stores_.look(peer, group_.header(rank_, peer, lane.id, last).flag);
    }
    far |= stores_.streams(peer, bytes);
  }
  far &= way_ != Way::plain_stores && way_ != Way::plain_streamed;
  has_streamed_ |= far;
  return far;
}

// The data: every chunk of the message in one pass over all operands, into the message, the store, or both. Of a single chunk
// perhaps only the elements from `begin` to `end`.
void Executor::combine(const Lane& lane, const Instruction& in, uint32_t part, const Message& message,
                       uint64_t begin, uint64_t end) {
  static constexpr Epilogue nothing{};
  const Plan& plan = *prepared_->plan;
  const Operand* operands = plan.operands.data() + in.operand;
  const bool send_wide = in.flags & Instruction::send_wide, store_wide = in.flags & Instruction::store_wide;
  const size_t send_element = send_wide ? prepared_->wide_element : prepared_->element;
  const Epilogue& epilogue = in.flags & Instruction::final_value ? prepared_->epilogue : nothing;
  const bool copies = in.noperands == 1 && !send_wide && !store_wide && !operands[0].wide &&
                      epilogue.kind == Epilogue::none && !prepared_->is_bool();
  const bool stream_store =
      stream_results_ && (in.flags & Instruction::last_use) && message.carrier != Carrier::region;
  const bool fresh = flow_->slices == 1;  // longer data are on their way to memory by then
  std::byte* put = message.target ? message.target + begin * send_element : nullptr;
  for (uint32_t k = 0; k < in.noperands; ++k) {
    const int32_t peer = operands[k].peer;
    if (peer < 0) continue;
    const Header& header = next_header(lane, peer);
    const bool wide = operands[k].wide != 0;
    arrived_[k] = {payload(peer, header) + begin * (wide ? prepared_->wide_element : prepared_->element),
                   wide, fresh && comes_from_far(peer, header)};
#ifdef PC_CHECKED  // by the native tests: do both ends see the same message?
    size_t expected = 0;
    const size_t element = wide ? prepared_->wide_element : prepared_->element;
    for (uint32_t j = 0; j < in.nrefs; ++j)
      expected += piece_bytes(in, part_of(plan.refs[in.shape + j], part).length, element);
    check_bytes(peer, header, expected);
#endif
    if (is_elsewhere(peer, header)) return combine_single_copy(lane, in, part, message);
  }
  for (uint32_t j = 0; j < in.nrefs; ++j) {
    Piece piece = part_of(plan.refs[in.shape + j], part);
    piece.length = std::min(piece.length, end) - begin;
    piece.offset += begin;
    for (uint32_t k = 0; k < in.noperands; ++k) {
      const bool wide = operands[k].wide != 0;
      if (operands[k].peer >= 0) {
        sources_[k] = arrived_[k];
        arrived_[k].data = static_cast<const std::byte*>(arrived_[k].data) +
                           piece_bytes(in, piece.length, wide ? prepared_->wide_element : prepared_->element);
      } else {
        sources_[k] = {address(plan.refs[operands[k].refs + j], piece.offset), wide};
      }
    }
    Sink targets[2];
    int ntargets = 0;
    if (in.store >= 0) {
      std::byte* target = address(plan.refs[static_cast<uint32_t>(in.store) + j], piece.offset);
      const bool unchanged =
          in.noperands == 1 && target == sources_[0].data && epilogue.kind == Epilogue::none;
      if (!unchanged) targets[ntargets++] = {target, store_wide, stream_store};
    }
    if (put) {
      targets[ntargets++] = {put, send_wide, message.stream};
      put += piece_bytes(in, piece.length, send_element);
    }
    if (!ntargets || !piece.length) continue;
    if (copies)
      copy_piece(targets, ntargets, piece.length * prepared_->element, operands[0].peer);
    else
      fold_piece(static_cast<int>(in.noperands), targets, ntargets, piece.length, epilogue);
  }
}

// Bytes as they are, from this rank's memory (`peer` -1) or a message, to one or two places.
void Executor::copy_piece(const Sink* targets, int ntargets, size_t bytes, int32_t peer) {
  const bool from_far = sources_[0].far, from_cache = peer >= 0 && !stores_.seems_far(peer);
  const size_t block = ntargets == 1 ? bytes : kCopyBlock;
  const auto* from = static_cast<const std::byte*>(sources_[0].data);
  for (size_t done = 0; done < bytes; done += block) {
    const size_t now = std::min(block, bytes - done);
    for (int i = 0; i < ntargets; ++i) {
      std::byte* to = static_cast<std::byte*>(targets[i].data) + done;
      if (targets[i].stream)
        from_far ? stream_copy_far(to, from + done, now) : stream_copy(to, from + done, now);
      else if (from_far)
        vector_copy_far(to, from + done, now);
      else if (from_cache)
        vector_copy(to, from + done, now);
      else
        std::memcpy(to, from + done, now);
      streamed_ |= targets[i].stream;
    }
  }
}

// A reduction or conversion. What is to be streamed is computed block by block in memory that stays in the first level of
// the caches, unless the kernel streams by itself.
void Executor::fold_piece(int nsources, const Sink* targets, int ntargets, uint64_t length,
                          const Epilogue& epilogue) {
  const auto size = [this](bool wide) { return size_t{wide ? prepared_->wide_element : prepared_->element}; };
  const uint64_t block = kBlock / prepared_->wide_element;
  bool streams = false,
       by_kernel = streams_by_itself(nsources, length * prepared_->element, epilogue) && !prepared_->user;
  for (int k = 0; k < nsources; ++k) by_kernel &= !sources_[static_cast<size_t>(k)].wide;
  for (int i = 0; i < ntargets; ++i) {
    streams |= targets[i].stream;
    by_kernel &=
        !targets[i].wide && (!targets[i].stream || reinterpret_cast<uintptr_t>(targets[i].data) % kLine == 0);
  }
  streamed_ |= streams;
  if (!streams || by_kernel || block == 0) return fold(nsources, targets, ntargets, length, epilogue);
  Sink sinks[2];
  for (int i = 0; i < ntargets; ++i) sinks[i] = {targets[i].data, targets[i].wide};
  for (uint64_t done = 0; done < length; done += block) {
    const uint64_t now = std::min(block, length - done);
    for (int i = 0; i < ntargets; ++i)
      sinks[i].data = targets[i].stream
                          ? block_[i]
                          : static_cast<std::byte*>(targets[i].data) + done * size(targets[i].wide);
    fold(nsources, sinks, ntargets, now, epilogue);
    for (int i = 0; i < ntargets; ++i)
      if (targets[i].stream)
        stream_copy(static_cast<std::byte*>(targets[i].data) + done * size(targets[i].wide), block_[i],
                    now * size(targets[i].wide));
    for (int k = 0; k < nsources; ++k) {
      Source& source = sources_[static_cast<size_t>(k)];
      source.data = static_cast<const std::byte*>(source.data) + now * size(source.wide);
    }
  }
}

void Executor::fold(int nsources, const Sink* sinks, int nsinks, uint64_t length, const Epilogue& epilogue) {
  if (prepared_->user) [[unlikely]]
    prepared_->user->combine(sources_.data(), nsources, sinks, nsinks, length);
  else
    prepared_->kernel(sources_.data(), nsources, sinks, nsinks, length, epilogue);
}

void Executor::publish(const Lane& lane, const Instruction& in, const Message& message) {
  const Connection& connection = lane.connections[in.connection];
  const size_t slot = slot_index(lane, static_cast<uint32_t>(in.connection));
  const bool scarce = flow_->slots < kLargeDepth;
  if (streamed_ && message.carrier != Carrier::inlined) {
    stream_fence();
    streamed_ = false;
  }
  for (uint32_t k = 0; k < connection.npeers; ++k) {
    const int32_t peer = prepared_->plan->peers[connection.first + k];
    const uint64_t number = ++sent_[static_cast<size_t>(peer)][lane.id];
    Header& header = group_.header(rank_, peer, lane.id, number);
    header.fingerprint = fingerprint_;
    header.location = message.location;
    header.bytes = static_cast<uint32_t>(message.bytes);
    header.carrier = static_cast<uint32_t>(message.carrier) | message.region << 2;
    if (header.grows()) header.written().store(0, std::memory_order_relaxed);
    if (message.target == inlined_) std::memcpy(header.payload, inlined_, kInline);
    chaos();
    header.flag.store(number, kPublish);
    chaos();
    if (group_.remote(peer)) [[unlikely]]
      group_.mirror()->send(peer, lane.id, number, message.payload);
    ring(group_.control(peer));
    if (message.carrier == Carrier::slot) {
      if (scarce) slot_reader_[reader_index(lane, connection, k, slot_turn_[slot])] = number;
    } else if (message.carrier != Carrier::inlined) {  // they read this rank's arrays
      pointed_[static_cast<size_t>(peer)] = 1;
      any_pointed_ = true;
    }
  }
  if (message.carrier == Carrier::slot && ++slot_turn_[slot] == flow_->slots) slot_turn_[slot] = 0;
}

}  // namespace pc
