// Where threads wait for each other: barriers of a block, and the operations of a warp.
#include "cuda/emulation/scheduler.hpp"

namespace pc::emulation {

void open_barrier(Block& block) {
  block.arrived = 0;
  for (Thread* thread : block.waiting) scheduler().add(thread);
  block.waiting.clear();
  scheduler().progress();
}

bool barrier(bool predicate) {
  Scheduler& s = scheduler();
  Thread& thread = *s.current;
  Block& block = *thread.block;
  const unsigned turn = thread.barriers++ & 1;
  char* edge = &block.edge[turn];
  __tsan_release(edge);
  if (block.arrived == 0) block.any[turn] = false;
  block.any[turn] |= predicate;
  if (++block.arrived >= block.live) {
    open_barrier(block);
    s.next();
  } else {
    block.waiting.push_back(&thread);
    s.sleep("waits at a barrier of its block");
  }
  __tsan_acquire(edge);
  return block.any[turn];
}

bool meet(unsigned mask, Meeting meeting) {
  Scheduler& s = scheduler();
  Thread& thread = *s.current;
  Warp& warp = *thread.warp;
  if (warp.arrived && warp.meeting != meeting && s.trouble.empty())
    s.hang("lanes of a warp meet in different operations:");
  warp.meeting = meeting;
  warp.arrived |= 1u << thread.self.thread.x % kWarp;
  return (warp.arrived & mask) == mask;
}

void open(unsigned mask) {
  Scheduler& s = scheduler();
  Thread& thread = *s.current;
  const unsigned lane = thread.self.thread.x % kWarp, base = thread.self.thread.x - lane;
  thread.warp->arrived &= ~mask;
  for (unsigned l = 0; l < kWarp; ++l)
    if ((mask >> l & 1) && l != lane) s.add(&thread.block->threads[base + l]);
  // No progress: warps vote on whether to poll again.
}

namespace {

void rendezvous(unsigned mask, Meeting meeting) {
  if (meet(mask, meeting))
    open(mask);
  else
    scheduler().sleep("waits for lanes of its warp");
}

}  // namespace

void warp_barrier(unsigned mask) {
  Thread& thread = *scheduler().current;
  char* edge = &thread.warp->edge[thread.warp_barriers++ & 1];
  __tsan_release(edge);
  rendezvous(mask, Meeting::barrier);
  __tsan_acquire(edge);
}

uint64_t exchange(unsigned mask, uint64_t value, unsigned source) {
  Thread& thread = *scheduler().current;
  thread.warp->value[thread.self.thread.x % kWarp] = value;
  rendezvous(mask, Meeting::exchange);
  value = thread.warp->value[source];
  rendezvous(mask, Meeting::exchange);
  return value;
}

unsigned ballot(unsigned mask, bool predicate) {
  Thread& thread = *scheduler().current;
  thread.warp->value[thread.self.thread.x % kWarp] = predicate;
  rendezvous(mask, Meeting::vote);
  unsigned found = 0;
  for (unsigned l = 0; l < kWarp; ++l)
    if ((mask >> l & 1) && thread.warp->value[l]) found |= 1u << l;
  rendezvous(mask, Meeting::vote);
  return found;
}

}  // namespace pc::emulation
