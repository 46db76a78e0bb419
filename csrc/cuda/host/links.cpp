#include "cuda/host/links.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace pc::cuda {
namespace {

struct Row {
  uint32_t first, last;  // compute capabilities
  Link link;
};

// Where NCCL, whose protocol it is, relies on it in production (src/graph/tuning.cc: Volta and later, by NVLink, devices of one kind).
// Everything else may tear lines without a word: a row is added when that combination has been measured, not before. That includes
// ranks on one device, and devices without NVLink (compute capability 12.0).
constexpr Row kWhole[] = {
    {70, 70, Link::nvlink},    // V100
    {80, 80, Link::nvlink},    // A100
    {90, 90, Link::nvlink},    // H100, H200
    {100, 103, Link::nvlink},  // B200, B300
};

}  // namespace

Link link_between(int device, int peer) {
  if (device == peer) return Link::same_device;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, peer), "asking for peer access");
  if (!can)
    throw Error(ErrorKind::unsupported, "device " + std::to_string(device) +
                                            " cannot reach the memory of device " + std::to_string(peer));
  int atomics = 0;  // which NVLink carries and PCI Express does not
  check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer),
        "asking for the link between two devices");
  return atomics ? Link::nvlink : Link::pcie;
}

uint32_t capability(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking for the device");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "asking for the device");
  return static_cast<uint32_t>(10 * major + minor);
}

bool keeps_lines_whole(uint32_t capability, Link link) {
  return std::any_of(std::begin(kWhole), std::end(kWhole), [&](const Row& row) {
    return row.first <= capability && capability <= row.last && row.link == link;
  });
}

}  // namespace pc::cuda
