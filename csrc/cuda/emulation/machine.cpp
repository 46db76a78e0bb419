#include "cuda/emulation/machine.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "cuda/emulation/scheduler.hpp"

namespace pc::emulation {
namespace {

std::atomic<int> mutant_{0};

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
  if (!block.live) {
    s.resident[block.run->grid.device] -= block.run->grid.threads;
    s.left = true;
  }
  if (--block.run->live == 0) s.over.push_back(block.run);
  s.next();
  std::abort();  // an ended thread runs no more
}

}  // namespace

const Self& self() { return scheduler().current->self; }
char* shared_memory() { return scheduler().current->block->shared.get(); }

void after_store() {
  Scheduler& s = scheduler();
  s.progress();
  if (s.draw() % 4 == 0) s.next();
}

unsigned coin() { return static_cast<unsigned>(scheduler().draw() >> 7 & 1); }

void tear() {
  Scheduler& s = scheduler();
  if (s.draw() % 4) return;
  const uint64_t before = s.statistics.switches;
  s.next();
  s.statistics.torn += s.statistics.switches != before;
}

void spin(const char* what, int peer, uint64_t number) {
  Scheduler& s = scheduler();
  s.current->doing = what;
  s.current->peer = peer;
  s.current->number = number;
  commit_some(*s.current->block);
  if (s.options.pause && s.idle % 256 == 255) s.options.pause();
  if (++s.idle > s.options.patience && s.trouble.empty()) s.hang("no thread moves:");
  s.next();
}

void note(uint32_t instruction, uint32_t slice) {
  Thread& thread = *scheduler().current;
  thread.instruction = instruction;
  thread.slice = slice;
}

int mutant_in_use() { return mutant_.load(std::memory_order_relaxed); }
void set_mutant(int which) { mutant_.store(which, std::memory_order_relaxed); }

Machine& Machine::instance() {
  static Machine one;
  return one;
}

namespace {

void enter(Block& block) {
  Scheduler& s = scheduler();
  block.begun = true;
  ++block.run->begun;
  s.resident[block.run->grid.device] += block.run->grid.threads;
  for (Thread& thread : block.threads) {
    if (s.spare.empty()) {
      thread.fibre = new Fibre(&body);
    } else {
      thread.fibre = s.spare.back().release();
      s.spare.pop_back();
    }
    thread.fibre->arm(&thread);
    s.add(&thread);
  }
}

// Begins the blocks that there is room for, grid by grid: none overtakes one that waits.
void admit() {
  Scheduler& s = scheduler();
  s.crowded = s.left = false;
  bool full[kDevices] = {};
  for (const auto& run : s.runs) {
    const Grid& g = run->grid;
    const auto room = [&](unsigned blocks) {
      return s.resident[g.device] + blocks * g.threads <= s.options.processors * s.options.resident_threads;
    };
    if (run->begun == g.blocks) continue;
    if (g.cooperative && !room(g.blocks)) full[g.device] = true;
    while (!full[g.device] && run->begun < g.blocks) {
      if (room(1))
        enter(*run->blocks[run->begun]);
      else
        full[g.device] = true;
    }
    s.crowded |= run->begun < g.blocks;
  }
}

void give_up_fibres(const Run& run) {
  for (const auto& block : run.blocks)
    for (Thread& thread : block->threads)
      if (thread.fibre) scheduler().spare.emplace_back(thread.fibre);
}

}  // namespace

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
    block->rank = g.ranks.empty() ? g.rank : g.ranks[b / g.share];
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
    }
    run->blocks.push_back(std::move(block));
  }
  size_t all = 0;
  for (const auto& r : s.runs) all += r->grid.blocks * r->grid.threads;
  s.ready.reserve(all + g.blocks * g.threads);
  s.over.reserve(s.runs.size() + 1);
  __tsan_release(run.get());
  s.runs.push_back(std::move(run));
  s.crowded = s.left = true;  // it begins when the machine runs
}

std::string Machine::run(const Options& options) {
  Scheduler& s = scheduler();
  s.options = options;
  s.random = options.seed * 0x9e3779b97f4a7c15u | 1;
  s.idle = 0;
  s.trouble.clear();
  Fibre::adopt(s.main);
  while (!s.runs.empty() && s.trouble.empty()) {
    if (s.crowded && s.left) admit();
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
      give_up_fibres(*ended);
      const auto at =
          std::find_if(s.runs.begin(), s.runs.end(), [&](const auto& r) { return r.get() == ended; });
      const std::function<void()> done = std::move(ended->grid.done);
      s.runs.erase(at);
      if (done) done();
    }
  }
  for (const auto& run : s.runs) give_up_fibres(*run);  // what hangs is given up
  s.runs.clear();
  std::fill_n(s.resident, kDevices, 0u);
  s.ready.clear();
  s.over.clear();
  return s.trouble;
}

}  // namespace pc::emulation
