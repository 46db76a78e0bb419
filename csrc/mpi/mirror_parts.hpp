// The private parts of Mirror; only its own files include this.
#pragma once

#include <sched.h>

#include <algorithm>
#include <mutex>

#include "mpi/mirror.hpp"
#include "shm/memory.hpp"
#include "shm/wait.hpp"

namespace pc {

inline constexpr uint32_t kMailEvery = 32;            // calls of progress
inline constexpr uint32_t kMostAtOnce = 64;           // messages in one call of progress
inline constexpr uint64_t kGreeting = 5'000'000'000;  // ns that others may take to connect
inline constexpr uint64_t kFarewell = 20'000'000;     // ns that others' last words are waited for
inline constexpr uint64_t kLastWord = 200'000'000;    // ns that leaving may take
inline constexpr size_t kStreamPiece = 8 * 1024;  // of a stream in one mail: MPI libraries send this eagerly

class Mirror::Guard {
 public:
  explicit Guard(Mirror& mirror) : mirror_(mirror) { lock(mirror); }
  Guard(Mirror& mirror, std::adopt_lock_t) : mirror_(mirror) {}
  ~Guard() { mirror_.busy_.store(false, std::memory_order_release); }
  Guard(const Guard&) = delete;

  static void lock(Mirror& mirror) {
    for (uint32_t turn = 0; mirror.busy_.exchange(true, std::memory_order_acquire); ++turn)
      turn < 100 ? cpu_relax() : static_cast<void>(sched_yield());
  }

 private:
  Mirror& mirror_;
};

// The messages of one lane to one peer.
struct Mirror::Outbound {
  Outbound(int to, uint32_t of) : peer(to), lane(of) {}

  struct Item {
    mpi::Request header, payload;
  };
  const int peer;
  const uint32_t lane;
  uint64_t sent = 0, done = 0;  // messages that were given to MPI, and the first of them that it has sent
  uint64_t credit = 0;          // messages that the reader says it has consumed
  bool listed = false;          // in pending_
  bool lost = false;            // its reader has died, or has left and ended: no send is tested any more
  Item items[kLargeDepth];
  std::unique_ptr<std::byte[]> copies;  // of short messages
};

// The messages of one lane from one peer. `posted`, `published`, `consumed` are running numbers of messages; those with a
// payload of their own are numbered once more.
struct Mirror::Inbound {
  Inbound(int from, uint32_t of, size_t message_bytes)
      : peer(from),
        lane(of),
        payload_bytes((message_bytes + kLine - 1) / kLine * kLine),
        memory(Mapping::alone(kLargeDepth * (kHeaderBytes + payload_bytes))) {}

  static constexpr size_t kHeaderBytes = sizeof(Header) + kAttached;
  std::byte* header_at(uint64_t number) const { return memory.data() + number % kLargeDepth * kHeaderBytes; }
  std::byte* payload_at(uint64_t number) const {
    return memory.data() + kLargeDepth * kHeaderBytes + number % kLargeDepth * payload_bytes;
  }

  const int peer;
  const uint32_t lane;
  const size_t payload_bytes;
  const Mapping memory;  // pages that no message has used do not exist
  uint64_t posted = 0, published = 0, told = 0;
  uint64_t split_posted = 0, split_arrived = 0, split_done = 0;
  uint64_t split_number[kLargeDepth] = {};  // the message's running number among all
  bool waits_for_payload = false;
  mpi::Request headers[kLargeDepth], payloads[kLargeDepth];
};

struct Mirror::Mail {
  enum Kind : uint32_t { hello, stream, taken, credit, record, poison, departed, shrinking };
  uint32_t kind;
  int32_t from;
  uint64_t bytes;  // that follow
  uint64_t a, b;

  std::byte* body() { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* body() const { return reinterpret_cast<const std::byte*>(this + 1); }
};

// A piece of mail in its envelope.
struct Mirror::Letter {
  explicit Letter(size_t bytes) : data(new std::byte[sizeof(Mail) + bytes]), size(sizeof(Mail) + bytes) {}
  Mail& mail() const { return *reinterpret_cast<Mail*>(data.get()); }
  bool active() const {
    return std::any_of(requests.begin(), requests.end(),
                       [](const auto& request) { return request.active(); });
  }

  const std::unique_ptr<std::byte[]> data;
  const size_t size;
  std::deque<mpi::Request> requests;  // one per recipient
  std::vector<int> to;                // the recipients
};

// A rank on another host, apart from the messages of lanes.
struct Mirror::Peer {
  std::unique_ptr<Letter> letter;  // its next mail comes into this one
  uint64_t pumped = 0;             // bytes of the stream to it that have been mailed
  uint64_t taken = 0;              // bytes of the stream from it that it knows to be taken
  bool heard = false;              // has it said hello?
  uint64_t looked = 0;             // when, in ticks, it was last found to be there
};

}  // namespace pc
