// Element-wise reduction of any number of sources, vectorised, with the instruction set chosen at run time.
//
// Semantics, the same bits for every instruction set:
//   * strictly left to right for every element: ((s0 op s1) op s2) ...; then the epilogue; then one
//     rounding per sink;
//   * 16- and 8-bit floats accumulate in float32 and are rounded to nearest even once, at a narrow sink,
//     with the overflow and NaN results of ml_dtypes (float8_e4m3fn overflows to NaN, the others to
//     infinity);
//   * multiply and add are never fused; complex products are the plain four-multiplication formula;
//   * integers wrap; bool sum and max are `or`, prod and min are `and`, and bool results are bytes 0 or 1;
//   * float min and max are IEEE 754-2019 minimum and maximum: NaN wins, -0 < +0, so the order
//     does not matter;
//   * logical operations give 0 or 1 in the dtype; NaN counts as true;
//   * one source is a copy (or conversion) whatever the operation; bool copies become 0 or 1;
//   * what is left open are the sign and the payload of a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "dtype.hpp"

namespace pc {

enum class ReduceOp : uint8_t { sum, prod, min, max, band, bor, bxor, land, lor, lxor };

inline constexpr int reduce_op_count = 10;

constexpr const char* name(ReduceOp op) {
  constexpr const char* names[reduce_op_count] = {"sum", "prod", "min",  "max", "band",
                                                  "bor", "bxor", "land", "lor", "lxor"};
  return names[static_cast<int>(op)];
}

// Applied to the finished accumulation, before it is rounded.
//   divide: by `factor`, the number of ranks (a whole number >= 1); integers truncate toward zero.
//   scale:  multiply by `factor` in the accumulation type; integers multiply in double, truncate toward
//           zero and saturate at the limits of the dtype (NaN gives 0).
// Complex values scale both parts.
struct Epilogue {
  enum Kind : uint8_t { none, divide, scale } kind = none;
  double factor = 1.0;
};

inline constexpr int epilogue_kind_count = 3;

// Pointers need byte alignment only. `wide`: elements are of accumulation(dtype) instead of dtype.
// A sink may be exactly one of the sources (same pointer, same width); any other overlap is not allowed.
// `far`: last written by a core that shares no cache with this one.
struct Source {
  const void* data;
  bool wide;
  bool far = false;
};

// `stream`: to be written past the caches, see streams_by_itself().
struct Sink {
  void* data;
  bool wide;
  bool stream = false;
};

// One or more sources (any number), one or two sinks, `count` elements each.
using Kernel = void (*)(const Source* sources, int nsources, const Sink* sinks, int nsinks, size_t count,
                        const Epilogue& epilogue);

// Sinks are streamed by the kernels where two sources are folded, since reading and streaming do not wait for each other then;
// `stream` means nothing elsewhere. All operands are narrow, and sinks that are streamed begin at a line.
inline constexpr size_t kLongFold = 4 * 4096;  // bytes
constexpr bool streams_by_itself(int nsources, size_t bytes, const Epilogue& epilogue) {
  return nsources == 2 && bytes >= kLongFold && epilogue.kind == Epilogue::none;
}

// Which combinations exist. An epilogue belongs to `sum` of numbers; bitwise operations to integers and bool;
// complex has sum and prod. A kernel must not be called with an epilogue for which this is false.
constexpr bool supports(DType dtype, ReduceOp op, Epilogue::Kind kind = Epilogue::none) {
  if (kind != Epilogue::none && (op != ReduceOp::sum || dtype == DType::bool_)) return false;
  if (is_complex(dtype)) return op == ReduceOp::sum || op == ReduceOp::prod;
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  return !bitwise || is_integer(dtype) || dtype == DType::bool_;
}

// The kernel of the instruction set in use; nullptr if the combination is unsupported. Cheap after the first
// call, which throws std::invalid_argument if PYCOLLECTIVES_SIMD names an instruction set that this machine
// lacks.
Kernel find_kernel(DType dtype, ReduceOp op);

// The kernel of a named instruction set; nullptr if that is not available here.
Kernel find_kernel(DType dtype, ReduceOp op, std::string_view simd);

// The instruction set in use: the best available one, or what PYCOLLECTIVES_SIMD says.
const char* simd_name();

// Every instruction set that this machine runs, the plainest first.
std::span<const char* const> available_simd();

namespace detail {

struct KernelTable {
  Kernel at[dtype_count][reduce_op_count];
};

}  // namespace detail

// One table per instruction set, each compiled in its own file.
namespace baseline {
const detail::KernelTable& kernels();
}
namespace avx2 {
const detail::KernelTable& kernels();
}
namespace avx512 {
const detail::KernelTable& kernels();
}

}  // namespace pc
