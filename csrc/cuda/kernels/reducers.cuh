// Reducers: what an interpreter does with a group of elements, 16 bytes of narrow ones.
//
//     narrow    | 16 bytes |                      a group in the caller's type
//     wide      | 16 bytes | 16 bytes | ...       the same group as accumulators: kWide vectors
//
// Copy moves bytes. Reducer<Type, Op> is one combination, known to the compiler. AnyReducer decides at run time: for the
// combinations that have no kernel of their own.
#pragma once

#include "core/dtype.hpp"
#include "cuda/kernels/operators.cuh"

namespace pc::cuda {

// Bytes are moved as they are.
struct Copy {
  static constexpr uint32_t kWide = 1, kUnroll = 4;
  static constexpr bool kConverts = false;
  struct Acc {
    Vector v;
  };
  PC_DEVICE Copy(uint32_t, uint32_t) {}
  PC_DEVICE uint32_t group() const { return kVectorBytes; }
  PC_DEVICE uint32_t wide() const { return 1; }
  PC_DEVICE bool normalises() const { return false; }
  PC_DEVICE void read(Acc& acc, const Vector& v, bool, uint32_t) const { acc.v = v; }
  PC_DEVICE void combine(Acc&, const Vector&, bool, uint32_t) const {}
  PC_DEVICE void finish(Acc&, uint32_t, double) const {}
  PC_DEVICE Vector write(const Acc& acc, bool, uint32_t) const { return acc.v; }
};

template <class Type, ReduceOp Op>
struct Reducer {
  using T = Type;
  using A = typename Type::Acc;
  using Bits = typename Type::Bits;
  static constexpr ReduceOp kOp = Op;
  static constexpr uint32_t kGroup = kVectorBytes / Type::item;
  static constexpr uint32_t kWide = sizeof(A) / Type::item;
  static constexpr uint32_t kPart = kGroup / kWide;  // elements of a vector of wide ones
  static constexpr uint32_t kUnroll = kWide == 4 ? 1 : kWide == 2 ? 2 : 4;
  static constexpr bool kConverts = kWide > 1;
  struct Acc {
    A value[kGroup];
  };

  PC_DEVICE Reducer(uint32_t, uint32_t) {}
  PC_DEVICE uint32_t group() const { return kGroup; }
  PC_DEVICE uint32_t wide() const { return kWide; }
  PC_DEVICE bool normalises() const { return Type::normalises; }

  // Vector `w` of a wide group has a part of its elements; the vector of a narrow one has them all.
  template <class F>
  static PC_DEVICE void each(const Vector& v, bool wide, uint32_t w, F&& f) {
    if (kWide > 1 && wide) {
      A part[kPart];
      memcpy(part, &v, sizeof part);
      PC_UNROLL
      for (uint32_t i = 0; i < kPart; ++i) f(w * kPart + i, part[i]);
    } else {
      Bits bits[kGroup];
      memcpy(bits, &v, sizeof bits);
      PC_UNROLL
      for (uint32_t i = 0; i < kGroup; ++i) f(i, Type::widen(bits[i]));
    }
  }

  PC_DEVICE void read(Acc& acc, const Vector& v, bool wide, uint32_t w) const {
    each(v, wide, w, [&](uint32_t i, A value) { acc.value[i] = value; });
  }
  PC_DEVICE void combine(Acc& acc, const Vector& v, bool wide, uint32_t w) const {
    each(v, wide, w, [&](uint32_t i, A value) { acc.value[i] = apply<Op>(acc.value[i], value); });
  }
  PC_DEVICE void finish(Acc& acc, uint32_t kind, double factor) const {
    if constexpr (Op == ReduceOp::sum) {
      PC_UNROLL
      for (uint32_t i = 0; i < kGroup; ++i) acc.value[i] = cuda::finish(acc.value[i], kind, factor);
    }
  }
  PC_DEVICE Vector write(const Acc& acc, bool wide, uint32_t w) const {
    Vector v;
    if (kWide > 1 && wide) {
      A part[kPart];
      PC_UNROLL
      for (uint32_t i = 0; i < kPart; ++i) part[i] = acc.value[w * kPart + i];
      memcpy(&v, part, sizeof v);
    } else {
      Bits bits[kGroup];
      PC_UNROLL
      for (uint32_t i = 0; i < kGroup; ++i) bits[i] = Type::narrow(acc.value[i]);
      memcpy(&v, bits, sizeof v);
    }
    return v;
  }
};

// Calls `f` with the Reducer of a type and an operator; those that do not exist never get here.
template <class Type, class F>
PC_DEVICE void with_operator(uint32_t op, F&& f) {
  using enum ReduceOp;
  using A = typename Type::Acc;
  switch (static_cast<ReduceOp>(op)) {
    case sum:
      return f(Reducer<Type, sum>(0, 0));
    case prod:
      return f(Reducer<Type, prod>(0, 0));
    default:
      break;
  }
  if constexpr (!is_complex_v<A>) {
    switch (static_cast<ReduceOp>(op)) {
      case min:
        return f(Reducer<Type, min>(0, 0));
      case max:
        return f(Reducer<Type, max>(0, 0));
      case land:
        return f(Reducer<Type, land>(0, 0));
      case lor:
        return f(Reducer<Type, lor>(0, 0));
      case lxor:
        return f(Reducer<Type, lxor>(0, 0));
      default:
        break;
    }
    if constexpr (std::is_integral_v<A>) {
      switch (static_cast<ReduceOp>(op)) {
        case band:
          return f(Reducer<Type, band>(0, 0));
        case bor:
          return f(Reducer<Type, bor>(0, 0));
        default:
          return f(Reducer<Type, bxor>(0, 0));
      }
    }
  }
}

template <class F>
PC_DEVICE void with_reducer(uint32_t dtype, uint32_t op, F&& f) {
  using enum DType;
  switch (static_cast<DType>(dtype)) {
    case bool_:
      switch (on_bool(static_cast<ReduceOp>(op))) {
        case ReduceOp::band:
          return f(Reducer<Bool, ReduceOp::band>(0, 0));
        case ReduceOp::bor:
          return f(Reducer<Bool, ReduceOp::bor>(0, 0));
        default:
          return f(Reducer<Bool, ReduceOp::bxor>(0, 0));
      }
    case int8:
      return with_operator<Native<int8_t>>(op, f);
    case int16:
      return with_operator<Native<int16_t>>(op, f);
    case int32:
      return with_operator<Native<int32_t>>(op, f);
    case int64:
      return with_operator<Native<int64_t>>(op, f);
    case uint8:
      return with_operator<Native<uint8_t>>(op, f);
    case uint16:
      return with_operator<Native<uint16_t>>(op, f);
    case uint32:
      return with_operator<Native<uint32_t>>(op, f);
    case uint64:
      return with_operator<Native<uint64_t>>(op, f);
    case float16:
      return with_operator<Half>(op, f);
    case bfloat16:
      return with_operator<BFloat16>(op, f);
    case float32:
      return with_operator<Native<float>>(op, f);
    case float64:
      return with_operator<Native<double>>(op, f);
    case float8_e4m3fn:
      return with_operator<Float8E4M3FN>(op, f);
    case float8_e5m2:
      return with_operator<Float8E5M2>(op, f);
    case complex64:
      return with_operator<Native<Complex<float>>>(op, f);
    case complex128:
      return with_operator<Native<Complex<double>>>(op, f);
  }
}

template <class T>
PC_DEVICE T element(const void* of, uint32_t i) {
  T value;
  memcpy(&value, static_cast<const char*>(of) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
PC_DEVICE void set_element(void* of, uint32_t i, T value) {
  memcpy(static_cast<char*>(of) + i * sizeof(T), &value, sizeof(T));
}

// Not inlined, and not unrolled: compiled once for each type and operator, whatever the kernel does with them.
enum class Stage { read, combine, finish, write };

struct alignas(kVectorBytes) AnyAcc {
  char bytes[4 * kVectorBytes];
};

template <Stage S>
PC_NOINLINE void any_stage(uint32_t dtype, uint32_t op, AnyAcc& acc, Vector& v, bool wide, uint32_t w,
                           uint32_t kind, double factor) {
  with_reducer(dtype, op, [&](auto reducer) {
    using R = decltype(reducer);
    using A = typename R::A;
    using Bits = typename R::Bits;
    const bool part = R::kWide > 1 && wide;
    const uint32_t first = part ? w * R::kPart : 0, count = part ? R::kPart : R::kGroup;
    PC_ROLL
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t at = first + i;
      if constexpr (S == Stage::read || S == Stage::combine) {
        const A next = part ? element<A>(&v, i % R::kPart) : R::T::widen(element<Bits>(&v, i));
        if constexpr (S == Stage::read)
          set_element<A>(acc.bytes, at, next);
        else
          set_element<A>(acc.bytes, at, apply<R::kOp>(element<A>(acc.bytes, at), next));
      } else if constexpr (S == Stage::write) {
        if (part)
          set_element<A>(&v, i % R::kPart, element<A>(acc.bytes, at));
        else
          set_element<Bits>(&v, i, R::T::narrow(element<A>(acc.bytes, at)));
      } else if constexpr (R::kOp == ReduceOp::sum) {
        set_element<A>(acc.bytes, at, cuda::finish(element<A>(acc.bytes, at), kind, factor));
      }
    }
  });
}

struct AnyReducer {
  static constexpr uint32_t kWide = 4, kUnroll = 1;
  static constexpr bool kConverts = true;
  using Acc = AnyAcc;

  PC_DEVICE AnyReducer(uint32_t dtype, uint32_t op)
      : dtype_(dtype),
        op_(op),
        item_(static_cast<uint32_t>(item_size(static_cast<DType>(dtype)))),
        wide_(static_cast<uint32_t>(item_size(accumulation(static_cast<DType>(dtype)))) / item_) {}
  PC_DEVICE uint32_t group() const { return kVectorBytes / item_; }
  PC_DEVICE uint32_t wide() const { return wide_; }
  PC_DEVICE bool normalises() const { return dtype_ == static_cast<uint32_t>(DType::bool_); }

  PC_DEVICE void read(Acc& acc, Vector v, bool wide, uint32_t w) const {
    any_stage<Stage::read>(dtype_, op_, acc, v, wide, w, 0, 0);
  }
  PC_DEVICE void combine(Acc& acc, Vector v, bool wide, uint32_t w) const {
    any_stage<Stage::combine>(dtype_, op_, acc, v, wide, w, 0, 0);
  }
  PC_DEVICE void finish(Acc& acc, uint32_t kind, double factor) const {
    PC_ROLL
    for (uint32_t w = 0; w < wide_; ++w) {
      Vector unused;
      any_stage<Stage::finish>(dtype_, op_, acc, unused, true, w, kind, factor);
    }
  }
  PC_DEVICE Vector write(Acc& acc, bool wide, uint32_t w) const {
    Vector v;
    any_stage<Stage::write>(dtype_, op_, acc, v, wide, w, 0, 0);
    return v;
  }

 private:
  uint32_t dtype_, op_, item_, wide_;
};

// Does a reducer have to know which elements of a group there are? What is behind the end of an array is zeros, or anything.
template <class R>
concept CountsItems = requires(const R& reducer, typename R::Acc& acc) { reducer.limit(acc, 0u); };

template <class R, class C>
PC_DEVICE R reducer_of(const C& call) {
  if constexpr (CountsItems<R>)
    return R(call);
  else
    return R(call.dtype, call.op);
}

}  // namespace pc::cuda
