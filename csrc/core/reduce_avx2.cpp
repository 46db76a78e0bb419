// The reduction kernels for AVX2 with F16C.
#include "reduce.hpp"

#if defined(__x86_64__) && !defined(__clang__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#pragma GCC target("avx2,f16c")
#pragma GCC optimize("fp-contract=off")

#define PC_SIMD avx2
#define PC_SIMD_BYTES 32
#define PC_SIMD_F16C
#include "reduce_kernels.hpp"

#endif
