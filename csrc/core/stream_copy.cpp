#include "core/stream_copy.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pc {

#if defined(__x86_64__)
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kShort = 2048;  // bytes, which memcpy copies by vector registers

[[gnu::target("avx512f")]] void stream_lines_avx512(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines; ++i, to += kLineBytes, from += kLineBytes)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}

[[gnu::target("avx512f")]] void copy_lines_avx512(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines; ++i, to += kLineBytes, from += kLineBytes)
    _mm512_store_si512(to, _mm512_loadu_si512(from));
}

// Four stores fill the processor's write buffer for the line, which then leaves as a whole.
void stream_lines_sse2(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines; ++i, to += kLineBytes, from += kLineBytes) {
    __m128i part[4];
    for (int k = 0; k < 4; ++k) part[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + k);
    for (int k = 0; k < 4; ++k) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + k, part[k]);
  }
}

void copy_lines_sse2(std::byte* to, const std::byte* from, size_t lines) {
  for (size_t i = 0; i < lines; ++i, to += kLineBytes, from += kLineBytes) {
    __m128i part[4];
    for (int k = 0; k < 4; ++k) part[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + k);
    for (int k = 0; k < 4; ++k) _mm_store_si128(reinterpret_cast<__m128i*>(to) + k, part[k]);
  }
}

// Four stretches in turns: see fold_long() in reduce_kernels.hpp.
constexpr size_t kStrands = 4, kFarFrom = 4 * 4096;

template <bool Stream>
[[gnu::target("avx512f")]] void copy_far_avx512(std::byte* to, const std::byte* from, size_t lines) {
  const size_t rows = (lines / kStrands - 1) | 1;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t strand = 0; strand < kStrands; ++strand) {
      const size_t at = (strand * rows + row) * kLineBytes;
      const __m512i line = _mm512_loadu_si512(from + at);
      auto* target = reinterpret_cast<__m512i*>(to + at);
      Stream ? _mm512_stream_si512(target, line) : _mm512_store_si512(target, line);
    }
  }
  const size_t done = rows * kStrands;
  (Stream ? stream_lines_avx512 : copy_lines_avx512)(to + done * kLineBytes, from + done * kLineBytes,
                                                     lines - done);
}

using Lines = void (*)(std::byte*, const std::byte*, size_t);
const Lines stream_lines = __builtin_cpu_supports("avx512f") ? stream_lines_avx512 : stream_lines_sse2;
const Lines copy_lines = __builtin_cpu_supports("avx512f") ? copy_lines_avx512 : copy_lines_sse2;

const Lines stream_lines_far = __builtin_cpu_supports("avx512f") ? copy_far_avx512<true> : stream_lines_sse2;
const Lines copy_lines_far = __builtin_cpu_supports("avx512f") ? copy_far_avx512<false> : copy_lines_sse2;

// `lines` takes whole lines of the target, memcpy what is before and behind.
void by_lines(Lines lines, void* to, const void* from, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  const size_t misplaced = reinterpret_cast<uintptr_t>(target) % kLineBytes;
  const size_t head = misplaced ? std::min(bytes, kLineBytes - misplaced) : 0;
  if (head) std::memcpy(target, source, head);
  const size_t whole = (bytes - head) / kLineBytes, done = head + whole * kLineBytes;
  lines(target + head, source + head, whole);
  if (done < bytes) std::memcpy(target + done, source + done, bytes - done);
}

}  // namespace

void stream_copy(void* to, const void* from, size_t bytes) { by_lines(stream_lines, to, from, bytes); }

void vector_copy(void* to, const void* from, size_t bytes) {
  if (bytes < kShort)
    std::memcpy(to, from, bytes);
  else
    by_lines(copy_lines, to, from, bytes);
}

void stream_copy_far(void* to, const void* from, size_t bytes) {
  by_lines(bytes < kFarFrom ? stream_lines : stream_lines_far, to, from, bytes);
}

void vector_copy_far(void* to, const void* from, size_t bytes) {
  if (bytes < kFarFrom)
    std::memcpy(to, from, bytes);
  else
    by_lines(copy_lines_far, to, from, bytes);
}

void stream_fence() { _mm_sfence(); }

void flush_line(const void* address) {
  _mm_clflush(address);
  _mm_mfence();
}

#else

void stream_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void vector_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void stream_copy_far(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void vector_copy_far(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }
void stream_fence() {}
void flush_line(const void*) {}

#endif

}  // namespace pc
