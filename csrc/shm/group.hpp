// The members of a communicator on one host: their mapped segments, and what can go wrong with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/chaos.hpp"
#include "core/error.hpp"
#include "mpi/mirror.hpp"
#include "shm/layout.hpp"
#include "shm/memory.hpp"
#include "shm/wait.hpp"

namespace pc {

inline constexpr uint64_t kCompareAfter = 50'000'000;  // ns of a wait, before the ranks' calls are compared
inline constexpr uint64_t kLongestNap =
    500'000'000;  // ns between two looks of a waiting rank that is not stopped

class Group {
 public:
  // `single_copy`: the members may read each other's own memory (single_copy.hpp), if the kernel lets them.
  Group(int rank, int size, size_t pool_bytes, bool single_copy = false);
  ~Group();
  Group(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int fd() const { return own_.fd(); }
  size_t pool_bytes() const { return pool_bytes_; }

  // Maps the segment of `peer`. The descriptor stays the caller's.
  void attach(int peer, int fd);
  // How to learn that the process of `peer` has died: its pidfd, which stays the caller's and must outlive this; else -1,
  // and then its pid, or 0.
  void watch(int peer, int pidfd, int pid);
  // The same for a rank of this process that lives longer, without another mapping: ThreadSanitizer knows memory
  // by its address.
  void attach(int peer, const Group& other) {
    base_[static_cast<size_t>(peer)] = other.base_[static_cast<size_t>(peer)];
    try_to_read(peer);
  }
  // A rank on another host. `lifeline`: a descriptor that can be read when it has died or cannot be reached, or -1;
  // becomes the group's. `connect` comes after the last of them.
  void attach_remote(int peer, int lifeline);
  void connect(std::unique_ptr<Mirror> mirror);
  void close_fd() { own_.close_fd(); }
  void forget();  // in a forked child: this object can only be destroyed
  void depart();  // from now on peers that need this rank raise

  // The ranks on other hosts; nothing where all share memory.
  Mirror* mirror() const { return mirror_.get(); }
  bool remote(int peer) const { return mirror_ && remote_[static_cast<size_t>(peer)]; }
  bool progress() { return mirror_ && mirror_->progress(false); }
  bool progress_all() { return mirror_ && mirror_->progress(true); }

  Control& control(int rank) const { return *reinterpret_cast<Control*>(base_[rank]); }
  Recorder& recorder(int rank) const { return *reinterpret_cast<Recorder*>(base_[rank] + layout_.recorder); }
  Record& record(int rank, uint64_t sequence) const { return recorder(rank).records[sequence % kRecords]; }
  Header& header(int from, int to, uint32_t lane, uint64_t number) const {
    auto* first = reinterpret_cast<Header*>(base_[from] + layout_.headers);
    return first[(static_cast<size_t>(to) * kMaxLanes + lane) * kDepth + number % kDepth];
  }
  // The fingerprint of a call in a record, which its owner may be reusing for a later one: nothing then.
  static std::optional<uint64_t> fingerprint_of(const Record& record, uint64_t sequence) {
    if (record.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
    const uint64_t fingerprint = record.fingerprint.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (record.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
    return fingerprint;
  }
  // How many messages of `sender` in `lane` `reader` has consumed.
  std::atomic<uint64_t>& ack(int reader, int sender, uint32_t lane) const {
    return reinterpret_cast<AckLine*>(base_[reader] + layout_.acks)[sender].count[lane];
  }
  // The stream of point-to-point messages from one rank to another.
  std::atomic<uint64_t>& stream_sent(int from, int to) const {
    return reinterpret_cast<Position*>(base_[from] + layout_.sent)[to].bytes;
  }
  std::atomic<uint64_t>& stream_taken(int from, int to) const {
    return reinterpret_cast<Position*>(base_[to] + layout_.taken)[from].bytes;
  }
  std::byte* stream(int from, int to) const {
    return base_[from] + layout_.streams + static_cast<size_t>(to) * layout_.stream_bytes;
  }
  size_t stream_bytes() const { return layout_.stream_bytes; }
  // One of the two lists of survivors of a rank: a byte for each rank.
  std::atomic<uint8_t>* members(int rank, uint64_t attempt) const {
    return reinterpret_cast<std::atomic<uint8_t>*>(base_[rank] + layout_.members) +
           attempt % 2 * static_cast<size_t>(size_);
  }
  std::byte* pool(int rank) const { return base_[rank] + layout_.pool; }

  // Can `reader` read what `owner` has in its own memory (single_copy.hpp)?
  bool can_read(int reader, int owner) const {
    return reads(reader, owner).load(std::memory_order_relaxed) != 0;
  }

  // Publishes that this rank enters a call, and how it ended.
  void enter(uint64_t sequence, uint64_t fingerprint, uint64_t kind, uint64_t site) {
    Record& mine = record(rank_, sequence);
    mine.sequence.store(0, std::memory_order_relaxed);  // a rank far behind may still read the old call here
    std::atomic_thread_fence(std::memory_order_release);
    mine.kind.store(kind, std::memory_order_relaxed);
    mine.site.store(site, std::memory_order_relaxed);
    mine.started.store(ticks(), std::memory_order_relaxed);
    mine.state.store(CallState::running, std::memory_order_relaxed);
    mine.fingerprint.store(fingerprint, std::memory_order_relaxed);
    chaos();
    mine.sequence.store(sequence, std::memory_order_release);
  }
  void leave(uint64_t sequence, CallState state) {
    Record& mine = record(rank_, sequence);
    mine.ended.store(ticks(), std::memory_order_relaxed);
    mine.state.store(state, std::memory_order_release);
  }

  // Has this rank been told that the communicator is broken? One load of an own line.
  bool poisoned() const { return control(rank_).poison.load(std::memory_order_acquire) != 0; }
  // Tells every member (the first one to raise wins) and wakes them. Never blocks. `culprit`: the rank at
  // fault, or -1.
  void poison(ErrorKind kind, int culprit = -1);
  // What this rank raises in call `sequence` (or outside of calls: 0), for the error texts of the others. Once.
  void say(const std::string& text, uint64_t sequence);
  // Both.
  void fail(const Error& error, uint64_t sequence);

  // The slow look at the peers, made while waiting in call `sequence`. Throws Error if it cannot be
  // completed.
  void check_peers(uint64_t sequence, uint64_t waited_ns);
  // "rank 1 (process 4711) died in call 3 ...", "rank 1 has left ...", or nothing if it is there. A system call.
  std::string gone(int peer) const;
  bool died(int peer) const;  // the process; for one on another host also: it cannot be reached
  // For longer than what it has sent before may be on its way? Asked of one on another host that is gone.
  bool lost_for_good(int peer);
  // Has a communicator of this process failed because a rank died, stopped or could not be reached? MPI_Finalize would
  // wait for it.
  static bool lost_anybody() { return lost_.load(std::memory_order_relaxed); }
  // The others go on without these ranks: those that have not left in order are lost.
  void note_absent(const std::vector<int>& ranks);
  // Throws what the poison says; `sequence` is this rank's call. Requires poisoned().
  [[noreturn]] void raise_poison(uint64_t sequence);
  [[noreturn]] void raise_mismatch(uint64_t sequence);

  // Who keeps this rank waiting in call `sequence`, in words, and the first of them (-1: nobody knows).
  struct Awaited {
    std::string text;
    int first;
  };
  Awaited awaited(uint64_t sequence) const;
  // "call 3 all_reduce(float32[10], sum) at train.py:88"
  std::string own_call(uint64_t sequence) const;
  // Does a rank below this one wait in the call, too?
  bool waits_below(uint64_t sequence) const;

 private:
  void try_to_read(int peer);
  std::atomic<uint8_t>& reads(int reader, int owner) const {
    return reinterpret_cast<std::atomic<uint8_t>*>(base_[reader] + layout_.reads)[owner];
  }
  bool has_finished(int peer, uint64_t sequence) const;
  bool in_a_call(uint64_t then) const;  // was this rank in one, at that time in ticks?
  std::string process(int peer) const;
  std::string whereabouts(int peer) const;
  std::string said(int peer) const;
  // The first of the recent calls up to `last` that not all ranks made alike, or 0. It may be earlier than
  // the one in which it is noticed: a rank may have returned from it, and wait for something else now.
  uint64_t disagreement(uint64_t last) const;
  void note_loss(ErrorKind kind, int culprit);

  static inline std::atomic<bool> lost_{false};
  int rank_, size_;
  size_t pool_bytes_;
  Layout layout_;
  Mapping own_;
  std::vector<Mapping> peers_;
  std::vector<std::byte*> base_;
  std::vector<int> pidfd_, pid_;
  std::vector<int> lifeline_;  // connections that can be read when a rank on another host is gone; owned
  std::vector<bool> remote_;
  const bool single_copy_;
  const uint64_t secret_;                          // others try to read it
  std::vector<std::atomic<uint64_t>> lost_since_;  // when a remote rank was first seen to be gone
  uint64_t published_ = 0;                         // the last call whose record has been sent to other hosts
  std::unique_ptr<Mirror> mirror_;
  bool forgotten_ = false;
};

std::string in_seconds(uint64_t ns);                    // "0.5 s"
std::string list_ranks(const std::vector<int>& ranks);  // "ranks 0, 2"

}  // namespace pc
