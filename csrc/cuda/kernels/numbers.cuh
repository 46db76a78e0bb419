// Element types: how a 16-byte vector becomes accumulators and back. The semantics are those of csrc/core/reduce.hpp, to the bit:
// 16- and 8-bit floats accumulate in float32 and are rounded once, to nearest even.
#pragma once

#include <type_traits>

#include "cuda/kernels/ptx.cuh"

namespace pc::cuda {

template <class To, class From>
PC_DEVICE To bit_copy(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// Types that are reduced in themselves.
template <class T>
struct Native {
  using Acc = T;
  static constexpr uint32_t item = sizeof(T);
  static constexpr bool normalises = false;
  static PC_DEVICE T widen(T value) { return value; }
  static PC_DEVICE T narrow(T value) { return value; }
  using Bits = T;
};

// Any byte but 0 is true; results are 0 and 1.
struct Bool : Native<uint8_t> {
  static constexpr bool normalises = true;
  static PC_DEVICE uint8_t widen(uint8_t value) { return value != 0; }
};

template <class T>
struct alignas(2 * sizeof(T)) Complex {
  T real, imag;
};

struct Half {
  using Acc = float;
  using Bits = uint16_t;
  static constexpr uint32_t item = 2;
  static constexpr bool normalises = false;
  static PC_DEVICE float widen(uint16_t bits) { return float_of_half(bits); }
  static PC_DEVICE uint16_t narrow(float value) { return half_of_float(value); }
};

struct BFloat16 {
  using Acc = float;
  using Bits = uint16_t;
  static constexpr uint32_t item = 2;
  static constexpr bool normalises = false;
  static PC_DEVICE float widen(uint16_t bits) { return float_of(uint32_t{bits} << 16); }
  static PC_DEVICE uint16_t narrow(float value) {
    const uint32_t u = bits_of(value);
    if (value != value) return static_cast<uint16_t>(u >> 16 | 0x40);
    return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
  }
};

// IEEE-like formats of 8 bits. With infinity: as IEEE. Without (the `fn` kind): the one code with all bits set is NaN, and
// everything that rounds beyond the largest value becomes it.
template <int Exponent, int Mantissa, bool Infinity>
struct SmallFloat {
  using Acc = float;
  using Bits = uint8_t;
  static constexpr uint32_t item = 1;
  static constexpr bool normalises = false;
  static constexpr int bias = (1 << (Exponent - 1)) - 1, shift = 23 - Mantissa;
  static constexpr uint32_t last = (1u << (Exponent + Mantissa)) - 1;  // the code with all bits set
  static constexpr uint32_t infinity = ((1u << Exponent) - 1) << Mantissa;

  static PC_DEVICE float widen(uint8_t bits) {
    const uint32_t magnitude = bits & 0x7fu;
    constexpr uint32_t rebias = uint32_t{127 - bias} << 23, one = 1u << 23;
    uint32_t result = (magnitude << shift) + rebias;
    if (magnitude < 1u << Mantissa)  // subnormal: read with an implicit one, which is subtracted exactly
      result = bits_of(float_of(result + one) - float_of(rebias + one));
    if (Infinity ? magnitude >= infinity : magnitude == last)
      result = 0x7f800000u | (Infinity ? (magnitude & ((1u << Mantissa) - 1)) << shift : 0x400000u);
    if (Infinity && magnitude > infinity) result |= 0x400000u;
    return float_of(result | (uint32_t{bits} & 0x80u) << 24);
  }

  static PC_DEVICE uint8_t narrow(float value) {
    const uint32_t u = bits_of(value) & 0x7fffffffu, sign = bits_of(value) >> 24 & 0x80u;
    constexpr uint32_t rebias = uint32_t{127 - bias} << 23, one = 1u << 23;
    uint32_t result;
    if (u < rebias + one) {  // adding a number whose last bit is worth the smallest subnormal rounds
      constexpr uint32_t magic = uint32_t{127 + 23 + 1 - bias - Mantissa} << 23;
      result = bits_of(float_of(u) + float_of(magic)) - magic;
    } else {
      result = (u + (u >> shift & 1) + ((1u << (shift - 1)) - 1) - rebias) >> shift;
    }
    constexpr uint32_t limit = Infinity ? infinity : last;
    if (result > limit) result = limit;
    if (u > 0x7f800000u)
      result = Infinity ? infinity | 1u << (Mantissa - 1) | (u >> shift & ((1u << Mantissa) - 1)) : last;
    return static_cast<uint8_t>(result | sign);
  }
};

using Float8E4M3FN = SmallFloat<4, 3, false>;
using Float8E5M2 = SmallFloat<5, 2, true>;

}  // namespace pc::cuda
