// How a rank writes its messages into slots: by ordinary stores, or by stores that stream past its caches.
//
// The lines of a slot were last read by another core. An ordinary store has to take each of them away from it, which costs
// little where the two cores share a cache, and five to eight times what a streaming store costs where they do not; after a
// streaming store, on the other hand, the reader finds the message in memory and not in a cache. So it depends on how far the
// reader is, and a hypervisor may move virtual cores at any time. A rank finds out with a line that it has written itself:
//
//     header of the last message that the peer has read     how long does it take to own it again?
//     a line that nobody has cached                         how long does it take to get it from memory?  once, at the start
//
// Where cores share a cache, the first takes a quarter to a half of the second; otherwise three quarters or more, unless the
// peer's cache has lost the line since.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/wait.hpp"

namespace pc {

enum class Stores : uint8_t { automatic, plain, stream };

// What many looks say together: a cache that has lost the line makes single ones say near where the peer is far.
class Distance {
 public:
  void note(bool speaks_for_far) {
    looks_ = static_cast<uint16_t>(looks_ << 1 | (speaks_for_far ? 1 : 0));
    const int for_far = std::popcount(looks_);
    if (for_far >= kFarFrom) far_ = true;
    if (for_far <= kNearTo) far_ = false;
  }
  bool far() const { return far_; }

 private:
  static constexpr int kFarFrom = 5, kNearTo = 1;  // of the last 16 looks
  uint16_t looks_ = 0;                             // a bit each
  bool far_ = false;
};

class StorePath {
 public:
  StorePath(Stores wish, int peers) : wish_(wish), peers_(static_cast<size_t>(peers)) {}

  static constexpr size_t kFrom = 2048;  // bytes; shorter messages are never streamed

  // Measures how long a line from memory takes, with memory that this rank owns and nobody uses yet.
  void calibrate(std::byte* memory, size_t bytes);

  // Is a message of `bytes` to be streamed to this peer?
  bool streams(int peer, size_t bytes) const {
    if (bytes < kFrom || wish_ == Stores::plain) return false;
    return seems_far(peer);
  }

  bool chooses() const { return wish_ == Stores::automatic; }

  // Is it time to look how far the peer is?
  bool due(int peer) const {
    return wish_ == Stores::automatic && ticks() >= peers_[static_cast<size_t>(peer)].next_look;
  }
  // Looks. `line` is one that this rank writes and the peer has just read.
  void look(int peer, std::atomic<uint64_t>& line);

  // What is known of a peer without a look; of one that this rank never sends to: that it is near.
  bool seems_far(int peer) const {
    return wish_ == Stores::stream || peers_[static_cast<size_t>(peer)].distance.far();
  }

 private:
  struct Peer {
    uint64_t next_look = 0;  // ticks
    const void* looked_at = nullptr;
    Distance distance;
  };

  Stores wish_;
  uint64_t from_memory_ = 0;  // ticks
  std::vector<Peer> peers_;
};

}  // namespace pc
