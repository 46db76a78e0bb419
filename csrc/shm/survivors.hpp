// Who is left: the members of a communicator agree on a list of those that have not died, left or stopped.
//
// Shared memory outlives its owner, so one word decides: `Control::survivors` of rank 0, dead or alive. Each rank notes that it
// takes part in the attempt. Who finds that every other rank has done so, has gone, or is late writes its list down and tries
// to put its own number into the word. The first one wins, and its list is the decision for all. If a rank is lost before the
// new communicator is complete, the next attempt decides anew.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shm/group.hpp"

namespace pc {

struct Survivors {
  uint64_t attempt;        // 1, 2, ...
  std::vector<int> ranks;  // in order, this one among them
};

// Waits for the others, but not longer than `timeout_ns`. `interrupted` ends the wait. Throws Error(peer) on a rank that the
// others have gone on without.
Survivors agree_on_survivors(Group& group, uint64_t timeout_ns, bool (*interrupted)());

// Where ranks are on several hosts no word decides: they agree over the network (bootstrap/agreement.py). These tell whoever waits
// for this rank. The number of the attempt is returned; at the end: that of the decision, or 0 if there is none.
uint64_t begin_shrink(Group& group);
void end_shrink(Group& group, uint64_t attempt);

// Is `rank` waiting in an attempt that is not decided?
bool shrinking(const Group& group, int rank);

// Where the survivors of an attempt meet: told by one, read by the others ("" before).
void open_door(Group& group, uint64_t attempt, const std::string& door);
std::string find_door(const Group& group, int rank, uint64_t attempt);

}  // namespace pc
