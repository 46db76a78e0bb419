#include "shm/store_path.hpp"

#include <algorithm>
#include <array>

#include "core/stream_copy.hpp"
#include "shm/layout.hpp"
#include "shm/wait.hpp"

namespace pc {
namespace {

constexpr uint64_t kRest = 1000;      // from one look to the next, in times of a line from memory
constexpr uint32_t kConvincing = 2;   // looks in a row
constexpr uint64_t kDisturbed = 100;  // times of a line from memory: the rank was interrupted

// Ticks until this core owns the line.
uint64_t time_to_own(std::atomic<uint64_t>& line) {
  const uint64_t begin = ordered_ticks();
  line.fetch_add(0, std::memory_order_relaxed);
  return ordered_ticks() - begin;
}

}  // namespace

void StorePath::calibrate(std::byte* memory, size_t bytes) {
  constexpr size_t stride = 4096 + kLine;  // no prefetcher guesses the next
  std::array<uint64_t, 32> took{};
  size_t n = 0;
  if constexpr (!kStreams) wish_ = Stores::plain;
  if (wish_ != Stores::automatic) return;
  for (size_t at = 0; n < took.size() && at + kLine <= bytes; at += stride) {
    auto& line = *reinterpret_cast<std::atomic<uint64_t>*>(memory + at);
    line.fetch_add(0, std::memory_order_relaxed);  // brings the page
    flush_line(&line);
    took[n++] = time_to_own(line);
  }
  std::sort(took.begin(), took.begin() + static_cast<ptrdiff_t>(n));
  from_memory_ = std::max<uint64_t>(1, took[n / 2]);
}

bool StorePath::far(Peer& peer, std::atomic<uint64_t>& line) const {
  const uint64_t now = ticks();
  if (now < peer.next_look) return peer.far;
  const uint64_t took = time_to_own(line);
  if (took < kDisturbed * from_memory_)
    peer.surprises = (3 * took > 2 * from_memory_) != peer.far ? peer.surprises + 1 : 0;
  if (peer.surprises >= kConvincing) {
    peer.far = !peer.far;
    peer.surprises = 0;
  }
  peer.next_look = now + (peer.surprises ? 0 : kRest * from_memory_);
  return peer.far;
}

}  // namespace pc
