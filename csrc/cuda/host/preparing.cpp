// Calls with everything that their arguments decide: Rank's part that needs no stream.
#include <algorithm>

#include "cuda/host/on_device.hpp"
#include "cuda/host/rank.hpp"

namespace pc::cuda {

std::shared_ptr<PreparedCall> Rank::prepare(std::shared_ptr<const Plan> plan, const Extent& extent,
                                            CallOptions options) {
  const On on(device_);
  const NotCaptured mode;
  DevicePlan layout(*plan, extent, options, segment_);
  const Wanted wanted{options.protocol, options.dtype, options.op, options.moves, options.any};
  if (fused_ && options.hand)
    throw Error(ErrorKind::unsupported, "the hand-written ring is not launched for several ranks at once");
  const Kernel kernel = options.user   ? options.user->find(options.protocol)
                        : fused_       ? find_fused(wanted)
                        : options.hand ? find_ring()
                                       : find_kernel(wanted);
  options.threads = std::min(options.threads, kMostThreads[static_cast<uint32_t>(options.protocol)]);
  auto call = std::make_shared<PreparedCall>(
      PreparedCall{std::move(plan), options, std::move(layout), kernel, nullptr});
  call->tables = upload(call->layout.bytes.data(), call->layout.bytes.size());
  reserve(work_, call->layout.work_bytes);
  reserve(scratch_, call->layout.scratch_bytes);
  return call;
}

std::shared_ptr<PreparedDirect> Rank::prepare_direct(const DirectOptions& direct, const CallOptions& options,
                                                     bool always_stage, bool any_order) {
  const auto rank = static_cast<uint32_t>(rank_), size = static_cast<uint32_t>(size_);
  const Multimem form = multimem_of(options.dtype, options.op);
  const bool by_switch = multicast_ && any_order && !options.user && serves(direct.algorithm, options, form);
  if (by_switch) {
    DirectOptions bytes = direct;
    CallOptions moved = options;
    bytes.count *= item_size(options.dtype);
    moved.dtype = DType::uint8;
    DirectLayout layout(bytes, moved, segment_, rank, size);
    layout.call.local = multicast_->local();
    layout.call.multicast = multicast_->everywhere();
    return std::make_shared<PreparedDirect>(
        PreparedDirect{options, layout, find_multicast(layout.call.takes_all ? form : Multimem::none),
                       direct.algorithm == Direct::one_shot, always_stage, true});
  }
  DirectLayout layout(direct, options, segment_, rank, size);
  const Wanted wanted{options.protocol, options.dtype, options.op, options.moves, options.any};
  if (options.user && !options.user->item().in_one_vector())
    throw Error(ErrorKind::unsupported, "native kernels combine items that fill 16 bytes");
  const Kernel kernel = options.user ? options.user->direct()
                        : fused_     ? find_fused_direct(wanted)
                                     : find_direct(wanted);
  return std::make_shared<PreparedDirect>(
      PreparedDirect{options, layout, kernel, direct.algorithm == Direct::one_shot, always_stage, false});
}

std::shared_ptr<const UserKernels> Rank::load(const std::string& image, const std::string& form,
                                              const UserItem& item, uint32_t threads) const {
  const On on(device_);
  const NotCaptured mode;
  const auto size = static_cast<uint32_t>(size_);
  const size_t call = fused_ ? kCallBytes : 0;
  auto kernels = std::make_shared<const UserKernels>(image, form, item, fused_);
  for (uint32_t p = 0; p < kProtocols; ++p)
    require_room(kernels->find(static_cast<Protocol>(p)), std::min(threads, kMostThreads[p]),
                 shared_bytes(size) + call);
  if (item.in_one_vector()) require_room(kernels->direct(), threads, size * sizeof(Arrays) + call);
  return kernels;
}

// Blocks wait for each other. How many registers an operator takes is known only when it is linked.
void Rank::require_room(const Kernel& kernel, uint32_t threads, size_t shared) const {
  int processors = 0, blocks = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device_),
        "asking for the device");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function, static_cast<int>(threads),
                                                      shared),
        "asking how many blocks fit");
  if (static_cast<uint64_t>(processors) * static_cast<uint64_t>(blocks) <
      uint64_t{segment_.blocks} * on_device_)
    throw Error(
        ErrorKind::device,
        "the device cannot hold all blocks of its ranks at once, with the registers that this operator "
        "takes: use fewer blocks");
}

}  // namespace pc::cuda
