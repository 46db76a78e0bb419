// The unit in which kernels move data.
#pragma once

#include <cstdint>

namespace pc::cuda {

inline constexpr uint32_t kVectorBytes = 16;

struct alignas(kVectorBytes) Vector {
  uint32_t word[4];
};

}  // namespace pc::cuda
