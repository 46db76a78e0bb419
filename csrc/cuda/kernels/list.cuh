// The interpreters of one protocol. Combinations that programs spend their time on have kernels of their own; the others share the
// one that decides at run time, which is right for all and keeps the build short. Included once per protocol.
#pragma once

#include "cuda/kernels/interpreter.cuh"
#include "cuda/kernels/kernels.hpp"

namespace pc::cuda {

template <class R, class P>
Kernel kernel_of(const char* name) {
#ifdef __CUDACC__
  return {reinterpret_cast<const void*>(&interpret<R, P>), nullptr, name};
#else
  return {reinterpret_cast<const void*>(&interpret<R, P>),
          [](const void* call) { interpret<R, P>(*static_cast<const Call*>(call)); }, name};
#endif
}

template <class P>
Kernel find_in(const Wanted& wanted) {
  if (wanted.moves) return kernel_of<Copy, P>("copy");
#define PC_OWN(type, T, o)                                                    \
  if (!wanted.any && wanted.dtype == DType::type && wanted.op == ReduceOp::o) \
    return kernel_of<Reducer<T, ReduceOp::o>, P>(#type " " #o);
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
  return kernel_of<AnyReducer, P>("any");
}

}  // namespace pc::cuda
