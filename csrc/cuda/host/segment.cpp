#include "cuda/host/segment.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace pc::cuda {
namespace {

constexpr uint64_t round_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

}  // namespace

Segment divide(const SegmentOptions& options) {
  if (options.size < 1 || options.blocks < 1 || options.depth < 2 || options.depth > kLineBytes / 8)
    throw Error(ErrorKind::invalid_argument, "a device segment needs blocks, and a depth from 2 to 16");
  if (options.number_bits < 4 || options.number_bits > 16 || options.depth > 1u << (options.number_bits - 2))
    throw Error(ErrorKind::invalid_argument, "LL flags carry 4 to 16 bits of a number, enough for the depth");
  Segment segment{};
  segment.blocks = options.blocks;
  segment.depth = options.depth;
  segment.abort = 0;
  uint64_t at = kLineBytes;  // the abort word has a line of its own
  segment.calls = at;
  at += round_up(options.blocks * sizeof(uint64_t), kLineBytes);
  segment.gone = at;
  at += round_up(options.blocks * sizeof(uint64_t), kLineBytes);
  segment.gates = at;
  at += uint64_t{options.size} * options.blocks * kLineBytes;
  const uint64_t ends = uint64_t{options.size} * options.blocks;
  for (uint32_t p = 0; p < kProtocols; ++p) {
    Mailbox& mailbox = segment.mailbox[p];
    mailbox.slot_bytes = options.slot_bytes[p] / 512 * 512;  // LL128 moves four lines at a time
    if (mailbox.slot_bytes == 0)
      throw Error(ErrorKind::invalid_argument, "a slot of the device has at least 512 bytes");
    mailbox.number_mask = (1u << options.number_bits) - 1;
    mailbox.period = 1u << (options.number_bits - 1);
    mailbox.cells = at;
    at += ends * kLineBytes;
    mailbox.credits = at;
    at += ends * kLineBytes;
    mailbox.counters = at;
    at += round_up(ends * sizeof(Counter), kLineBytes);
    mailbox.slots = round_up(at, 512);
    at = mailbox.slots + ends * options.depth * mailbox.slot_bytes;
  }
  segment.staging = round_up(at, 512);
  segment.half = round_up(std::max<uint64_t>(options.staging_bytes / 2, kLineBytes * options.size), 512);
  segment.bytes = segment.staging + 2 * segment.half;
  return segment;
}

uint32_t groups_in_slot(Protocol protocol, uint32_t slot_bytes, uint32_t pieces, uint32_t wide) {
  const uint32_t vectors = slot_bytes / kVectorBytes / pieces / wide;
  switch (protocol) {
    case Protocol::ll:
      return vectors / 2;
    case Protocol::ll128:
      return vectors / 32 * 30;
    case Protocol::simple:
      return vectors;
  }
  return 0;
}

}  // namespace pc::cuda
