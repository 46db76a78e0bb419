// All that is not a message of a lane: streams, credit, records, poison, shrinking, farewell.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "mpi/mirror_parts.hpp"
#include "shm/group.hpp"

namespace pc {
std::unique_ptr<Mirror::Letter> Mirror::write(uint32_t kind, uint64_t a, uint64_t b, size_t bytes) const {
  auto letter = std::make_unique<Letter>(bytes);
  letter->mail() = Mail{kind, rank_, bytes, a, b};
  return letter;
}

// To those of them that are still there; throws the first error after it has tried all.
void Mirror::post(std::unique_ptr<Letter> written, const std::vector<int>& to) {
  sent_.push_back(std::move(written));  // whatever happens, MPI may read it
  Letter& letter = *sent_.back();
  std::optional<Error> problem;
  for (int peer : to) {
    if (!group_.gone(peer).empty()) continue;
    mpi::Request& request = letter.requests.emplace_back();
    letter.to.push_back(peer);
    try {
      library_->isend(letter.data.get(), letter.size, world_[static_cast<size_t>(peer)], mail_tag(), comm_,
                      request);
    } catch (const Error& error) {
      if (!problem) problem = Error(error.kind(), error.what(), peer);
    }
  }
  if (problem) throw *problem;
}

void Mirror::post_receive(int peer) {
  Letter& letter = *known_[static_cast<size_t>(peer)].letter;
  letter.requests.resize(1);
  library_->irecv(letter.data.get(), letter.size, world_[static_cast<size_t>(peer)], mail_tag(), comm_,
                  letter.requests.front());
}

bool Mirror::has_left(int peer) const {
  return group_.control(peer).presence.load(std::memory_order_acquire) == Presence::departed;
}

// Is it being sent to somebody who lives?
bool Mirror::waits(const Letter& letter) const {
  for (size_t i = 0; i < letter.requests.size(); ++i)
    if (letter.requests[i].active() && !group_.died(letter.to[i])) return true;
  return false;
}

// Forgets letters that have been sent.
bool Mirror::move_sent() {
  bool moved = false;
  for (auto& letter : sent_) {
    for (size_t i = 0; i < letter->requests.size(); ++i) {
      if (!letter->requests[i].active() || group_.died(letter->to[i])) continue;
      const auto tested = library_->test(letter->requests[i]);
      if (tested.code && !has_left(letter->to[i])) fail("MPI_Isend", tested.code, letter->to[i]);
      moved |= tested.index == 0;
    }
  }
  for (auto& letter : sent_)
    if (letter->active() && !waits(*letter)) lost_.push_back(std::move(letter));
  std::erase_if(sent_, [](const auto& letter) { return !letter || !letter->active(); });
  return moved;
}

bool Mirror::move_mail() {
  bool moved = move_sent();
  tested_.clear();
  writers_.clear();
  for (int peer : peers_) {
    mpi::Request& next = known_[static_cast<size_t>(peer)].letter->requests.front();
    if (!next.active()) continue;  // it has left, and its process has ended
    tested_.push_back(&next);
    writers_.push_back(peer);
  }
  for (uint32_t turn = 0; turn < kMostAtOnce && !writers_.empty(); ++turn) {
    const auto [index, code] = library_->test_any(tested_.data(), static_cast<int>(tested_.size()));
    if (index < 0) break;
    const int peer = writers_[static_cast<size_t>(index)];
    if (code && has_left(peer)) break;
    if (code) fail("MPI_Irecv", code, peer);
    read(known_[static_cast<size_t>(peer)].letter->mail());
    post_receive(peer);
    moved = true;
  }
  for (int peer : peers_) moved |= pump(peer);
  return moved;
}

// Mails what is new in the stream to a peer, and how much of the peer's stream has been taken.
bool Mirror::pump(int peer) {
  Peer& known = known_[static_cast<size_t>(peer)];
  const uint64_t end = group_.stream_sent(rank_, peer).load(std::memory_order_acquire);
  const uint64_t taken = group_.stream_taken(peer, rank_).load(std::memory_order_acquire);
  const size_t capacity = group_.stream_bytes();
  bool moved = false;
  while (known.pumped < end) {
    const size_t place = known.pumped % capacity;
    const size_t bytes = std::min({static_cast<size_t>(end - known.pumped), capacity - place, kStreamPiece});
    auto letter = write(Mail::stream, known.pumped, 0, bytes);
    std::memcpy(letter->mail().body(), group_.stream(rank_, peer) + place, bytes);
    post(std::move(letter), {peer});
    known.pumped += bytes;
    moved = true;
  }
  if (taken - known.taken >= capacity / 4) {
    known.taken = taken;
    post(write(Mail::taken, taken, 0, 0), {peer});
    moved = true;
  }
  return moved;
}

void Mirror::tell_credit(Inbound& in, uint64_t consumed) {
  in.told = consumed;
  post(write(Mail::credit, in.lane, consumed, 0), {in.peer});
}

void Mirror::read(const Mail& mail) {
  const int peer = mail.from;
  switch (mail.kind) {
    case Mail::hello:
      known_[static_cast<size_t>(peer)].heard = true;
      break;
    case Mail::stream: {
      const size_t place = mail.a % group_.stream_bytes();
      std::memcpy(group_.stream(peer, rank_) + place, mail.body(), mail.bytes);
      group_.stream_sent(peer, rank_).store(mail.a + mail.bytes, std::memory_order_release);
      break;
    }
    case Mail::taken:
      group_.stream_taken(rank_, peer).store(mail.a, std::memory_order_release);
      break;
    case Mail::credit: {
      Outbound& out = outbound(peer, static_cast<uint32_t>(mail.a));
      out.credit = std::max(out.credit, mail.b);
      acknowledge(out);
      break;
    }
    case Mail::record: {
      CallLetter letter;
      std::memcpy(&letter, mail.body(), sizeof letter);
      unpack_call(group_.recorder(peer), letter);
      Control& control = group_.control(peer);
      if (mail.bytes > sizeof letter && !control.has_text.load(std::memory_order_relaxed)) {
        const size_t length = std::min<size_t>(mail.bytes - sizeof letter, sizeof control.text);
        std::memcpy(control.text, mail.body() + sizeof letter, length);
        control.text[length - 1] = '\0';
        control.failed_call.store(mail.b, std::memory_order_relaxed);
        control.has_text.store(1, std::memory_order_release);
      }
      break;
    }
    case Mail::poison: {
      uint64_t clean = 0;
      group_.control(rank_).poison.compare_exchange_strong(clean, mail.a, std::memory_order_acq_rel);
      break;
    }
    case Mail::shrinking:
      group_.control(peer).finished.store(mail.b, std::memory_order_relaxed);
      group_.control(peer).shrinking.store(mail.a, std::memory_order_release);
      break;
    case Mail::departed:
      group_.control(peer).finished.store(mail.a, std::memory_order_relaxed);
      group_.control(peer).presence.store(Presence::departed, std::memory_order_release);
      break;
  }
  ring(group_.control(rank_));
}

void Mirror::greet() {
  const Guard guard(*this);
  post(write(Mail::hello, 0, 0, 0), peers_);
  const auto heard = [this](int peer) { return known_[static_cast<size_t>(peer)].heard; };
  const uint64_t until = now_ns() + kGreeting;
  while ((!std::all_of(peers_.begin(), peers_.end(), heard) || !sent_.empty()) && now_ns() < until)
    if (!move_mail()) sched_yield();
}

void Mirror::publish_record(uint64_t sequence) {
  const Guard guard(*this);
  const CallLetter call = pack_call(group_.recorder(rank_), sequence);
  const Control& own = group_.control(rank_);
  const size_t text =
      own.has_text.load(std::memory_order_acquire) ? strnlen(own.text, sizeof own.text - 1) + 1 : 0;
  auto letter =
      write(Mail::record, sequence, own.failed_call.load(std::memory_order_relaxed), sizeof call + text);
  std::memcpy(letter->mail().body(), &call, sizeof call);
  std::memcpy(letter->mail().body() + sizeof call, own.text, text);
  post(std::move(letter), peers_);
}

void Mirror::publish_poison(uint64_t word) noexcept try {
  const Guard guard(*this);
  post(write(Mail::poison, word, 0, 0), peers_);
  flush(kLastWord);
} catch (const Error&) {  // who cannot be told notices the rest by itself
}

void Mirror::publish_shrinking(uint64_t attempt) noexcept try {
  const Guard guard(*this);
  post(write(Mail::shrinking, attempt, finished(), 0), peers_);
  flush(kLastWord);
} catch (const Error&) {
}

// The last call from which this rank has returned.
uint64_t Mirror::finished() const { return last_call(CallState::done); }

// The call in which this rank is; 0 outside of calls.
uint64_t Mirror::running() const {
  const uint64_t call = last_call(CallState::running);
  return call > finished() ? call : 0;
}

uint64_t Mirror::last_call(CallState state) const {
  uint64_t last = 0;
  for (uint64_t i = 0; i < kRecords; ++i) {
    const Record& record = group_.record(rank_, i);
    if (record.state.load(std::memory_order_relaxed) == state)
      last = std::max(last, record.sequence.load(std::memory_order_relaxed));
  }
  return last;
}

void Mirror::depart() noexcept try {
  const Guard guard(*this);
  if (library_->finalized()) return;
  std::vector<int> there;
  for (int peer : peers_) {
    if (has_left(peer)) continue;
    pump(peer);
    there.push_back(peer);
  }
  post(write(Mail::departed, finished(), 0, 0), there);
  flush(kLastWord);
} catch (const Error&) {
}

// Hears the last words of those who leave at the same time, but does not wait for anybody else.
void Mirror::hear_farewells() noexcept try {
  const auto left = [this](int peer) { return has_left(peer); };
  const uint64_t until = now_ns() + kFarewell;
  while (!std::all_of(peers_.begin(), peers_.end(), left) && now_ns() < until)
    if (!move_mail()) sched_yield();
} catch (const Error&) {
}

// Waits a little until all mail has left.
void Mirror::flush(uint64_t ns) noexcept try {
  for (const uint64_t until = now_ns() + ns; !sent_.empty() && now_ns() < until; sched_yield()) move_sent();
} catch (const Error&) {
}

}  // namespace pc
