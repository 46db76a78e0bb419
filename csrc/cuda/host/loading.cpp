#include "cuda/host/loading.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "cuda/host/on_device.hpp"
#include "cuda/host/runtime.hpp"
#include "cuda/kernels/kernels.hpp"

namespace pc::cuda {
namespace {

// Calls `f(kernel, most threads of a block)` for every kernel that takes a call. `fused`: only those for several ranks in one grid.
template <class F>
void each_kernel(bool fused, F&& f) {
  if (!fused) {
    f(find_ring(), kThreads);
    for (uint32_t form = 0; form <= static_cast<uint32_t>(Multimem::last); ++form)
      f(find_multicast(static_cast<Multimem>(form)), kThreads);
  }
  for (int any = 0; any < 2; ++any) {
    for (int moves = 0; moves < 2; ++moves) {
      for (int type = 0; type < dtype_count; ++type) {
        for (int op = 0; op < reduce_op_count; ++op) {
          Wanted wanted{Protocol::ll, static_cast<DType>(type), static_cast<ReduceOp>(op), moves != 0,
                        any != 0};
          if (!fused) f(find_direct(wanted), kThreads);
          f(find_fused_direct(wanted), kThreads);
          for (uint32_t p = 0; p < kProtocols; ++p) {
            wanted.protocol = static_cast<Protocol>(p);
            if (!fused) f(find_kernel(wanted), kMostThreads[p]);
            f(find_fused(wanted), kMostThreads[p]);
          }
        }
      }
    }
  }
}

}  // namespace

void load_kernel(const Kernel& kernel) {
  cudaFuncAttributes attributes;  // asking for them loads it
  check(cudaFuncGetAttributes(&attributes, kernel.function), "loading a kernel");
  static std::mutex mutex;  // of the look and the change
  const std::scoped_lock lock(mutex);
  size_t stack = 0;  // of a thread
  check(cudaDeviceGetLimit(&stack, cudaLimitStackSize), "asking for the stack");
  if (attributes.localSizeBytes > stack)
    check(cudaDeviceSetLimit(cudaLimitStackSize, attributes.localSizeBytes), "making the stack larger");
}

void load_kernels(bool fused) {
  std::set<const void*> known;
  each_kernel(fused, [&](const Kernel& kernel, uint32_t) {
    if (known.insert(kernel.function).second) load_kernel(kernel);
  });
  load_kernel(find_delivery());
}

uint32_t capacity(int device, uint32_t threads, uint32_t size, bool fused) {
  require_driver();
  const On on(device);
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "asking for the device");
  const size_t shared = kCallBytes + std::max(shared_bytes(size), size * sizeof(Arrays));
  std::map<std::pair<const void*, uint32_t>, int> known;
  each_kernel(fused, [&](const Kernel& kernel, uint32_t most) {
    const uint32_t used = std::min(threads, most);
    const auto [one, is_new] = known.try_emplace({kernel.function, used}, 0);
    if (is_new)
      check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&one->second, kernel.function,
                                                          static_cast<int>(used), shared),
            "asking how many blocks fit");
  });
  const auto least = std::min_element(known.begin(), known.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  return static_cast<uint32_t>(processors * least->second);
}

}  // namespace pc::cuda
