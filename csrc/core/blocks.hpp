// Where the chunks of a call lie: from the blocks of a verb to the table of a Chunking.
//
//     blocks     |------ 0 ------|------ 1 ------|--- 2 ---|       one per rank where the verb has blocks, else one
//     chunks     |-- 0 --|-- 1 --|-- 2 --|-- 3 --|- 4 -|-5-|       each block in as many
#pragma once

#include <utility>
#include <vector>

#include "core/chunking.hpp"
#include "core/error.hpp"

namespace pc {

// The elements of a call, as its arguments decide them.
struct Extent {
  std::vector<uint64_t> blocks;       // of the working vector
  std::vector<uint64_t> sent, taken;  // all_to_all: of the input and of the output; else empty
  std::pair<uint32_t, uint32_t> held_in,
      held_out;  // first chunk and number of chunks in the input, in the output
};

inline std::vector<Piece> cut_blocks(const std::vector<uint64_t>& blocks, uint32_t nchunks, uint32_t grain) {
  if (blocks.empty() || nchunks % blocks.size())
    throw Error(ErrorKind::schedule, "the chunks do not fit the blocks of this verb");
  std::vector<Piece> pieces;
  uint64_t offset = 0;
  for (uint64_t block : blocks) {
    for (Piece piece : cut_evenly(block, static_cast<uint32_t>(nchunks / blocks.size()), grain))
      pieces.push_back({offset + piece.offset, piece.length});
    offset += block;
  }
  return pieces;
}

struct Extents {
  uint64_t in = 0, out = 0;  // elements that this rank's input and output must have
};

// Fills the table, the longest chunk, and the sizes of work and scratch memory.
inline Extents lay_out(const Plan& plan, const Extent& extent, uint32_t grain, Chunking& chunking) {
  const auto shifted = [](std::vector<Piece> pieces, std::pair<uint32_t, uint32_t> held) {
    const uint64_t by = held.second ? pieces.at(held.first).offset : 0;
    for (Piece& piece : pieces) piece.offset -= by;  // chunks before the first one held are never addressed
    return pieces;
  };
  const auto elements = [](const std::vector<Piece>& pieces, std::pair<uint32_t, uint32_t> held) {
    uint64_t sum = 0;
    for (uint32_t i = held.first; i < held.first + held.second; ++i) sum += pieces.at(i).length;
    return sum;
  };
  const std::vector<Piece> data = cut_blocks(extent.blocks, plan.nchunks, grain);
  for (const Piece& piece : data) chunking.longest = std::max(chunking.longest, piece.length);
  const bool personal = !extent.sent.empty();
  const std::vector<Piece> sent = personal ? cut_blocks(extent.sent, plan.nchunks, grain) : data;
  const std::vector<Piece> taken = personal ? cut_blocks(extent.taken, plan.nchunks, grain) : data;
  std::vector<Piece> scratch;
  for (uint32_t like : plan.scratch_like) {
    scratch.push_back({chunking.scratch_elements, data[like].length});
    chunking.scratch_elements += data[like].length;
  }
  chunking.work_elements = data.back().offset + data.back().length;
  const auto in = shifted(data, extent.held_in), out = shifted(data, extent.held_out);
  chunking.table = {in, out, data, personal ? sent : in, personal ? taken : out, scratch};
  return {elements(sent, extent.held_in), elements(taken, extent.held_out)};
}

}  // namespace pc
