// Kernels are loaded when they are first asked for, and devices have the stack that was last set: each waits for all that run.
#include <array>
#include <mutex>
#include <set>
#include <utility>

#include "cuda/emulation/runtime.hpp"

namespace pc::emulation {
namespace {

constexpr size_t kStack = 1024,
                 kNeeded = 1536;  // of a thread: what there is at first, what each kernel takes

std::mutex mutex;
std::set<std::pair<int, const void*>> loaded;
std::array<size_t, kDevices> stacks = [] {
  std::array<size_t, kDevices> all;
  all.fill(kStack);
  return all;
}();

int current() {
  int device;
  static_cast<void>(cudaGetDevice(&device));
  return device;
}

}  // namespace

bool is_loaded(const void* function) {
  const std::scoped_lock lock(mutex);
  return loaded.contains({current(), function}) && stacks[static_cast<size_t>(current())] >= kNeeded;
}

void unload() {
  const std::scoped_lock lock(mutex);
  loaded.clear();
}

}  // namespace pc::emulation

using namespace pc::emulation;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = {0, kNeeded};
  {
    const std::scoped_lock lock(mutex);
    if (loaded.contains({current(), function})) return cudaSuccess;
  }
  if (const cudaError_t error = wait_for_kernels("a kernel is loaded")) return error;
  const std::scoped_lock lock(mutex);
  loaded.insert({current(), function});
  return cudaSuccess;
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
  const std::scoped_lock lock(mutex);
  *value = stacks[static_cast<size_t>(current())];
  return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(cudaLimit, size_t value) {
  if (const cudaError_t error = wait_for_kernels("the stack is made larger")) return error;
  const std::scoped_lock lock(mutex);
  stacks[static_cast<size_t>(current())] = value;
  return cudaSuccess;
}
