#include "shm/prepare.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "core/verbs.hpp"

namespace pc {

std::shared_ptr<Prepared> prepare(std::shared_ptr<const Plan> plan, const CallKind& kind) {
  auto made = std::make_shared<Prepared>();
  made->kernel = find_kernel(kind.dtype, kind.op);
  if (!made->kernel)
    throw Error(ErrorKind::unsupported, std::string(name(kind.dtype)) + " has no " + name(kind.op));
  if (kind.pool_bytes < 4 * kLine || kind.segment_bytes < kLine)
    throw Error(ErrorKind::invalid_argument, "the pool or the segments have no room for a message");
  made->epilogue = kind.epilogue;
  made->user = kind.user;
  const uint32_t unit =
      kind.user ? kind.user->code().elements : 1;  // one item of a user's operator is never cut
  made->element = unit * static_cast<uint32_t>(item_size(kind.dtype));
  made->wide_element =
      kind.wide ? unit * static_cast<uint32_t>(item_size(accumulation(kind.dtype))) : made->element;
  const auto grain = static_cast<uint32_t>(std::max<size_t>(1, kLine / made->element));
  const Extents held = lay_out(*plan, kind.extent, grain, made->chunking);
  made->in_bytes = held.in * made->element;
  made->out_bytes = held.out * made->element;
  const bool works = std::any_of(plan->refs.begin(), plan->refs.end(),
                                 [](const Ref& r) { return r.where == Where::data_work; });
  made->work_bytes = works ? made->chunking.work_elements * made->wide_element : 0;
  made->scratch_bytes = made->chunking.scratch_elements * made->wide_element;
  made->plan = std::move(plan);
  made->fit(kind.pool_bytes, kind.segment_bytes);
  made->fingerprint = kind.fingerprint;
  made->count = kind.count;
  made->verb = kind.verb;
  made->algorithm = kind.algorithm;
  made->dtype = kind.record_dtype;
  made->op = kind.user ? kUserOp : kind.record_op;
  made->root = kind.root;
  made->deterministic = kind.deterministic;
  return made;
}

}  // namespace pc
