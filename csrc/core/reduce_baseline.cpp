// The reduction kernels for any machine that this file is compiled for.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "reduce.hpp"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define PC_SIMD baseline
#define PC_SIMD_BYTES 16
#include "reduce_kernels.hpp"
