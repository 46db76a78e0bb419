// Where the chunks of a call lie: from the blocks of a verb to the table of a Chunking.
//
//     blocks     |------ 0 ------|------ 1 ------|--- 2 ---|       one per rank where the verb has blocks, else one
//     chunks     |-- 0 --|-- 1 --|-- 2 --|-- 3 --|- 4 -|-5-|       each block in as many
#pragma once

#include <string>
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

struct Extents {
  uint64_t in = 0, out = 0;  // elements that this rank's input and output must have
};

inline constexpr uint64_t kMostElements = uint64_t{1}
                                          << 43;  // of 16 bytes: what an address space has room for

inline void require_plan(bool ok, const char* what) {
  if (!ok) throw Error(ErrorKind::schedule, std::string("damaged plan: ") + what);
}

inline std::vector<Piece> cut_blocks(const std::vector<uint64_t>& blocks, uint32_t nchunks, uint32_t grain) {
  if (blocks.empty() || nchunks % blocks.size())
    throw Error(ErrorKind::schedule, "the chunks do not fit the blocks of this verb");
  std::vector<Piece> pieces;
  uint64_t offset = 0;
  for (uint64_t block : blocks) {
    if (block > kMostElements || offset > kMostElements)
      throw Error(ErrorKind::unsupported, "more than 2^43 elements in one call");
    for (Piece piece : cut_evenly(block, static_cast<uint32_t>(nchunks / blocks.size()), grain))
      pieces.push_back({offset + piece.offset, piece.length});
    offset += block;
  }
  return pieces;
}

// Does the plan stay inside the arrays? `shape` says how long the pieces of an instruction are; all that it reads
// and writes must have that much.
inline void check_places(const Plan& plan, const Extent& extent, const Chunking& chunking) {
  const auto length_of = [&](const Ref& ref) { return chunking.piece(ref).length; };
  const auto usable = [&](uint32_t index, uint64_t length, bool written) {
    const Ref& ref = plan.refs[index];
    const auto held = [&](std::pair<uint32_t, uint32_t> range) {
      return ref.chunk >= range.first && ref.chunk - range.first < range.second;
    };
    const bool in = ref.where == Where::data_in || ref.where == Where::input;
    const bool out = ref.where == Where::data_out || ref.where == Where::output;
    require_plan(!in || !written, "it writes the input");
    require_plan(!in || held(extent.held_in), "a chunk beyond the input");
    require_plan(!out || held(extent.held_out), "a chunk beyond the output");
    require_plan(length_of(ref) >= length, "chunks of different sizes in one instruction");
  };
  for (const Instruction& in : plan.instructions) {
    for (uint32_t j = 0; j < in.nrefs; ++j) {
      const uint64_t length = length_of(plan.refs[in.shape + j]);
      require_plan(length <= chunking.longest, "a chunk longer than the longest");
      if (in.store >= 0) usable(static_cast<uint32_t>(in.store) + j, length, true);
      for (uint32_t k = 0; k < in.noperands; ++k) {
        const Operand& operand = plan.operands[in.operand + k];
        if (operand.peer < 0) usable(operand.refs + j, length, false);
      }
    }
  }
}

// Fills the table, the longest chunk, and the sizes of work and scratch memory. Throws Error(schedule) where the plan
// addresses chunks beyond the caller's arrays, writes the input, or mixes chunks of different sizes.
inline Extents lay_out(const Plan& plan, const Extent& extent, uint32_t grain, Chunking& chunking) {
  const auto within = [&](std::pair<uint32_t, uint32_t> held) {
    return held.first <= plan.nchunks && held.second <= plan.nchunks - held.first;
  };
  require_plan(within(extent.held_in) && within(extent.held_out),
               "input or output hold chunks that do not exist");
  const auto shifted = [](std::vector<Piece> pieces, std::pair<uint32_t, uint32_t> held) {
    const uint64_t by = held.second ? pieces[held.first].offset : 0;
    for (Piece& piece : pieces) piece.offset -= by;  // chunks before the first one held are never addressed
    return pieces;
  };
  const auto elements = [](const std::vector<Piece>& pieces, std::pair<uint32_t, uint32_t> held) {
    uint64_t sum = 0;
    for (uint32_t i = held.first; i < held.first + held.second; ++i) sum += pieces[i].length;
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
  check_places(plan, extent, chunking);
  return {elements(sent, extent.held_in), elements(taken, extent.held_out)};
}

}  // namespace pc
