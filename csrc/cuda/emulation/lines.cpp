// Stores of lines, which wait in a buffer of their block until others see them; and releases, which end the waiting.
#include <array>

#include "cuda/emulation/scheduler.hpp"

namespace pc::emulation {
namespace {

#ifdef PC_EMULATION_TSAN
constexpr bool kBuffered = false;  // ThreadSanitizer looks at what threads do, not at what they see
#else
constexpr bool kBuffered = true;
#endif

uint32_t lines = 0;  // numbers of LL128 lines

void store(const Pending& p) {
  __atomic_store_n(p.address, p.value, __ATOMIC_RELAXED);
  if (!p.fenced) return;
  __atomic_store_n(p.alias, p.value, __ATOMIC_RELAXED);
  *p.synced = p.value;
}

void commit(Block& block, size_t which) {
  const Pending chosen = block.pending[which];
  const auto goes = [&](const Pending& p) {
    return chosen.line ? p.line == chosen.line : p.address == chosen.address;
  };
  for (const Pending& p : block.pending)
    if (goes(p)) store(p);
  std::erase_if(block.pending, goes);
}

void make_room(Block& block, size_t for_how_many) {
  while (block.pending.size() + for_how_many > kPending)
    commit(block, scheduler().draw() % block.pending.size());
}

void hold(Block& block, const Pending& pending) {
  for (size_t i = 0; i < block.pending.size(); ++i) {  // stores to one place keep their order
    if (block.pending[i].address == pending.address) {
      commit(block, i);
      break;
    }
  }
  block.pending.push_back(pending);
}

uint64_t visible(const Block& block, const uint64_t* address) {
  for (const Pending& p : block.pending)
    if (p.address == address) return p.value;
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}

}  // namespace

void commit_all(Block& block) {
  for (const Pending& p : block.pending) store(p);
  block.pending.clear();
}

void commit_some(Block& block) {
  if (!block.pending.empty() && scheduler().draw() % 2)
    commit(block, scheduler().draw() % block.pending.size());
}

void post(Pending pending) {
  Block& block = *scheduler().current->block;
  if (kBuffered) {
    make_room(block, 1);
    hold(block, pending);
  } else {
    store(pending);
  }
}

void post(void* address, uint64_t value) {
  post({static_cast<uint64_t*>(address), value, 0, nullptr, nullptr, false});
}

uint64_t peek(const void* address) {
  return visible(*scheduler().current->block, static_cast<const uint64_t*>(address));
}

namespace {

void warp_step(void* address, uint64_t (&value)[2], Meeting meeting) {
  Scheduler& s = scheduler();
  Thread& thread = *s.current;
  Warp& warp = *thread.warp;
  const unsigned lane = thread.self.thread.x % kWarp;
  warp.lines[lane] = &value;
  warp.address[lane] = address;
  if (!meet(~0u, meeting)) return s.sleep("waits for its warp to move lines");
  for (unsigned l = 0; l < kWarp; ++l) {
    if (l % 8 == 0) {
      ++lines;
      make_room(*thread.block, 16);
    }
    for (int i = 0; i < 2; ++i) {
      auto* at = static_cast<uint64_t*>(warp.address[l]) + i;
      uint64_t& moved = (*warp.lines[l])[i];
      if (meeting == Meeting::load)
        moved = visible(*thread.block, at);
      else if (kBuffered)
        hold(*thread.block, {at, moved, lines, nullptr, nullptr, false});
      else
        __atomic_store_n(at, moved, __ATOMIC_RELAXED);
    }
  }
  open(~0u);
  s.next();
}

}  // namespace

void post_warp(void* address, const uint64_t (&value)[2]) {
  uint64_t copy[2] = {value[0], value[1]};
  warp_step(address, copy, Meeting::store);
}

void peek_warp(const void* address, uint64_t (&value)[2]) {
  warp_step(const_cast<void*>(address), value, Meeting::load);
}

namespace {

constexpr size_t kReleases = 1 << 14;

struct Release {
  const void* address = nullptr;
  int device = 0;
  Scope scope = Scope::system;
};

std::array<Release, kReleases> releases;

Release& release_of(const void* address) {
  size_t i = (reinterpret_cast<uintptr_t>(address) >> 3) * 0x9e3779b97f4a7c15u >> 50;
  while (releases[i].address && releases[i].address != address) i = (i + 1) % kReleases;
  return releases[i];
}

}  // namespace

void on_acquire(const void* address) {
  Scheduler& s = scheduler();
  const Release& release = release_of(address);
  if (release.address && release.device != s.current->block->rank && release.scope != Scope::system)
    ++s.statistics.scope_errors;
}

void on_release(const void* address, Scope scope) {
  commit_all(*scheduler().current->block);
  release_of(address) = {address, scheduler().current->block->rank, scope};
}

}  // namespace pc::emulation
