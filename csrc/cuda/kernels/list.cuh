// Which reducers have kernels of their own. Combinations that programs spend their time on have kernels of their own; the others share the
// one that decides at run time, which is right for all and keeps the build short.
#pragma once

#include "cuda/kernels/kernels.hpp"
#include "cuda/kernels/reducers.cuh"

namespace pc::cuda {

template <auto K, class C>
Kernel kernel_of(const char* name) {
  return {reinterpret_cast<const void*>(K), PC_CALLER(K, C), name};
}

// Calls `f(reducer, name)` with the reducer of a wish, as a null pointer to it.
template <class F>
Kernel choose_reducer(const Wanted& wanted, F&& f) {
  if (wanted.moves) return f(static_cast<Copy*>(nullptr), "copy");
#define PC_OWN(type, T, o)                                                    \
  if (!wanted.any && wanted.dtype == DType::type && wanted.op == ReduceOp::o) \
    return f(static_cast<Reducer<T, ReduceOp::o>*>(nullptr), #type " " #o);
  PC_OWN(float32, Native<float>, sum)
  PC_OWN(bfloat16, BFloat16, sum)
#ifndef PC_FEW_KERNELS
  PC_OWN(float16, Half, sum)
  PC_OWN(float64, Native<double>, sum)
  PC_OWN(int32, Native<int32_t>, sum)
  PC_OWN(int64, Native<int64_t>, sum)
  PC_OWN(float8_e4m3fn, Float8E4M3FN, sum)
  PC_OWN(float8_e5m2, Float8E5M2, sum)
  PC_OWN(float32, Native<float>, max)
  PC_OWN(float32, Native<float>, min)
  PC_OWN(bfloat16, BFloat16, max)
  PC_OWN(float16, Half, max)
#endif
#undef PC_OWN
  return f(static_cast<AnyReducer*>(nullptr), "any");
}

}  // namespace pc::cuda
