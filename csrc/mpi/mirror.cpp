// Messages of lanes. Mail is in mirror_mail.cpp.
#include "mpi/mirror.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "mpi/mirror_parts.hpp"
#include "shm/group.hpp"

namespace pc {

Mirror::Mirror(Group& group, std::shared_ptr<const mpi::Library> library, uint64_t comm,
               std::vector<int> world, int first_tag, size_t message_bytes)
    : group_(group),
      library_(std::move(library)),
      comm_(comm),
      world_(std::move(world)),
      first_tag_(first_tag),
      rank_(group.rank()),
      size_(group.size()),
      message_bytes_(message_bytes),
      outbound_(static_cast<size_t>(size_) * kMaxLanes),
      inbound_(static_cast<size_t>(size_) * kMaxLanes),
      known_(static_cast<size_t>(size_)) {}

void Mirror::add(int peer) {
  const Guard guard(*this);
  peers_.push_back(peer);
  known_[static_cast<size_t>(peer)].letter = std::make_unique<Letter>(kStreamPiece);
  post_receive(peer);
}

Mirror::Outbound& Mirror::outbound(int peer, uint32_t lane) {
  auto& found = outbound_[static_cast<size_t>(peer) * kMaxLanes + lane];
  if (!found) found = std::make_unique<Outbound>(peer, lane);
  return *found;
}

Mirror::Inbound& Mirror::inbound(int peer, uint32_t lane) {
  auto& found = inbound_[static_cast<size_t>(peer) * kMaxLanes + lane];
  if (!found) found = std::make_unique<Inbound>(peer, lane, message_bytes_);
  return *found;
}

void Mirror::listen_to_none() {
  const Guard guard(*this);
  heard_.clear();
}

void Mirror::listen(int peer, uint32_t lane) {
  const Guard guard(*this);
  Inbound& in = inbound(peer, lane);
  if (std::find(heard_.begin(), heard_.end(), &in) == heard_.end()) heard_.push_back(&in);
  replenish(in);
}

void Mirror::fail(const char* call, int code, int peer) {
  std::string lost;  // the lifeline may be slower than MPI
  for (int turn = 0; turn < 20 && peer >= 0 && lost.empty(); ++turn) {
    if (turn) usleep(10'000);
    lost = group_.gone(peer);
  }
  const std::string text = std::string(call) + ": " + library_->error_text(code);
  if (lost.empty()) throw Error(ErrorKind::transport, text, peer);
  throw Error(ErrorKind::peer, lost + " (" + text + ")", peer);
}

// Is the peer still there? Asked now and then: MPICH 5.0 over UCX crashes when it sends to a dead process, and Intel MPI
// tries for ever.
void Mirror::look_at(int peer) {
  constexpr uint64_t often = 50'000;  // ticks: some 20 us
  uint64_t& looked = known_[static_cast<size_t>(peer)].looked;
  if (ticks() - looked < often) return;
  looked = ticks();
  const std::string lost = group_.gone(peer);
  if (!lost.empty()) throw Error(ErrorKind::peer, lost, peer);
}

void Mirror::send(int peer, uint32_t lane, uint64_t number, const std::byte* payload) {
  const Guard guard(*this);
  look_at(peer);
  Outbound& out = outbound(peer, lane);
  Header& header = group_.header(rank_, peer, lane, number);
  const size_t bytes = header.bytes;
  if (bytes > message_bytes_)
    throw Error(ErrorKind::unsupported, "a message of " + std::to_string(bytes) +
                                            " bytes to another host; at most " +
                                            std::to_string(message_bytes_) + " are possible");
  const int to = world_[static_cast<size_t>(peer)];
  Outbound::Item& item = out.items[number % kLargeDepth];
  const auto& back = inbound_[static_cast<size_t>(peer) * kMaxLanes + lane];
  if (back) back->told = group_.ack(rank_, peer, lane).load(std::memory_order_relaxed);
  header.location = back ? back->told : 0;  // credit
  if (!payload) {
    header.carrier = static_cast<uint32_t>(Carrier::inlined);
    library_->isend(&header, sizeof header, to, tag(lane, false), comm_, item.header);
  } else if (bytes <= kAttached) {
    header.carrier = static_cast<uint32_t>(Carrier::slot);
    if (!out.copies) out.copies = std::make_unique<std::byte[]>(kLargeDepth * (sizeof header + kAttached));
    std::byte* copy = out.copies.get() + number % kLargeDepth * (sizeof header + kAttached);
    std::memcpy(copy, static_cast<const void*>(&header), sizeof header);
    std::memcpy(copy + sizeof header, payload, bytes);
    library_->isend(copy, sizeof header + bytes, to, tag(lane, false), comm_, item.header);
  } else {
    header.carrier = static_cast<uint32_t>(Carrier::pointer);
    library_->isend(&header, sizeof header, to, tag(lane, false), comm_, item.header);
    library_->isend(payload, bytes, to, tag(lane, true), comm_, item.payload);
  }
  out.sent = number;
  if (out.sent == out.done + 1) {
    const auto tested = library_->test(item.header);
    if (tested.code) fail("MPI_Isend", tested.code, peer);
  }
  if (!settle(out) && !out.listed) {
    out.listed = true;
    pending_.push_back(&out);
  }
}

// Counts the messages that have been sent; true if all have.
bool Mirror::settle(Outbound& out) {
  const uint64_t before = out.done;
  while (out.done < out.sent) {
    const Outbound::Item& next = out.items[(out.done + 1) % kLargeDepth];
    if (next.header.active() || next.payload.active()) break;
    ++out.done;
  }
  if (out.done != before) acknowledge(out);
  return out.done == out.sent;
}

void Mirror::acknowledge(Outbound& out) {
  const uint64_t free = std::min(out.done, out.credit + kWindow - kLargeDepth);
  std::atomic<uint64_t>& ack = group_.ack(out.peer, rank_, out.lane);
  if (ack.load(std::memory_order_relaxed) != free) ack.store(free, std::memory_order_release);
}

// Posts receives in place of those whose messages have been consumed.
void Mirror::replenish(Inbound& in) {
  const uint64_t consumed = group_.ack(rank_, in.peer, in.lane).load(std::memory_order_acquire);
  const int from = world_[static_cast<size_t>(in.peer)];
  for (; in.posted < consumed + kLargeDepth; ++in.posted)
    library_->irecv(in.header_at(in.posted + 1), sizeof(Header) + kAttached, from, tag(in.lane, false), comm_,
                    in.headers[(in.posted + 1) % kLargeDepth]);
  if (consumed - in.told >= kWindow / 4) tell_credit(in, consumed);
  while (in.split_done < in.split_arrived && in.split_number[(in.split_done + 1) % kLargeDepth] <= consumed)
    ++in.split_done;
  for (; in.split_posted < in.split_done + kLargeDepth; ++in.split_posted)
    library_->irecv(in.payload_at(in.split_posted + 1), message_bytes_, from, tag(in.lane, true), comm_,
                    in.payloads[(in.split_posted + 1) % kLargeDepth]);
}

// The header of the next message is there.
void Mirror::arrived(Inbound& in) {
  const auto& header = *reinterpret_cast<const Header*>(in.header_at(in.published + 1));
  Outbound& back = outbound(in.peer, in.lane);
  if (header.location > back.credit) {
    back.credit = header.location;
    acknowledge(back);
  }
  in.waits_for_payload = static_cast<Carrier>(header.carrier) == Carrier::pointer;
  if (!in.waits_for_payload) deliver(in);
}

// The next message is complete: publishes it in the mirror.
void Mirror::deliver(Inbound& in) {
  const uint64_t number = ++in.published;
  std::byte* at = in.header_at(number);
  const auto& from = *reinterpret_cast<const Header*>(at);
  Header& to = group_.header(in.peer, rank_, in.lane, number);
  to.fingerprint = from.fingerprint;
  to.bytes = from.bytes;
  to.carrier = static_cast<uint32_t>(Carrier::pointer);
  switch (static_cast<Carrier>(from.carrier)) {
    case Carrier::inlined:
      to.carrier = from.carrier;
      std::memcpy(to.payload, from.payload, kInline);
      break;
    case Carrier::slot:
      to.location = reinterpret_cast<uint64_t>(at + sizeof(Header));
      break;
    default:
      in.split_number[++in.split_arrived % kLargeDepth] = number;
      to.location = reinterpret_cast<uint64_t>(in.payload_at(in.split_arrived));
      break;
  }
  in.waits_for_payload = false;
  to.flag.store(number, std::memory_order_release);
  ring(group_.control(rank_));
}

bool Mirror::progress(bool mail) {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    if (!mail) return false;  // another thread of this rank does it
    Guard::lock(*this);
  }
  const Guard guard(*this, std::adopt_lock);
  bool moved = !group_.poisoned() && move_messages();
  if (mail || ++turn_ % kMailEvery == 0) moved |= move_mail();
  return moved;
}

// A send to a dead process is not tested any more, and its memory not given back: Open MPI 5.0 calls it complete, but goes on to
// use its request, which may be another message's by then, and what that message needs is lost.
//
// One that has read all it needs, and has left in order, looks dead, too, until its last word has come: to it nothing is sent
// any more.
void Mirror::look_for_dead_readers() {
  constexpr uint64_t often = 12'500;  // ticks: some 5 us
  if (pending_.empty() || ticks() - looked_ < often) return;
  looked_ = ticks();
  bool any = false;
  for (Outbound* out : pending_) any |= out->lost = group_.died(out->peer);
  if (!any) return;
  move_mail();
  const uint64_t call = running();
  std::erase_if(pending_, [this, call](Outbound* out) {
    if (!out->lost || !has_left(out->peer)) return false;
    if (group_.control(out->peer).finished.load(std::memory_order_relaxed) < call)
      return false;  // without it
    out->listed = false;
    out->done = out->sent;
    acknowledge(*out);
    return true;
  });
  for (const Outbound* out : pending_)
    if (out->lost && group_.lost_for_good(out->peer))
      throw Error(ErrorKind::peer, group_.gone(out->peer), out->peer);
}

bool Mirror::move_messages() {
  bool moved = false;
  for (Inbound* in : heard_) replenish(*in);
  for (uint32_t turn = 0; turn < kMostAtOnce; ++turn) {
    look_for_dead_readers();
    tested_.clear();
    senders_.clear();
    for (Inbound* in : heard_) {
      const uint64_t next = in->published + 1;
      if (in->waits_for_payload)
        tested_.push_back(&in->payloads[(in->split_arrived + 1) % kLargeDepth]);
      else if (next <= in->posted)
        tested_.push_back(&in->headers[next % kLargeDepth]);
    }
    const size_t receives = tested_.size();
    for (Outbound* out : pending_) {
      if (out->lost) continue;
      Outbound::Item& next = out->items[(out->done + 1) % kLargeDepth];
      tested_.push_back(next.header.active() ? &next.header : &next.payload);
      senders_.push_back(out);
    }
    if (tested_.empty()) return moved;
    const auto [index, code] = library_->test_any(tested_.data(), static_cast<int>(tested_.size()));
    if (index < 0) return moved;
    moved = true;
    mpi::Request* done = tested_[static_cast<size_t>(index)];
    if (static_cast<size_t>(index) >= receives) {
      Outbound& out = *senders_[static_cast<size_t>(index) - receives];
      if (code && (move_mail(), !has_left(out.peer))) fail("MPI_Isend", code, out.peer);
      if (settle(out)) {
        out.listed = false;
        std::erase(pending_, &out);
      }
      continue;
    }
    for (Inbound* in : heard_) {
      if (done != &in->headers[(in->published + 1) % kLargeDepth] &&
          done != &in->payloads[(in->split_arrived + 1) % kLargeDepth])
        continue;
      if (code) fail("MPI_Irecv", code, in->peer);
      in->waits_for_payload ? deliver(*in) : arrived(*in);
      // It may be all that is waited for: another test would be another look at the network.
      if (!in->waits_for_payload && pending_.empty()) return true;
      break;
    }
  }
  return moved;
}

Mirror::~Mirror() {
  const Guard guard(*this);
  const auto keep_all = [this] {  // MPI may still use it
    for (auto& in : inbound_) static_cast<void>(in.release());
    for (auto& out : outbound_) static_cast<void>(out.release());
    for (auto& known : known_) static_cast<void>(known.letter.release());
    for (auto& letter : sent_) static_cast<void>(letter.release());
    for (auto& letter : lost_) static_cast<void>(letter.release());
  };
  if (library_->finalized()) {  // too late to end anything
    keep_all();
    return;
  }
  hear_farewells();
  try {
    move_sent();
  } catch (const Error&) {
  }
  for (auto& letter : lost_) static_cast<void>(letter.release());
  for (int peer : peers_) {  // what concerns the dead stays as it is
    if (!group_.died(peer)) continue;
    const size_t first = static_cast<size_t>(peer) * kMaxLanes;
    for (size_t lane = first; lane < first + kMaxLanes; ++lane) {
      static_cast<void>(inbound_[lane].release());
      static_cast<void>(outbound_[lane].release());
    }
    static_cast<void>(known_[static_cast<size_t>(peer)].letter.release());
  }
  std::vector<mpi::Request*> open;
  const auto collect = [&](mpi::Request& request) {
    if (request.active()) open.push_back(&request);
  };
  for (auto& in : inbound_) {
    if (!in) continue;
    for (auto& request : in->headers) collect(request);
    for (auto& request : in->payloads) collect(request);
  }
  for (int peer : peers_)
    if (const auto& letter = known_[static_cast<size_t>(peer)].letter) collect(letter->requests.front());
  for (mpi::Request* request : open) library_->cancel(*request);
  for (auto& out : outbound_)
    for (uint32_t i = 0; out && i < kLargeDepth; ++i)
      collect(out->items[i].header), collect(out->items[i].payload);
  for (auto& letter : sent_)
    for (auto& request : letter->requests) collect(request);
  const uint64_t until = now_ns() + kLastWord;
  while (!open.empty() && now_ns() < until) {
    std::erase_if(open, [](const mpi::Request* request) { return !request->active(); });
    try {
      for (mpi::Request* request : open) library_->test(*request);
    } catch (const Error&) {
    }
  }
  if (!open.empty()) keep_all();
}

}  // namespace pc
