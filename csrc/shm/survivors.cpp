#include "shm/survivors.hpp"

#include <time.h>

#include <algorithm>

namespace pc {
namespace {

std::atomic<uint64_t>& board(const Group& group) { return group.control(0).survivors; }
uint64_t decided(const Group& group) { return board(group).load(std::memory_order_acquire) >> 32; }

// The list that the word names; another decision may replace it meanwhile.
std::vector<int> read(const Group& group, uint64_t& word) {
  for (;;) {
    word = board(group).load(std::memory_order_acquire);
    std::vector<int> ranks;
    const auto* list = group.members(static_cast<int>(word & 0xffffffff) - 1, word >> 32);
    for (int peer = 0; peer < group.size(); ++peer)
      if (list[peer].load(std::memory_order_relaxed)) ranks.push_back(peer);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (board(group).load(std::memory_order_relaxed) == word) return ranks;
  }
}

// The decision of `word`, which must have this rank in it.
Survivors decision(const Group& group) {
  uint64_t word;
  std::vector<int> ranks = read(group, word);
  if (std::find(ranks.begin(), ranks.end(), group.rank()) == ranks.end())
    throw Error(ErrorKind::peer,
                "the other ranks have shrunk the communicator without this one, which came too late",
                static_cast<int>(word & 0xffffffff) - 1);
  return {word >> 32, std::move(ranks)};
}

// Everybody's answer to `attempt`: 1 takes part, 0 does not. False if some may still come.
bool poll(const Group& group, uint64_t attempt, bool late, std::vector<uint8_t>& list) {
  bool complete = true;
  for (int peer = 0; peer < group.size(); ++peer) {
    const bool here =
        peer == group.rank() || group.control(peer).shrinking.load(std::memory_order_acquire) >= attempt;
    const bool gone = peer != group.rank() && !group.gone(peer).empty();
    list[static_cast<size_t>(peer)] = here && !gone;
    complete &= here || gone || late;
  }
  return complete;
}

}  // namespace

bool shrinking(const Group& group, int rank) {
  return group.control(rank).shrinking.load(std::memory_order_acquire) > decided(group);
}

uint64_t begin_shrink(Group& group) {
  const uint64_t attempt = decided(group) + 1;
  group.control(group.rank()).shrinking.store(attempt, std::memory_order_release);
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) ring(group.control(peer));  // one that waits in a call will wait in vain
  if (group.mirror()) group.mirror()->publish_shrinking(attempt);
  return attempt;
}

void end_shrink(Group& group, uint64_t attempt) {
  if (!attempt) group.control(group.rank()).shrinking.store(0, std::memory_order_release);
  uint64_t before = board(group).load(std::memory_order_relaxed);
  while (before >> 32 < attempt &&
         !board(group).compare_exchange_weak(before, attempt << 32, std::memory_order_acq_rel)) {
  }
  if (!attempt && group.mirror()) group.mirror()->publish_shrinking(0);
}

Survivors agree_on_survivors(Group& group, uint64_t timeout_ns, bool (*interrupted)()) {
  if (decided(group)) decision(group);  // a rank that came too late for one attempt is in none of the next
  const uint64_t start = now_ns(), attempt = begin_shrink(group);
  std::vector<uint8_t> list(static_cast<size_t>(group.size()));
  for (long nap = 100'000; decided(group) < attempt; nap = std::min(2 * nap, 10'000'000L)) {
    if (poll(group, attempt, now_ns() - start > timeout_ns, list)) {
      auto* proposal = group.members(group.rank(), attempt);
      for (size_t i = 0; i < list.size(); ++i) proposal[i].store(list[i], std::memory_order_relaxed);
      uint64_t before = board(group).load(std::memory_order_relaxed);
      if (before >> 32 < attempt)
        board(group).compare_exchange_strong(before, attempt << 32 | static_cast<uint64_t>(group.rank() + 1),
                                             std::memory_order_acq_rel);
      continue;
    }
    if (interrupted && interrupted()) {
      end_shrink(group, 0);
      throw Error(ErrorKind::interrupted, "interrupted");
    }
    const timespec pause{0, nap};
    nanosleep(&pause, nullptr);
  }
  return decision(group);
}

void open_door(Group& group, uint64_t attempt, const std::string& door) {
  Control& own = group.control(group.rank());
  copy_text(own.door, door);
  own.has_door.store(attempt, std::memory_order_release);
}

std::string find_door(const Group& group, int rank, uint64_t attempt) {
  const Control& theirs = group.control(rank);
  return theirs.has_door.load(std::memory_order_acquire) == attempt ? theirs.door : "";
}

}  // namespace pc
