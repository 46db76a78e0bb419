// Where the chunks of a call lie: from the blocks of a verb to the table of a Chunking.
//
//     blocks     |------ 0 ------|------ 1 ------|--- 2 ---|       one per rank where the verb has blocks, else one
//     chunks     |-- 0 --|-- 1 --|-- 2 --|-- 3 --|- 4 -|-5-|       each block in as many
#pragma once

#include <utility>
#include <vector>

#include "core/chunking.hpp"

namespace pc {

// The elements of a call, as its arguments decide them.
struct Extent {
  std::vector<uint64_t> blocks;       // of the working vector
  std::vector<uint64_t> sent, taken;  // all_to_all: of the input and of the output; else empty
  std::pair<uint32_t, uint32_t> held_in,
      held_out;  // first chunk and number of chunks in the input, in the output
};

struct Extents {
  uint64_t in = 0, out = 0;  // elements that this rank's input and output must have
};

// Fills the table, the longest chunk, and the sizes of work and scratch memory. Throws Error(schedule) where the plan
// addresses chunks beyond the caller's arrays, writes the input, or mixes chunks of different sizes.
Extents lay_out(const Plan& plan, const Extent& extent, uint32_t grain, Chunking& chunking);

}  // namespace pc
