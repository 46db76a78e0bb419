#include "cuda/emulation/machine.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/emulation/fibre.hpp"

#ifdef PC_EMULATION_TSAN
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#else
#define __tsan_acquire(address) static_cast<void>(address)
#define __tsan_release(address) static_cast<void>(address)
#endif

// Nothing here is instrumented by ThreadSanitizer, and no fibre allocates or locks: both would be seen as synchronisation.

namespace pc::emulation {
namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kReleases = 1 << 14;
#ifdef PC_EMULATION_TSAN
constexpr bool kBuffered = false;  // ThreadSanitizer looks at what threads do, not at what they see
#else
constexpr bool kBuffered = true;
#endif

struct Block;

enum class Meeting : uint8_t { none, barrier, exchange, vote, load, store };

struct Warp {
  unsigned arrived = 0;
  Meeting meeting = Meeting::none;
  uint64_t value[kWarp];
  uint64_t (*lines[kWarp])[2];
  void* address[kWarp];
  char edge[2];
};

// A store of a line that others do not see yet. Those of one `line` (LL128) become visible together.
struct Pending {
  uint64_t* address;
  uint64_t value;
  uint32_t line;
};

struct Thread {
  Self self;
  Block* block = nullptr;
  Warp* warp = nullptr;
  Fibre* fibre = nullptr;
  unsigned barriers = 0, warp_barriers = 0;
  int place = -1;  // among the ready ones
  // for the dump of a hang
  const char* doing = "starts";
  int peer = -1;
  uint64_t number = 0;
  uint32_t instruction = 0, slice = 0;
  bool ended = false;
};

struct Run;

struct Block {
  Run* run;
  unsigned live, arrived = 0;
  char edge[2];
  bool any[2] = {};
  uint64_t frozen_until = 0;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Thread*> waiting;
  std::vector<Pending> pending;
  std::unique_ptr<char[]> shared;
};

struct Run {  // a grid that is on the device
  Grid grid;
  unsigned live = 0;
  std::vector<std::unique_ptr<Block>> blocks;
};

struct Release {
  const void* address = nullptr;
  int device = 0;
  Scope scope = Scope::system;
};

std::atomic<int> mutant_{0};

class Scheduler {
 public:
  std::vector<Thread*> ready;
  std::vector<std::unique_ptr<Run>> runs;
  std::vector<Run*> over;
  std::vector<std::unique_ptr<Fibre>> spare;
  std::vector<Release> releases{kReleases};
  Fibre main;
  Thread* current = nullptr;
  Options options;
  Statistics statistics;
  uint64_t random = 1, idle = 0;
  uint32_t lines = 0;  // numbers of LL128 lines
  std::string trouble;

  uint64_t draw() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  }

  void add(Thread* thread) {
    thread->place = static_cast<int>(ready.size());
    ready.push_back(thread);
  }

  void remove(Thread* thread) {
    Thread* last = ready.back();
    ready[static_cast<size_t>(thread->place)] = last;
    last->place = thread->place;
    ready.pop_back();
    thread->place = -1;
  }

  void to_main() {
    Fibre* from = current->fibre;
    current = nullptr;
    ++statistics.switches;
    Fibre::change(*from, main);
  }

  // Some other ready thread, or the same one.
  void next() {
    if (!trouble.empty() || !over.empty() || ready.empty()) return to_main();
    Thread* from = current;
    Thread* to = pick();
    if (to == from) return;
    current = to;
    ++statistics.switches;
    Fibre::change(*from->fibre, *to->fibre);
  }

  Thread* pick() {
    Thread* to = ready[draw() % ready.size()];
    if (!options.starve) return to;
    if (draw() % 512 == 0) to->block->frozen_until = statistics.switches + draw() % 8192;
    for (int i = 0; i < 16 && to->block->frozen_until > statistics.switches; ++i)
      to = ready[draw() % ready.size()];
    return to;
  }

  void progress() { idle = 0; }

  void hang(const char* why) {
    trouble = why;
    for (const auto& run : runs) {
      for (const auto& block : run->blocks) {
        int shown = 0;
        const char* last = nullptr;
        for (const Thread& thread : block->threads) {
          if (thread.ended || shown == 3 || (last == thread.doing && shown > 0)) continue;
          char line[200];
          std::snprintf(line, sizeof line, "\n  rank %d block %u thread %u: %s", run->grid.rank,
                        thread.self.block.x, thread.self.thread.x, thread.doing);
          trouble += line;
          if (thread.peer >= 0) {
            std::snprintf(line, sizeof line, " of rank %d (%llx)", thread.peer,
                          static_cast<unsigned long long>(thread.number));
            trouble += line;
          }
          std::snprintf(line, sizeof line, ", instruction %u of slice %u", thread.instruction, thread.slice);
          trouble += line;
          last = thread.doing;
          ++shown;
        }
        if (trouble.size() > 8000) return;
      }
    }
  }
};

Scheduler& scheduler() {
  static Scheduler one;
  return one;
}

// -- stores of lines: a buffer for each block ------------------------------------------------------------------------

constexpr size_t kPending = 128;

void commit(Block& block, size_t which) {
  const Pending chosen = block.pending[which];
  const auto goes = [&](const Pending& p) {
    return chosen.line ? p.line == chosen.line : p.address == chosen.address;
  };
  for (const Pending& p : block.pending)
    if (goes(p)) __atomic_store_n(p.address, p.value, __ATOMIC_RELAXED);
  std::erase_if(block.pending, goes);
}

void make_room(Block& block, size_t for_how_many) {
  while (block.pending.size() + for_how_many > kPending)
    commit(block, scheduler().draw() % block.pending.size());
}

void commit_all(Block& block) {
  for (const Pending& p : block.pending) __atomic_store_n(p.address, p.value, __ATOMIC_RELAXED);
  block.pending.clear();
}

void commit_some(Block& block) {
  if (!block.pending.empty() && scheduler().draw() % 2)
    commit(block, scheduler().draw() % block.pending.size());
}

void hold(Block& block, uint64_t* address, uint64_t value, uint32_t line) {
  for (size_t i = 0; i < block.pending.size(); ++i) {  // stores to one place keep their order
    if (block.pending[i].address == address) {
      commit(block, i);
      break;
    }
  }
  block.pending.push_back({address, value, line});
}

uint64_t visible(const Block& block, const uint64_t* address) {
  for (const Pending& p : block.pending)
    if (p.address == address) return p.value;
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}

void open_barrier(Block& block) {
  block.arrived = 0;
  for (Thread* thread : block.waiting) scheduler().add(thread);
  block.waiting.clear();
  scheduler().progress();
}

void body(void* argument) {
  auto* thread = static_cast<Thread*>(argument);
  Scheduler& s = scheduler();
  Block& block = *thread->block;
  __tsan_acquire(block.run);
  block.run->grid.kernel();
  __tsan_release(block.run);
  if (block.live == 1) commit_all(block);
  thread->ended = true;
  s.remove(thread);
  s.progress();
  if (--block.live && block.arrived >= block.live) open_barrier(block);
  if (--block.run->live == 0) s.over.push_back(block.run);
  s.next();
  std::abort();  // an ended thread runs no more
}

// A thread leaves the ready ones until somebody adds it again.
void sleep(const char* doing) {
  Scheduler& s = scheduler();
  s.current->doing = doing;
  s.current->peer = -1;
  s.remove(s.current);
  s.next();
}

void yield() { scheduler().next(); }

}  // namespace

const Self& self() { return scheduler().current->self; }
char* shared_memory() { return scheduler().current->block->shared.get(); }

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
    yield();
  } else {
    block.waiting.push_back(&thread);
    sleep("waits at a barrier of its block");
  }
  __tsan_acquire(edge);
  return block.any[turn];
}

namespace {

// Has the last lane arrived?
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

void rendezvous(unsigned mask, Meeting meeting) {
  if (meet(mask, meeting))
    open(mask);
  else
    sleep("waits for lanes of its warp");
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

void post(void* address, uint64_t value) {
  Block& block = *scheduler().current->block;
  if (kBuffered) {
    make_room(block, 1);
    hold(block, static_cast<uint64_t*>(address), value, 0);
  } else
    __atomic_store_n(static_cast<uint64_t*>(address), value, __ATOMIC_RELAXED);
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
  if (!meet(~0u, meeting)) return sleep("waits for its warp to move lines");
  for (unsigned l = 0; l < kWarp; ++l) {
    if (l % 8 == 0) {
      ++s.lines;
      make_room(*thread.block, 16);
    }
    for (int i = 0; i < 2; ++i) {
      auto* at = static_cast<uint64_t*>(warp.address[l]) + i;
      uint64_t& moved = (*warp.lines[l])[i];
      if (meeting == Meeting::load)
        moved = visible(*thread.block, at);
      else if (kBuffered)
        hold(*thread.block, at, moved, s.lines);
      else
        __atomic_store_n(at, moved, __ATOMIC_RELAXED);
    }
  }
  open(~0u);
  yield();
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

Release& release_of(const void* address) {
  auto& table = scheduler().releases;
  size_t i = (reinterpret_cast<uintptr_t>(address) >> 3) * 0x9e3779b97f4a7c15u >> 50;
  while (table[i].address && table[i].address != address) i = (i + 1) % kReleases;
  return table[i];
}

}  // namespace

void on_acquire(const void* address) {
  Scheduler& s = scheduler();
  const Release& release = release_of(address);
  if (release.address && release.device != s.current->block->run->grid.device &&
      release.scope != Scope::system)
    ++s.statistics.scope_errors;
}

void on_release(const void* address, Scope scope) {
  commit_all(*scheduler().current->block);
  release_of(address) = {address, scheduler().current->block->run->grid.device, scope};
}

void after_store() {
  Scheduler& s = scheduler();
  s.progress();
  if (s.draw() % 4 == 0) yield();
}

unsigned coin() { return static_cast<unsigned>(scheduler().draw() >> 7 & 1); }

void tear() {
  if (scheduler().draw() % 4 == 0) yield();
}

void spin(const char* what, int peer, uint64_t number) {
  Scheduler& s = scheduler();
  s.current->doing = what;
  s.current->peer = peer;
  s.current->number = number;
  commit_some(*s.current->block);
  if (++s.idle > s.options.patience && s.trouble.empty()) s.hang("no thread moves:");
  yield();
}

void note(uint32_t instruction, uint32_t slice) {
  Thread& thread = *scheduler().current;
  thread.instruction = instruction;
  thread.slice = slice;
}

int mutant_in_use() { return mutant_.load(std::memory_order_relaxed); }
void set_mutant(int which) { mutant_.store(which, std::memory_order_relaxed); }

// -- from outside ------------------------------------------------------------------------------------------------------------

Machine& Machine::instance() {
  static Machine one;
  return one;
}

const Statistics& Machine::statistics() const { return scheduler().statistics; }
void Machine::reset() { scheduler().statistics = {}; }

void Machine::start(Grid grid) {
  Scheduler& s = scheduler();
  auto run = std::make_unique<Run>();
  run->grid = std::move(grid);
  const Grid& g = run->grid;
  run->live = g.blocks * g.threads;
  for (unsigned b = 0; b < g.blocks; ++b) {
    auto block = std::make_unique<Block>();
    block->run = run.get();
    block->live = g.threads;
    block->shared.reset(new char[g.shared_bytes]);
    std::memset(block->shared.get(), 0xa5, g.shared_bytes);  // as on a GPU, it holds anything
    block->threads.resize(g.threads);
    block->warps.resize((g.threads + kWarp - 1) / kWarp);
    block->waiting.reserve(g.threads);
    block->pending.reserve(kPending);
    for (unsigned t = 0; t < g.threads; ++t) {
      Thread& thread = block->threads[t];
      thread.self = {{t}, {b}, {g.threads}, {g.blocks}};
      thread.block = block.get();
      thread.warp = &block->warps[t / kWarp];
      if (s.spare.empty()) {
        thread.fibre = new Fibre(&body);
      } else {
        thread.fibre = s.spare.back().release();
        s.spare.pop_back();
      }
      thread.fibre->arm(&thread);
      s.add(&thread);
    }
    run->blocks.push_back(std::move(block));
  }
  size_t all = 0;
  for (const auto& r : s.runs) all += r->grid.blocks * r->grid.threads;
  s.ready.reserve(all + g.blocks * g.threads);
  s.over.reserve(s.runs.size() + 1);
  __tsan_release(run.get());
  s.runs.push_back(std::move(run));
}

std::string Machine::run(const Options& options) {
  Scheduler& s = scheduler();
  s.options = options;
  s.random = options.seed * 0x9e3779b97f4a7c15u | 1;
  s.idle = 0;
  s.trouble.clear();
  Fibre::adopt(s.main);
  while (!s.runs.empty() && s.trouble.empty()) {
    if (s.ready.empty() && s.over.empty()) {
      s.hang("deadlock, every thread waits at a barrier:");
      break;
    }
    if (!s.ready.empty() && s.over.empty()) {
      s.current = s.pick();
      ++s.statistics.switches;
      Fibre::change(s.main, *s.current->fibre);
    }
    while (!s.over.empty()) {
      Run* ended = s.over.back();
      s.over.pop_back();
      __tsan_acquire(ended);
      for (const auto& block : ended->blocks)
        for (Thread& thread : block->threads) s.spare.emplace_back(thread.fibre);
      const auto at =
          std::find_if(s.runs.begin(), s.runs.end(), [&](const auto& r) { return r.get() == ended; });
      const std::function<void()> done = std::move(ended->grid.done);
      s.runs.erase(at);
      if (done) done();
    }
  }
  for (const auto& run : s.runs)  // what hangs is given up
    for (const auto& block : run->blocks)
      for (Thread& thread : block->threads) s.spare.emplace_back(thread.fibre);
  s.runs.clear();
  s.ready.clear();
  s.over.clear();
  return s.trouble;
}

}  // namespace pc::emulation
