// Element types and what the rest of the core needs to know about them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pc {

enum class DType : uint8_t {
  bool_,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  float8_e4m3fn,
  float8_e5m2,
  complex64,
  complex128,
};

inline constexpr int dtype_count = 17;

// The name NumPy and ml_dtypes give the type (`dtype.name`).
constexpr const char* name(DType dtype) {
  constexpr const char* names[dtype_count] = {
      "bool",    "int8",          "int16",       "int32",     "int64",      "uint8",
      "uint16",  "uint32",        "uint64",      "float16",   "bfloat16",   "float32",
      "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128",
  };
  return names[static_cast<int>(dtype)];
}

constexpr size_t item_size(DType dtype) {
  constexpr uint8_t sizes[dtype_count] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 8, 16};
  return sizes[static_cast<int>(dtype)];
}

// 16- and 8-bit floats are reduced in float32 and rounded once; every other type is reduced in itself.
constexpr DType accumulation(DType dtype) {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
    case DType::float8_e4m3fn:
    case DType::float8_e5m2:
      return DType::float32;
    default:
      return dtype;
  }
}

constexpr bool is_integer(DType dtype) { return dtype >= DType::int8 && dtype <= DType::uint64; }

constexpr bool is_complex(DType dtype) { return dtype == DType::complex64 || dtype == DType::complex128; }

}  // namespace pc
