#include "shm/prepare.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "core/verbs.hpp"

namespace pc {
namespace {

// Elements of the accumulation type lie only where there is room for them: in work and scratch memory, and in messages.
void check_widths(const Plan& plan, bool wide) {
  const auto roomy = [&](uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; ++i)
      require_plan(plan.refs[i].where == Where::data_work || plan.refs[i].where == Where::scratch,
                   "wide elements in an array of the caller");
  };
  for (const Instruction& in : plan.instructions) {
    const bool stores = in.flags & Instruction::store_wide, sends = in.flags & Instruction::send_wide;
    require_plan(wide || !(stores || sends), "wide elements in a call without");
    if (in.store >= 0 && stores) roomy(static_cast<uint32_t>(in.store), in.nrefs);
    for (uint32_t k = 0; k < in.noperands; ++k) {
      const Operand& operand = plan.operands[in.operand + k];
      if (!operand.wide) continue;
      require_plan(wide, "wide elements in a call without");
      if (operand.peer < 0) roomy(operand.refs, in.nrefs);
    }
  }
}

bool one_chunk_each(const Plan& plan) {
  return std::all_of(plan.instructions.begin(), plan.instructions.end(),
                     [](const Instruction& in) { return in.nrefs == 1; });
}

uint64_t longest(const Chunking& chunking) {  // elements of one chunk, in any place
  uint64_t most = 0;
  for (const auto& pieces : chunking.table)
    for (const Piece& piece : pieces) most = std::max(most, piece.length);
  return most;
}

}  // namespace

std::shared_ptr<Prepared> prepare(std::shared_ptr<const Plan> plan, const CallKind& kind) {
  auto made = std::make_shared<Prepared>();
  made->kernel = find_kernel(kind.dtype, kind.op);
  if (!made->kernel)
    throw Error(ErrorKind::unsupported, std::string(name(kind.dtype)) + " has no " + name(kind.op));
  if (kind.pool_bytes < 4 * kLine || kind.segment_bytes < kLine)
    throw Error(ErrorKind::invalid_argument, "the pool or the segments have no room for a message");
  if (kind.record_dtype >= dtype_count) throw Error(ErrorKind::invalid_argument, "no such dtype");
  made->epilogue = kind.epilogue;
  made->user = kind.user;
  const uint32_t unit =
      kind.user ? kind.user->code().elements : 1;  // one item of a user's operator is never cut
  made->element = unit * static_cast<uint32_t>(item_size(kind.dtype));
  made->wide_element =
      kind.wide ? unit * static_cast<uint32_t>(item_size(accumulation(kind.dtype))) : made->element;
  const auto grain = static_cast<uint32_t>(std::max<size_t>(1, kLine / made->element));
  const Extents held = lay_out(*plan, kind.extent, grain, made->chunking);
  check_widths(*plan, kind.wide);
  made->in_bytes = held.in * made->element;
  made->out_bytes = held.out * made->element;
  const bool works = std::any_of(plan->refs.begin(), plan->refs.end(),
                                 [](const Ref& r) { return r.where == Where::data_work; });
  made->work_bytes = works ? made->chunking.work_elements * made->wide_element : 0;
  made->scratch_bytes = made->chunking.scratch_elements * made->wide_element;
  const bool sends_only = std::none_of(plan->operands.begin(), plan->operands.end(),
                                       [](const Operand& operand) { return operand.peer >= 0; });
  made->plan = std::move(plan);
  made->fit({kind.pool_bytes, kind.segment_bytes, kind.ring_bytes, kind.stream_output_bytes,
             kind.single_copy_bytes, kind.cache_bytes, kind.crowded});
  const size_t bytes = made->chunking.work_elements * made->element;  // whatever a rank's own arrays hold
  made->long_data = bytes >= std::max(kind.cache_bytes, kContested);
  // Where all ranks wait for all anyway, and one that sees that peers may read all messages in its arrays knows it of the others.
  const bool alike = kind.root < 0 && made->plan->waits_for_all && made->plan->balanced;
  if (made->long_data && alike && made->plan->max_message == 1 &&
      made->chunking.longest * made->wide_element >= kind.single_copy_bytes)
    made->fit_whole();
  if (!made->whole.slices &&
      made->flow.longest_part(made->chunking.longest) * made->wide_element < kind.single_copy_bytes)
    made->single_copy = SIZE_MAX;
  // Not where ranks take turns on a core, nor where this rank has to read as well: then it would not be done any sooner. Long
  // data are cut, and one part is read while the next is written.
  made->grows = sends_only && !made->long_data && !kind.crowded;
  made->may_stream_output = made->long_data && bytes < kind.stream_output_bytes;
  const auto data = !made->long_data               ? Contest::Data::short_data
                    : bytes / 8 < kind.cache_bytes ? Contest::Data::long_data
                                                   : Contest::Data::very_long_data;
  // Where ranks share cores, a copy that lies in a cache pays if it has several readers.
  const bool copies_once = !kind.crowded || kind.verb == kAllToAll;
  const Way first = !made->long_data                               ? Way::as_usual
                    : copies_once && made->single_copy != SIZE_MAX ? Way::single_copy
                    : kind.crowded                                 ? Way::plain_streamed
                                                                   : Way::as_usual;
  made->ways = {Contest(data, first), Contest(data)};
  made->fingerprint = kind.fingerprint;
  made->count = kind.count;
  made->verb = kind.verb;
  made->algorithm = kind.algorithm;
  made->dtype = kind.record_dtype;
  made->op = kind.user ? kUserOp : kind.record_op;
  made->root = kind.root;
  made->deterministic = kind.deterministic;
  made->brief = !kind.wide && !kind.user && !made->is_bool() && made->flow.parts == 1 &&
                one_chunk_each(*made->plan) && longest(made->chunking) * made->element <= kInline;
  if (made->brief) made->flow.slots = kDepth;  // none is used
  return made;
}

}  // namespace pc
