// The reduction kernels on raw buffers, for tests and for Python's enumerations.
#include "core/reduce.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/gil.hpp"
#include "core/stream_copy.hpp"

namespace py = pybind11;

namespace pc {
namespace {

constexpr size_t most_sources = 1024;

// A contiguous buffer, held while the kernel runs.
class Buffer {
 public:
  Buffer(py::handle object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
      throw py::error_already_set();
    }
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }

  char* data() const { return static_cast<char*>(view_.buf); }
  size_t size() const { return static_cast<size_t>(view_.len); }

 private:
  Py_buffer view_;
};

struct Operand {
  char* data;
  size_t bytes;

  bool disjoint(const Operand& other) const {
    return data + bytes <= other.data || other.data + other.bytes <= data;
  }
};

int checked(int value, int count, const char* what) {
  if (value < 0 || value >= count) {
    throw std::invalid_argument(std::string(what) + " must be in [0, " + std::to_string(count) + "), got " +
                                std::to_string(value));
  }
  return value;
}

std::vector<Operand> operands(const std::vector<Buffer>& buffers, const std::vector<bool>& wide, DType dtype,
                              size_t count, const char* what) {
  std::vector<Operand> result;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const size_t item = item_size(wide[i] ? accumulation(dtype) : dtype);
    if (count > buffers[i].size() / item) {
      throw std::invalid_argument(std::string(what) + " " + std::to_string(i) + " holds " +
                                  std::to_string(buffers[i].size()) + " bytes, too few for " +
                                  std::to_string(count) + " elements of " + std::to_string(item));
    }
    result.push_back({buffers[i].data(), count * item});
  }
  return result;
}

void check_overlap(const std::vector<Operand>& sources, const std::vector<Operand>& sinks) {
  for (const Operand& sink : sinks) {
    for (const Operand& source : sources) {
      const bool same = sink.data == source.data && sink.bytes == source.bytes;
      if (!same && !sink.disjoint(source))
        throw std::invalid_argument("a sink overlaps a source only in part");
    }
  }
  if (sinks.size() == 2 && !sinks[0].disjoint(sinks[1])) throw std::invalid_argument("the sinks overlap");
}

std::vector<Buffer> hold(const py::list& objects, bool writable) {
  std::vector<Buffer> buffers;
  buffers.reserve(objects.size());
  for (const py::handle object : objects) buffers.emplace_back(object, writable);
  return buffers;
}

void reduce(int dtype_code, int op_code, const py::list& source_buffers, const py::list& sink_buffers,
            const std::vector<bool>& source_wide, const std::vector<bool>& sink_wide, size_t count,
            int epilogue_kind, double factor, const std::string& simd, bool far, bool stream) {
  const auto dtype = static_cast<DType>(checked(dtype_code, dtype_count, "dtype"));
  const auto op = static_cast<ReduceOp>(checked(op_code, reduce_op_count, "op"));
  const auto kind = static_cast<Epilogue::Kind>(checked(epilogue_kind, epilogue_kind_count, "epilogue_kind"));
  if (source_wide.size() != source_buffers.size() || sink_wide.size() != sink_buffers.size()) {
    throw std::invalid_argument("source_wide and sink_wide need one entry per buffer");
  }
  if (source_buffers.empty() || source_buffers.size() > most_sources) {
    throw std::invalid_argument("reduce takes 1 to 1024 sources, got " +
                                std::to_string(source_buffers.size()));
  }
  if (sink_buffers.empty() || sink_buffers.size() > 2) {
    throw std::invalid_argument("reduce takes 1 or 2 sinks, got " + std::to_string(sink_buffers.size()));
  }
  if (kind == Epilogue::divide && is_integer(dtype) && !(factor >= 1.0 && factor < 0x1p63)) {
    throw std::invalid_argument("integers are divided by a whole number >= 1, got " + std::to_string(factor));
  }
  if (!supports(dtype, op, kind)) {
    PyErr_Format(PyExc_NotImplementedError, "%s of %s with epilogue %d is not supported", name(op),
                 name(dtype), kind);
    throw py::error_already_set();
  }
  const Kernel kernel = simd.empty() ? find_kernel(dtype, op) : find_kernel(dtype, op, simd);
  if (kernel == nullptr) throw std::invalid_argument("simd '" + simd + "' is not available here");

  const std::vector<Buffer> held_sources = hold(source_buffers, false), held_sinks = hold(sink_buffers, true);
  const auto from = operands(held_sources, source_wide, dtype, count, "source");
  const auto to = operands(held_sinks, sink_wide, dtype, count, "sink");
  check_overlap(from, to);
  std::vector<Source> sources;
  std::vector<Sink> sinks;
  for (size_t i = 0; i < from.size(); ++i) sources.push_back({from[i].data, source_wide[i], far});
  for (size_t i = 0; i < to.size(); ++i) sinks.push_back({to[i].data, sink_wide[i], stream});

  for (const Sink& sink : sinks)
    if (stream && reinterpret_cast<uintptr_t>(sink.data) % 64)
      throw std::invalid_argument("a sink that is streamed begins at a line");

  const ReleasedGil released;
  kernel(sources.data(), static_cast<int>(sources.size()), sinks.data(), static_cast<int>(sinks.size()),
         count, Epilogue{kind, factor});
  if (stream) stream_fence();
}

}  // namespace

void bind_reduce(py::module_& module) {
  py::list dtypes, ops, simd;
  for (int i = 0; i < dtype_count; ++i) dtypes.append(name(static_cast<DType>(i)));
  for (int i = 0; i < reduce_op_count; ++i) ops.append(name(static_cast<ReduceOp>(i)));
  for (const char* set : available_simd()) simd.append(set);
  module.attr("DTYPES") = py::tuple(dtypes);
  module.attr("OPS") = py::tuple(ops);
  module.attr("EPILOGUES") = py::make_tuple("none", "divide", "scale");
  module.attr("SIMD") = py::tuple(simd);

  module.def("simd_name", &simd_name, "The instruction set that the reductions use.");
  module.def(
      "supports",
      [](int dtype, int op, int epilogue_kind) {
        return supports(
            static_cast<DType>(checked(dtype, dtype_count, "dtype")),
            static_cast<ReduceOp>(checked(op, reduce_op_count, "op")),
            static_cast<Epilogue::Kind>(checked(epilogue_kind, epilogue_kind_count, "epilogue_kind")));
      },
      py::arg("dtype"), py::arg("op"), py::arg("epilogue_kind") = 0,
      "Whether this dtype can be reduced by this op with this epilogue (indices into DTYPES, OPS, "
      "EPILOGUES).");
  module.def("reduce", &reduce, py::arg("dtype"), py::arg("op"), py::arg("sources"), py::arg("sinks"),
             py::arg("source_wide"), py::arg("sink_wide"), py::arg("count"), py::arg("epilogue_kind") = 0,
             py::arg("factor") = 1.0, py::arg("simd") = "", py::arg("far") = false, py::arg("stream") = false,
             "Fold the sources from left to right, element by element, into one or two sinks.\n\n"
             "Buffers are contiguous bytes of `count` elements, of the dtype or, where wide, of its "
             "accumulation type. "
             "With `far` the sources are read as from another core's cache, with `stream` the sinks are "
             "written past the "
             "caches where the kernel does so by itself.\n"
             "Raises ValueError for bad arguments and NotImplementedError for an unsupported combination.");
}

}  // namespace pc
