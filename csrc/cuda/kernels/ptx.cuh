// Everything in the kernels that is not plain C++: memory operations of a given strength and scope, line accesses, conversions
// that have an instruction, multicast.
//
// Each function exists twice: as PTX for nvcc, and on the fibres of csrc/cuda/emulation for g++, which runs the same kernels
// without a GPU. Nothing else in kernels/ looks at __CUDACC__.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/kernels/multimem.hpp"
#include "cuda/kernels/vector.hpp"

#ifdef __CUDACC__

#define PC_UNROLL _Pragma("unroll")
#define PC_ROLL _Pragma("unroll 1")
#define PC_TEXT(...) #__VA_ARGS__
#define PC_UNROLL_BY(n) _Pragma(PC_TEXT(unroll n))
#define PC_DEVICE __device__ __forceinline__
#define PC_NOINLINE static __device__ __noinline__
#define PC_KERNEL(threads) __global__ __launch_bounds__(threads, 1)
#define PC_PARAMETER const __grid_constant__
#define PC_CALLER(kernel, C) nullptr  // what calls a kernel with a C on the CPU
#define PC_SHARED_MEMORY(name) extern __shared__ __align__(16) char name[]

namespace pc::cuda {

// -- flags: 64-bit words that ranks exchange ---------------------------------------------------------------------------------

PC_DEVICE uint64_t load_acquire_sys(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

PC_DEVICE uint64_t load_relaxed_sys(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

// A release by itself: a __threadfence_system() before it would be a second barrier.
PC_DEVICE void store_release_sys(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// To the own device only: what a test of the tests puts in the place of a release.
PC_DEVICE void store_release_gpu(uint64_t* to, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

PC_DEVICE void store_relaxed_sys(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// -- data --------------------------------------------------------------------------------------------------------------------

PC_DEVICE Vector load_vector(const void* from) {
  Vector v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from)
               : "memory");
  return v;
}

PC_DEVICE void store_vector(void* to, const Vector& v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]), "r"(v.word[1]),
               "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

// -- lines that carry their own flags -----------------------------------------------------------------------------------------

// LL: whole to 8 bytes; the two halves may be seen apart.
PC_DEVICE Vector load_line(const Vector* from) {
  Vector v;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "l"(from)
               : "memory");
  return v;
}

PC_DEVICE void store_line(Vector* to, const Vector& v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]), "r"(v.word[1]),
               "r"(v.word[2]), "r"(v.word[3])
               : "memory");
}

// LL128: the 32 lanes of a warp together; each run of 128 bytes is seen whole where the table in host/links.hpp says so.
PC_DEVICE Vector load_warp_lines(const Vector* from) { return load_line(from); }
PC_DEVICE void store_warp_lines(Vector* to, const Vector& v) { store_line(to, v); }

// -- multicast: an address that stands for the same place on several devices -----------------------------------------------------

#if __CUDA_ARCH__ >= 900
#define PC_MULTIMEM(...) asm volatile(__VA_ARGS__)
#else
#define PC_MULTIMEM(...) __trap()  // never launched there (host/multicast.cpp)
#endif
#define PC_SWITCH "multimem.ld_reduce.relaxed.sys.global."

// 16 bytes of all replicas, combined.
template <Multimem Form>
PC_DEVICE Vector multimem_load(const char* from) {
  using enum Multimem;
  Vector v = {};
#define PC_TAKE_4(type)                                                                       \
  {                                                                                           \
    PC_MULTIMEM(PC_SWITCH type " {%0, %1, %2, %3}, [%4];" : "=r"(v.word[0]), "=r"(v.word[1]), \
                "=r"(v.word[2]), "=r"(v.word[3]) : "l"(from) : "memory");                     \
  }
#define PC_TAKE_32(type)                                                                         \
  {                                                                                              \
    PC_UNROLL                                                                                    \
    for (int i = 0; i < 4; ++i) {                                                                \
      PC_MULTIMEM(PC_SWITCH type " %0, [%1];" : "=r"(v.word[i]) : "l"(from + 4 * i) : "memory"); \
    }                                                                                            \
  }
#define PC_TAKE_64(type)                                                                   \
  {                                                                                        \
    PC_UNROLL                                                                              \
    for (int i = 0; i < 2; ++i) {                                                          \
      uint64_t two = 0;                                                                    \
      PC_MULTIMEM(PC_SWITCH type " %0, [%1];" : "=l"(two) : "l"(from + 8 * i) : "memory"); \
      memcpy(&v.word[2 * i], &two, sizeof two);                                            \
    }                                                                                      \
  }
  if constexpr (Form == add_f32) PC_TAKE_4("add.v4.f32")
  if constexpr (Form == add_f16) PC_TAKE_4("add.acc::f32.v4.f16x2")
  if constexpr (Form == add_bf16) PC_TAKE_4("add.acc::f32.v4.bf16x2")
  if constexpr (Form == add_u32) PC_TAKE_32("add.u32")
  if constexpr (Form == min_s32) PC_TAKE_32("min.s32")
  if constexpr (Form == max_s32) PC_TAKE_32("max.s32")
  if constexpr (Form == min_u32) PC_TAKE_32("min.u32")
  if constexpr (Form == max_u32) PC_TAKE_32("max.u32")
  if constexpr (Form == and_b32) PC_TAKE_32("and.b32")
  if constexpr (Form == or_b32) PC_TAKE_32("or.b32")
  if constexpr (Form == xor_b32) PC_TAKE_32("xor.b32")
  if constexpr (Form == add_u64) PC_TAKE_64("add.u64")
  if constexpr (Form == min_s64) PC_TAKE_64("min.s64")
  if constexpr (Form == max_s64) PC_TAKE_64("max.s64")
  if constexpr (Form == min_u64) PC_TAKE_64("min.u64")
  if constexpr (Form == max_u64) PC_TAKE_64("max.u64")
  if constexpr (Form == add_f64) {
    PC_UNROLL
    for (int i = 0; i < 2; ++i) {
      double two = 0;
      PC_MULTIMEM(PC_SWITCH "add.f64 %0, [%1];" : "=d"(two) : "l"(from + 8 * i) : "memory");
      memcpy(&v.word[2 * i], &two, sizeof two);
    }
  }
#undef PC_TAKE_4
#undef PC_TAKE_32
#undef PC_TAKE_64
  return v;
}

// To all replicas. It stores what it is given, whatever the type is called.
PC_DEVICE void multimem_store(char* to, const Vector& v) {
  PC_MULTIMEM("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]),
              "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]) : "memory");
}

PC_DEVICE void multimem_add_release(uint64_t* to, uint64_t value) {
  PC_MULTIMEM("multimem.red.release.sys.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// What a test of the tests puts in the place of the release.
PC_DEVICE void multimem_add_relaxed(uint64_t* to, uint64_t value) {
  PC_MULTIMEM("multimem.red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

#undef PC_SWITCH
#undef PC_MULTIMEM

// Orders accesses to one place by different addresses.
PC_DEVICE void fence_aliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }

// -- conversions ----------------------------------------------------------------------------------------------------------------

PC_DEVICE float float_of_half(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

PC_DEVICE uint16_t half_of_float(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

PC_DEVICE uint32_t bits_of(float value) { return __float_as_uint(value); }
PC_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }

// -- operators of the caller's -----------------------------------------------------------------------------------------------

// Linked into the kernels of user.cu: acc[i] = f(acc[i], next[i]) for the first `items` of a group.
extern "C" __device__ void pc_user_operator(void* acc, const void* next, uint32_t items);

template <class Acc>
PC_DEVICE void call_operator(const void*, Acc& acc, const Acc& next, uint32_t items) {
  pc_user_operator(&acc, &next, items);
}

// -- waiting -------------------------------------------------------------------------------------------------------------------

// What a thread waits for; the emulator prints it when nothing moves.
PC_DEVICE void pause(const char*, int, uint64_t) {}
PC_DEVICE void note(uint32_t, uint32_t) {}

// True where a test of the tests has removed a piece of synchronisation (tests/emulator/test_mutants.py).
PC_DEVICE constexpr bool mutant(int) { return false; }

}  // namespace pc::cuda

#else
#include "cuda/emulation/device.hpp"
#endif
