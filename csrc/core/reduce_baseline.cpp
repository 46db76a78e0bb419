// The reduction kernels for any machine that this file is compiled for.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "reduce.hpp"

#pragma GCC optimize("fp-contract=off")

#define PC_SIMD baseline
#define PC_SIMD_BYTES 16
#include "reduce_kernels.hpp"
