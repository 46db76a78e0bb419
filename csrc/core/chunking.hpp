// The sizes of one kind of call: where each chunk's elements lie, and how chunks are cut into slices.
//
//     chunk          |--------------------------------------|
//     channels       |------- 0 ---------|------- 1 --------|      each channel moves its part of every chunk
//     slices         |- 0 -|- 1 -|-- 2 --|- 0 -|- 1 -|- 2 --|      and runs its program once per slice
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan.hpp"

namespace pc {

struct Piece {
  uint64_t offset, length;  // in elements
};

struct Chunking {
  std::array<std::vector<Piece>, kPlaces> table;  // by place, then chunk
  uint64_t longest = 0;                           // elements of the longest chunk
  uint64_t work_elements = 0;                     // of Where::data_work
  uint64_t scratch_elements = 0;                  // of Where::scratch

  const Piece& piece(const Ref& ref) const { return table[static_cast<size_t>(ref.where)][ref.chunk]; }
};

// How every chunk is cut.
struct Cut {
  uint32_t parts = 1, slices = 1;  // parts = channels * slices
  uint32_t grain = 1;              // slices start at multiples of this many elements of their chunk

  // The elements of a chunk of `length` that part `part` covers.
  Piece piece(uint64_t length, uint32_t part) const {
    if (parts == 1) return {0, length};
    const uint64_t begin = start(length, part), end = start(length, part + 1);
    return {begin, end - begin};
  }

  // No part of a chunk of `longest` elements has more than this.
  uint64_t longest_part(uint64_t longest) const {
    if (grain == 1) return (longest + parts - 1) / parts;
    return parts == 1 ? longest : std::min<uint64_t>(longest, longest / parts + 1 + 2 * grain);
  }

  // Takes the fewest slices such that no part of a chunk of `longest` elements has more than `most` (more than twice the grain).
  void into_slices(uint64_t longest, uint64_t most, uint32_t channels) {
    const uint64_t least = longest <= most ? 1
                           : grain == 1    ? (longest + most - 1) / most
                                           : longest / (most - 2 * grain) + 1;
    slices = static_cast<uint32_t>((least + channels - 1) / channels);
    parts = channels * slices;
  }

 private:
  uint64_t start(uint64_t length, uint32_t part) const {
    if (part >= parts) return length;
    return length / parts * part / grain * grain + (length % parts * part / parts) / grain * grain;
  }
};

// Elements cut into n runs: in equal parts where they are few, else at multiples of `grain` elements (a cache
// line).
inline std::vector<Piece> cut_evenly(uint64_t count, uint32_t n, uint32_t grain) {
  std::vector<Piece> pieces(n);
  const uint64_t unit = count >= static_cast<uint64_t>(n) * grain * 8 ? grain : 1;
  const uint64_t units = count / unit, rest = count % unit;
  uint64_t offset = 0;
  for (uint32_t i = 0; i < n; ++i) {
    uint64_t length = (units / n + (i < units % n ? 1 : 0)) * unit;
    if (i + 1 == n) length += rest;
    pieces[i] = {offset, length};
    offset += length;
  }
  return pieces;
}

}  // namespace pc
