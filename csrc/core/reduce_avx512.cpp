// The reduction kernels for AVX-512 (F, BW, DQ, VL).
#include "reduce.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#pragma GCC target("avx2,avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#pragma GCC optimize("fp-contract=off")  // AVX-512 has fused multiply-add

#define PC_SIMD avx512
#define PC_SIMD_BYTES 64
#define PC_SIMD_F16C_ELSEWHERE  // AVX2 has float16: wider conversions gain nothing
#define PC_SIMD_FMA
#define PC_SIMD_MASKED
#include "reduce_kernels.hpp"

#endif
