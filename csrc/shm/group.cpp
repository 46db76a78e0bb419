#include "shm/group.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "core/dtype.hpp"
#include "core/verbs.hpp"

namespace pc {
namespace {

SiteResolver site_resolver = nullptr;

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

void set_site_resolver(SiteResolver resolver) { site_resolver = resolver; }
std::string resolve_site(const Record& record) {
  return site_resolver ? site_resolver(record) : std::string();
}

Group::Group(int rank, int size, size_t pool_bytes)
    : rank_(rank),
      size_(size),
      pool_bytes_(pool_bytes),
      layout_(static_cast<uint32_t>(size), pool_bytes),
      own_(size == 1 ? Mapping::alone(layout_.bytes) : Mapping::create(layout_.bytes, "pycollectives")),
      peers_(static_cast<size_t>(size)),
      base_(static_cast<size_t>(size), nullptr),
      life_(static_cast<size_t>(size), -1),
      remote_(static_cast<size_t>(size), false),
      lost_since_(static_cast<size_t>(size), 0) {
  base_[static_cast<size_t>(rank)] = own_.data();
  control(rank).pid.store(getpid(), std::memory_order_relaxed);
  control(rank).core.store(-1, std::memory_order_relaxed);
  control(rank).presence.store(Presence::present, std::memory_order_release);
}

Group::~Group() {
  if (!forgotten_)
    depart();
  else
    static_cast<void>(mirror_.release());  // MPI does not exist in a forked child
  for (int fd : life_)
    if (fd >= 0) ::close(fd);
}

void Group::attach(int peer, int fd, int pid) {
  peers_.at(static_cast<size_t>(peer)) = Mapping::attach(fd, layout_.bytes);
  base_[static_cast<size_t>(peer)] = peers_[static_cast<size_t>(peer)].data();
  if (pid != getpid()) life_[static_cast<size_t>(peer)] = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

void Group::attach_remote(int peer, int lifeline) {
  const auto p = static_cast<size_t>(peer);
  peers_.at(p) = Mapping::alone(layout_.bytes);  // of which few pages are ever touched
  base_[p] = peers_[p].data();
  remote_[p] = true;
  life_[p] = lifeline;
  control(peer).presence.store(Presence::present, std::memory_order_release);
}

void Group::connect(std::unique_ptr<Mirror> mirror) {
  for (int peer = 0; peer < size_; ++peer)
    if (remote_[static_cast<size_t>(peer)]) mirror->add(peer);
  mirror_ = std::move(mirror);
}

void Group::forget() {
  own_.close_fd();
  for (int& fd : life_)
    if (fd >= 0) ::close(std::exchange(fd, -1));
  forgotten_ = true;
}

void Group::depart() {
  if (forgotten_) return;
  if (control(rank_).presence.exchange(Presence::departed, std::memory_order_acq_rel) != Presence::present)
    return;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && base_[static_cast<size_t>(peer)]) wake(control(peer));
  if (mirror_) mirror_->depart();
}

void Group::poison(ErrorKind kind, int culprit) {
  const uint64_t word = static_cast<uint64_t>(kind) << 48 | static_cast<uint64_t>(culprit + 1) << 24 |
                        static_cast<uint64_t>(rank_ + 1);
  bool first = false;
  for (int peer = 0; peer < size_; ++peer) {
    if (!base_[static_cast<size_t>(peer)]) continue;
    uint64_t clean = 0;
    const bool told = control(peer).poison.compare_exchange_strong(clean, word, std::memory_order_acq_rel);
    first |= told && peer == rank_;
    peer == rank_ ? ring(control(peer)) : wake(control(peer));  // other threads of this rank may sleep too
  }
  // What the caller does to its arrays now must not be seen before the poison (tests/model/poison.cpp).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (mirror_ && first) mirror_->publish_poison(word);  // whoever has told this rank has told all
}

void Group::check_peers(uint64_t sequence, uint64_t waited_ns) {
  if (poisoned()) raise_poison(sequence);
  constexpr uint64_t compare_after = 50'000'000;
  if (waited_ns >= compare_after) {
    if (mirror_ && published_ != sequence) {  // the others cannot look at this rank's records
      published_ = sequence;
      mirror_->publish_record(sequence);
    }
    if (disagreement(sequence)) raise_mismatch(sequence);
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || has_finished(peer, sequence)) continue;
    const std::string what = gone(peer);  // it may have finished, and left, since the question before
    if (what.empty() || has_finished(peer, sequence)) continue;
    if (!remote(peer) || lost_for_good(peer)) throw Error(ErrorKind::peer, what, peer);
  }
}

bool Group::has_finished(int peer, uint64_t sequence) const {
  const Record& theirs = record(peer, sequence);
  const uint64_t reached = theirs.sequence.load(std::memory_order_acquire);
  if (reached > sequence || control(peer).finished.load(std::memory_order_acquire) >= sequence) return true;
  return reached == sequence && theirs.state.load(std::memory_order_acquire) == CallState::done;
}

// What a rank on another host has sent before it died may still be on its way.
bool Group::lost_for_good(int peer) {
  constexpr uint64_t grace = 500'000'000;
  uint64_t& since = lost_since_[static_cast<size_t>(peer)];
  const uint64_t now = now_ns();
  if (since == 0) since = now;
  return now - since > grace;
}

std::string Group::gone(int peer) const {
  const std::string who = "rank " + std::to_string(peer);
  const int fd = life_[static_cast<size_t>(peer)];
  pollfd dead{fd, POLLIN, 0};
  const bool died = fd >= 0 && poll(&dead, 1, 0) == 1;
  if (control(peer).presence.load(std::memory_order_acquire) == Presence::departed)
    return who + " has left the communicator";
  if (!died) return "";
  if (remote(peer)) return who + ", on another host, died, or there is no way to it any more";
  return who + " (process " + std::to_string(control(peer).pid.load()) + ") died";
}

std::string describe_call(const Record& record) {
  std::string text = verb_name(record.verb);
  text += "(";
  if (record.verb != 5) {  // a barrier has no data
    const auto dtype = static_cast<DType>(record.dtype);
    text += std::string(name(dtype)) + "[" + std::to_string(record.count) + "]";
    if (record.op < kOpNames.size()) text += std::string(", ") + kOpNames[record.op];
    if (record.op == kUserOp)
      text += ", " + std::string(record.user_op, strnlen(record.user_op, sizeof record.user_op));
    if (record.root >= 0) text += ", root=" + std::to_string(record.root);
    if (record.deterministic) text += ", deterministic";
  }
  return text + ")";
}

std::string Group::describe(int rank, uint64_t sequence) const {
  const Record& theirs = record(rank, sequence);
  if (theirs.sequence.load(std::memory_order_acquire) != sequence) return "";
  std::string text = "called " + describe_call(theirs);
  const Control& where = control(rank);
  if (where.has_text.load(std::memory_order_acquire)) text += std::string(" at ") + where.text;
  return text;
}

uint64_t Group::disagreement(uint64_t last) const {
  constexpr uint64_t window =
      32;  // a rank that waits for nobody in a call is stopped a few calls later by full headers
  for (uint64_t sequence = last > window ? last - window : 1; sequence <= last; ++sequence) {
    std::optional<uint64_t> first;
    for (int peer = 0; peer < size_; ++peer) {
      const auto fingerprint = fingerprint_of(record(peer, sequence), sequence);
      if (first && fingerprint && *fingerprint != *first) return sequence;
      if (fingerprint) first = fingerprint;
    }
  }
  return 0;
}

void Group::raise_mismatch(uint64_t noticed) {
  const uint64_t found = disagreement(noticed), sequence = found ? found : noticed;
  Control& own = control(rank_);
  const std::string site = resolve_site(record(rank_, sequence));
  if (!site.empty() && !own.has_text.load(std::memory_order_relaxed)) {
    std::snprintf(own.text, sizeof own.text, "%s", site.c_str());
    own.has_text.store(1, std::memory_order_release);
  }
  if (mirror_) mirror_->publish_record(sequence);
  poison(ErrorKind::mismatch);
  // The others resolve their call sites too, as soon as they notice, those that have returned in their next
  // call; a rank that does not is described without.
  const uint64_t until = now_ns() + 300'000'000;
  for (int peer = 0; peer < size_; ++peer)
    while (!control(peer).has_text.load(std::memory_order_acquire) && now_ns() < until &&
           record(peer, sequence).sequence.load(std::memory_order_acquire) == sequence &&
           control(peer).presence.load(std::memory_order_acquire) == Presence::present)
      if (!progress_all()) usleep(1000);
  std::map<std::pair<uint64_t, std::string>, std::vector<int>> said;
  std::vector<int> silent;
  for (int peer = 0; peer < size_; ++peer) {
    const std::string what = describe(peer, sequence);
    const uint64_t fingerprint = record(peer, sequence).fingerprint.load(std::memory_order_relaxed);
    (what.empty() ? silent : said[{fingerprint, what}]).push_back(peer);
  }
  std::vector<std::pair<std::vector<int>, std::string>> groups;
  std::map<std::string, uint64_t> calls;
  bool alike = false;
  for (const auto& [what, ranks] : said) {
    groups.emplace_back(ranks, what.second);
    const auto [known, added] =
        calls.try_emplace(what.second.substr(0, what.second.find(" at ")), what.first);
    alike |= !added && known->second != what.first;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
  std::string text;
  for (const auto& [ranks, what] : groups)
    text += (text.empty() ? "" : " while ") + list_ranks(ranks) + " " + what;
  if (alike)
    text +=
        "; what reads alike differs in algorithm=, the factor of scaled_sum, the function of op(), or the "
        "counts of blocks";
  if (!silent.empty()) text += "; " + list_ranks(silent) + " did neither yet";
  throw Error(ErrorKind::mismatch, "the ranks disagree in call " + std::to_string(sequence) + ": " + text,
              groups.empty() ? -1 : groups.front().first.front());
}

void Group::raise_poison(uint64_t sequence) {
  const uint64_t word = control(rank_).poison.load(std::memory_order_acquire);
  const int peer = static_cast<int>(word & 0xffffffu) - 1,
            culprit = static_cast<int>(word >> 24 & 0xffffffu) - 1;
  const auto kind = static_cast<ErrorKind>(word >> 48);
  if (kind == ErrorKind::mismatch) {
    // The call in question may be the raiser's last one; this rank may not have reached it, or have returned
    // from it.
    uint64_t theirs = 0;
    for (uint64_t back = 0; back < kRecords && peer >= 0; ++back)
      theirs = std::max(theirs, record(peer, back).sequence.load(std::memory_order_acquire));
    raise_mismatch(std::max(theirs, sequence));
  }
  const std::string who = "rank " + std::to_string(peer);
  if (kind == ErrorKind::aborted)
    throw Error(ErrorKind::aborted, "the communicator was aborted by " + who, peer);
  if (kind == ErrorKind::peer && culprit >= 0 && culprit != rank_) {
    const std::string what = gone(culprit);
    throw Error(
        ErrorKind::peer,
        (what.empty() ? "rank " + std::to_string(culprit) + " failed" : what) + ", as " + who + " noticed",
        culprit);
  }
  const char* why = kind == ErrorKind::timeout       ? " waited in vain"
                    : kind == ErrorKind::interrupted ? " was interrupted"
                                                     : " raised an error";
  throw Error(ErrorKind::peer, who + why + "; the communicator is unusable", peer);
}

std::string Group::missing(uint64_t sequence) const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && record(peer, sequence).sequence.load(std::memory_order_acquire) < sequence)
      ranks.push_back(peer);
  return ranks.empty() ? "" : list_ranks(ranks);
}

}  // namespace pc
