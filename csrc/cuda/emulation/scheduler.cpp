#include "cuda/emulation/scheduler.hpp"

#include <cstdio>

namespace pc::emulation {

Scheduler& scheduler() {
  static Scheduler one;
  return one;
}

void Scheduler::add(Thread* thread) {
  thread->place = static_cast<int>(ready.size());
  ready.push_back(thread);
}

void Scheduler::remove(Thread* thread) {
  Thread* last = ready.back();
  ready[static_cast<size_t>(thread->place)] = last;
  last->place = thread->place;
  ready.pop_back();
  thread->place = -1;
}

void Scheduler::to_main() {
  Fibre* from = current->fibre;
  current = nullptr;
  ++statistics.switches;
  Fibre::change(*from, main);
}

void Scheduler::next() {
  if (!trouble.empty() || !over.empty() || (crowded && left) || ready.empty()) return to_main();
  Thread* from = current;
  Thread* to = pick();
  if (to == from) return;
  current = to;
  ++statistics.switches;
  Fibre::change(*from->fibre, *to->fibre);
}

void Scheduler::sleep(const char* doing) {
  current->doing = doing;
  current->peer = -1;
  remove(current);
  next();
}

Thread* Scheduler::pick() {
  Thread* to = ready[draw() % ready.size()];
  if (!options.starve) return to;
  if (draw() % 512 == 0) to->block->frozen_until = statistics.switches + draw() % 8192;
  const Block* first = to->block;
  for (int i = 0; i < 16 && to->block->frozen_until > statistics.switches; ++i)
    to = ready[draw() % ready.size()];
  statistics.starved += to->block != first;
  return to;
}

void Scheduler::hang(const char* why) {
  trouble = why;
  for (const auto& run : runs) {
    for (const auto& block : run->blocks) {
      if (!block->begun) {
        char text[200];
        std::snprintf(text, sizeof text, "\n  rank %d block %u: waits for room on device %d", block->rank,
                      block->threads[0].self.block.x, run->grid.device);
        trouble += text;
        continue;
      }
      int shown = 0;
      const char* last = nullptr;
      for (const Thread& thread : block->threads) {
        if (thread.ended || shown == 3 || (last == thread.doing && shown > 0)) continue;
        char line[200];
        std::snprintf(line, sizeof line, "\n  rank %d block %u thread %u: %s", block->rank,
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

}  // namespace pc::emulation
