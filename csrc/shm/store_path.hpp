// How a rank writes its messages into slots: by ordinary stores, or by stores that stream past its caches.
//
// The lines of a slot were last read by another core. An ordinary store has to take them away from it, which costs little
// where the two share a cache and ten times a streaming store where they do not; after a streaming store, on the other hand,
// the reader finds the message in memory and not in a cache. A hypervisor may move virtual cores from one case to the other
// at any time, so a rank looks at the time that its own copies take:
//
//     plain  -- two copies in a row took four times as long as streaming --> stream
//     plain  <-- two trials in a row did not  ------------------------------ stream      a trial is the begin of a message
//
// Only the writer's time is looked at: what a reader loses by streaming is less than the factor of four.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/layout.hpp"

namespace pc {

enum class Stores : uint8_t { automatic, plain, stream };

class StorePath {
 public:
  explicit StorePath(Stores wish) : automatic_(wish == Stores::automatic), streams_(wish == Stores::stream) {}

  static constexpr size_t kFrom = 1024;   // shorter messages: plain stores, nothing is measured
  static constexpr size_t kTrial = 4096;  // the most that is written plainly to see how long it takes

  // Measures what streaming costs here, on `bytes` of memory that this rank owns and nobody uses yet.
  void calibrate(std::byte* memory, size_t bytes);

  bool streams(size_t bytes) const { return streams_ && bytes >= kFrom; }

  // Copies a message into a slot; true if it was streamed, and a stream_fence() is due.
  bool copy(std::byte* to, const std::byte* from, size_t bytes);

 private:
  bool slow(size_t bytes, uint64_t took) const { return took * kUnit > bytes * limit_; }
  bool disturbed(size_t bytes, uint64_t took) const { return took * kUnit > 64 * bytes * limit_; }

  static constexpr uint64_t kUnit = 4096;
  bool automatic_, streams_;
  uint32_t surprises_ = 0;   // measurements in a row that spoke for the other way
  uint64_t limit_ = 0;       // ticks per byte in 1/kUnit: plain stores should not take more
  uint64_t next_trial_ = 0;  // ticks
};

}  // namespace pc
