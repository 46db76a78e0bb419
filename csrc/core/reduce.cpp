// Which instruction set runs the reductions: decided once, at run time.
#include "reduce.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace pc {
namespace {

using detail::KernelTable;

struct Simd {
  const char* name;
  const KernelTable* table;
  const KernelTable* float16_table;
};

struct Available {
  Simd sets[3];
  const char* names[3];
  size_t count = 0;

  void add(const char* set_name, const KernelTable& table, const KernelTable& float16_table) {
    sets[count] = {set_name, &table, &float16_table};
    names[count++] = set_name;
  }
};

const Available& available() {
  static const Available all = [] {
    Available found;
    found.add("baseline", baseline::kernels(), baseline::kernels());
#if defined(__x86_64__) && !defined(PC_BASELINE_ONLY)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma")) {
      found.add("avx2", avx2::kernels(), avx2::kernels());
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        found.add("avx512", avx512::kernels(), avx2::kernels());
      }
    }
#endif
    return found;
  }();
  return all;
}

const Simd* find_simd(std::string_view name) {
  const Available& all = available();
  for (size_t i = 0; i < all.count; ++i) {
    if (name == all.sets[i].name) return &all.sets[i];
  }
  return nullptr;
}

const Simd& chosen() {
  static const Simd simd = [] {
    const Available& all = available();
    const char* wish = std::getenv("PYCOLLECTIVES_SIMD");
    if (wish == nullptr || *wish == '\0') return all.sets[all.count - 1];
    if (const Simd* found = find_simd(wish)) return *found;
    std::string text = std::string("PYCOLLECTIVES_SIMD is '") + wish + "'; this machine runs";
    for (size_t i = 0; i < all.count; ++i) text += std::string(i ? ", " : " ") + all.names[i];
    throw std::invalid_argument(text);
  }();
  return simd;
}

Kernel look_up(const Simd& simd, DType dtype, ReduceOp op) {
  const KernelTable* table = dtype == DType::float16 ? simd.float16_table : simd.table;
  return table->at[static_cast<int>(dtype)][static_cast<int>(op)];
}

}  // namespace

Kernel find_kernel(DType dtype, ReduceOp op) { return look_up(chosen(), dtype, op); }

Kernel find_kernel(DType dtype, ReduceOp op, std::string_view simd) {
  const Simd* found = find_simd(simd);
  return found ? look_up(*found, dtype, op) : nullptr;
}

const char* simd_name() { return chosen().name; }

std::span<const char* const> available_simd() { return {available().names, available().count}; }

}  // namespace pc
