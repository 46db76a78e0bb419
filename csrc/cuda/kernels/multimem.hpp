// What a switch can combine (multimem.ld_reduce of the PTX ISA, compute capability 9.0 on), and whose results are then those of this
// library (core/reduce.hpp).
//
//                            sum         min, max      band, bor, bxor
//     float32, float64       add         -             -               min and max of the switch lose a NaN, which wins here;
//     float16, bfloat16      add (*)     -             -               (*) accumulates in float32, rounds once
//     8-bit floats           -           -             -               only on some devices
//     int32, uint32, 64      add         min, max      and, or, xor    a wrapping add is the same for both signs
//     int8, 16, uint8, 16    -           -             and, or, xor    by words of 32 bits
//     bool, complex          -           -             -
//
// The order of a float's sum is the switch's own: not for deterministic=True, nor where every rank asks for the sum by itself, which
// might give each of them other bits.
#pragma once

#include <cstdint>

#include "core/dtype.hpp"
#include "core/reduce.hpp"

namespace pc::cuda {

enum class Multimem : uint32_t {
  none,
  add_f32,
  add_f64,
  add_f16,
  add_bf16,
  add_u32,
  add_u64,
  min_s32,
  max_s32,
  min_u32,
  max_u32,
  min_s64,
  max_s64,
  min_u64,
  max_u64,
  and_b32,
  or_b32,
  xor_b32,
  last = xor_b32,
};

constexpr Multimem multimem_of(DType dtype, ReduceOp op) {
  using enum Multimem;
  const auto choose = [&](Multimem add, Multimem min, Multimem max, bool integer) {
    switch (op) {
      case ReduceOp::sum:
        return add;
      case ReduceOp::min:
        return min;
      case ReduceOp::max:
        return max;
      case ReduceOp::band:
        return integer ? and_b32 : none;
      case ReduceOp::bor:
        return integer ? or_b32 : none;
      case ReduceOp::bxor:
        return integer ? xor_b32 : none;
      default:
        return none;
    }
  };
  switch (dtype) {
    case DType::float32:
      return choose(add_f32, none, none, false);
    case DType::float64:
      return choose(add_f64, none, none, false);
    case DType::float16:
      return choose(add_f16, none, none, false);
    case DType::bfloat16:
      return choose(add_bf16, none, none, false);
    case DType::int32:
      return choose(add_u32, min_s32, max_s32, true);
    case DType::uint32:
      return choose(add_u32, min_u32, max_u32, true);
    case DType::int64:
      return choose(add_u64, min_s64, max_s64, true);
    case DType::uint64:
      return choose(add_u64, min_u64, max_u64, true);
    case DType::int8:
    case DType::int16:
    case DType::uint8:
    case DType::uint16:
      return choose(none, none, none, true);
    default:
      return none;
  }
}

// Is the result the same in whatever order?
constexpr bool is_exact(Multimem form) { return form > Multimem::add_bf16; }

// Can the epilogue be applied to the result? 16-bit sums have been rounded by then.
constexpr bool can_finish(Multimem form) { return form == Multimem::add_f32 || form == Multimem::add_f64; }

}  // namespace pc::cuda
