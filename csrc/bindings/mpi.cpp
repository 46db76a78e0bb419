// The way to other hosts: the MPI library, the mirrors of remote ranks, and what measures both.
#include <dlfcn.h>
#include <pybind11/stl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "bindings/handle.hpp"
#include "mpi/direct_exchange.hpp"
#include "mpi/library.hpp"
#include "mpi/mirror.hpp"
#include "mpi/ping.hpp"

namespace py = pybind11;

namespace pc {
namespace {

using LibraryPtr = std::shared_ptr<mpi::Library>;

void connect(Handle& core, const LibraryPtr& library, uint64_t comm, const std::vector<int>& world,
             int first_tag, size_t message_bytes) {
  core.group().connect(
      std::make_unique<Mirror>(core.group(), library, comm, world, first_tag, message_bytes));
}

// MPI's end waits for all ranks, also for those that are no more.
//
// Where this package has initialised MPI it ends it, too: mpi4py is told not to (rc.finalize), and keeps its own work at the end,
// which comes before. A process that has lost a rank then ends with the exit code of its program.
struct {
  int (*initialized)(int*);
  int (*finalized)(int*);
  int (*finalize)();
} mpi_end{};

void end_mpi() {
  if (!mpi_end.finalize) return;
  if (Group::lost_anybody()) {  // nothing of the library's at exit() may wait, either
    on_exit(
        [](int code, void*) {
          std::fflush(nullptr);
          _exit(code);
        },
        nullptr);
    return;
  }
  int begun = 0, over = 0;
  if (!mpi_end.initialized(&begun) && begun && !mpi_end.finalized(&over) && !over) mpi_end.finalize();
}

void reserve_end() {
  static const int registered = Py_AtExit(&end_mpi);  // the first one that was registered comes last
  static_cast<void>(registered);
}

void own_end(const std::string& extension) {
  void* library = dlopen(extension.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!library) throw Error(ErrorKind::transport, "mpi4py is not loaded: " + extension);
  mpi_end.initialized = reinterpret_cast<int (*)(int*)>(dlsym(library, "MPI_Initialized"));
  mpi_end.finalized = reinterpret_cast<int (*)(int*)>(dlsym(library, "MPI_Finalized"));
  mpi_end.finalize = reinterpret_cast<int (*)()>(dlsym(library, "MPI_Finalize"));
  dlclose(library);  // mpi4py keeps it
}

// Where somebody else has initialised MPI, mpi4py ends it, and the program's exit code is not known here.
void end_if_lost() {
  if (mpi_end.finalize || !Group::lost_anybody()) return;
  std::fflush(nullptr);
  _exit(1);
}

LibraryPtr load(std::string extension, size_t handle_bytes, uint64_t byte_type) {
  static const int registered = Py_AtExit(&end_if_lost);  // the last one that was registered comes first
  static_cast<void>(registered);
  return std::make_shared<mpi::Library>(mpi::Identity{std::move(extension), handle_bytes, byte_type});
}

}  // namespace

void bind_mpi(py::module_& module) {
  module.attr("MPI_TAGS") = Mirror::kTags;
  py::class_<mpi::Library, LibraryPtr>(module, "MpiLibrary",
                                       "The MPI library that mpi4py has loaded; all arguments come from it.")
      .def(py::init(&load), py::kw_only(), py::arg("extension"), py::arg("handle_bytes"),
           py::arg("byte_type"))
      .def_property_readonly("path", &mpi::Library::path)
      .def_property_readonly("cuda_query", &mpi::Library::cuda_query)
      .def_property_readonly("gpu_query", &mpi::Library::gpu_query)
      .def("round_trips", &mpi::round_trips, py::call_guard<ReleasedGil>(), py::arg("comm"), py::arg("rank"),
           py::arg("peer"), py::arg("tag"), py::arg("nbytes"), py::arg("turns"),
           "Seconds that `turns` messages to `peer` and back take by MPI_Isend, MPI_Irecv and MPI_Test "
           "alone.");
  module.def("reserve_end_of_mpi", &reserve_end, "To be called before mpi4py.MPI is imported.");
  module.def("own_end_of_mpi", &own_end, py::arg("extension"),
             "This package ends MPI at the end of the process; `extension`: the file of mpi4py.MPI.");
  module.def("connect", &connect, py::call_guard<ReleasedGil>(), py::arg("core"), py::arg("library"),
             py::arg("comm"), py::arg("world"), py::arg("first_tag"), py::arg("message_bytes"),
             py::keep_alive<1, 2>(),
             "Connects a communicator to its ranks on other hosts (attach_remote names them).");
  module.def("attach_remote",
             [](Handle& core, int peer, int lifeline) { core.group().attach_remote(peer, lifeline); });
  using Messages = std::vector<std::tuple<int, uint64_t, uint64_t>>;
  const auto messages = [](const Messages& rows) {
    std::vector<DirectExchange::Message> made;
    for (const auto& [peer, address, bytes] : rows) made.push_back({peer, address, bytes});
    return made;
  };
  py::class_<DirectExchange>(module, "DirectExchange",
                             "Messages by MPI from and to device memory: (rank, address, bytes) each.")
      .def(py::init([](Handle& core, const LibraryPtr& library, uint64_t comm, std::vector<int> world,
                       int first_tag) {
             return std::make_unique<DirectExchange>(core.group(), library, comm, std::move(world),
                                                     first_tag + Mirror::kDirectTag);
           }),
           py::keep_alive<1, 2>())
      .def("start",
           [messages](DirectExchange& self, const Messages& receives, const Messages& sends) {
             const auto in = messages(receives), out = messages(sends);
             const ReleasedGil release;
             self.start(in, out);
           })
      .def("wait",
           [](DirectExchange& self, double seconds) {
             const ReleasedGil release;
             return self.wait(nanoseconds(seconds));
           })
      .def("give_up", &DirectExchange::give_up, py::call_guard<ReleasedGil>());
  py::class_<MirrorPing>(module, "MirrorPing",
                         "Messages to a rank on another host and back, as collectives send them.")
      .def(py::init([](Handle& core, int peer) { return std::make_unique<MirrorPing>(core.group(), peer); }),
           py::keep_alive<1, 2>())
      .def("round_trips", &MirrorPing::round_trips, py::call_guard<ReleasedGil>(), py::arg("nbytes"),
           py::arg("turns"), py::arg("timeout"), "Seconds that they take.");
}

}  // namespace pc
