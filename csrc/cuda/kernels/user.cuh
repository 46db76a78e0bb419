// The reducer of an operator that the caller wrote (pycollectives/user_op.py). The kernel does not know it: it is linked in later,
// as a function that combines a group of items.
//
// An item is what the operator works on: an element, a small block of elements, or a record. A group is the fewest whole vectors
// that hold whole items:
//
//     float32, f(a, b)           | item | item | item | item |                                       4 items in 1 vector
//     float64, shape (3,)        | item         .      | it   .   em        |    .     |             2 items in 3 vectors
//
// Groups of several vectors are treated as "wide" ones everywhere, in the caller's arrays, too.
#pragma once

#include "cuda/kernels/reducers.cuh"

namespace pc::cuda {

// Items as they are in memory, in groups of at most `Most` vectors.
template <uint32_t Most>
struct Items {
  static constexpr uint32_t kWide = Most, kUnroll = Most == 1 ? 4 : 1;
  struct Acc {
    Vector value[Most];
  };
  PC_DEVICE Items(uint32_t, uint32_t) {}
  PC_DEVICE void read(Acc& acc, const Vector& v, bool, uint32_t w) const { acc.value[w] = v; }
  PC_DEVICE Vector write(const Acc& acc, bool, uint32_t w) const { return acc.value[w]; }
};

// 16- and 8-bit floats, which are combined as float32.
template <class Type>
using Floats = Reducer<Type, ReduceOp::sum>;

template <class Base>
struct UserReducer {
  static constexpr uint32_t kWide = Base::kWide, kUnroll = Base::kUnroll;
  static constexpr bool kConverts = kWide > 1;
  struct alignas(kVectorBytes) Acc {
    typename Base::Acc value, next;
    uint32_t items;
  };

  // `call.op`: the binary logarithm of the items of a group, and above bit 8 its vectors where they are wide.
  template <class C>
  PC_DEVICE explicit UserReducer(const C& call)
      : base_(0, 0), function_(call.user), items_(1u << (call.op & 0xffu)), vectors_(call.op >> 8) {}
  PC_DEVICE uint32_t group() const { return items_; }
  PC_DEVICE uint32_t wide() const { return kWide == 1 ? 1 : vectors_; }
  PC_DEVICE bool normalises() const { return false; }

  // The items of a group that there are: the operator is called for no others.
  PC_DEVICE void limit(Acc& acc, uint32_t items) const { acc.items = items; }
  PC_DEVICE void read(Acc& acc, const Vector& v, bool wide, uint32_t w) const {
    base_.read(acc.value, v, wide, w);
  }
  PC_DEVICE void combine(Acc& acc, const Vector& v, bool wide, uint32_t w) const {
    base_.read(acc.next, v, wide, w);
    if (w + 1 == (wide ? this->wide() : 1)) call_operator(function_, acc.value, acc.next, acc.items);
  }
  PC_DEVICE void finish(Acc&, uint32_t, double) const {}
  PC_DEVICE Vector write(const Acc& acc, bool wide, uint32_t w) const {
    return base_.write(acc.value, wide, w);
  }

 private:
  Base base_;
  const void* function_;
  uint32_t items_, vectors_;
};

}  // namespace pc::cuda
