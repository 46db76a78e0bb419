// Ranks on other hosts, as if they shared memory with this one.
//
// For each of them this process has a segment of its own that no other process sees: the mirror of theirs. The executor
// and the point-to-point messages read it like a neighbour's. Whatever they wait for there is written by `progress`:
//
//     sender's host                                        receiver's host
//       own segment: header, payload   -- MPI message -->    mirror of the sender: header; payload where it arrived
//       mirror of the receiver: ack    <-- the send is done, and there is credit
//       own segment: stream            -- mail ---------->   mirror of the sender: stream
//       mirror of the receiver: taken  <-- mail -----------  own segment: taken
//       own segment: record, poison,   -- mail ---------->   mirror of the sender, own poison
//                    presence, shrinking
//
// A lane's messages from a peer have a tag of their own, so MPI keeps their order and no lane waits for another. Receives
// are posted before the messages come, kLargeDepth per peer and lane, into memory that stays. What fits into a header travels as
// this one line of 64 bytes, up to kAttached bytes behind the header in one message, more in a second message right from
// the sender's slot or symmetric array.
//
// "Acknowledged" means to the sender that its memory is free again: the MPI send is done. So that it cannot run ahead of a
// slow reader for ever, at most kWindow messages may be sent beyond the last credit, the number of those that the reader
// has consumed; credit comes with headers that go the other way, or by mail.
//
// All else is mail: short messages with a tag of their own, in order per pair. (Not received from any source: MPICH 5.0 over
// UCX loses such messages between hosts.)
//
// One lock guards everything; whoever waits calls `progress`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "mpi/library.hpp"
#include "shm/layout.hpp"

namespace pc {

class Group;

class Mirror {
 public:
  static constexpr size_t kAttached = 8 * 1024;  // payloads that are copied behind their header
  static constexpr uint64_t kWindow = 64;        // messages per peer and lane beyond the last credit
  static constexpr int kTags = 2 * static_cast<int>(kMaxLanes) + 2;  // of one communicator: lanes, mail,
  static constexpr int kDirectTag = kTags - 1;                       // direct_exchange.hpp

  // `world[r]`: rank r's rank in the MPI communicator `comm`, in which the tags from `first_tag` on are this
  // group's. `message_bytes`: no message has a longer payload.
  Mirror(Group& group, std::shared_ptr<const mpi::Library> library, uint64_t comm, std::vector<int> world,
         int first_tag, size_t message_bytes);
  ~Mirror();
  Mirror(const Mirror&) = delete;

  void add(int peer);  // a rank on another host, whose segment the group has allocated
  // After the last of them, collective: mail to and from each, so that MPI's connections are made while all are there.
  // (Intel MPI's MPI_Isend does not return while it tries to connect to a dead process.)
  void greet();

  // The messages that the running plan receives; all are forgotten by `listen_to_none`.
  void listen_to_none();
  void listen(int peer, uint32_t lane);

  // Message `number` of a lane: its header in the own segment is complete, `payload` is where its bytes are if they are
  // not in the header. Throws Error.
  void send(int peer, uint32_t lane, uint64_t number, const std::byte* payload);

  // Moves what can be moved; false if nothing could. `mail`: looks at the mail too, not only now and then.
  // Throws Error(transport or peer).
  bool progress(bool mail);
  bool sending() const { return !pending_.empty(); }  // some of the own memory is still being read

  void publish_record(uint64_t sequence);  // of this rank, to all: what it has called, and where if it knows
  void publish_poison(uint64_t word) noexcept;
  void publish_shrinking(uint64_t attempt) noexcept;  // see shm/survivors.hpp
  void depart() noexcept;                             // the last word to all

 private:
  struct Outbound;
  struct Inbound;
  struct Mail;
  struct Letter;
  struct Peer;
  class Guard;

  Outbound& outbound(int peer, uint32_t lane);
  Inbound& inbound(int peer, uint32_t lane);
  int tag(uint32_t lane, bool payload) const { return first_tag_ + 2 * static_cast<int>(lane) + payload; }
  int mail_tag() const { return first_tag_ + kTags - 2; }

  bool move_messages();
  void look_at(int peer);
  void look_for_dead_readers();
  bool settle(Outbound& out);
  void acknowledge(Outbound& out);
  void replenish(Inbound& in);
  void arrived(Inbound& in);
  void deliver(Inbound& in);
  [[noreturn]] void fail(const char* call, int code, int peer);

  // mirror_mail.cpp
  std::unique_ptr<Letter> write(uint32_t kind, uint64_t a, uint64_t b, size_t bytes) const;
  void post(std::unique_ptr<Letter> letter, const std::vector<int>& to);
  void post_receive(int peer);
  bool move_mail();
  bool move_sent();
  bool has_left(int peer) const;
  bool waits(const Letter& letter) const;
  void read(const Mail& mail);
  bool pump(int peer);
  void tell_credit(Inbound& in, uint64_t consumed);
  void flush(uint64_t ns) noexcept;
  uint64_t finished() const;
  uint64_t running() const;
  uint64_t last_call(CallState state) const;
  void hear_farewells() noexcept;

  Group& group_;
  const std::shared_ptr<const mpi::Library> library_;
  const uint64_t comm_;
  const std::vector<int> world_;
  const int first_tag_, rank_, size_;
  const size_t message_bytes_;

  std::atomic<bool> busy_{false};
  std::vector<int> peers_;
  std::vector<std::unique_ptr<Outbound>> outbound_;  // by peer and lane, made when first used
  std::vector<std::unique_ptr<Inbound>> inbound_;
  std::vector<Outbound*> pending_;  // with sends that are not done
  std::vector<Inbound*> heard_;     // of the running plan
  std::vector<mpi::Request*> tested_;
  std::vector<Outbound*> senders_;  // whose sends are among the tested ones
  std::vector<int> writers_;        // whose mail is among the tested ones
  uint32_t turn_ = 0;
  uint64_t looked_ = 0;  // for dead readers, in ticks

  std::vector<Peer> known_;                   // by rank
  std::deque<std::unique_ptr<Letter>> sent_;  // mail that is being sent
  std::deque<std::unique_ptr<Letter>> lost_;  // to the dead
};

}  // namespace pc
