#include "shm/store_path.hpp"

#include <algorithm>
#include <array>

#include "core/stream_copy.hpp"
#include "shm/layout.hpp"
#include "shm/wait.hpp"

namespace pc {
namespace {

constexpr uint64_t kRest = 1000;      // from one look to the next, in times of a line from memory
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

void StorePath::look(int number, std::atomic<uint64_t>& line) {
  Peer& peer = peers_[static_cast<size_t>(number)];
  if (&line == peer.looked_at) return;  // this rank owns it since
  peer.looked_at = &line;
  const uint64_t took = time_to_own(line);
  if (took >= kDisturbed * from_memory_) return;
  peer.distance.note(3 * took > 2 * from_memory_);
  peer.next_look = ticks() + kRest * from_memory_;
}

}  // namespace pc
