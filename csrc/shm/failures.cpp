// What can go wrong with the members of a communicator: noticed, told to all, put into words.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "shm/group.hpp"
#include "shm/survivors.hpp"

namespace pc {
namespace {

// The state of a process as ps shows it: 'T' is stopped. 0 if it cannot be told.
char process_state(int pid) {
  char path[32], line[512];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE* file = std::fopen(path, "re");
  if (!file) return 0;
  const size_t size = std::fread(line, 1, sizeof line - 1, file);
  std::fclose(file);
  line[size] = '\0';
  const char* end = std::strrchr(line, ')');  // the name before may contain anything
  return end && end[1] == ' ' ? end[2] : '\0';
}

bool stopped(int pid) {
  const char state = process_state(pid);
  return state == 'T' || state == 't';
}

std::string call_text(const RecordedCall& call) {
  return call.text() + (call.site.empty() ? "" : " at " + call.site);
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

std::string in_seconds(uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, ns < 10'000'000'000 ? "%.3g s" : "%.0f s", static_cast<double>(ns) / 1e9);
  return text;
}

void Group::note_loss(ErrorKind kind, int culprit) {
  if (!mirror_) return;
  if (kind == ErrorKind::peer && culprit >= 0 && shrinking(*this, culprit) && !died(culprit))
    return;  // it is there
  const bool left =
      culprit >= 0 && control(culprit).presence.load(std::memory_order_acquire) == Presence::departed;
  if (kind == ErrorKind::transport || kind == ErrorKind::timeout || (kind == ErrorKind::peer && !left))
    lost_.store(true, std::memory_order_relaxed);
}

void Group::note_absent(const std::vector<int>& ranks) {
  for (const int rank : ranks)
    if (mirror_ && control(rank).presence.load(std::memory_order_acquire) != Presence::departed)
      lost_.store(true, std::memory_order_relaxed);
}

void Group::poison(ErrorKind kind, int culprit) {
  note_loss(kind, culprit);
  uint64_t word = static_cast<uint64_t>(kind) << 48 | static_cast<uint64_t>(culprit + 1) << 24 |
                  static_cast<uint64_t>(rank_ + 1);
  uint64_t before = 0;
  const bool first = control(rank_).poison.compare_exchange_strong(before, word, std::memory_order_acq_rel);
  if (!first) word = before;  // somebody has told this rank: others may not know yet
  for (int peer = 0; peer < size_; ++peer) {
    if (!base_[static_cast<size_t>(peer)]) continue;
    uint64_t clean = 0;
    control(peer).poison.compare_exchange_strong(clean, word, std::memory_order_acq_rel);
    peer == rank_ ? ring(control(peer)) : wake(control(peer));  // other threads of this rank may sleep too
  }
  // What the caller does to its arrays now must not be seen before the poison (tests/model/poison.cpp).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (mirror_ && first) mirror_->publish_poison(word);  // whoever has told this rank has told all
}

void Group::say(const std::string& text, uint64_t sequence) {
  Control& own = control(rank_);
  if (forgotten_ || own.has_text.load(std::memory_order_relaxed)) return;
  copy_text(own.text, text);
  own.failed_call.store(sequence, std::memory_order_relaxed);
  own.has_text.store(1, std::memory_order_release);
}

void Group::fail(const Error& error, uint64_t sequence) {
  say(error.what(), sequence);
  if (mirror_ && !poisoned()) mirror_->publish_record(sequence);
  poison(error.kind(), error.peer());
}

std::string Group::said(int peer) const {
  const Control& theirs = control(peer);
  if (!theirs.has_text.load(std::memory_order_acquire)) return "";
  return {theirs.text, strnlen(theirs.text, sizeof theirs.text)};
}

// Does `peer` need nobody in this call any more?
bool Group::has_finished(int peer, uint64_t sequence) const {
  const Record& theirs = record(peer, sequence);
  const uint64_t reached = theirs.sequence.load(std::memory_order_acquire);
  if (reached > sequence || control(peer).finished.load(std::memory_order_acquire) >= sequence) return true;
  return reached == sequence && theirs.state.load(std::memory_order_acquire) == CallState::done;
}

// What a rank on another host has sent before it died may still be on its way.
bool Group::lost_for_good(int peer) {
  constexpr uint64_t grace = 500'000'000;
  std::atomic<uint64_t>& since = lost_since_[static_cast<size_t>(peer)];
  const uint64_t now = now_ns();
  uint64_t first = 0;
  if (since.compare_exchange_strong(first, now, std::memory_order_relaxed)) first = now;
  return now - first > grace;
}

void Group::check_peers(uint64_t sequence, uint64_t waited_ns) {
  if (poisoned()) raise_poison(sequence);
  if (waited_ns >= kCompareAfter) {
    if (mirror_ && published_ != sequence) {  // the others cannot look at this rank's records
      published_ = sequence;
      mirror_->publish_record(sequence);
    }
    if (disagreement(sequence)) raise_mismatch(sequence);
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || has_finished(peer, sequence)) continue;
    std::string what = gone(peer);
    // Whoever shrinks the communicator makes no calls on it meanwhile.
    if (what.empty() && waited_ns >= kCompareAfter && shrinking(*this, peer) &&
        record(peer, sequence).sequence.load(std::memory_order_acquire) < sequence)
      what = "rank " + std::to_string(peer) + " shrinks the communicator";
    if (what.empty() || has_finished(peer, sequence)) continue;  // it may have finished, and left, meanwhile
    if (remote(peer) && !lost_for_good(peer)) continue;
    if (poisoned()) raise_poison(sequence);  // it has raised before, which is what there is to say
    throw Error(ErrorKind::peer, what, peer);
  }
}

std::string Group::process(int peer) const {
  if (remote(peer)) return "rank " + std::to_string(peer) + " (on another host)";
  return "rank " + std::to_string(peer) + " (process " + std::to_string(control(peer).pid.load()) + ")";
}

// Where a rank was last seen.
std::string Group::whereabouts(int peer) const {
  const uint64_t last = last_sequence(recorder(peer));
  const auto call = read_call(recorder(peer), last);
  const std::string message = awaited_message(recorder(peer));
  std::string text = message.empty() ? "" : ", waiting in " + message;
  if (!call) return last || remote(peer) ? text : text + " before its first call";
  const char* when = call->state == CallState::running  ? " in call "
                     : call->state == CallState::failed ? " after it had failed in call "
                                                        : " after call ";
  return text + when + std::to_string(last) + " " + call_text(*call);
}

bool Group::in_a_call(uint64_t then) const {
  const uint64_t last = last_sequence(recorder(rank_));
  for (uint64_t sequence = last; sequence && sequence + kRecords > last; --sequence) {
    const auto call = read_call(recorder(rank_), sequence);
    if (!call) return false;
    if (call->started < then) return call->state == CallState::running || call->ended > then;
  }
  return false;
}

std::string Group::own_call(uint64_t sequence) const {
  const auto call = read_call(recorder(rank_), sequence);
  return "call " + std::to_string(sequence) + (call ? " " + call_text(*call) : "");
}

bool Group::died(int peer) const {
  pollfd line{lifeline_[static_cast<size_t>(peer)], POLLIN, 0};
  if (remote(peer)) return line.fd >= 0 && ::poll(&line, 1, 0) == 1;
  const int fd = pidfd_[static_cast<size_t>(peer)], pid = pid_[static_cast<size_t>(peer)];
  pollfd dead{fd, POLLIN, 0};
  if (fd >= 0) return poll(&dead, 1, 0) == 1;
  if (pid <= 0) return false;
  const char state = process_state(pid);
  return state == 'Z' || state == 'X' || (kill(pid, 0) != 0 && errno == ESRCH);
}

std::string Group::gone(int peer) const {
  const bool dead = died(peer);
  if (control(peer).presence.load(std::memory_order_acquire) == Presence::departed)
    return "rank " + std::to_string(peer) + " has left the communicator" + whereabouts(peer) +
           (said(peer).empty() ? "" : ", having raised " + said(peer));
  if (dead && remote(peer)) {
    const std::string where = whereabouts(peer);
    const bool joins = where.empty() || where.front() == ',';
    return process(peer) + " died, or there is no way to it any more" + (joins ? "" : ",") + where;
  }
  return dead ? process(peer) + " died" + whereabouts(peer) : "";
}

bool Group::waits_below(uint64_t sequence) const {
  for (int peer = 0; peer < rank_; ++peer)
    if (record(peer, sequence).sequence.load(std::memory_order_acquire) == sequence &&
        !has_finished(peer, sequence) && gone(peer).empty())
      return true;
  return false;
}

// The first call that not everybody has completed: who has not come to it? If all have: who was stopped in it, or is at the
// end of the chain of those who wait for one another?
Group::Awaited Group::awaited(uint64_t sequence) const {
  const auto is_stopped = [this](int peer) {
    if (remote(peer)) return false;
    const int pid = control(peer).pid.load(std::memory_order_relaxed);
    return pid != getpid() && stopped(pid);
  };
  std::vector<uint64_t> entered;
  for (int peer = 0; peer < size_; ++peer) {
    const uint64_t last = last_sequence(recorder(peer));
    entered.push_back(last);
    if (remote(peer)) continue;  // it tells of the call in which it waits, and of little else
    const bool running =
        last && record(peer, last).state.load(std::memory_order_acquire) == CallState::running;
    sequence = std::min(sequence, running ? last : last + 1);
  }
  std::map<std::string, std::vector<int>> missing;
  int first = -1;
  for (int peer = size_ - 1; peer >= 0; --peer)
    if (peer != rank_ && entered[static_cast<size_t>(peer)] < sequence)
      missing[(is_stopped(peer) ? ", stopped" : "") + whereabouts(peer)].push_back(first = peer);
  std::string text;
  for (auto& [where, ranks] : missing) {
    std::reverse(ranks.begin(), ranks.end());
    text += (text.empty() ? "" : ", ") + list_ranks(ranks) + where;
  }
  if (first >= 0) return {text, first};
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_ && !has_finished(peer, sequence) && is_stopped(peer))
      return {process(peer) + ", stopped" + whereabouts(peer), peer};
  int last = rank_;
  for (int hops = 0; hops < size_; ++hops) {
    const uint64_t word = control(last).awaits.load(std::memory_order_relaxed);
    const int next = static_cast<int>(word & 0xffff) - 1;
    if (next < 0 || next >= size_ || next == rank_ || has_finished(next, sequence)) break;
    last = next;
    if (word >> 16 < sequence) break;
  }
  if (last == rank_) return {"ranks that are in it but do not move", -1};
  return {process(last) + ", which does not move" + whereabouts(last), last};
}

void Group::raise_poison(uint64_t sequence) {
  const uint64_t word = control(rank_).poison.load(std::memory_order_acquire);
  const int raiser = static_cast<int>(word & 0xffffffu) - 1,
            culprit = static_cast<int>(word >> 24 & 0xffffffu) - 1;
  const auto kind = static_cast<ErrorKind>(word >> 48);
  note_loss(kind, culprit);
  // The call in question may be the raiser's last one; this rank may not have reached it, or have returned from it.
  if (kind == ErrorKind::mismatch) raise_mismatch(std::max(last_sequence(recorder(raiser)), sequence));
  const std::string who = "rank " + std::to_string(raiser);
  if (kind == ErrorKind::aborted) throw Error(kind, "the communicator was aborted by " + who, raiser);
  if (raiser == rank_ && culprit == rank_ && kind != ErrorKind::timeout)  // see Communicator::close
    throw Error(ErrorKind::aborted,
                std::string("the communicator was ") +
                    (kind == ErrorKind::interrupted ? "interrupted" : "closed") +
                    " in another thread of this rank",
                rank_);
  const std::string said = this->said(raiser);
  const bool names_other = culprit >= 0 && culprit != rank_;
  if (kind == ErrorKind::peer && names_other) {
    const std::string what = gone(culprit);
    throw Error(kind,
                (what.empty() ? "rank " + std::to_string(culprit) + " failed" : what) +
                    (culprit == raiser ? "" : ", as " + who + " noticed"),
                culprit);
  }
  if (kind == ErrorKind::timeout && !said.empty()) {
    const uint64_t waited_in = control(raiser).failed_call.load(std::memory_order_relaxed);
    const auto call = read_call(recorder(raiser), waited_in), mine = read_call(recorder(rank_), waited_in);
    const bool late = call && (!mine || mine->started > call->ended);
    // This rank was stopped or came too late itself; but not if it was kept by somebody else in an earlier call.
    const bool awaited = culprit == rank_ || (late && !in_a_call(call->ended));
    if (!awaited) throw Error(kind, said + ", as " + who + " noticed", culprit);
  }
  const std::string why = kind == ErrorKind::timeout       ? " waited in vain for this rank"
                          : kind == ErrorKind::interrupted ? " was interrupted"
                          : said.empty()                   ? " raised an error"
                                                           : " raised an error: " + said;
  throw Error(ErrorKind::peer, who + why + "," + whereabouts(raiser) + "; the communicator is unusable",
              raiser);
}

}  // namespace pc
