#include "cuda/host/direct_call.hpp"

#include <algorithm>

namespace pc::cuda {

bool serves(Direct algorithm, const CallOptions& options, Multimem form) {
  if (algorithm == Direct::all_gather || algorithm == Direct::broadcast) return true;
  if (form == Multimem::none || (options.epilogue.kind && !can_finish(form))) return false;
  return algorithm != Direct::one_shot || is_exact(form);
}

DirectLayout::DirectLayout(const DirectOptions& direct, const CallOptions& options, const Segment& segment,
                           uint32_t rank, uint32_t size) {
  const uint32_t item = options.item();
  const uint32_t grain = std::max(1u, kLineBytes / item);
  const auto up = [](uint64_t x, uint64_t to) { return (x + to - 1) / to * to; };
  const uint64_t count = direct.count;
  switch (direct.algorithm) {
    case Direct::one_shot:
      call.in_blocks = call.out_blocks = 1;
      call.takes_all = 1;
      break;
    case Direct::two_shot:
      call.in_blocks = call.out_blocks = size;
      call.takes_all = call.stores_all = 1;
      break;
    case Direct::reduce_scatter:
      call.in_blocks = size;
      call.out_blocks = 1;
      call.takes_all = 1;
      break;
    case Direct::all_gather:
      call.in_blocks = 1;
      call.out_blocks = size;
      call.stores_all = 1;
      break;
    case Direct::broadcast:
      call.in_blocks = rank == direct.root;
      call.out_blocks = 1;
      call.stores_all = 1;
      break;
  }
  call.works = direct.algorithm != Direct::broadcast || rank == direct.root;
  call.in_block = call.in_blocks > 1 ? rank : 0;
  call.out_block = call.out_blocks > 1 ? rank : 0;
  call.total = count;
  const bool whole = direct.algorithm == Direct::one_shot || direct.algorithm == Direct::broadcast;
  const uint32_t most = whole ? 1 : size;  // blocks of the vector
  call.stride = direct.algorithm == Direct::two_shot ? up((count + size - 1) / size, grain) : count / most;
  const bool whole_in = call.in_blocks == 1 && most > 1, whole_out = call.out_blocks == 1 && most > 1;
  in_bytes = (whole_in ? call.stride : count) * item * (call.in_blocks > 0);
  out_bytes = (whole_out ? call.stride : count) * item;

  const uint64_t window = std::max<uint64_t>(grain, segment.half / most / item / grain * grain);
  call.window = static_cast<uint32_t>(std::min<uint64_t>({window, up(call.stride, grain), 1u << 30}));
  call.window = std::max(call.window, grain);
  call.rounds = static_cast<uint32_t>(std::max<uint64_t>(1, (call.stride + call.window - 1) / call.window));
  const uint64_t share =
      std::max<uint64_t>(uint64_t{options.threads} * kVectorBytes, options.least_slice) / item;
  blocks = static_cast<uint32_t>(
      std::clamp<uint64_t>((std::min<uint64_t>(call.window, call.stride) + share - 1) / share, 1,
                           std::min(direct.blocks, segment.blocks)));
  call.segment = segment;
  call.fingerprint = options.fingerprint;
  call.factor = options.epilogue.factor;
  call.epilogue = options.epilogue.kind;
  call.rank = rank;
  call.size = size;
  call.dtype = static_cast<uint32_t>(options.dtype);
  call.op = options.packed_op();
  call.user = options.user ? options.user->function() : nullptr;
}

}  // namespace pc::cuda
