// What kernels see of the device when g++ compiles them: the other half of kernels/ptx.cuh. Included from there only.
//
// The functions with a memory order are atomics that ThreadSanitizer understands; between fibres it makes no edges of its own, so
// a missing barrier, release or acquire is a data race that it reports, on any schedule.
#pragma once

#include "core/user_op.hpp"
#include "cuda/emulation/machine.hpp"

#define PC_UNROLL
#define PC_ROLL
#define PC_UNROLL_BY(n)
#define PC_DEVICE inline
#define PC_NOINLINE [[gnu::noinline]] static
#define PC_KERNEL(threads)
#define PC_PARAMETER const
#define PC_CALLER(kernel, C) [](const void* call) { kernel(*static_cast<const C*>(call)); }
#define PC_SHARED_MEMORY(name) char* name = ::pc::emulation::shared_memory()

#define threadIdx (::pc::emulation::self().thread)
#define blockIdx (::pc::emulation::self().block)
#define blockDim (::pc::emulation::self().threads)
#define gridDim (::pc::emulation::self().blocks)

inline void __syncthreads() { ::pc::emulation::barrier(false); }
inline int __syncthreads_or(int predicate) { return ::pc::emulation::barrier(predicate != 0); }
inline void __syncwarp(unsigned mask = ~0u) { ::pc::emulation::warp_barrier(mask); }
inline int __any_sync(unsigned mask, int predicate) {
  return ::pc::emulation::ballot(mask, predicate != 0) != 0;
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  const unsigned lane = threadIdx.x % 32;
  return static_cast<T>(::pc::emulation::exchange(mask, value, lane + by < 32 ? lane + by : lane));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const unsigned lane = threadIdx.x % 32;
  return static_cast<T>(::pc::emulation::exchange(mask, value, lane >= by ? lane - by : lane));
}

namespace pc::cuda {

PC_DEVICE uint64_t load_acquire_sys(const uint64_t* from) {
  const uint64_t value = __atomic_load_n(from, __ATOMIC_ACQUIRE);
  emulation::on_acquire(from);
  return value;
}

PC_DEVICE uint64_t load_relaxed_sys(const uint64_t* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }

PC_DEVICE void store_release_sys(uint64_t* to, uint64_t value) {
  emulation::on_release(to, emulation::Scope::system);
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
  emulation::after_store();
}

PC_DEVICE void store_release_gpu(uint64_t* to, uint64_t value) {
  emulation::on_release(to, emulation::Scope::gpu);
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
  emulation::after_store();
}

PC_DEVICE void store_relaxed_sys(uint64_t* to, uint64_t value) {
  __atomic_store_n(to, value, __ATOMIC_RELAXED);
  emulation::after_store();
}

PC_DEVICE Vector load_vector(const void* from) { return *static_cast<const Vector*>(from); }
PC_DEVICE void store_vector(void* to, const Vector& v) { *static_cast<Vector*>(to) = v; }

// LL lines are whole to 8 bytes only: the halves are read and written apart, in either order.
PC_DEVICE Vector load_line(const Vector* from) {
  const auto* halves = reinterpret_cast<const uint64_t*>(from);
  const unsigned first = emulation::coin();
  uint64_t value[2];
  value[first] = emulation::peek(halves + first);
  emulation::tear();
  value[1 - first] = emulation::peek(halves + 1 - first);
  Vector v;
  memcpy(&v, value, sizeof v);
  return v;
}

PC_DEVICE void store_line(Vector* to, const Vector& v) {
  auto* halves = reinterpret_cast<uint64_t*>(to);
  const unsigned first = emulation::coin();
  uint64_t value[2];
  memcpy(value, &v, sizeof v);
  emulation::post(halves + first, value[first]);
  emulation::tear();
  emulation::post(halves + 1 - first, value[1 - first]);
  emulation::after_store();
}

// LL128: all lanes of the warp in one step, and each 128 bytes whole, which is what the protocol asks of the link.
PC_DEVICE Vector load_warp_lines(const Vector* from) {
  uint64_t value[2];
  emulation::peek_warp(from, value);
  Vector v;
  memcpy(&v, value, sizeof v);
  return v;
}

PC_DEVICE void store_warp_lines(Vector* to, const Vector& v) {
  uint64_t value[2];
  memcpy(value, &v, sizeof value);
  emulation::post_warp(to, value);
  emulation::after_store();
}

PC_DEVICE float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
PC_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
PC_DEVICE float float_of_half(uint16_t bits) {
  _Float16 value;
  memcpy(&value, &bits, sizeof value);
  return static_cast<float>(value);
}
PC_DEVICE uint16_t half_of_float(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits;
  memcpy(&bits, &half, sizeof bits);
  return bits;
}

// The operator is the function that combines on the CPU (core/user_op.hpp), whose result is none of its operands.
template <class Acc>
PC_DEVICE void call_operator(const void* function, Acc& acc, const Acc& next, uint32_t items) {
  Acc result = acc;
  reinterpret_cast<UserFunction>(reinterpret_cast<uintptr_t>(function))(&acc, &next, &result, items);
  acc = result;
}

PC_DEVICE void pause(const char* what, int peer, uint64_t number) { emulation::spin(what, peer, number); }
PC_DEVICE void note(uint32_t instruction, uint32_t slice) { emulation::note(instruction, slice); }
PC_DEVICE bool mutant(int which) { return emulation::mutant_in_use() == which; }

}  // namespace pc::cuda

#include "cuda/emulation/multimem.hpp"
