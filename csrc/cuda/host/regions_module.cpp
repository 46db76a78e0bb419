// Symmetric device memory for Python (device/symmetric.py).
#include <pybind11/pybind11.h>

#include "bindings/gil.hpp"
#include "cuda/host/module.hpp"
#include "cuda/host/regions.hpp"

namespace py = pybind11;

namespace pc::cuda {

void bind_regions(py::module_& module) {
  py::class_<MulticastMemory, std::shared_ptr<MulticastMemory>>(
      module, "MulticastMemory", py::module_local(),
      "Device memory that is bound to a multicast object (csrc/cuda/host/multicast.hpp).")
      .def("descriptor", &MulticastMemory::descriptor, py::call_guard<ReleasedGil>());
  py::class_<SymmetricMemory, std::shared_ptr<SymmetricMemory>>(
      module, "SymmetricMemory", py::module_local(), "One rank's piece of symmetric device memory.")
      .def(py::init<int, size_t>(), py::arg("device"), py::arg("nbytes"), py::call_guard<ReleasedGil>())
      .def(py::init<int, std::shared_ptr<MulticastMemory>>(), py::arg("device"), py::arg("bound"))
      .def_property_readonly(
          "address", [](const SymmetricMemory& self) { return reinterpret_cast<uintptr_t>(self.data()); })
      .def("exported", [](const SymmetricMemory& self) { return py::bytes(self.exported()); });
}

}  // namespace pc::cuda
