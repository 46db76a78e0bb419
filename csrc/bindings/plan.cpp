// Plans and prepared calls, made by Python and read by the executor.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <span>
#include <utility>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "core/error.hpp"
#include "shm/prepare.hpp"

namespace py = pybind11;

namespace pc {
namespace {

using Table = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

std::span<const int32_t> numbers(const Table& table) {
  return {table.data(), static_cast<size_t>(table.size())};
}

std::shared_ptr<Plan> make_plan(int size, int rank, uint32_t nchunks, uint32_t max_message,
                                uint32_t max_connections, uint32_t steps, bool waits_for_all, bool proves_all,
                                bool balanced, const Table& instructions, const Table& operands,
                                const Table& refs, const Table& connections, const Table& peers,
                                const Table& channels, const Table& scratch_like) {
  auto plan = std::make_shared<Plan>();
  plan->size = size;
  plan->rank = rank;
  plan->nchunks = nchunks;
  plan->max_message = max_message;
  plan->max_connections = max_connections;
  plan->steps = steps;
  plan->waits_for_all = waits_for_all;
  plan->proves_all = proves_all;
  plan->balanced = balanced;
  plan->decode({numbers(instructions), numbers(operands), numbers(refs), numbers(connections), numbers(peers),
                numbers(channels), numbers(scratch_like)});
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
    const HeldGil gil;
    Py_DECREF(static_cast<PyObject*>(const_cast<void*>(object)));
  };
  const auto function = reinterpret_cast<UserFunction>(code.attr("address").cast<uintptr_t>());
  return std::make_shared<const UserOp>(
      type, UserCode{function, std::shared_ptr<const void>(Py_NewRef(code.ptr()), let_go),
                     code.attr("elements").cast<uint32_t>(), code.attr("alignment").cast<size_t>(),
                     code.attr("name").cast<std::string>()});
}

std::shared_ptr<Prepared> make_prepared(
    std::shared_ptr<Plan> plan, int dtype, int op, int epilogue, double factor, bool wide,
    std::vector<uint64_t> blocks, std::vector<uint64_t> sent_blocks, std::vector<uint64_t> taken_blocks,
    std::pair<uint32_t, uint32_t> held_in, std::pair<uint32_t, uint32_t> held_out, size_t pool_bytes,
    size_t segment_bytes, size_t ring_bytes, size_t stream_output_bytes, size_t single_copy_bytes,
    size_t cache_bytes, bool crowded, uint64_t fingerprint, uint64_t count, int verb, int algorithm,
    int record_dtype, int record_op, int root, bool deterministic, const py::object& user) {
  if (dtype < 0 || dtype >= dtype_count || op < 0 || op >= reduce_op_count || epilogue < 0 ||
      epilogue >= epilogue_kind_count)
    throw Error(ErrorKind::invalid_argument, "no such dtype, operator or epilogue");
  CallKind kind;
  kind.dtype = static_cast<DType>(dtype);
  kind.op = static_cast<ReduceOp>(op);
  kind.epilogue = {static_cast<Epilogue::Kind>(epilogue), factor};
  kind.wide = wide;
  kind.extent = {std::move(blocks), std::move(sent_blocks), std::move(taken_blocks), held_in, held_out};
  kind.pool_bytes = pool_bytes;
  kind.segment_bytes = segment_bytes;
  kind.ring_bytes = ring_bytes;
  kind.stream_output_bytes = stream_output_bytes;
  kind.single_copy_bytes = single_copy_bytes;
  kind.cache_bytes = cache_bytes;
  kind.crowded = crowded;
  kind.fingerprint = fingerprint;
  kind.count = count;
  kind.verb = static_cast<uint16_t>(verb);
  kind.algorithm = static_cast<uint16_t>(algorithm);
  kind.record_dtype = static_cast<uint8_t>(record_dtype);
  kind.record_op = static_cast<uint8_t>(record_op);
  kind.root = root;
  kind.deterministic = deterministic;
  kind.user = user_op(user, kind.dtype);
  return prepare(std::move(plan), kind);
}

}  // namespace

void bind_plan(py::module_& module) {
  module.def(
      "is_wide",
      [](int dtype) { return accumulation(static_cast<DType>(dtype)) != static_cast<DType>(dtype); },
      "Is this dtype reduced in a wider one?");
  module.attr("CARRIERS") = py::make_tuple("inlined", "slot", "region", "pointer");
  py::class_<Plan, std::shared_ptr<Plan>>(module, "Plan",
                                          "The lowered schedule of one rank (csrc/core/plan.hpp).")
      .def(py::init(&make_plan), py::kw_only(), py::arg("size"), py::arg("rank"), py::arg("nchunks"),
           py::arg("max_message"), py::arg("max_connections"), py::arg("steps"), py::arg("waits_for_all"),
           py::arg("proves_all"), py::arg("balanced"), py::arg("instructions"), py::arg("operands"),
           py::arg("refs"), py::arg("connections"), py::arg("peers"), py::arg("channels"),
           py::arg("scratch_like"))
      .def_readonly("nchunks", &Plan::nchunks)
      .def_property_readonly("ninstructions", [](const Plan& plan) { return plan.instructions.size(); });
  py::class_<Prepared, std::shared_ptr<Prepared>>(module, "Prepared",
                                                  "A plan with the sizes and types of one kind of call.")
      .def(py::init(&make_prepared), py::kw_only(), py::arg("plan"), py::arg("dtype"), py::arg("op"),
           py::arg("epilogue"), py::arg("factor"), py::arg("wide"), py::arg("blocks"), py::arg("sent_blocks"),
           py::arg("taken_blocks"), py::arg("held_in"), py::arg("held_out"), py::arg("pool_bytes"),
           py::arg("segment_bytes"), py::arg("ring_bytes") = CallKind{}.ring_bytes,
           py::arg("stream_output_bytes") = CallKind{}.stream_output_bytes,
           py::arg("single_copy_bytes") = CallKind{}.single_copy_bytes,
           py::arg("cache_bytes") = CallKind{}.cache_bytes, py::arg("crowded") = false,
           py::arg("fingerprint"), py::arg("count"), py::arg("verb"), py::arg("algorithm"),
           py::arg("record_dtype"), py::arg("record_op"), py::arg("root"), py::arg("deterministic"),
           py::arg("user") = py::none())
      .def_readwrite("algorithm_name", &Prepared::algorithm_name)
      .def_readonly("in_bytes", &Prepared::in_bytes)
      .def_readonly("out_bytes", &Prepared::out_bytes)
      .def_property_readonly("slices", [](const Prepared& p) { return p.flow.slices; })
      .def_property_readonly(
          "blocks", [](const Prepared& p) { return p.whole.slices; },
          "Slices of a call by single copy of whole blocks; 0 where there is none.")
      .def(
          "traffic",
          [](const Prepared& self, bool in_place, bool symmetric) {
            const Traffic traffic = Executor::traffic(self, in_place, symmetric);
            return std::make_pair(traffic.messages, traffic.bytes);
          },
          py::arg("in_place"), py::arg("symmetric"),
          "Messages and bytes that this rank publishes in a call, each by carrier (see CARRIERS).")
      .def_property_readonly("lanes", [](const Prepared& p) { return p.flow.lanes; })
      .def_property_readonly("slot_bytes", [](const Prepared& p) { return p.flow.slot_bytes; });
}

}  // namespace pc
