// Events and copies for Python (device/staging.py).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/gil.hpp"
#include "cuda/host/copies.hpp"
#include "cuda/host/module.hpp"
#include "cuda/host/on_device.hpp"

namespace py = pybind11;

namespace pc::cuda {
namespace {

cudaStream_t stream_of(uintptr_t handle) { return reinterpret_cast<cudaStream_t>(handle); }

}  // namespace

void bind_copies(py::module_& module) {
  py::class_<Event, std::shared_ptr<Event>>(module, "Event", py::module_local(),
                                            "When what has been queued on a stream so far is over.")
      .def_property_readonly("done", &Event::done)
      .def(
          "hold",
          [](Event& self, uintptr_t stream) {
            const On on(self.device());
            self.hold(stream_of(stream));
          },
          py::arg("stream"), "A stream of the same device waits for it.")
      .def(
          "wait_for",
          [](const Event& self, double seconds) {
            const ReleasedGil release;
            return self.wait_for(std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9)));
          },
          py::arg("seconds"), "The host waits; False if it is not over then.");
  module.def(
      "record", [](int device, uintptr_t stream) { return record_on(device, stream_of(stream)); },
      py::arg("device"), py::arg("stream"), "Where a stream of `device` stands.");
  module.def(
      "copy_on",
      [](uintptr_t stream, const std::vector<Copy>& copies) {
        const ReleasedGil release;
        copy_on(stream_of(stream), copies);
      },
      py::arg("stream"), py::arg("copies"),
      "Copies inside device memory, in the order of a stream: (target, source, bytes) each.");
  py::enum_<Way>(module, "Way", py::module_local())
      .value("TO_HOST", Way::to_host)
      .value("TO_DEVICE", Way::to_device);
  py::class_<Copies, std::unique_ptr<Copies, WithoutGil>>(
      module, "Copies", py::module_local(),
      "Copies between device memory and pinned host memory (csrc/cuda/host/copies.hpp).")
      .def(py::init<int>(), py::arg("device"))
      .def(
          "buffer",
          [](Copies& self, uint32_t which, size_t bytes) {
            const ReleasedGil release;
            return reinterpret_cast<uintptr_t>(self.buffer(which, bytes));
          },
          py::arg("which"), py::arg("nbytes"))
      .def(
          "scratch",
          [](Copies& self, uint32_t which, size_t bytes) {
            const ReleasedGil release;
            return reinterpret_cast<uintptr_t>(self.scratch(which, bytes));
          },
          py::arg("which"), py::arg("nbytes"))
      .def("follow", &Copies::follow)
      .def("copy", &Copies::copy, py::call_guard<ReleasedGil>(), py::arg("way"), py::arg("copies"));
}

}  // namespace pc::cuda
