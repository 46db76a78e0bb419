// How elements become vectors of accumulators and back. Included once per instruction set by
// reduce_kernels.hpp; plain vector extensions wherever the compiler does well with them.
//
// A codec moves `step` elements at a time: one vector of narrow elements, `vectors` vectors of accumulators.
// `narrow_sources` tells `write` that no wide element went into the value.

#include "reduce_vectors.hpp"

namespace pc::PC_SIMD {
namespace {

// Types that are reduced in themselves.
template <class T>
struct Native {
  using Acc = T;
  static constexpr bool converts = false;
  static constexpr bool has_plain = false;  // whether a loop for the plain case of `fold` pays
  static constexpr int vectors = 1;
  static constexpr size_t item = sizeof(T), step = lanes<T>;

  PC_INLINE static void read(const uint8_t* from, bool, V<T> (&value)[1]) { value[0] = load<T>(from); }
  PC_INLINE static void write(uint8_t* to, bool, bool, const V<T> (&value)[1]) { store<T>(to, value[0]); }
};

// bool: any non-zero byte is true, results are 0 and 1.
struct Bool : Native<uint8_t> {
  static constexpr bool converts = true;

  PC_INLINE static void read(const uint8_t* from, bool, V<uint8_t> (&value)[1]) {
    const V<uint8_t> raw = load<uint8_t>(from), one = V<uint8_t>{} + uint8_t{1};
    value[0] = raw < one ? raw : one;
  }
};

// IEEE-like formats with Exponent and Mantissa bits. With infinity: as IEEE. Without (the `fn` kind):
// the one code with all bits set is NaN, and everything that rounds beyond the largest value becomes it.
template <int Exponent, int Mantissa, bool Infinity>
struct SmallFormat {
  static constexpr int bits = 1 + Exponent + Mantissa;
  static constexpr int bias = (1 << (Exponent - 1)) - 1;
  static constexpr uint32_t rebias = uint32_t{127 - bias} << 23;
  static constexpr uint32_t implicit_one = 1u << 23, float_infinity = 0x7f800000u, quiet = 1u << 22;

  PC_INLINE static V<float> widen(V<uint32_t> top_aligned) {
    const V<int32_t> u = (V<int32_t>)((top_aligned & 0x7fffffffu) >> (8 - Exponent));
    const V<uint32_t> normal = (V<uint32_t>)u + rebias;
    // A subnormal is read with an implicit one, which is then subtracted exactly.
    const V<float> one = (V<float>)(V<uint32_t>{} + (rebias + implicit_one));
    const V<float> subnormal = (V<float>)(normal + implicit_one) - one;
    V<uint32_t> result = u < int32_t(implicit_one) ? (V<uint32_t>)subnormal : normal;
    if constexpr (Infinity) {
      constexpr int32_t infinity = ((1 << Exponent) - 1) << 23;
      const V<uint32_t> special = (V<uint32_t>)u | float_infinity;
      result = u >= infinity ? special | ((V<uint32_t>)(u > infinity) & quiet) : result;
    } else {
      constexpr int32_t nan = ((1 << (Exponent + Mantissa)) - 1) << (23 - Mantissa);
      result = u == nan ? V<uint32_t>{} + (float_infinity | quiet) : result;
    }
    return (V<float>)(result | (top_aligned & 0x80000000u));
  }

  // The result stands at the bottom.
  PC_INLINE static V<uint32_t> narrow(V<float> value) {
    constexpr int shift = 23 - Mantissa;
    const V<uint32_t> u = (V<uint32_t>)value & 0x7fffffffu;
    const V<uint32_t> odd = u >> shift & 1u;
    const V<int32_t> normal = (V<int32_t>)((u + odd + ((1u << (shift - 1)) - 1 - rebias)) >> shift);
    // Adding a number whose last bit is worth the smallest subnormal leaves the rounding to the adder.
    const V<uint32_t> magic = V<uint32_t>{} + (uint32_t{127 + 23 + 1 - bias - Mantissa} << 23);
    const V<int32_t> subnormal = (V<int32_t>)((V<uint32_t>)((V<float>)u + (V<float>)magic) - magic);
    V<int32_t> result = (V<int32_t>)u < int32_t(rebias + implicit_one) ? subnormal : normal;
    constexpr int32_t last = ((1 << (Exponent + Mantissa)) - 1);  // all bits set: the NaN of the `fn` kind
    constexpr int32_t infinity = ((1 << Exponent) - 1) << Mantissa;
    const V<int32_t> limit = V<int32_t>{} + (Infinity ? infinity : last);
    result = result < limit ? result : limit;
    if constexpr (Infinity) {
      const V<int32_t> payload = (V<int32_t>)(u >> shift) & ((1 << Mantissa) - 1);
      result = (V<int32_t>)u > int32_t(float_infinity) ? payload | (infinity | 1 << (Mantissa - 1)) : result;
    }
    return (V<uint32_t>)result | ((V<uint32_t>)value & 0x80000000u) >> (32 - bits);
  }
};

// Narrow floats, accumulated in float32, by integer arithmetic on 32-bit lanes.
template <class Format>
struct Narrow {
  using Acc = float;
  static constexpr bool converts = true, has_plain = false;
  static constexpr int bits = Format::bits, vectors = 32 / bits;
  static constexpr size_t item = bits / 8, step = PC_SIMD_BYTES / item;

  PC_INLINE static void read(const uint8_t* from, bool wide, V<float> (&value)[vectors]) {
    if (wide) {
      for (int j = 0; j < vectors; ++j) value[j] = load<float>(from + j * PC_SIMD_BYTES);
      split(value);
    } else {
      const V<uint32_t> raw = load<uint32_t>(from);
      for (int j = 0; j < vectors; ++j) {
        V<uint32_t> top_aligned = raw << (32 - bits * (j + 1));
        if (j > 0) top_aligned &= ~0u << (32 - bits);
        value[j] = Format::widen(top_aligned);
      }
    }
  }

  PC_INLINE static void write(uint8_t* to, bool wide, bool, const V<float> (&value)[vectors]) {
    if (wide) {
      V<float> ordered[vectors];
      for (int j = 0; j < vectors; ++j) ordered[j] = value[j];
      zip(ordered);
      for (int j = 0; j < vectors; ++j) store<float>(to + j * PC_SIMD_BYTES, ordered[j]);
    } else {
      V<uint32_t> raw = Format::narrow(value[0]);
      for (int j = 1; j < vectors; ++j) raw |= Format::narrow(value[j]) << (bits * j);
      store<uint32_t>(to, raw);
    }
  }
};

using Float8E4M3FN = Narrow<SmallFormat<4, 3, false>>;
using Float8E5M2 = Narrow<SmallFormat<5, 2, true>>;

// Whether any lane of either is NaN; where there is no cheap answer, true.
PC_INLINE bool may_have_nan([[maybe_unused]] V<float> a, [[maybe_unused]] V<float> b) {
#if !defined(__x86_64__)
  return true;
#elif PC_SIMD_BYTES == 64
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q) != 0;
#elif PC_SIMD_BYTES == 32
  return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q)) != 0;
#else
  return _mm_movemask_ps(_mm_cmpunord_ps((__m128)a, (__m128)b)) != 0;
#endif
}

// bfloat16: the upper half of a float32. A NaN with wide ancestors becomes the quiet NaN of the same sign.
struct BFloat16 {
  using Acc = float;
  static constexpr bool converts = true, has_plain = true;
  static constexpr int vectors = 2;
  static constexpr size_t item = 2, step = PC_SIMD_BYTES / item;

  PC_INLINE static void read(const uint8_t* from, bool wide, V<float> (&value)[2]) {
    if (wide) {
      for (int j = 0; j < 2; ++j) value[j] = load<float>(from + j * PC_SIMD_BYTES);
      split(value);
    } else {
      const V<uint32_t> raw = load<uint32_t>(from);
      value[0] = (V<float>)(raw << 16);
      value[1] = (V<float>)(raw & 0xffff0000u);
    }
  }

  PC_INLINE static void write(uint8_t* to, bool wide, bool narrow_sources, const V<float> (&value)[2]) {
    if (wide) {
      V<float> ordered[2] = {value[0], value[1]};
      zip(ordered);
      for (int j = 0; j < 2; ++j) store<float>(to + j * PC_SIMD_BYTES, ordered[j]);
      return;
    }
    V<uint32_t> even = (V<uint32_t>)value[0], odd = (V<uint32_t>)value[1];
    // The NaNs of narrow elements have nothing to be cut off, so that rounding leaves them alone.
    if (!narrow_sources && may_have_nan(value[0], value[1])) [[unlikely]] {
      even = quiet(value[0]);
      odd = quiet(value[1]);
    }
    store<uint16_t>(to, round(blend(even >> 16, odd), blend(even, odd << 16)));
  }

 private:
  // The lower halves of one, the upper ones of the other.
  PC_INLINE static V<uint16_t> blend(V<uint32_t> lower, V<uint32_t> upper) {
#if PC_SIMD_BYTES == 64
    return (V<uint16_t>)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)lower, (__m512i)upper);
#elif PC_SIMD_BYTES == 32
    return (V<uint16_t>)_mm256_blend_epi16((__m256i)lower, (__m256i)upper, 0xaa);
#else
    return (V<uint16_t>)((lower & 0xffffu) | (upper & 0xffff0000u));
#endif
  }

  // Up where what is cut off is more than half, or is half and the last bit kept is odd.
  PC_INLINE static V<uint16_t> round(V<uint16_t> kept, V<uint16_t> cut) {
    const V<uint16_t> sticky = cut | (kept & uint16_t{1}), half = V<uint16_t>{} + uint16_t{0x8000};
#if PC_SIMD_BYTES == 64
    const __mmask32 up = _mm512_cmpgt_epu16_mask((__m512i)sticky, (__m512i)half);
    return (V<uint16_t>)_mm512_mask_sub_epi16((__m512i)kept, up, (__m512i)kept, _mm512_set1_epi16(-1));
#else
    return kept - (V<uint16_t>)((V<int16_t>)(sticky ^ half) > 0);  // a comparison gives 0 or -1
#endif
  }

  PC_INLINE static V<uint32_t> quiet(V<float> value) {
    const V<uint32_t> u = (V<uint32_t>)value;
    return value == value ? u : (u & 0x80000000u) | 0x7fc00000u;
  }
};

#ifdef PC_SIMD_F16C
// float16 by the conversion instructions.
struct Float16 {
  using Acc = float;
  static constexpr bool converts = true, has_plain = true;
  static constexpr int vectors = 2;
  static constexpr size_t item = 2, step = PC_SIMD_BYTES / item;

  PC_INLINE static void read(const uint8_t* from, bool wide, V<float> (&value)[2]) {
    for (int j = 0; j < 2; ++j) {
      value[j] = wide ? load<float>(from + j * PC_SIMD_BYTES) : widen(from + j * PC_SIMD_BYTES / 2);
    }
  }
  PC_INLINE static void write(uint8_t* to, bool wide, bool, const V<float> (&value)[2]) {
    for (int j = 0; j < 2; ++j) {
      if (wide) {
        store<float>(to + j * PC_SIMD_BYTES, value[j]);
      } else {
        narrow(to + j * PC_SIMD_BYTES / 2, value[j]);
      }
    }
  }

 private:
  PC_INLINE static V<float> widen(const uint8_t* from) {
    return (V<float>)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
  }
  PC_INLINE static void narrow(uint8_t* to, V<float> value) {
    _mm_storeu_si128((__m128i*)to,
                     _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
};
#else
using Float16 = Narrow<SmallFormat<5, 10, true>>;
#endif

}  // namespace
}  // namespace pc::PC_SIMD
