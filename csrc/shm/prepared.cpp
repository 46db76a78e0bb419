// How a kind of call is cut: slices of the data, lanes of slices in flight, slots of messages.
#include "shm/prepared.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "shm/layout.hpp"

namespace pc {
namespace {

constexpr uint32_t kMostSlots = 512;
constexpr size_t kWhole = size_t{8} << 20;  // bytes of a block
constexpr size_t kShortest =
    16384;  // bytes; what a message costs is less than a tenth of what its data cost from here on

// Slots at an odd number of lines from each other do not all fall into the same sets of the caches.
constexpr size_t odd_lines(size_t bytes) { return ((round_up(bytes, kLine) / kLine) | 1) * kLine; }

}  // namespace

void Prepared::fit(const Sizes& sizes) {
  const auto channels = static_cast<uint32_t>(plan->channels.size());
  // Two slots at least: a schedule that is free of deadlock with one message in flight stays so when a
  // reduction is fused with the send of its result only if there are two, since the fused one takes its
  // message when its own can go.
  // Ranks that share a core take turns, which cost more than they gain by further messages in flight.
  const bool few = sizes.crowded || plan->max_connections > 16;
  const uint32_t most = std::clamp<uint32_t>(kMaxLanes / std::max(channels, 1u), 1, few ? 2 : 4);
  const size_t share = sizes.pool / (size_t{channels} * most * 2 * plan->max_connections);
  // Messages to many peers at a time are cut shorter where as a whole they would fill the caches.
  const size_t whole = chunking.longest * wide_element * plan->max_connections;
  const size_t in_flight = sizes.crowded ? 2 : 2 * kLargeDepth;
  const size_t fair = sizes.ring / (size_t{channels} * plan->max_connections * in_flight);
  const size_t segment =
      whole <= sizes.ring / 2 ? sizes.segment : std::min(sizes.segment, std::max(fair, kShortest));
  const size_t least =
      round_up(wide_element, kPieceAlign) * plan->max_message;  // one item of each chunk: those are never cut
  const size_t most_lines = share < kLine ? 0 : (share / kLine - 1) | 1;
  flow.slot_bytes = std::min(most_lines * kLine, odd_lines(std::max(segment / kLine * kLine, least)));
  if (channels > kMaxLanes)
    throw Error(ErrorKind::unsupported,
                "a schedule may have 16 channels, this one has " + std::to_string(channels));
  if (flow.slot_bytes < least)
    throw Error(ErrorKind::unsupported, "PYCOLLECTIVES_POOL_BYTES=" + std::to_string(sizes.pool) +
                                            " is too small for this schedule: its messages have " +
                                            std::to_string(plan->max_message) + " chunks of items of " +
                                            std::to_string(wide_element) + " bytes, and there is room for " +
                                            std::to_string(flow.slot_bytes) + " bytes");
  // How many elements of each chunk fit into a message of so many bytes.
  const auto room = [this](size_t bytes) {
    return bytes / plan->max_message / kPieceAlign * kPieceAlign / wide_element;
  };
  // Slices begin at whole lines, unless messages of many chunks would then not fit into a slot.
  flow.grain = std::max<uint32_t>(1, static_cast<uint32_t>(kLine / element));
  while (flow.grain > 1 && room(flow.slot_bytes) < 3 * flow.grain + 1) flow.grain /= 2;
  // Slices of a segment, but not of a few lines only, as long as a slot has room for them.
  const size_t longest = std::max(room(std::min(flow.slot_bytes, segment)),
                                  std::min<size_t>(room(flow.slot_bytes), 3 * flow.grain + 1));
  flow.into_slices(chunking.longest, longest, channels);
  // A slice is in flight for as many steps as there are; more slices at a time would only fill the caches.
  flow.lanes = std::min({most, flow.slices, std::max(plan->steps, 2u)});
  // Messages go round a ring of slots larger than the second level of the caches: by the time a slot is written again, its
  // lines have left the cache of their last reader, from which they would have to be fetched one by one.
  flow.slot_bytes = std::min(
      flow.slot_bytes, odd_lines(round_up(flow.longest_part(chunking.longest) * wide_element, kPieceAlign) *
                                 plan->max_message));
  const size_t row = size_t{channels} * flow.lanes * plan->max_connections * flow.slot_bytes;
  flow.slots = static_cast<uint32_t>(std::clamp<size_t>(
      std::min(sizes.ring, sizes.pool) / row, std::min<size_t>(sizes.pool / row, kLargeDepth), kMostSlots));
  long_output = out_bytes >= sizes.cache;
  stream_output = out_bytes >= sizes.stream_output;
  single_copy = sizes.single_copy;
}

void Prepared::fit_whole() {
  const auto channels = static_cast<uint32_t>(plan->channels.size());
  whole.grain = flow.grain;
  whole.into_slices(chunking.longest, std::max<size_t>(1, kWhole / wide_element), channels);
  whole.lanes = std::min(flow.lanes, whole.slices);
  whole.slots = kLargeDepth;  // none is used
  if (whole.slices >= flow.slices) {
    whole.slices = 0;
    return;
  }
  for (const Instruction& in : plan->instructions)
    if (in.connection >= 0)
      staged_bytes +=
          chunking.piece(plan->refs[in.shape]).length * wide_element + size_t{whole.parts} * kLine;
}

bool Prepared::all_point(bool in_place) const {
  return std::all_of(plan->instructions.begin(), plan->instructions.end(),
                     [&](const Instruction& in) { return in.connection < 0 || points(in, in_place); });
}

}  // namespace pc
