#include "cuda/host/device_plan.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace pc::cuda {
namespace {

template <class T>
size_t append(std::vector<std::byte>& bytes, const std::vector<T>& rows) {
  const size_t at = (bytes.size() + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  bytes.resize(at + std::max<size_t>(1, rows.size()) * sizeof(T));
  if (!rows.empty()) std::memcpy(bytes.data() + at, rows.data(), rows.size() * sizeof(T));
  return at;
}

// The channel that each reference belongs to.
std::vector<uint32_t> channels_of_refs(const Plan& plan) {
  std::vector<uint32_t> channel(plan.refs.size(), 0);
  for (uint32_t c = 0; c < plan.channels.size(); ++c) {
    for (uint32_t i = 0; i < plan.channels[c].ninstructions; ++i) {
      const Instruction& in = plan.instructions[plan.channels[c].instruction + i];
      const auto mark = [&](uint32_t first) { std::fill_n(channel.begin() + first, in.nrefs, c); };
      mark(in.shape);
      if (in.store >= 0) mark(static_cast<uint32_t>(in.store));
      for (uint32_t k = 0; k < in.noperands; ++k)
        if (plan.operands[in.operand + k].peer < 0) mark(plan.operands[in.operand + k].refs);
    }
  }
  return channel;
}

// Does the plan have elements of the accumulation type in the caller's input, or in his output? Plans for shards of sums do: what is
// not complete is not rounded.
bool is_wide(const Plan& plan, Where data, Where named) {
  const auto there = [&](uint32_t ref) {
    return plan.refs[ref].where == data || plan.refs[ref].where == named;
  };
  for (const Instruction& in : plan.instructions) {
    if (in.store >= 0 && in.flags & Instruction::store_wide && there(static_cast<uint32_t>(in.store)))
      return true;
    for (uint32_t k = 0; k < in.noperands; ++k) {
      const Operand& operand = plan.operands[in.operand + k];
      if (operand.peer < 0 && operand.wide && there(operand.refs)) return true;
    }
  }
  return false;
}

}  // namespace

DevicePlan::DevicePlan(const Plan& plan, const Extent& extent, const CallOptions& options,
                       const Segment& segment) {
  const uint32_t narrow = options.item(), full = options.wide ? options.accumulated() : narrow;
  const uint32_t group = options.user ? options.user->item().group : kVectorBytes / narrow;
  const bool in_vectors = options.user && !options.user->item().in_one_vector();       // of several each
  const uint32_t vectors = in_vectors ? options.user->item().vectors : full / narrow;  // of a wide group
  const uint32_t grain = (std::max(1u, kLineBytes / narrow) + group - 1) / group * group;

  Chunking chunking;
  const Extents held = lay_out(plan, extent, grain, chunking);
  const uint32_t in_unit = is_wide(plan, Where::data_in, Where::input) ? full : narrow;
  const uint32_t out_unit = is_wide(plan, Where::data_out, Where::output) ? full : narrow;
  in_bytes = held.in * in_unit;
  out_bytes = held.out * out_unit;
  work_bytes = chunking.work_elements * full;
  scratch_bytes = chunking.scratch_elements * full;

  nchannels = static_cast<uint32_t>(plan.channels.size());
  if (nchannels > segment.blocks)
    throw Error(ErrorKind::unsupported, "this schedule has " + std::to_string(nchannels) +
                                            " channels, and a device communicator " +
                                            std::to_string(segment.blocks) + " blocks");
  const Cut cut{.parts = std::max(1u, nchannels), .grain = grain};
  uint64_t longest = 0;
  for (const Piece& piece : chunking.table[static_cast<size_t>(Where::data_work)])
    for (uint32_t c = 0; c < cut.parts; ++c) longest = std::max(longest, cut.piece(piece.length, c).length);

  const uint32_t slot = segment.mailbox[static_cast<uint32_t>(options.protocol)].slot_bytes;
  const uint64_t most = uint64_t{group} * groups_in_slot(options.protocol, slot, plan.max_message, vectors);
  if (most == 0)
    throw Error(ErrorKind::unsupported, "a message of this schedule has " + std::to_string(plan.max_message) +
                                            " chunks, too many for a slot of " + std::to_string(slot) +
                                            " bytes (protocol " +
                                            kProtocolNames[static_cast<uint32_t>(options.protocol)] + ")");
  const uint32_t most_lanes =
      std::clamp(segment.blocks / std::max(1u, nchannels), 1u, std::max(1u, options.lanes));
  const uint64_t share = (longest + most_lanes - 1) / most_lanes;
  uint64_t slice = std::max<uint64_t>({share, options.least_slice / narrow, 1});
  slice = std::min((slice + grain - 1) / grain * grain, most);
  slice_elements = static_cast<uint32_t>(slice);
  slices = static_cast<uint32_t>(std::max<uint64_t>(1, (longest + slice - 1) / slice));
  lanes = std::min(most_lanes, slices);

  const std::vector<uint32_t> channel = channels_of_refs(plan);
  std::vector<DeviceRef> table;
  for (size_t i = 0; i < plan.refs.size(); ++i) {
    const Ref& ref = plan.refs[i];
    const Piece& piece = chunking.piece(ref);
    const Piece part = cut.piece(piece.length, channel[i]);
    const bool takes = ref.where == Where::data_in || ref.where == Where::input;
    const bool gives = ref.where == Where::data_out || ref.where == Where::output;
    const uint32_t unit = takes ? in_unit : gives ? out_unit : full;
    table.push_back(
        {(piece.offset + part.offset) * unit, part.length, static_cast<uint32_t>(ref.where), unit});
  }
  std::vector<Instruction> program = plan.instructions;
  std::vector<Operand> sources = plan.operands;
  if (in_vectors) {
    for (Instruction& in : program) in.flags |= Instruction::store_wide | Instruction::send_wide;
    for (Operand& operand : sources) operand.wide = 1;
  }
  instructions = append(bytes, program);
  operands = append(bytes, sources);
  refs = append(bytes, table);
  connections = append(bytes, plan.connections);
  peers = append(bytes, plan.peers);
  channels = append(bytes, plan.channels);
  std::vector<DeviceRef> whole;  // chunks of the data, as the caller has them
  for (const Piece& piece : chunking.table[static_cast<size_t>(Where::data_work)])
    whole.push_back({piece.offset * narrow, piece.length, static_cast<uint32_t>(Where::data_work), narrow});
  chunks = append(bytes, whole);
}

}  // namespace pc::cuda
