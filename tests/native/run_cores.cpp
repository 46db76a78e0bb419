#include <sched.h>

#include <cstdio>

#include "commands.hpp"
#include "ranks.hpp"
#include "shm/contest.hpp"
#include "shm/own_core.hpp"
#include "shm/store_path.hpp"

namespace pc::test {
namespace {

cpu_set_t allowed() {
  cpu_set_t set;
  require(sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity");
  return set;
}

// Is a peer told to be far, after looks of which every `period`-th says so?
bool told_far(Distance& distance, int period) {
  for (int i = 0; i < 64; ++i) distance.note(i % period == 0);
  return distance.far();
}

void run_distances() {
  Distance distance;
  require(!distance.far(), "near until something is known");
  require(told_far(distance, 1), "far where all looks say so");
  require(told_far(distance, 3), "still far where caches lose lines");
  require(!told_far(distance, 64), "near again where hardly any does");
  require(told_far(distance, 3), "far although caches lose lines");
  require(!told_far(distance, 16) && !told_far(distance, 8), "near although single looks are disturbed");
}

// The way that a contest takes for most calls, where the second one takes so many times as long as the first.
bool takes_second(Contest& contest, double times, int calls) {
  int second = 0;
  for (int i = 0; i < calls; ++i) {
    const bool way = contest.next();
    second += way;
    contest.note(i % 5 == 3 ? 100'000
                 : way      ? static_cast<uint64_t>(1000 * times)
                            : 1000);  // some are disturbed
  }
  return second > calls / 2;
}

void run_contests() {
  Contest contest;
  require(!takes_second(contest, 1.5, 2000), "the first way where it is faster");
  require(takes_second(contest, 0.5, 2000), "the second one when it has become faster");
  require(!takes_second(contest, 0.95, 2000), "the first one where there is little between them");
  Contest fresh;
  require(takes_second(fresh, 0.5, 32), "soon");
  Contest caches, memory(true);
  require(!takes_second(caches, 0.85, 2000), "a sixth is too little where caches hold the data");
  require(takes_second(memory, 0.85, 2000) && !takes_second(memory, 0.98, 2000), "it is enough where none does");
  Contest seldom(true);
  require(takes_second(seldom, 0.5, 12), "sooner");
}

}  // namespace

void run_cores() {
  run_distances();
  run_contests();
  const cpu_set_t before = allowed();
  World world(2);
  Group& group = world.ends[0]->group();
  std::atomic<int32_t>& theirs = world.ends[1]->group().control(1).core;

  if (CPU_COUNT(&before) < 2) {
    std::printf("skipped: this thread may use one core only\n");
    return;
  }
  int here = -1, there = -1;
  for (int trial = 0; trial < 20 && here == there; ++trial) {  // the kernel may move the thread, too
    OwnCore own;
    own.tell(group);
    here = there = group.control(0).core.load();
    theirs.store(here);
    require(own.shared_with(group, 1), "the core is shared");
    own.leave(group);
    there = group.control(0).core.load();
  }
  require(there != here, "a rank leaves a core that it shares");
  const cpu_set_t after = allowed();
  require(CPU_EQUAL(&before, &after), "it may run where it might before");

  // The other rank on the only other core of this thread: there is nowhere to go.
  cpu_set_t two;
  CPU_ZERO(&two);
  CPU_SET(there, &two);
  CPU_SET(here, &two);
  require(sched_setaffinity(0, sizeof two, &two) == 0, "sched_setaffinity");
  OwnCore stays;
  stays.tell(group);
  const int now = group.control(0).core.load();
  theirs.store(now == here ? there : here);
  stays.leave(group);
  require(group.control(0).core.load() == now, "no rank goes to a core where another one was seen");
  require(sched_setaffinity(0, sizeof before, &before) == 0, "sched_setaffinity");
}

}  // namespace pc::test
