#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "commands.hpp"
#include "ranks.hpp"
#include "shm/contest.hpp"
#include "shm/own_core.hpp"
#include "shm/store_path.hpp"
#include "shm/trial_times.hpp"

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

using Costs =
    std::array<double, Ways::kAll>;  // of each way, as many times as the usual one; 0: it is not open

Ways open(const Costs& costs) {
  Ways ways;
  for (size_t way = 1; way < Ways::kAll; ++way)
    if (costs[way] > 0) ways.add(static_cast<Way>(way));
  return ways;
}

Way next(Contest& contest, const Costs& costs) {
  if (contest.due()) contest.decide(contest.times());
  const Way way = contest.next(open(costs));
  require(costs[static_cast<size_t>(way)] > 0, "only what is open is taken");
  return way;
}

// Which way a contest takes for most calls.
Way winner(Contest& contest, double plain, double single, int calls, bool streams = true,
           double streamed_results = 0, double plain_streamed = 0) {
  const Costs costs{1, plain, single, streamed_results, plain_streamed};
  std::array<int, Ways::kAll> taken{};
  for (int i = 0; i < calls; ++i) {
    const auto way = static_cast<size_t>(next(contest, costs));
    ++taken[way];
    const bool disturbed = streamed_results == 0 && i % 5 == 3;  // some are, of short data
    contest.note(disturbed ? 100'000 : static_cast<uint64_t>(1000 * costs[way]), streams, 1);
  }
  return static_cast<Way>(std::max_element(taken.begin(), taken.end()) - taken.begin());
}

// Two ranks, of which one comes early where the other comes late, and two kinds of call in turns.
void run_common_contests() {
  static std::array<TrialBoard, 2> boards;  // of the ranks
  using Rank = std::array<Contest, 2>;      // by kind
  const Contest unused(Contest::Data::long_data);
  std::array<Rank, 2> ranks{Rank{unused, unused}, Rank{unused, unused}};
  std::array<std::array<Contest::Times, 2>, 2> told;  // by rank and kind
  const Costs costs{1, 0, 0.9, 0, 0};
  for (uint64_t sequence = 1; sequence <= 2 * 45; ++sequence) {
    const uint64_t call = (sequence - 1) / 2, kind = (sequence - 1) % 2;
    for (size_t rank = 0; rank < 2; ++rank) {
      Contest& contest = ranks[rank][kind];
      if (contest.due()) {
        const Contest::Times own = contest.times(), other = told[1 - rank][kind];
        require((own.present > own.challenger) != (other.present > other.challenger),
                "by themselves they would not agree");
        Contest::Times sum = own;
        boards[1 - rank].add_to(sum, contest.last_trial());
        require(sum.present == own.present + other.present, "told");
        require(sum.challenger == own.challenger + other.challenger, "told");
        contest.decide(sum);
      }
      const Way way = contest.next(open(costs));
      require(call < 29 || way == Way::single_copy, "both conclude what is true of the two together");
      const uint64_t skew = call / 4 % 2 == rank ? 400 : 0;
      const auto took = static_cast<uint64_t>(1000 * costs[static_cast<size_t>(way)]) + 400 - skew;
      const bool last = contest.note(took, true, sequence);
      require(last == (call == 27), "twenty-four calls, then four of the challenger");
      if (!last) continue;
      told[rank][kind] = contest.times();
      boards[rank].tell(sequence, contest.times());
    }
  }
  Contest::Times sum{};
  boards[0].add_to(sum, 55 + TrialBoard::kLines);
  require(sum == Contest::Times{}, "of a trial that nobody has told");
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
  Contest caches, memory(Contest::Data::long_data);
  require(winner(caches, 0, 0.92, 2500) == Way::as_usual,
          "a twelfth is too little where caches hold the data");
  require(winner(memory, 0, 0.92, 2500, true, 1) == Way::single_copy, "it is enough where none does");
  require(winner(memory, 0, 0.98, 2500, true, 1) == Way::as_usual, "little is not");
  require(winner(memory, 0, 0.98, 2500, true, 0.8) == Way::streamed_results, "results past the caches");
  require(winner(memory, 0, 0.98, 2500, true, 0.93) == Way::as_usual, "not for little");
  Contest four(Contest::Data::long_data);
  require(winner(four, 0, 0.7, 2500, true, 0.8, 0.6) == Way::plain_streamed, "the fastest of four");
  Contest few(Contest::Data::very_long_data);
  require(winner(few, 0, 0.7, 60, true, 1, 1) == Way::single_copy, "soon of long data");
  Contest copies(Contest::Data::long_data, Way::single_copy),
      none(Contest::Data::long_data, Way::single_copy);
  require(next(copies, {1, 0, 0.9, 1, 0}) == Way::single_copy, "the first way is that of the first calls");
  copies.note(900, true, 1);
  require(winner(copies, 0, 1.02, 2500, true, 1) == Way::single_copy,
          "and stays where there is little between them");
  require(winner(copies, 0, 1.2, 2500, true, 1.1) == Way::as_usual, "the usual way where it is faster");
  Contest wrong(Contest::Data::very_long_data, Way::single_copy);
  require(winner(wrong, 0, 1.2, 1000, true, 1.2, 0.9) == Way::plain_streamed, "the fastest of four again");
  require(winner(none, 0, 0, 2500, true, 1) == Way::as_usual,
          "the usual way is the first where that one is not open");
  Contest slow;
  int tried = 0;
  for (int i = 0; i < 15; ++i) {
    const Way told = slow.upcoming();
    const Way way = next(slow, {1, 5, 0, 0, 0});
    const bool plain = way == Way::plain_stores;
    require(i == 0 || told == way || tried == 2, "what comes next is known before");
    tried += plain;
    slow.note(plain ? 5000 : 1000, true, 1);
  }
  require(tried == 2, "what is far too slow is not tried to the end");
  require(slow.times().challenger == 5000, "but what it took is told");
  run_common_contests();
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
