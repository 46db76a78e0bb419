// Which way data take from one device to another, and what may be relied on there.
#pragma once

#include <cstdint>

#include "cuda/host/runtime.hpp"

namespace pc::cuda {

enum class Link : uint32_t { same_device, nvlink, pcie };
inline constexpr const char* kLinkNames[] = {"same device", "nvlink", "pcie"};

// Throws Error(device), Error(unsupported) where `device` cannot reach the memory of `peer`.
Link link_between(int device, int peer);

// The compute capability of a device, as in 90.
uint32_t capability(int device);

// Is a line of 128 bytes, stored by eight lanes of a warp, seen whole at the other end? The condition of protocol LL128.
bool keeps_lines_whole(uint32_t capability, Link link);

}  // namespace pc::cuda
