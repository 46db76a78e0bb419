// Vectors of the instruction set at hand, on the compiler's vector extensions, and the lane shuffles that the
// codecs need. Included once per instruction set by reduce_codecs.hpp.

#if !defined(PC_SIMD) || !defined(PC_SIMD_BYTES)
#error "include this from reduce_kernels.hpp"
#endif
#if defined(__clang__)
#error "the reduction kernels need GCC: its vector extensions and target pragmas"
#endif

#define PC_INLINE [[gnu::always_inline]] inline

namespace pc::PC_SIMD {
namespace {

template <class T>
struct VectorOf {
  using type [[gnu::vector_size(PC_SIMD_BYTES)]] = T;
};
template <class T>
using V = typename VectorOf<T>::type;

template <class T>
inline constexpr int lanes = PC_SIMD_BYTES / sizeof(T);

template <size_t Size>
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
using Bits = typename UnsignedOf<sizeof(T)>::type;

template <class T>
PC_INLINE V<T> load(const uint8_t* from) {
  V<T> value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
PC_INLINE void store(uint8_t* to, V<T> value) {
  __builtin_memcpy(to, &value, sizeof value);
}

// Past the caches, to an address that is a multiple of the vector's size.
PC_INLINE void stream(uint8_t* to, V<uint8_t> value) {
#if PC_SIMD_BYTES == 64
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)value);
#elif PC_SIMD_BYTES == 32
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)value);
#elif defined(__x86_64__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)value);
#else
  store<uint8_t>(to, value);
#endif
}

// For the last elements: `bytes` of them, then zeros up to a whole number of vectors.
PC_INLINE void copy_padded(uint8_t* to, size_t room, const uint8_t* from, size_t bytes) {
#ifdef PC_SIMD_MASKED
  for (size_t at = 0; at < room; at += 64) {
    const size_t left = bytes > at ? bytes - at : 0;
    const __mmask64 mask = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    _mm512_store_si512(to + at, _mm512_maskz_loadu_epi8(mask, from + (left ? at : 0)));
  }
#else
  __builtin_memset(to, 0, room);
  __builtin_memcpy(to, from, bytes);
#endif
}

// From room that may be read up to a whole vector.
PC_INLINE void copy_some(uint8_t* to, const uint8_t* from, size_t bytes) {
#ifdef PC_SIMD_MASKED
  for (size_t at = 0; at < bytes; at += 64) {
    const size_t left = bytes - at;
    const __mmask64 mask = left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
    _mm512_mask_storeu_epi8(to + at, mask, _mm512_load_si512(from + at));
  }
#else
  __builtin_memcpy(to, from, bytes);
#endif
}

// Lane shuffles for narrow floats, which are widened in place: the words of one vector give the even and the
// odd elements (16 bits) or the four residues modulo 4 (8 bits) without a shuffle. Only wide memory needs
// these.
template <int... I>
struct Lanes {
  static constexpr int n = sizeof...(I);
  PC_INLINE static V<float> even(V<float> a, V<float> b) {
    return __builtin_shuffle(a, b, V<int32_t>{2 * I...});
  }
  PC_INLINE static V<float> odd(V<float> a, V<float> b) {
    return __builtin_shuffle(a, b, V<int32_t>{2 * I + 1 ...});
  }
  PC_INLINE static V<float> zip_low(V<float> a, V<float> b) {
    return __builtin_shuffle(a, b, V<int32_t>{I / 2 + I % 2 * n...});
  }
  PC_INLINE static V<float> zip_high(V<float> a, V<float> b) {
    return __builtin_shuffle(a, b, V<int32_t>{n / 2 + I / 2 + I % 2 * n...});
  }
};
template <class Sequence>
struct LanesOf;
template <int... I>
struct LanesOf<std::integer_sequence<int, I...>> {
  using type = Lanes<I...>;
};
using FloatLanes = LanesOf<std::make_integer_sequence<int, lanes<float>>>::type;

PC_INLINE void split(V<float> (&v)[2]) {
  const V<float> even = FloatLanes::even(v[0], v[1]), odd = FloatLanes::odd(v[0], v[1]);
  v[0] = even;
  v[1] = odd;
}

PC_INLINE void zip(V<float> (&v)[2]) {
  const V<float> low = FloatLanes::zip_low(v[0], v[1]), high = FloatLanes::zip_high(v[0], v[1]);
  v[0] = low;
  v[1] = high;
}

PC_INLINE void split(V<float> (&v)[4]) {
  V<float> a[2] = {v[0], v[1]}, b[2] = {v[2], v[3]};
  split(a);
  split(b);
  V<float> even[2] = {a[0], b[0]}, odd[2] = {a[1], b[1]};
  split(even);
  split(odd);
  v[0] = even[0], v[1] = odd[0], v[2] = even[1], v[3] = odd[1];
}

PC_INLINE void zip(V<float> (&v)[4]) {
  V<float> even[2] = {v[0], v[2]}, odd[2] = {v[1], v[3]};
  zip(even);
  zip(odd);
  V<float> low[2] = {even[0], odd[0]}, high[2] = {even[1], odd[1]};
  zip(low);
  zip(high);
  v[0] = low[0], v[1] = low[1], v[2] = high[0], v[3] = high[1];
}

}  // namespace
}  // namespace pc::PC_SIMD
