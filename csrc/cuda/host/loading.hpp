// The kernels of the extension on a device: that they are there before anything runs, and how many blocks fit.
#pragma once

#include <cstdint>

namespace pc::cuda {

struct Kernel;

// Loads a kernel on the current device, and gives its threads the stack that they need: where that is left to the first launch it waits
// for kernels that run, and these for a rank that waits here.
void load_kernel(const Kernel& kernel);

// All of them that the extension has. `fused`: only those for several ranks in one grid, and what delivers their calls.
void load_kernels(bool fused);

// Blocks of so many threads that a device can hold at once, of the largest of the same kernels and a communicator of `size` ranks.
uint32_t capacity(int device, uint32_t threads, uint32_t size, bool fused);

}  // namespace pc::cuda
