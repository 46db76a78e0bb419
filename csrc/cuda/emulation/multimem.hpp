// Accesses by multicast addresses on the emulated device: the other half of kernels/ptx.cuh. Included from device.hpp only.
//
// Replicas are read, written and added to one after the other, in a random order, and other threads run in between.
#pragma once

#include "cuda/kernels/multimem.hpp"

namespace pc::cuda {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kViews =
    false;  // ThreadSanitizer sees the accesses themselves, in the replicas' own memory
#else
inline constexpr bool kViews = true;
#endif

template <class T, class F>
PC_DEVICE Vector fold_words(const Vector* parts, unsigned count, F&& f) {
  T all[sizeof(Vector) / sizeof(T)], next[sizeof(Vector) / sizeof(T)];
  memcpy(all, parts, sizeof all);
  for (unsigned k = 1; k < count; ++k) {
    memcpy(next, parts + k, sizeof next);
    for (unsigned i = 0; i < sizeof(Vector) / sizeof(T); ++i) all[i] = f(all[i], next[i]);
  }
  Vector v;
  memcpy(&v, all, sizeof v);
  return v;
}

// Sums of 16-bit floats, in float32.
template <class Widen, class Narrow>
PC_DEVICE Vector fold_halves(const Vector* parts, unsigned count, Widen&& widen, Narrow&& narrow) {
  float all[8];
  uint16_t bits[8];
  for (unsigned k = 0; k < count; ++k) {
    memcpy(bits, parts + k, sizeof bits);
    for (unsigned i = 0; i < 8; ++i) all[i] = k ? all[i] + widen(bits[i]) : widen(bits[i]);
  }
  for (unsigned i = 0; i < 8; ++i) bits[i] = narrow(all[i]);
  Vector v;
  memcpy(&v, bits, sizeof v);
  return v;
}

template <Multimem Form>
PC_DEVICE Vector multimem_load(const char* from) {
  using enum Multimem;
  const unsigned count = emulation::replicas(from), first = emulation::pick(count);
  Vector parts[emulation::kMostReplicas];
  for (unsigned k = 0; k < count; ++k) {
    const unsigned r = (first + k) % count;
    if (kViews)
      emulation::peek_replica(from, r, parts + k);
    else
      parts[k] = *static_cast<const Vector*>(emulation::replica(from, r));
    emulation::tear();
  }
  const auto add = [](auto a, auto b) { return a + b; };
  const auto least = [](auto a, auto b) { return a < b ? a : b; };
  const auto greatest = [](auto a, auto b) { return a > b ? a : b; };
  if constexpr (Form == add_f32) return fold_words<float>(parts, count, add);
  if constexpr (Form == add_f64) return fold_words<double>(parts, count, add);
  if constexpr (Form == add_f16) return fold_halves(parts, count, float_of_half, half_of_float);
  if constexpr (Form == add_bf16)
    return fold_halves(
        parts, count, [](uint16_t bits) { return float_of(uint32_t{bits} << 16); },
        [](float value) {
          const uint32_t u = bits_of(value);
          if (value != value) return static_cast<uint16_t>(0x7fff);
          return static_cast<uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
        });
  if constexpr (Form == add_u32) return fold_words<uint32_t>(parts, count, add);
  if constexpr (Form == add_u64) return fold_words<uint64_t>(parts, count, add);
  if constexpr (Form == min_s32) return fold_words<int32_t>(parts, count, least);
  if constexpr (Form == max_s32) return fold_words<int32_t>(parts, count, greatest);
  if constexpr (Form == min_u32) return fold_words<uint32_t>(parts, count, least);
  if constexpr (Form == max_u32) return fold_words<uint32_t>(parts, count, greatest);
  if constexpr (Form == min_s64) return fold_words<int64_t>(parts, count, least);
  if constexpr (Form == max_s64) return fold_words<int64_t>(parts, count, greatest);
  if constexpr (Form == min_u64) return fold_words<uint64_t>(parts, count, least);
  if constexpr (Form == max_u64) return fold_words<uint64_t>(parts, count, greatest);
  if constexpr (Form == and_b32)
    return fold_words<uint32_t>(parts, count, [](auto a, auto b) { return a & b; });
  if constexpr (Form == or_b32)
    return fold_words<uint32_t>(parts, count, [](auto a, auto b) { return a | b; });
  if constexpr (Form == xor_b32)
    return fold_words<uint32_t>(parts, count, [](auto a, auto b) { return a ^ b; });
}

PC_DEVICE void multimem_store(char* to, const Vector& v) {
  const unsigned count = emulation::replicas(to), first = emulation::pick(count);
  for (unsigned k = 0; k < count; ++k) {
    const unsigned r = (first + k) % count;
    if (kViews)
      emulation::post_replica(to, r, &v);
    else
      *static_cast<Vector*>(emulation::replica(to, r)) = v;
    emulation::tear();
  }
}

PC_DEVICE void multimem_add(uint64_t* to, uint64_t value, int order) {
  const unsigned count = emulation::replicas(to), first = emulation::pick(count);
  for (unsigned k = 0; k < count; ++k) {
    const unsigned r = (first + k) % count;
    auto* one = static_cast<uint64_t*>(kViews ? emulation::view(to, r) : emulation::replica(to, r));
    if (order == __ATOMIC_RELEASE)
      __atomic_fetch_add(one, value, __ATOMIC_RELEASE);
    else
      __atomic_fetch_add(one, value, __ATOMIC_RELAXED);
    emulation::after_store();
  }
}

PC_DEVICE void multimem_add_release(uint64_t* to, uint64_t value) {
  emulation::on_release(to, emulation::Scope::system);
  multimem_add(to, value, __ATOMIC_RELEASE);
}
PC_DEVICE void multimem_add_relaxed(uint64_t* to, uint64_t value) {
  multimem_add(to, value, __ATOMIC_RELAXED);
}

PC_DEVICE void fence_aliases() { emulation::fence_aliases(); }

}  // namespace pc::cuda
