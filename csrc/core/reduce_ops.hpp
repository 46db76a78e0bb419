// The operations on vectors. Included once per instruction set by reduce_kernels.hpp.

namespace pc::PC_SIMD {
namespace {

template <class T>
struct Sum {
  // Only a sum has an epilogue; for floats it is applied in registers.
  static constexpr bool scales = std::is_floating_point_v<T>;
  PC_INLINE static V<T> apply(V<T> a, V<T> b) { return a + b; }
};

// Widening and rounding keep the adders of some machines busy while their multipliers idle, and 1 * b + a has
// the bits of a + b.
struct NarrowSum : Sum<float> {
  PC_INLINE static V<float> apply(V<float> a, V<float> b) {
#ifdef PC_SIMD_FMA
    V<float> one = V<float>{} + 1.0f;
    asm("" : "+v"(one));  // or the compiler would make it an addition
#if PC_SIMD_BYTES == 64
    return (V<float>)_mm512_fmadd_ps((__m512)b, (__m512)one, (__m512)a);
#else
    return (V<float>)_mm256_fmadd_ps((__m256)b, (__m256)one, (__m256)a);
#endif
#else
    return a + b;
#endif
  }
};

template <class T>
struct Prod {
  static constexpr bool scales = false;
  PC_INLINE static V<T> apply(V<T> a, V<T> b) { return a * b; }
};

// Where both orders of a plain minimum differ (a NaN, or zeros of both signs) the `or` of the two is right: a
// NaN with any bits added is a NaN, and -0 wins. For the maximum the sign bit must be an `and` instead.
template <class T>
struct Min {
  static constexpr bool scales = false;
  PC_INLINE static V<T> apply(V<T> a, V<T> b) {
    const V<T> ab = a < b ? a : b;
    if constexpr (!std::is_floating_point_v<T>) return ab;
    const V<T> ba = b < a ? b : a;
    return (V<T>)((V<Bits<T>>)ab | (V<Bits<T>>)ba);
  }
};

template <class T>
struct Max {
  static constexpr bool scales = false;
  PC_INLINE static V<T> apply(V<T> a, V<T> b) {
    const V<T> ab = a > b ? a : b;
    if constexpr (!std::is_floating_point_v<T>) return ab;
    const V<Bits<T>> x = (V<Bits<T>>)ab, y = (V<Bits<T>>)(b > a ? b : a);
    constexpr Bits<T> magnitude = Bits<T>(~Bits<T>{0}) >> 1;
    return (V<T>)((x & y) | ((x | y) & magnitude));
  }
};

struct And {
  template <class U>
  PC_INLINE static U apply(U a, U b) {
    return a & b;
  }
};
struct Or {
  template <class U>
  PC_INLINE static U apply(U a, U b) {
    return a | b;
  }
};
struct Xor {
  template <class U>
  PC_INLINE static U apply(U a, U b) {
    return a ^ b;
  }
};

template <class T, class Connective>
struct Bitwise {
  static constexpr bool scales = false;
  PC_INLINE static V<T> apply(V<T> a, V<T> b) { return Connective::apply(a, b); }
};

template <class T, class Connective>
struct Logical {
  static constexpr bool scales = false;
  PC_INLINE static V<T> apply(V<T> a, V<T> b) {
    const V<Bits<T>> truth = (V<Bits<T>>)Connective::apply(a != V<T>{}, b != V<T>{});
    return (V<T>)(truth & (V<Bits<T>>)(V<T>{} + T{1}));
  }
};

// Lanes alternate real and imaginary parts.
template <class T, class Sequence>
struct ComplexProdOf;
template <class T, int... I>
struct ComplexProdOf<T, std::integer_sequence<int, I...>> {
  static constexpr bool scales = false;
  using Index = std::make_signed_t<Bits<T>>;
  PC_INLINE static V<T> apply(V<T> a, V<T> b) {
    const V<T> real = __builtin_shuffle(a, V<Index>{(I & ~1)...}),
               imag = __builtin_shuffle(a, V<Index>{(I | 1)...});
    const V<T> crossed = imag * __builtin_shuffle(b, V<Index>{(I ^ 1)...});
    constexpr Bits<T> sign = ~(Bits<T>(~Bits<T>{0}) >> 1);
    const V<Bits<T>> minus_real = {(I % 2 ? Bits<T>{0} : sign)...};
    return real * b + (V<T>)((V<Bits<T>>)crossed ^ minus_real);
  }
};
template <class T>
using ComplexProd = ComplexProdOf<T, std::make_integer_sequence<int, lanes<T>>>;

// The epilogue of integers, on an aligned block. Conversions are written so that they vectorise.
template <class T>
void scale_integers(T* values, size_t count, const Epilogue& epilogue) {
  using Real = std::conditional_t<(sizeof(T) <= 2), float, double>;
  if (epilogue.kind == Epilogue::divide) {
    if constexpr (sizeof(T) == 8) {
      const T divisor = static_cast<T>(epilogue.factor);
      for (size_t i = 0; i < count; ++i) values[i] /= divisor;
    } else {  // quotients of so few bits are never rounded up to a whole number
      const Real divisor = static_cast<Real>(epilogue.factor);
      using Whole = std::conditional_t<sizeof(T) == 4, T, int32_t>;
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(static_cast<Whole>(values[i] / divisor));
    }
    return;
  }
  constexpr T lowest = std::is_signed_v<T> ? static_cast<T>(T{1} << (8 * sizeof(T) - 1)) : T{0};
  constexpr T highest = static_cast<T>(~lowest);
  // 2^63 and 2^64 are the first doubles beyond the 64-bit types, whose own limits are no doubles.
  constexpr double low = static_cast<double>(lowest), high = static_cast<double>(highest);
  for (size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(values[i]) * epilogue.factor;
    const T inside = static_cast<T>(x > low && x < high ? x : 0.0);
    values[i] = x >= high ? highest : x <= low ? lowest : inside;
  }
}

}  // namespace
}  // namespace pc::PC_SIMD
