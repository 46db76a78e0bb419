// The reduction kernels of one instruction set. A file that includes this has included the standard headers
// (and <immintrin.h>) before it selected its target, defines PC_SIMD (the namespace) and PC_SIMD_BYTES (the
// vector size), and PC_SIMD_F16C, PC_SIMD_FMA or PC_SIMD_MASKED where such instructions exist. Nothing here
// may instantiate a function template of the standard library: the linker would share it with code that runs
// on lesser machines.

#include "reduce_codecs.hpp"
#include "reduce_ops.hpp"

namespace pc::PC_SIMD {
namespace {

constexpr size_t block_bytes = 8192;  // of accumulators; a block of these and of a few sources stays in L1
constexpr size_t copy_block_bytes = 16384;
constexpr size_t far_strands = 4;
constexpr int most_fan_in = 4, most_narrow_fan_in = 8;

// Sources folded in registers. Two where widening costs more than a trip through L1 would save.
template <class C>
constexpr int fan_in = C::vectors > 2 ? 2 : most_fan_in;

template <class C>
constexpr size_t size_of(bool wide) {
  return wide ? sizeof(typename C::Acc) : C::item;
}

PC_INLINE Source advance(const Source& source, size_t bytes) {
  return {static_cast<const uint8_t*>(source.data) + bytes, source.wide, source.far};
}

PC_INLINE Sink advance(const Sink& sink, size_t bytes) {
  return {static_cast<uint8_t*>(sink.data) + bytes, sink.wide, sink.stream};
}

template <class Operand>
PC_INLINE bool all_narrow(const Operand* operands, int count) {
  for (int k = 0; k < count; ++k) {
    if (operands[k].wide) return false;
  }
  return true;
}

using Fold = void (*)(const Source*, int, const Sink*, int, size_t, const Epilogue&);

// The only place that knows about the elements after the last whole step: it pads them to one.
template <class C>
[[gnu::noinline]] void fold_rest(Fold fold, const Source* sources, int nsources, const Sink* sinks,
                                 int nsinks, size_t done, size_t rest, const Epilogue& epilogue) {
  constexpr size_t room = C::step * sizeof(typename C::Acc);
  alignas(64) uint8_t padded[most_narrow_fan_in + 2][room];
  Source from[most_narrow_fan_in];
  for (int k = 0; k < nsources; ++k) {
    const size_t item = size_of<C>(sources[k].wide);
    from[k] = {padded[k], sources[k].wide};
    copy_padded(padded[k], C::step * item, static_cast<const uint8_t*>(sources[k].data) + done * item,
                rest * item);
  }
  const Sink to[2] = {{padded[most_narrow_fan_in], sinks[0].wide},
                      {padded[most_narrow_fan_in + 1], sinks[nsinks - 1].wide}};
  fold(from, nsources, to, nsinks, C::step, epilogue);
  for (int k = 0; k < nsinks; ++k) {
    const size_t item = size_of<C>(sinks[k].wide);
    copy_some(static_cast<uint8_t*>(sinks[k].data) + done * item, padded[most_narrow_fan_in + k],
              rest * item);
  }
}

template <class T>
PC_INLINE V<T> broadcast_factor(const Epilogue& epilogue) {
  const T factor =
      epilogue.factor == epilogue.factor ? static_cast<T>(epilogue.factor) : T(__builtin_nanf(""));
  return factor - V<T>{};
}

template <class Op, class T, int N>
PC_INLINE void apply_epilogue(T (&values)[N], Epilogue::Kind kind, T factor) {
  if constexpr (Op::scales) {
    for (T& value : values) {
      if (kind == Epilogue::divide) value /= factor;
      if (kind == Epilogue::scale) value *= factor;
    }
  }
}

// The loop over whole steps. Plain: everything is narrow, which the compiler then knows.
template <class C, class Op, int K, bool Plain>
PC_INLINE void fold_steps(const Source* sources, const Sink* sinks, int nsinks, size_t steps,
                          const Epilogue& epilogue) {
  using T = typename C::Acc;
  const uint8_t* from[K];
  bool wide_from[K];
  for (int k = 0; k < K; ++k) {
    from[k] = static_cast<const uint8_t*>(sources[k].data);
    wide_from[k] = !Plain && sources[k].wide;
  }
  const bool twice = nsinks == 2;
  const Sink &first = sinks[0], &second = sinks[nsinks - 1];
  uint8_t *to = static_cast<uint8_t*>(first.data), *also = static_cast<uint8_t*>(second.data);
  const bool wide_to = !Plain && first.wide, wide_also = !Plain && second.wide;
  const Epilogue::Kind kind = epilogue.kind;
  const V<T> factor = broadcast_factor<T>(epilogue);

  for (; steps > 0; --steps) {
    V<T> acc[C::vectors], next[C::vectors];
    C::read(from[0], wide_from[0], acc);
    for (int k = 1; k < K; ++k) {
      C::read(from[k], wide_from[k], next);
      for (int j = 0; j < C::vectors; ++j) acc[j] = Op::apply(acc[j], next[j]);
    }
    apply_epilogue<Op>(acc, kind, factor);
    C::write(to, wide_to, Plain, acc);
    if (twice) C::write(also, wide_also, Plain, acc);
    for (int k = 0; k < K; ++k) from[k] += C::step * size_of<C>(wide_from[k]);
    to += C::step * size_of<C>(wide_to);
    also += C::step * size_of<C>(wide_also);
  }
}

// Any number of narrow sources, one or two narrow sinks. Above eight, page-aligned sources would evict each
// other from L1.
template <class C, class Op>
[[gnu::noclone]] void fold_narrow(const Source* sources, int nsources, const Sink* sinks, int nsinks,
                                  size_t count, const Epilogue& epilogue) {
  using T = typename C::Acc;
  const size_t whole = (count - count % C::step) * C::item, rest = count % C::step;
  const V<T> factor = broadcast_factor<T>(epilogue);
  const auto from = [&](int k) { return static_cast<const uint8_t*>(sources[k].data); };
  uint8_t *to = static_cast<uint8_t*>(sinks[0].data), *also = static_cast<uint8_t*>(sinks[nsinks - 1].data);
  for (size_t at = 0; at < whole; at += C::step * C::item) {
    V<T> acc[C::vectors], next[C::vectors];
    C::read(from(0) + at, false, acc);
    for (int k = 1; k < nsources; ++k) {
      C::read(from(k) + at, false, next);
      for (int j = 0; j < C::vectors; ++j) acc[j] = Op::apply(acc[j], next[j]);
    }
    apply_epilogue<Op>(acc, epilogue.kind, factor);
    C::write(to + at, false, true, acc);
    if (nsinks == 2) C::write(also + at, false, true, acc);
  }
  if (rest > 0) {
    fold_rest<C>(fold_narrow<C, Op>, sources, nsources, sinks, nsinks, count - rest, rest, epilogue);
  }
}

// K sources, one or two sinks, everything in registers.
template <class C, class Op, int K>
[[gnu::noclone]] void fold(const Source* sources, int, const Sink* sinks, int nsinks, size_t count,
                           const Epilogue& epilogue) {
  const size_t steps = count / C::step, rest = count % C::step;
  if constexpr (C::has_plain && K > 1) {
    if (all_narrow(sources, K) && all_narrow(sinks, nsinks)) {
      fold_steps<C, Op, K, true>(sources, sinks, nsinks, steps, epilogue);
    } else {
      fold_steps<C, Op, K, false>(sources, sinks, nsinks, steps, epilogue);
    }
  } else {
    fold_steps<C, Op, K, false>(sources, sinks, nsinks, steps, epilogue);
  }
  if (rest > 0) fold_rest<C>(fold<C, Op, K>, sources, K, sinks, nsinks, count - rest, rest, epilogue);
}

// Two long narrow sources, one or two narrow sinks, of which some are streamed. In several strands where a source is far: the
// processor fetches ahead within a page only, so more lines are on their way where several pages are read in turns. Three
// or more sources are several pages anyway.
template <class C, class Op, size_t Strands>
[[gnu::noclone]] void fold_long(const Source* sources, const Sink* sinks, int nsinks, size_t count,
                                const Epilogue& epilogue) {
  using T = typename C::Acc;
  size_t rows = count / (Strands * C::step);
  if (Strands > 1) rows = (rows - 1) | 1;  // odd: strands fall into different sets of the caches
  const size_t done = Strands * rows * C::step;
  const auto *left = static_cast<const uint8_t*>(sources[0].data),
             *right = static_cast<const uint8_t*>(sources[1].data);
  uint8_t *to = static_cast<uint8_t*>(sinks[0].data), *also = static_cast<uint8_t*>(sinks[nsinks - 1].data);
  const bool stream_to = sinks[0].stream, stream_also = sinks[nsinks - 1].stream;
  const V<T> factor = broadcast_factor<T>(epilogue);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t strand = 0; strand < Strands; ++strand) {
      const size_t at = (strand * rows + row) * C::step * C::item;
      V<T> acc[C::vectors], next[C::vectors];
      C::read(left + at, false, acc);
      C::read(right + at, false, next);
      for (int j = 0; j < C::vectors; ++j) acc[j] = Op::apply(acc[j], next[j]);
      apply_epilogue<Op>(acc, epilogue.kind, factor);
      alignas(64) uint8_t result[PC_SIMD_BYTES];
      C::write(result, false, true, acc);
      const V<uint8_t> bytes = load<uint8_t>(result);
      stream_to ? stream(to + at, bytes) : store<uint8_t>(to + at, bytes);
      if (nsinks == 2) stream_also ? stream(also + at, bytes) : store<uint8_t>(also + at, bytes);
    }
  }
  const auto after = [&](const auto& operand) { return advance(operand, done * C::item); };
  const Source from[2] = {after(sources[0]), after(sources[1])};
  const Sink rest[2] = {after(sinks[0]), after(sinks[nsinks - 1])};
  if (done < count) fold<C, Op, 2>(from, 2, rest, nsinks, count - done, epilogue);
}

// From two to fan_in sources.
template <class C, class Op>
PC_INLINE void fold_few(const Source* sources, int nsources, const Sink* sinks, int nsinks, size_t count,
                        const Epilogue& epilogue) {
  switch (nsources) {
    case 2:
      if (count * C::item >= kLongFold && all_narrow(sources, 2) && all_narrow(sinks, nsinks)) {
        const bool streams = sinks[0].stream || sinks[nsinks - 1].stream;
        const bool whole_lines =
            PC_SIMD_BYTES == 64 || !streams;  // parts of many lines would wait for each other
        if (whole_lines && (sources[0].far || sources[1].far))
          return fold_long<C, Op, far_strands>(sources, sinks, nsinks, count, epilogue);
        if (streams) return fold_long<C, Op, 1>(sources, sinks, nsinks, count, epilogue);
      }
      return fold<C, Op, 2>(sources, nsources, sinks, nsinks, count, epilogue);
    case 3:
      if constexpr (fan_in<C> >= 3) fold<C, Op, 3>(sources, nsources, sinks, nsinks, count, epilogue);
      return;
    default:
      if constexpr (fan_in<C> >= 4) fold<C, Op, 4>(sources, nsources, sinks, nsinks, count, epilogue);
      return;
  }
}

// More: block by block, the running result in a scratch block, which is the first source of every later fold.
template <class C, class Op>
void fold_many(const Source* sources, int nsources, const Sink* sinks, int nsinks, size_t count,
               const Epilogue& epilogue) {
  using T = typename C::Acc;
  constexpr int most = fan_in<C>;
  constexpr size_t block = block_bytes / sizeof(T);
  alignas(64) uint8_t scratch[block_bytes];
  const Sink running = {scratch, true};
  Source from[most_fan_in];
  for (size_t done = 0; done < count; done += block) {
    const size_t now = count - done < block ? count - done : block;
    const auto at = [&](int k) { return advance(sources[k], done * size_of<C>(sources[k].wide)); };
    for (int k = 0; k < most; ++k) from[k] = at(k);
    fold<C, Op, most>(from, most, &running, 1, now, Epilogue{});
    from[0] = {scratch, true};
    int next = most;
    for (; nsources - next >= most; next += most - 1) {
      for (int k = 1; k < most; ++k) from[k] = at(next + k - 1);
      fold<C, Op, most>(from, most, &running, 1, now, Epilogue{});
    }
    const int few = 1 + nsources - next;
    for (int k = 1; k < few; ++k) from[k] = at(next + k - 1);
    Sink to[2] = {};
    for (int k = 0; k < nsinks; ++k) to[k] = advance(sinks[k], done * size_of<C>(sinks[k].wide));
    fold_few<C, Op>(from, few, to, nsinks, now, epilogue);
  }
}

// One source: memcpy wherever the representation stays.
template <class C>
void copy(const Source& source, const Sink* sinks, int nsinks, size_t count, const Epilogue& epilogue) {
  constexpr bool normalises = C::converts && sizeof(typename C::Acc) == C::item;
  const bool scaled = epilogue.kind != Epilogue::none;
  const size_t block = nsinks == 1 ? count : copy_block_bytes / sizeof(typename C::Acc);
  for (size_t done = 0; done < count; done += block) {
    const size_t now = count - done < block ? count - done : block;
    const Source from = advance(source, done * size_of<C>(source.wide));
    Sink to[2] = {};
    bool plain = !scaled && !normalises;
    for (int k = 0; k < nsinks; ++k) {
      to[k] = advance(sinks[k], done * size_of<C>(sinks[k].wide));
      plain = plain && (!C::converts || from.wide == to[k].wide);
    }
    if (!plain) {
      if constexpr (C::converts || std::is_floating_point_v<typename C::Acc>) {
        fold<C, Sum<typename C::Acc>, 1>(&from, 1, to, nsinks, now, epilogue);
      }
      continue;
    }
    for (int k = 0; k < nsinks; ++k) {
      if (to[k].data != from.data) __builtin_memcpy(to[k].data, from.data, now * size_of<C>(from.wide));
    }
  }
}

// A complex number is two lanes.
template <class C, class Op, int LanesPerElement = 1>
void kernel(const Source* sources, int nsources, const Sink* sinks, int nsinks, size_t count,
            const Epilogue& epilogue) {
  count *= LanesPerElement;
  if (nsources == 1) return copy<C>(sources[0], sinks, nsinks, count, epilogue);
  if constexpr (C::has_plain) {
    if (nsources > fan_in<C> && nsources <= most_narrow_fan_in && all_narrow(sources, nsources) &&
        all_narrow(sinks, nsinks)) {
      return fold_narrow<C, Op>(sources, nsources, sinks, nsinks, count, epilogue);
    }
  }
  if (nsources <= fan_in<C>) return fold_few<C, Op>(sources, nsources, sinks, nsinks, count, epilogue);
  fold_many<C, Op>(sources, nsources, sinks, nsinks, count, epilogue);
}

// Sums of integers are the same for both signs, but their epilogues are not: they work on a scratch block.
template <class T>
void integer_sum(const Source* sources, int nsources, const Sink* sinks, int nsinks, size_t count,
                 const Epilogue& epilogue) {
  using U = Bits<T>;
  if (epilogue.kind == Epilogue::none) {
    return kernel<Native<U>, Sum<U>>(sources, nsources, sinks, nsinks, count, epilogue);
  }
  constexpr size_t block = block_bytes / sizeof(T);
  alignas(64) T scratch[block];
  const Sink running = {scratch, false};
  for (size_t done = 0; done < count; done += block) {
    const size_t now = count - done < block ? count - done : block;
    for (int first = 0; first < nsources;) {  // up to four sources, then three more in every turn
      Source from[most_fan_in] = {{scratch, false}};
      int few = first > 0;
      while (few < most_fan_in && first < nsources) from[few++] = advance(sources[first++], done * sizeof(T));
      kernel<Native<U>, Sum<U>>(from, few, &running, 1, now, Epilogue{});
    }
    scale_integers<T>(scratch, now, epilogue);
    const Source result = {scratch, false};
    Sink to[2] = {};
    for (int k = 0; k < nsinks; ++k) to[k] = advance(sinks[k], done * sizeof(T));
    copy<Native<U>>(result, to, nsinks, now, Epilogue{});
  }
}

}  // namespace
}  // namespace pc::PC_SIMD

#include "reduce_table.hpp"
