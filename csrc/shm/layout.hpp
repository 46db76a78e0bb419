// One segment of memory per rank and communicator, written by its owner (except the doorbell and the poison
// word) and mapped by all members:
//
//     Control                       who am I, how many of my threads sleep, is the communicator poisoned
//     Recorder                      my last calls (recorder.hpp); others compare fingerprints with theirs
//     Header[peer][lane][kDepth]    my messages to each peer: a cache line each, small payloads inside
//     Ack[peer][lane]               how many of each peer's messages I have consumed
//     Position[peer] twice          my point-to-point streams: sent to each peer, taken from each (stream.hpp)
//     member[peer] twice            my lists of the ranks that are left, for shrink (survivors.hpp)
//     reads[peer]                   can I read its memory (single_copy.hpp)?
//     stream[peer]                  the rings of these streams
//     pool                          payload slots of larger messages
//
// A message is published by the release store of Header::flag, its running number; its reader acknowledges by
// the release store of the same number in its own Ack. These numbers are never reset. A message that grows is published before
// its payload, and Header::written says how much of that is there.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "shm/agreed_cut.hpp"
#include "shm/recorder.hpp"
#include "shm/trial_times.hpp"

namespace pc {

inline constexpr size_t kLine = 64;
inline constexpr uint32_t kMaxLanes = 16;  // channels x slices in flight
inline constexpr uint32_t kDepth = 32;  // headers per peer and lane: so many small messages may be in flight
inline constexpr uint32_t kLargeDepth = 4;  // of large messages, and of all between hosts
inline constexpr size_t kInline = 32;       // payload bytes inside the header

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// The order of the stores that publish a message.
#ifdef PC_SEED_RACE  // by the native tests only: their tools must see what is wrong then
inline constexpr std::memory_order kPublish = std::memory_order_relaxed;
#else
inline constexpr std::memory_order kPublish = std::memory_order_release;
#endif

enum class Carrier : uint32_t {
  inlined,
  slot,
  region,
  pointer
};  // where the payload is: header, pool, symmetric memory, elsewhere in the sender's memory

struct alignas(kLine) Header {
  std::atomic<uint64_t> flag;  // running number, the last that is written
  uint64_t fingerprint;        // of the call, with its sequence number
  uint64_t location;           // offset in the pool or region, or address
  uint32_t bytes;              // payload bytes modulo 2^32, for a check
  uint32_t carrier;            // Carrier in the low 2 bits, the region's number above, or kGrows
  std::byte payload[kInline];

  // Of a message in a slot that grows while it is read: the elements of its chunk that are there. Stored in order, by release,
  // after the elements; the reader takes what an acquiring load has told it.
  //
  //     writer   flag    elements   written = 1   elements   written = 2 ...
  //     reader         flag                  written: takes 1         written: takes 2 ...
  std::atomic_ref<uint64_t> written() const {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(const_cast<std::byte*>(payload)));
  }
  bool grows() const { return carrier == (static_cast<uint32_t>(Carrier::slot) | kGrows); }
  static constexpr uint32_t kGrows = 4;
};
static_assert(sizeof(Header) == kLine);

struct alignas(kLine) AckLine {
  std::atomic<uint64_t> count[kMaxLanes];
};

struct alignas(kLine) Position {
  std::atomic<uint64_t> bytes;  // since the beginning
};

enum class Presence : uint32_t { absent, present, departed };

struct Control {
  // written by the owner
  alignas(kLine) std::atomic<Presence> presence;
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> has_text;  // `text` and `failed_call` are complete
  std::atomic<int32_t> rank, size;
  std::atomic<int32_t> core;                    // where it ran last; told where ranks share cores
  std::atomic<uint64_t> finished;               // of a remote rank that has left or shrinks: its last call
  std::atomic<uint64_t> failed_call;            // in which it raised
  std::atomic<uint64_t> left;                   // ticks, when it departed
  std::atomic<uint64_t> awaits;                 // in a long wait: number of the call << 16 | rank + 1
  std::atomic<uint64_t> shrinking;              // the attempt to agree on the survivors that it takes part in
  std::atomic<uint64_t> has_door;               // the attempt that `door` is for
  std::atomic<uint64_t> secret, secret_at;      // for those who try whether they can read my memory
  alignas(kLine) std::atomic<uint32_t> asleep;  // threads that wait for the doorbell
  // written by others
  alignas(kLine) std::atomic<uint32_t> doorbell;
  alignas(kLine) std::atomic<uint64_t> poison;  // 0, or kind << 48 | rank at fault + 1 << 24 | rank + 1 of
                                                // who raised first
  alignas(
      kLine) std::atomic<uint64_t> survivors;  // of rank 0: attempt << 32 | rank + 1 whose list was agreed on
  // written by the owner: what it raised, for the error texts of all; where the survivors meet
  alignas(kLine) char text[2048], door[192];
  TrialBoard trials;
  CutNews cuts;  // of rank 0
};

struct Layout {
  size_t control, recorder, headers, acks, sent, taken, members, reads, streams, stream_bytes, pool, bytes;

  Layout(uint32_t size, size_t pool_bytes) {
    const auto up = [](size_t x, size_t to) { return (x + to - 1) / to * to; };
    control = 0;
    recorder = up(sizeof(Control), 4096);
    headers = up(recorder + sizeof(Recorder), 4096);
    acks = headers + size_t{size} * kMaxLanes * kDepth * sizeof(Header);
    sent = acks + size * sizeof(AckLine);
    taken = sent + size * sizeof(Position);
    members = taken + size * sizeof(Position);
    reads = members + 2 * size;
    streams = up(reads + size, 4096);
    stream_bytes =
        size == 1 ? 0 : std::clamp(std::bit_floor((size_t{1} << 20) / size), size_t{4096}, size_t{65536});
    pool = up(streams + size * stream_bytes, 4096);
    bytes = up(pool + pool_bytes, 4096);
  }
};

// Control and Recorder: what the launcher maps of a segment.
inline constexpr size_t kSegmentHead = (sizeof(Control) + 4095) / 4096 * 4096 + sizeof(Recorder);

}  // namespace pc
