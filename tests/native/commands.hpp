// The native tests. Each throws if something is wrong; `times` says how long it goes on.
#pragma once

#include <cstdint>
#include <vector>

#include "plan_file.hpp"

namespace pc::test {

// Every call of the file, in random order, blocking or not, in ordinary and in symmetric memory; results are compared.
void run_plans(const std::vector<Case>& cases, uint64_t seed, int times);
// Messages of random sizes between all ranks, blocking and not, from named and from any sources.
void run_messages(uint64_t seed, int times);
// Ranks that disagree, abort, leave, or give up inside calls: all end with an error.
void run_faults(const std::vector<Case>& cases, uint64_t seed, int times);
// Damaged plans: refused, or executed without touching anything but the call's memory.
void fuzz_plans(const std::vector<Case>& cases, uint64_t seed, int times);
// A rank that shares its core with the one that it waits for goes to another one; many looks tell how far a peer is, trials which
// way is the faster one.
void run_cores();

}  // namespace pc::test
