#include <sched.h>

#include <algorithm>
#include <array>
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

// Which way a contest takes for most calls, where the others take so many times as long as the usual one.
Way winner(Contest& contest, double plain, double single, int calls, bool streams = true) {
  std::array<int, kWays> taken{};
  for (int i = 0; i < calls; ++i) {
    const Way way = contest.next(plain > 0, single > 0);
    require(way != Way::plain_stores || plain > 0, "plain stores are not open");
    require(way != Way::single_copy || single > 0, "single copy is not open");
    ++taken[static_cast<size_t>(way)];
    const double times = way == Way::plain_stores ? plain : way == Way::single_copy ? single : 1;
    contest.note(i % 5 == 3 ? 100'000 : static_cast<uint64_t>(1000 * times), streams);  // some are disturbed
  }
  return static_cast<Way>(std::max_element(taken.begin(), taken.end()) - taken.begin());
}

void run_contests() {
  Contest contest;
  require(winner(contest, 0, 1.5, 2500) == Way::as_usual, "the usual way where it is faster");
  require(winner(contest, 0, 0.5, 2500) == Way::single_copy, "another one when it has become faster");
  require(winner(contest, 0, 0.95, 2500) == Way::as_usual,
          "the usual one where there is little between them");
  Contest fresh;
  require(winner(fresh, 0, 0.5, 32) == Way::single_copy, "soon");
  Contest three;
  require(winner(three, 0.85, 0.7, 2500) == Way::single_copy, "the fastest of three");
  require(winner(three, 0.85, 0.9, 2500) == Way::plain_stores, "the other one of three");
  require(winner(three, 0.98, 0.9, 2500) == Way::as_usual, "the usual one of three");
  Contest near;
  require(winner(near, 0.5, 0, 2500, false) == Way::as_usual,
          "plain stores are nothing new where nothing was streamed");
  Contest caches, memory(true);
  require(winner(caches, 0, 0.85, 2500) == Way::as_usual, "a sixth is too little where caches hold the data");
  require(winner(memory, 0, 0.85, 2500) == Way::single_copy, "it is enough where none does");
  require(winner(memory, 0, 0.98, 2500) == Way::as_usual, "little is not");
  Contest seldom(true);
  require(winner(seldom, 0, 0.5, 14) == Way::single_copy, "sooner where calls are long");
  Contest slow;
  int tried = 0;
  for (int i = 0; i < 32; ++i) {
    const bool plain = slow.next(true, false) == Way::plain_stores;
    tried += plain;
    slow.note(plain ? 5000 : 1000, true);
  }
  require(tried == 2, "what is far too slow is not tried to the end");
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
