// Plans and prepared calls, made by Python and read by the executor.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/bindings.hpp"
#include "core/blocks.hpp"
#include "core/error.hpp"
#include "core/verbs.hpp"
#include "shm/executor.hpp"

namespace py = pybind11;

namespace pc {
namespace {

using Table = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

// The rows of an (n, width) int32 table as a vector of structs of `width` 32-bit members.
template <class Row>
std::vector<Row> rows(const Table& table, size_t width) {
  static_assert(sizeof(Row) % sizeof(int32_t) == 0);
  if (sizeof(Row) != width * sizeof(int32_t) || static_cast<size_t>(table.size()) % width)
    throw Error(ErrorKind::schedule, "damaged plan: a table has the wrong width");
  std::vector<Row> result(static_cast<size_t>(table.size()) / width);
  if (!result.empty()) std::memcpy(result.data(), table.data(), result.size() * sizeof(Row));
  return result;
}

std::shared_ptr<Plan> make_plan(int size, int rank, uint32_t nchunks, uint32_t max_message,
                                uint32_t max_connections, uint32_t steps, bool waits_for_all,
                                const Table& instructions, const Table& operands, const Table& refs,
                                const Table& connections, const Table& peers, const Table& channels,
                                const Table& scratch_like) {
  auto plan = std::make_shared<Plan>();
  plan->size = size;
  plan->rank = rank;
  plan->nchunks = nchunks;
  plan->max_message = max_message;
  plan->max_connections = max_connections;
  plan->steps = steps;
  plan->waits_for_all = waits_for_all;
  plan->instructions = rows<Instruction>(instructions, 8);
  plan->operands = rows<Operand>(operands, 3);
  plan->refs = rows<Ref>(refs, 2);
  plan->connections = rows<Connection>(connections, 2);
  plan->peers = rows<int32_t>(peers, 1);
  plan->channels = rows<Channel>(channels, 4);
  plan->scratch_like = rows<uint32_t>(scratch_like, 1);
  plan->nscratch = static_cast<uint32_t>(plan->scratch_like.size());
  plan->validate();
  if (plan->channels.size() > kMaxLanes)
    throw Error(ErrorKind::unsupported,
                "a schedule may have at most " + std::to_string(kMaxLanes) + " channels on one host");
  return plan;
}

// The operator of the caller, from pycollectives.user_op.Code; it lives as long as a prepared call that may
// run it.
std::shared_ptr<const UserOp> user_op(const py::object& code, DType type) {
  if (code.is_none()) return nullptr;
  const auto let_go = [](const void* object) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    Py_DECREF(static_cast<PyObject*>(const_cast<void*>(object)));
  };
  const auto function = reinterpret_cast<UserFunction>(code.attr("address").cast<uintptr_t>());
  return std::make_shared<const UserOp>(
      type, UserCode{function, std::shared_ptr<const void>(Py_NewRef(code.ptr()), let_go),
                     code.attr("elements").cast<uint32_t>(), code.attr("alignment").cast<size_t>(),
                     code.attr("name").cast<std::string>()});
}

// Sizes: `blocks` elements one after the other, each cut into `nchunks / len(blocks)` chunks.
std::shared_ptr<Prepared> prepare(std::shared_ptr<Plan> plan, int dtype, int op, int epilogue, double factor,
                                  bool wide, const std::vector<uint64_t>& blocks,
                                  const std::vector<uint64_t>& sent_blocks,
                                  const std::vector<uint64_t>& taken_blocks,
                                  std::pair<uint32_t, uint32_t> held_in,
                                  std::pair<uint32_t, uint32_t> held_out, size_t pool_bytes,
                                  size_t segment_bytes, uint64_t fingerprint, uint64_t count, int verb,
                                  int algorithm, int record_dtype, int record_op, int root,
                                  bool deterministic, const py::object& user) {
  auto made = std::make_shared<Prepared>();
  const auto type = static_cast<DType>(dtype);
  made->kernel = find_kernel(type, static_cast<ReduceOp>(op));
  if (!made->kernel)
    throw Error(ErrorKind::unsupported,
                std::string(name(type)) + " has no " + name(static_cast<ReduceOp>(op)));
  made->epilogue = {static_cast<Epilogue::Kind>(epilogue), factor};
  made->user = user_op(user, type);
  const uint32_t unit =
      made->user ? made->user->code().elements : 1;  // one item of a user's operator is never cut
  made->element = unit * static_cast<uint32_t>(item_size(type));
  made->wide_element = wide ? unit * static_cast<uint32_t>(item_size(accumulation(type))) : made->element;
  const auto grain = static_cast<uint32_t>(std::max<size_t>(1, kLine / made->element));
  const Extents held =
      lay_out(*plan, {blocks, sent_blocks, taken_blocks, held_in, held_out}, grain, made->chunking);
  made->in_bytes = held.in * made->element;
  made->out_bytes = held.out * made->element;
  const bool works = std::any_of(plan->refs.begin(), plan->refs.end(),
                                 [](const Ref& r) { return r.where == Where::data_work; });
  made->work_bytes = works ? made->chunking.work_elements * made->wide_element : 0;
  made->scratch_bytes = made->chunking.scratch_elements * made->wide_element;
  made->plan = std::move(plan);
  made->fit(pool_bytes, segment_bytes);
  made->fingerprint = fingerprint;
  made->count = count;
  made->verb = static_cast<uint16_t>(verb);
  made->algorithm = static_cast<uint16_t>(algorithm);
  made->dtype = static_cast<uint8_t>(record_dtype);
  made->op = made->user ? kUserOp : static_cast<uint8_t>(record_op);
  made->root = root;
  made->deterministic = deterministic;
  return made;
}

}  // namespace

void bind_plan(py::module_& module) {
  module.def(
      "is_wide",
      [](int dtype) { return accumulation(static_cast<DType>(dtype)) != static_cast<DType>(dtype); },
      "Is this dtype reduced in a wider one?");
  py::class_<Plan, std::shared_ptr<Plan>>(module, "Plan",
                                          "The lowered schedule of one rank (csrc/core/plan.hpp).")
      .def(py::init(&make_plan), py::kw_only(), py::arg("size"), py::arg("rank"), py::arg("nchunks"),
           py::arg("max_message"), py::arg("max_connections"), py::arg("steps"), py::arg("waits_for_all"),
           py::arg("instructions"), py::arg("operands"), py::arg("refs"), py::arg("connections"),
           py::arg("peers"), py::arg("channels"), py::arg("scratch_like"))
      .def_readonly("nchunks", &Plan::nchunks)
      .def_property_readonly("ninstructions", [](const Plan& plan) { return plan.instructions.size(); });
  py::class_<Prepared, std::shared_ptr<Prepared>>(module, "Prepared",
                                                  "A plan with the sizes and types of one kind of call.")
      .def(py::init(&prepare), py::kw_only(), py::arg("plan"), py::arg("dtype"), py::arg("op"),
           py::arg("epilogue"), py::arg("factor"), py::arg("wide"), py::arg("blocks"), py::arg("sent_blocks"),
           py::arg("taken_blocks"), py::arg("held_in"), py::arg("held_out"), py::arg("pool_bytes"),
           py::arg("segment_bytes"), py::arg("fingerprint"), py::arg("count"), py::arg("verb"),
           py::arg("algorithm"), py::arg("record_dtype"), py::arg("record_op"), py::arg("root"),
           py::arg("deterministic"), py::arg("user") = py::none())
      .def_readonly("in_bytes", &Prepared::in_bytes)
      .def_readonly("out_bytes", &Prepared::out_bytes)
      .def_property_readonly("slices", [](const Prepared& p) { return p.chunking.slices; })
      .def_readonly("lanes", &Prepared::lanes)
      .def_readonly("slot_bytes", &Prepared::slot_bytes);
}

}  // namespace pc
