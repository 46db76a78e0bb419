// Vectors of local memory: the one place that knows about misaligned arrays and odd tails.
//
// A vector is loaded or stored by the widest accesses that its address and its number of bytes allow: one of 16 bytes, words,
// halves, or bytes. The address of a thread's next vector differs by a multiple of 16, so a misaligned array costs narrower
// accesses and no divergence; only the last vector of a piece may be short.
#pragma once

#include "cuda/kernels/ptx.cuh"

namespace pc::cuda {

// The greatest power of two up to 16 that divides both.
PC_DEVICE uint32_t access_width(const void* address, uint32_t bytes) {
  const uint32_t bits = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address)) | bytes | kVectorBytes;
  return bits & (0u - bits);
}

// The first `bytes` (1 to 16) of a vector; the rest are zeros.
PC_DEVICE Vector load_bytes(const char* from, uint32_t bytes) {
  const uint32_t width = access_width(from, bytes);
  if (width == kVectorBytes) return load_vector(from);
  Vector v = {};
  if (width >= 4) {
    PC_UNROLL
    for (uint32_t i = 0; i < 4; ++i)
      if (4 * i < bytes) v.word[i] = *reinterpret_cast<const uint32_t*>(from + 4 * i);
  } else if (width == 2) {
    PC_UNROLL
    for (uint32_t i = 0; i < 8; ++i)
      if (2 * i < bytes)
        v.word[i / 2] |= uint32_t{*reinterpret_cast<const uint16_t*>(from + 2 * i)} << (i % 2 * 16);
  } else {
    PC_UNROLL
    for (uint32_t i = 0; i < 16; ++i)
      if (i < bytes) v.word[i / 4] |= uint32_t{*reinterpret_cast<const uint8_t*>(from + i)} << (i % 4 * 8);
  }
  return v;
}

PC_DEVICE void store_bytes(char* to, const Vector& v, uint32_t bytes) {
  const uint32_t width = access_width(to, bytes);
  if (width == kVectorBytes) return store_vector(to, v);
  if (width >= 4) {
    PC_UNROLL
    for (uint32_t i = 0; i < 4; ++i)
      if (4 * i < bytes) *reinterpret_cast<uint32_t*>(to + 4 * i) = v.word[i];
  } else if (width == 2) {
    PC_UNROLL
    for (uint32_t i = 0; i < 8; ++i)
      if (2 * i < bytes)
        *reinterpret_cast<uint16_t*>(to + 2 * i) = static_cast<uint16_t>(v.word[i / 2] >> (i % 2 * 16));
  } else {
    PC_UNROLL
    for (uint32_t i = 0; i < 16; ++i)
      if (i < bytes) *reinterpret_cast<uint8_t*>(to + i) = static_cast<uint8_t>(v.word[i / 4] >> (i % 4 * 8));
  }
}

}  // namespace pc::cuda
