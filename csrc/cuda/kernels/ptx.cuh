// Everything in the kernels that is not plain C++: memory operations of a given strength and scope, line accesses, conversions
// that have an instruction, multicast.
//
// Each function exists twice: as PTX for nvcc, and on the fibres of csrc/cuda/emulation for g++, which runs the same kernels
// without a GPU. Nothing else in kernels/ looks at __CUDACC__.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/kernels/vector.hpp"

#ifdef __CUDACC__

#define PC_UNROLL _Pragma("unroll")
#define PC_ROLL _Pragma("unroll 1")
#define PC_DEVICE __device__ __forceinline__
#define PC_NOINLINE static __device__ __noinline__
#define PC_KERNEL(threads) __global__ __launch_bounds__(threads, 1)
#define PC_PARAMETER const __grid_constant__
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
