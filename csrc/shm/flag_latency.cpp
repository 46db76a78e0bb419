#include "shm/flag_latency.hpp"

#include <sched.h>

#include <atomic>

#include "shm/wait.hpp"

namespace pc {
namespace {

// The flags lie two lines apart, so that no adjacent-line prefetch carries both.
std::atomic<uint64_t>& flag(std::byte* memory, size_t index) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(memory + 128 * index);
}

bool await(const std::atomic<uint64_t>& word, uint64_t turn, uint64_t deadline) {
  for (uint32_t spins = 1; word.load(std::memory_order_acquire) < turn; ++spins) {
    if (spins % 4096 == 0) {  // the other rank may need this very core
      if (now_ns() > deadline) return false;
      sched_yield();
    }
  }
  return true;
}

}  // namespace

double flag_latency(std::byte* memory, bool first, uint64_t from, uint64_t turns, uint64_t timeout_ns) {
  std::atomic<uint64_t>& mine = flag(memory, first ? 0 : 1);
  const std::atomic<uint64_t>& theirs = flag(memory, first ? 1 : 0);
  const uint64_t begin = now_ns();
  for (uint64_t turn = from + 1; turn <= from + turns; ++turn) {
    if (first) mine.store(turn, std::memory_order_release);
    if (!await(theirs, turn, begin + timeout_ns)) return -1;
    if (!first) mine.store(turn, std::memory_order_release);
  }
  return static_cast<double>(now_ns() - begin) / static_cast<double>(2 * turns);
}

}  // namespace pc
