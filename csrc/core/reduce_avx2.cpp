// The reduction kernels for AVX2 with F16C and FMA.
#include "reduce.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#pragma GCC target("avx2,f16c,fma")
#pragma GCC optimize("fp-contract=off")  // only where it is asked for

#define PC_SIMD avx2
#define PC_SIMD_BYTES 32
#define PC_SIMD_F16C
#define PC_SIMD_FMA
#include "reduce_kernels.hpp"

#endif
