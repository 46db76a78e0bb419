// How a kind of call is cut: slices of the data, lanes of slices in flight, slots of messages.
#include <algorithm>

#include "shm/executor.hpp"

namespace pc {
namespace {

constexpr size_t kSlotSkew = 33 * kLine;

}  // namespace

void Prepared::fit(size_t pool_bytes, size_t segment_bytes) {
  const auto channels = static_cast<uint32_t>(plan->channels.size());
  // Two slots at least: a schedule that is free of deadlock with one message in flight stays so when a
  // reduction is fused with the send of its result only if there are two, since the fused one takes its
  // message when its own can go.
  const uint32_t most =
      std::clamp<uint32_t>(kMaxLanes / std::max(channels, 1u), 1, plan->max_connections > 16 ? 2 : 4);
  const size_t share = pool_bytes / (size_t{channels} * most * 2 * plan->max_connections);
  // An odd number of lines, so that slots do not all fall into the same sets of the caches.
  const size_t least =
      round_up(wide_element, kPieceAlign) * plan->max_message;  // one item of each chunk: those are never cut
  slot_bytes = std::min(share / kLine * kLine,
                        std::max(segment_bytes / kLine * kLine, round_up(least, kLine)) + kSlotSkew);
  if (channels > kMaxLanes)
    throw Error(ErrorKind::unsupported,
                "a schedule may have 16 channels, this one has " + std::to_string(channels));
  if (slot_bytes < least)
    throw Error(ErrorKind::unsupported, "PYCOLLECTIVES_POOL_BYTES=" + std::to_string(pool_bytes) +
                                            " is too small for this schedule: its messages have " +
                                            std::to_string(plan->max_message) + " chunks of items of " +
                                            std::to_string(wide_element) + " bytes, and there is room for " +
                                            std::to_string(slot_bytes) + " bytes");
  // How many elements of each chunk fit into a message of so many bytes.
  const auto room = [this](size_t bytes) {
    return bytes / plan->max_message / kPieceAlign * kPieceAlign / wide_element;
  };
  // Slices begin at whole lines, unless messages of many chunks would then not fit into a slot.
  chunking.grain = std::max<uint32_t>(1, static_cast<uint32_t>(kLine / element));
  while (chunking.grain > 1 && room(slot_bytes) < 3 * chunking.grain + 1) chunking.grain /= 2;
  // Slices of a segment, but not of a few lines only, as long as a slot has room for them.
  const size_t longest = std::max(room(std::min(slot_bytes, segment_bytes)),
                                  std::min<size_t>(room(slot_bytes), 3 * chunking.grain + 1));
  chunking.slices = chunking.slices_for(longest, channels);
  chunking.parts = channels * chunking.slices;
  // A slice is in flight for as many steps as there are; more slices at a time would only fill the caches.
  lanes = std::min({most, chunking.slices, std::max(plan->steps, 2u)});
  slots = std::max(2u, std::min(2 * most / lanes, kDepth));
}

}  // namespace pc
