// Shared memory as a buffer: symmetric arrays live in it.
#include "shm/memory.hpp"

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "core/error.hpp"
#include "shm/flag_latency.hpp"

namespace py = pybind11;

namespace pc {

void bind_memory(py::module_& module) {
  py::class_<Mapping>(module, "Mapping", py::buffer_protocol(),
                      "A piece of memory that other processes can map; a buffer of bytes.")
      .def_static("create", &Mapping::create, py::arg("nbytes"), py::arg("name"),
                  "New zeroed memory, allocated for real.")
      .def_static("attach", &Mapping::attach, py::arg("fd"), py::arg("nbytes"),
                  "The memory behind a peer's descriptor.")
      .def_property_readonly("fd", &Mapping::fd)
      .def_property_readonly("address",
                             [](const Mapping& m) { return reinterpret_cast<uintptr_t>(m.data()); })
      .def_property_readonly("nbytes", &Mapping::size)
      .def("close_fd", &Mapping::close_fd)
      .def_buffer([](Mapping& m) {
        return py::buffer_info(reinterpret_cast<unsigned char*>(m.data()),
                               static_cast<py::ssize_t>(m.size()));
      });
  module.def("available_memory", &available_memory,
             "Bytes that may still be allocated: free memory and the cgroup's limit.");
  module.def(
      "flag_latency",
      [](Mapping& memory, bool first, uint64_t after, uint64_t turns, double timeout) {
        if (memory.size() < kFlagBytes) throw Error(ErrorKind::invalid_argument, "the flags need 256 bytes");
        const ReleasedGil release;
        return flag_latency(memory.data(), first, after, turns, static_cast<uint64_t>(timeout * 1e9));
      },
      py::arg("memory"), py::arg("first"), py::arg("after"), py::arg("turns"), py::arg("timeout"),
      "Nanoseconds that a flag takes from one rank to the other, both calling at the same time; -1 after "
      "`timeout` seconds.");
}

}  // namespace pc
