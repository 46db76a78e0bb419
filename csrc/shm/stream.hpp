// A stream of bytes from one rank to another: a ring in the sender's segment that both ends walk round and round.
//
//                  taken              sent               taken + capacity
//                    |                 |                        |
//      ... consumed  | xxxxxxxxxxxxxxx |          free          |            byte p lies at ring[p % capacity]
//                    |                 |                        |
//            receiver reads here   sender writes here
//
//      invariant     taken <= sent <= taken + capacity           both only grow; 2^64 bytes are never reached
//
//      sender        load taken (acquire) -> write bytes -> store sent (release)     in its own segment
//      receiver      load sent (acquire)  -> read bytes  -> store taken (release)    in its own segment
//
// What the receiver sees as sent has been written, since its acquire load of `sent` meets the release store that followed the
// writes. What the sender sees as taken has been read and may be overwritten, for the same reason the other way. Each end
// keeps its own position and the last one seen of the other, and looks at the other's cache line only when that is not enough.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/chaos.hpp"

namespace pc {

class Outlet {  // the sender's end
 public:
  Outlet(std::byte* ring, size_t capacity, std::atomic<uint64_t>& sent, const std::atomic<uint64_t>& taken)
      : ring_(ring), capacity_(capacity), sent_(sent), taken_(taken) {}

  size_t space() const { return capacity_ - (position_ - seen_); }
  bool has(size_t bytes) {
    if (space() >= bytes) return true;
    seen_ = taken_.load(std::memory_order_acquire);
    return space() >= bytes;
  }
  void put(const void* from, size_t bytes) {  // at most space(); not seen by the receiver before publish()
    const size_t place = position_ & (capacity_ - 1), first = std::min(bytes, capacity_ - place);
    if (first) std::memcpy(ring_ + place, from, first);
    if (bytes > first) std::memcpy(ring_, static_cast<const std::byte*>(from) + first, bytes - first);
    position_ += bytes;
  }
  void publish() {
    chaos();
    sent_.store(position_, std::memory_order_release);
  }

 private:
  std::byte* ring_;
  size_t capacity_;  // a power of two
  std::atomic<uint64_t>& sent_;
  const std::atomic<uint64_t>& taken_;
  uint64_t position_ = 0, seen_ = 0;
};

class Inlet {  // the receiver's end
 public:
  Inlet(const std::byte* ring, size_t capacity, const std::atomic<uint64_t>& sent,
        std::atomic<uint64_t>& taken)
      : ring_(ring), capacity_(capacity), sent_(sent), taken_(taken) {}

  size_t available() const { return seen_ - position_; }
  bool has(size_t bytes) {
    if (available() >= bytes) return true;
    seen_ = sent_.load(std::memory_order_acquire);
    return available() >= bytes;
  }
  void peek(void* to, size_t bytes) const {  // at most available()
    const size_t place = position_ & (capacity_ - 1), first = std::min(bytes, capacity_ - place);
    if (first) std::memcpy(to, ring_ + place, first);
    if (bytes > first) std::memcpy(static_cast<std::byte*>(to) + first, ring_, bytes - first);
  }
  void skip(size_t bytes) { position_ += bytes; }  // the sender may not overwrite it before release()
  void release() {
    chaos();
    taken_.store(position_, std::memory_order_release);
  }

 private:
  const std::byte* ring_;
  size_t capacity_;
  const std::atomic<uint64_t>& sent_;
  std::atomic<uint64_t>& taken_;
  uint64_t position_ = 0, seen_ = 0;
};

}  // namespace pc
