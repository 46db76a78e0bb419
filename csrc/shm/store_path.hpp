// How a rank writes its messages into slots: by ordinary stores, or by stores that stream past its caches.
//
// The lines of a slot were last read by another core. An ordinary store has to take each of them away from it, which costs
// little where the two cores share a cache, and five to eight times what a streaming store costs where they do not; after a
// streaming store, on the other hand, the reader finds the message in memory and not in a cache. So it depends on how far the
// reader is, and a hypervisor may move virtual cores at any time. A rank finds out with a line that it is about to write anyway:
//
//     header of the next message     last read by the peer: how long does it take to own it?
//     a line that nobody has cached  how long does it take to get it from memory?        once, when the rank starts
//
// Where cores share a cache, the first takes a quarter to a half of the second; otherwise as long or longer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pc {

enum class Stores : uint8_t { automatic, plain, stream };

class StorePath {
 public:
  StorePath(Stores wish, int peers) : wish_(wish), peers_(static_cast<size_t>(peers)) {}

  static constexpr size_t kFrom = 2048;  // bytes; shorter messages are never streamed

  // Measures how long a line from memory takes, with memory that this rank owns and nobody uses yet.
  void calibrate(std::byte* memory, size_t bytes);

  // Is a message of `bytes` to be streamed to this peer? `line` is one that the peer has read and this rank writes.
  bool streams(int peer, size_t bytes, std::atomic<uint64_t>& line) {
    if (bytes < kFrom || wish_ == Stores::plain) return false;
    if (wish_ == Stores::stream) return true;
    return far(peers_[static_cast<size_t>(peer)], line);
  }

  // What is known of a peer without a look; of one that this rank never sends to: that it is near.
  bool seems_far(int peer) const { return wish_ == Stores::stream || peers_[static_cast<size_t>(peer)].far; }

 private:
  struct Peer {
    uint64_t next_look = 0;  // ticks
    uint32_t surprises = 0;  // looks in a row that spoke for the other distance
    bool far = false;
  };

  bool far(Peer& peer, std::atomic<uint64_t>& line) const;

  Stores wish_;
  uint64_t from_memory_ = 0;  // ticks
  std::vector<Peer> peers_;
};

}  // namespace pc
