// Operators on accumulators, and the epilogue. Strictly left to right; multiply and add are never fused (-fmad=false).
#pragma once

#include "core/reduce.hpp"
#include "cuda/kernels/numbers.cuh"

namespace pc::cuda {

template <class T>
inline constexpr bool is_complex_v = false;
template <class T>
inline constexpr bool is_complex_v<Complex<T>> = true;

template <size_t Bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = uint8_t;
};
template <>
struct UnsignedOf<2> {
  using type = uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = uint64_t;
};
template <class T>
using Unsigned = typename UnsignedOf<sizeof(T)>::type;

// Integers wrap: their arithmetic is unsigned.
template <class T>
PC_DEVICE T add(T a, T b) {
  if constexpr (is_complex_v<T>)
    return {a.real + b.real, a.imag + b.imag};
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  else
    return a + b;
}

template <class T>
PC_DEVICE T multiply(T a, T b) {
  if constexpr (is_complex_v<T>)
    return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(uint64_t{1} * static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
  else
    return a * b;
}

// IEEE 754-2019 minimum and maximum: where both orders of a plain one differ (a NaN, zeros of both signs), the `or` of the two is
// the minimum; for the maximum the sign bit is an `and`.
template <class T>
PC_DEVICE T least(T a, T b) {
  const T ab = a < b ? a : b;
  if constexpr (std::is_floating_point_v<T>) {
    const T ba = b < a ? b : a;
    return bit_copy<T>(static_cast<Unsigned<T>>(bit_copy<Unsigned<T>>(ab) | bit_copy<Unsigned<T>>(ba)));
  } else {
    return ab;
  }
}

template <class T>
PC_DEVICE T greatest(T a, T b) {
  const T ab = a > b ? a : b;
  if constexpr (std::is_floating_point_v<T>) {
    using U = Unsigned<T>;
    const U x = bit_copy<U>(ab), y = bit_copy<U>(b > a ? b : a);
    constexpr U magnitude = static_cast<U>(~U{0}) >> 1;
    return bit_copy<T>(static_cast<U>((x & y) | ((x | y) & magnitude)));
  } else {
    return ab;
  }
}

template <ReduceOp Op, class T>
PC_DEVICE T apply(T a, T b) {
  if constexpr (Op == ReduceOp::sum)
    return add(a, b);
  else if constexpr (Op == ReduceOp::prod)
    return multiply(a, b);
  else if constexpr (Op == ReduceOp::min)
    return least(a, b);
  else if constexpr (Op == ReduceOp::max)
    return greatest(a, b);
  else if constexpr (Op == ReduceOp::band)
    return static_cast<T>(a & b);
  else if constexpr (Op == ReduceOp::bor)
    return static_cast<T>(a | b);
  else if constexpr (Op == ReduceOp::bxor)
    return static_cast<T>(a ^ b);
  else if constexpr (Op == ReduceOp::land)
    return static_cast<T>(a != T{} && b != T{});
  else if constexpr (Op == ReduceOp::lor)
    return static_cast<T>(a != T{} || b != T{});
  else
    return static_cast<T>((a != T{}) != (b != T{}));
}

// What an operator is on bytes 0 and 1.
constexpr ReduceOp on_bool(ReduceOp op) {
  using enum ReduceOp;
  return op == bxor || op == lxor ? bxor : op == prod || op == min || op == band || op == land ? band : bor;
}

// Of a finished sum, before it is rounded: see Epilogue in core/reduce.hpp.
template <class T>
PC_DEVICE T finish(T value, uint32_t kind, double factor) {
  if constexpr (is_complex_v<T>) {
    return {finish(value.real, kind, factor), finish(value.imag, kind, factor)};
  } else if constexpr (std::is_floating_point_v<T>) {
    if (kind == Epilogue::divide) return value / static_cast<T>(factor);
    return value * static_cast<T>(factor);
  } else if (kind == Epilogue::divide) {
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(static_cast<int64_t>(value) / static_cast<int64_t>(factor));
    else
      return static_cast<T>(static_cast<uint64_t>(value) / static_cast<uint64_t>(factor));
  } else {
    constexpr T lowest = std::is_signed_v<T> ? static_cast<T>(Unsigned<T>{1} << (8 * sizeof(T) - 1)) : T{0};
    constexpr T highest = static_cast<T>(~lowest);
    constexpr double low = static_cast<double>(lowest), high = static_cast<double>(highest);
    const double x = static_cast<double>(value) * factor;
    if (x >= high) return highest;
    if (x <= low) return lowest;
    return x == x ? static_cast<T>(x) : T{0};
  }
}

}  // namespace pc::cuda
