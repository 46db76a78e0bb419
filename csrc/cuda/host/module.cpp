// The extension `_cuda`, and `_cuda_emulated`: the same sources on the emulated device.
#include "cuda/host/module.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "cuda/host/links.hpp"
#include "cuda/host/loading.hpp"
#include "cuda/host/rank.hpp"

namespace py = pybind11;

namespace pc::cuda {
namespace {

std::unique_ptr<Rank, WithoutGil> make_rank(const std::string& name, int rank, uint32_t size, int device,
                                            uint32_t blocks, uint32_t depth,
                                            const std::array<uint32_t, kProtocols>& slot_bytes,
                                            uint32_t number_bits, uint64_t staging_bytes, bool fused,
                                            bool stages_host) {
  SegmentOptions options{size, blocks, depth, {}, number_bits, staging_bytes};
  std::copy(slot_bytes.begin(), slot_bytes.end(), options.slot_bytes);
  const ReleasedGil
      release;  // not for all of the constructor: pybind11 enters what is made here in tables of its own
  return std::unique_ptr<Rank, WithoutGil>(new Rank(name, rank, device, options, fused, stages_host));
}

void require(const CallOptions& options) {
  if (!supports(options.dtype, options.op, options.epilogue.kind))
    throw Error(ErrorKind::unsupported, std::string(name(options.dtype)) + " has no " + name(options.op));
  if (options.threads == 0 || options.threads % 32 || options.threads > kThreads)
    throw Error(ErrorKind::invalid_argument, "a block has 32 to 512 threads, in warps of 32");
}

std::shared_ptr<PreparedCall> prepare(Rank& self, std::shared_ptr<Plan> plan,
                                      const std::vector<uint64_t>& blocks, const std::vector<uint64_t>& sent,
                                      const std::vector<uint64_t>& taken,
                                      std::pair<uint32_t, uint32_t> held_in,
                                      std::pair<uint32_t, uint32_t> held_out, int protocol, int dtype, int op,
                                      bool moves, bool wide, bool any, bool hand, int epilogue, double factor,
                                      uint64_t fingerprint, uint32_t threads, uint32_t lanes,
                                      uint32_t least_slice, std::shared_ptr<UserKernels> user) {
  const CallOptions options{static_cast<Protocol>(protocol),
                            static_cast<DType>(dtype),
                            static_cast<ReduceOp>(op),
                            moves,
                            wide,
                            any,
                            hand,
                            {static_cast<Epilogue::Kind>(epilogue), factor},
                            fingerprint,
                            threads,
                            lanes,
                            least_slice,
                            std::move(user)};
  require(options);
  if (hand && (options.dtype != DType::float32 || options.op != ReduceOp::sum ||
               options.protocol != Protocol::simple || options.epilogue.kind || plan->channels.size() > 1))
    throw Error(ErrorKind::unsupported, "the hand-written ring adds float32 by protocol simple");
  return self.prepare(std::move(plan), {blocks, sent, taken, held_in, held_out}, options);
}

std::shared_ptr<PreparedDirect> prepare_direct(Rank& self, int algorithm, uint64_t count, uint32_t root,
                                               int dtype, int op, bool moves, bool any, int epilogue,
                                               double factor, uint64_t fingerprint, uint32_t threads,
                                               uint32_t blocks, uint32_t least_slice, bool always_stage,
                                               bool any_order, std::shared_ptr<UserKernels> user) {
  CallOptions options{};
  options.dtype = static_cast<DType>(dtype);
  options.op = static_cast<ReduceOp>(op);
  options.moves = moves;
  options.any = any;
  options.epilogue = {static_cast<Epilogue::Kind>(epilogue), factor};
  options.fingerprint = fingerprint;
  options.threads = threads;
  options.least_slice = least_slice;
  options.user = std::move(user);
  require(options);
  return self.prepare_direct({static_cast<Direct>(algorithm), count, root, blocks}, options, always_stage,
                             any_order);
}

cudaStream_t stream_of(uintptr_t handle) { return reinterpret_cast<cudaStream_t>(handle); }

uint32_t add_region(Rank& self, std::shared_ptr<SymmetricMemory> own, const std::vector<py::bytes>& exported,
                    const std::vector<int>& descriptors) {
  std::vector<std::string> texts;
  for (const py::bytes& one : exported) {
    std::string text = one;
    texts.push_back(std::move(text));
  }
  const ReleasedGil release;
  return self.regions().add(std::move(own), texts, descriptors);
}

template <class Prepared>
void launch(Rank& self, const Prepared& call, uintptr_t in, uintptr_t out, uintptr_t stream) {
  const ReleasedGil release;
  self.launch(call, reinterpret_cast<const void*>(in), reinterpret_cast<void*>(out), stream_of(stream));
}

template <class Prepared>
void launch_staged(Rank& self, const Prepared& call, uintptr_t in, uintptr_t out) {
  const ReleasedGil release;
  self.launch_staged(call, reinterpret_cast<const void*>(in), reinterpret_cast<void*>(out));
}

// The types are local to the module: _cuda and _cuda_emulated may be loaded by one process.
void bind(py::module_& module) {
  module.attr("PROTOCOLS") = std::vector<std::string>(kProtocolNames, kProtocolNames + kProtocols);
  py::class_<PreparedCall, std::shared_ptr<PreparedCall>>(
      module, "Call", py::module_local(), "A plan with the sizes and types of one kind of call.")
      .def_property_readonly("in_bytes", [](const PreparedCall& call) { return call.layout.in_bytes; })
      .def_property_readonly("out_bytes", [](const PreparedCall& call) { return call.layout.out_bytes; })
      .def_property_readonly("kernel", [](const PreparedCall& call) { return call.kernel.name; })
      .def_property_readonly("slices", [](const PreparedCall& call) { return call.layout.slices; })
      .def_property_readonly(
          "blocks", [](const PreparedCall& call) { return call.layout.nchannels * call.layout.lanes; });
  py::class_<PreparedDirect, std::shared_ptr<PreparedDirect>>(module, "DirectCall", py::module_local(),
                                                              "A collective by a native kernel.")
      .def_property_readonly("in_bytes", [](const PreparedDirect& call) { return call.layout.in_bytes; })
      .def_property_readonly("out_bytes", [](const PreparedDirect& call) { return call.layout.out_bytes; })
      .def_property_readonly("kernel", [](const PreparedDirect& call) { return call.kernel.name; })
      .def_property_readonly("rounds", [](const PreparedDirect& call) { return call.layout.call.rounds; })
      .def_property_readonly("blocks", [](const PreparedDirect& call) { return call.layout.blocks; });
  bind_copies(module);
  bind_regions(module);
  py::class_<UserItem>(module, "UserItem", py::module_local(),
                       "What an operator of the caller's combines, and how it lies in vectors of 16 bytes.")
      .def(py::init<uint32_t, uint32_t>(), py::arg("bytes"), py::arg("accumulated"))
      .def("form", &UserItem::form, py::arg("dtype"), "The name of the kernels that work on it.")
      .def_readonly("group", &UserItem::group)
      .def_readonly("vectors", &UserItem::vectors)
      .def_property_readonly("in_one_vector", &UserItem::in_one_vector);
  py::class_<UserKernels, std::shared_ptr<UserKernels>>(module, "UserKernels", py::module_local(),
                                                        "Kernels with an operator of the caller's.")
      .def_property_readonly("item", [](const UserKernels& self) { return self.item(); });
  module.def("capability", &capability, py::arg("device"), "The compute capability of a device, as in 90.");
  module.def("capacity", &capacity, py::arg("device"), py::arg("threads"), py::arg("size"),
             py::arg("fused") = false, py::call_guard<ReleasedGil>(),
             "Blocks of so many threads that a device can hold at once, of a communicator of `size` ranks; "
             "`fused`: of the kernels "
             "for several ranks in one grid. Loads them.");
  module.def("streams", &streams_in_use, py::call_guard<ReleasedGil>(),
             "Of the ranks of this process, without those of the callers.");
  module.def("has_multicast", [](int device) {
    require_driver();
    return has_multicast(device);
  });
  module.def("link_between", [](int device, int peer) {
    return kLinkNames[static_cast<uint32_t>(link_between(device, peer))];
  });
  module.def("keeps_lines_whole", [](uint32_t capability, const std::string& link) {
    const auto* found = std::find(std::begin(kLinkNames), std::end(kLinkNames), link);
    if (found == std::end(kLinkNames)) throw Error(ErrorKind::invalid_argument, "unknown link " + link);
    return keeps_lines_whole(capability, static_cast<Link>(found - std::begin(kLinkNames)));
  });
  module.def("current_device", [] {
    require_driver();
    int device = 0;
    check(cudaGetDevice(&device), "asking for the current device");
    return device;
  });
  module.def("device_count", [] {
    require_driver();
    int count = 0;
    check(cudaGetDeviceCount(&count), "asking for devices");
    return count;
  });
  module.def("use_device", [](int device) { check(cudaSetDevice(device), "choosing the device"); });
  module.def("bus_id", [](int device) {
    require_driver();
    char text[64];
    check(cudaDeviceGetPCIBusId(text, sizeof text, device), "asking for the device");
    return std::string(text);
  });
  module.def("synchronize", [](uintptr_t stream) {
    const ReleasedGil release;
    check(cudaStreamSynchronize(stream_of(stream)), "waiting for a stream");
  });
  py::class_<Rank, std::unique_ptr<Rank, WithoutGil>>(
      module, "Rank", py::module_local(),
      "One rank's end of a device communicator (csrc/cuda/host/rank.hpp).")
      .def(py::init(&make_rank), py::kw_only(), py::arg("name"), py::arg("rank"), py::arg("size"),
           py::arg("device"), py::arg("blocks"), py::arg("depth"), py::arg("slot_bytes"),
           py::arg("number_bits"), py::arg("staging_bytes"), py::arg("fused"), py::arg("stages_host"))
      .def("handle",
           [](const Rank& self) {
             std::string handle;
             {
               const ReleasedGil release;
               handle = self.handle();
             }
             return py::bytes(handle);
           })
      .def(
          "attach",
          [](Rank& self, int peer, const std::string& handle) {
            const ReleasedGil release;
            self.attach(peer, handle);
          },
          py::arg("peer"), py::arg("handle"))
      .def("open", &Rank::open, py::call_guard<ReleasedGil>())
      .def("make_multicast", &Rank::make_multicast, py::arg("nbytes"), py::call_guard<ReleasedGil>())
      .def("join_multicast", &Rank::join_multicast, py::arg("descriptor"), py::arg("nbytes"),
           py::call_guard<ReleasedGil>())
      .def("bind_multicast", &Rank::bind_multicast, py::call_guard<ReleasedGil>())
      .def("take_multicast", &Rank::take_multicast)
      .def("use_multicast", &Rank::use_multicast, py::arg("memory"))
      .def_property_readonly("multicast_bytes", &Rank::multicast_bytes)
      .def("prepare", &prepare, py::kw_only(), py::arg("plan"), py::arg("blocks"), py::arg("sent"),
           py::arg("taken"), py::arg("held_in"), py::arg("held_out"), py::arg("protocol"), py::arg("dtype"),
           py::arg("op"), py::arg("moves"), py::arg("wide"), py::arg("any"), py::arg("hand"),
           py::arg("epilogue"), py::arg("factor"), py::arg("fingerprint"), py::arg("threads"),
           py::arg("lanes"), py::arg("least_slice"), py::arg("user"), py::call_guard<ReleasedGil>())
      .def("prepare_direct", &prepare_direct, py::kw_only(), py::arg("algorithm"), py::arg("count"),
           py::arg("root"), py::arg("dtype"), py::arg("op"), py::arg("moves"), py::arg("any"),
           py::arg("epilogue"), py::arg("factor"), py::arg("fingerprint"), py::arg("threads"),
           py::arg("blocks"), py::arg("least_slice"), py::arg("always_stage"), py::arg("any_order"),
           py::arg("user"), py::call_guard<ReleasedGil>())
      .def(
          "load",
          [](const Rank& self, const std::string& image, const std::string& form, const UserItem& item,
             uint32_t threads) {
            const ReleasedGil release;
            return std::const_pointer_cast<UserKernels>(self.load(image, form, item, threads));
          },
          py::arg("image"), py::arg("form"), py::arg("item"), py::arg("threads"))
      .def("drain", &Rank::drain, py::call_guard<ReleasedGil>())
      .def("launch", &launch<PreparedCall>, py::arg("call"), py::arg("source"), py::arg("target"),
           py::arg("stream") = 0)
      .def("launch", &launch<PreparedDirect>, py::arg("call"), py::arg("source"), py::arg("target"),
           py::arg("stream") = 0)
      .def("launch_staged", &launch_staged<PreparedCall>, py::arg("call"), py::arg("source"),
           py::arg("target"))
      .def("launch_staged", &launch_staged<PreparedDirect>, py::arg("call"), py::arg("source"),
           py::arg("target"))
      .def_property_readonly("handed_in", &Rank::handed_in)
      .def("settle", &Rank::settle, py::arg("call"), py::arg("seconds"), py::call_guard<ReleasedGil>())
      .def("synchronize", &Rank::synchronize, py::call_guard<ReleasedGil>())
      .def(
          "follow", [](Rank& self, uintptr_t stream) { self.follow(stream_of(stream)); },
          py::call_guard<ReleasedGil>())
      .def("mark", &Rank::mark, py::call_guard<ReleasedGil>())
      .def("check", &Rank::check_calls)
      .def_property_readonly("busy",
                             [](const Rank& self) {
                               const ReleasedGil release;
                               return self.busy();
                             })
      .def("add_region", &add_region, py::arg("own"), py::arg("exported"), py::arg("descriptors"))
      .def("finds",
           [](const Rank& self, uintptr_t memory, uint64_t bytes) {
             return self.regions().place_of(reinterpret_cast<const void*>(memory), bytes) != 0;
           })
      .def("on_switch",
           [](const Rank& self, uintptr_t memory, uint64_t bytes) {
             return self.regions().everywhere(reinterpret_cast<const void*>(memory), bytes) != nullptr;
           })
      .def(
          "remove_region", [](Rank& self, uint32_t number) { self.regions().remove(number); },
          py::arg("number"), py::call_guard<ReleasedGil>())
      .def_property_readonly("device", &Rank::device)
      .def_property_readonly("stream",
                             [](const Rank& self) { return reinterpret_cast<uintptr_t>(self.stream()); })
      .def_property_readonly("keeps_lines_whole", &Rank::keeps_lines_whole)
      .def("abort", &Rank::abort, py::arg("lost") = -1, py::call_guard<ReleasedGil>());
}

}  // namespace
}  // namespace pc::cuda

#ifdef PC_EMULATED
#include "cuda/kernels/protocols.cuh"

PYBIND11_MODULE(_cuda_emulated, module) {
  module.doc() = "The CUDA kernels of pycollectives on an emulated device.";
  pc::bind_errors(module);
  pc::cuda::bind(module);
  module.attr("MUTANTS") =
      std::vector<std::string>(std::begin(pc::cuda::kMutantNames), std::end(pc::cuda::kMutantNames));
  module.def("set_mutant", &pc::emulation::set_mutant);
  module.def(
      "malloc",
      [](size_t bytes) {
        void* memory;
        pc::cuda::check(cudaMalloc(&memory, bytes), "allocating device memory");
        return reinterpret_cast<uintptr_t>(memory);
      },
      py::call_guard<pc::ReleasedGil>());
  module.def(
      "free",
      [](uintptr_t memory) {
        pc::cuda::check(cudaFree(reinterpret_cast<void*>(memory)), "freeing device memory");
      },
      py::call_guard<pc::ReleasedGil>());
  module.def("unload", &pc::emulation::unload);
  pc::emulation::ask_for_lock([] { return PyGILState_Check() != 0; });
  module.def(
      "configure",
      [](uint64_t seed, uint64_t patience, bool starve, unsigned processors, unsigned resident_threads,
         bool shared, int hidden) {
        pc::emulation::set_options({seed, patience, starve, processors, resident_threads});
        pc::emulation::share_memory(shared);
        pc::emulation::hide_devices(hidden);
      },
      py::kw_only(), py::arg("seed"), py::arg("patience") = 400000, py::arg("starve") = true,
      py::arg("processors") = 132, py::arg("resident_threads") = 512, py::arg("shared") = false,
      py::arg("hidden") = 0);
  module.def("make_stream", [] {
    cudaStream_t stream;
    pc::cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    return reinterpret_cast<uintptr_t>(stream);
  });
  module.def("destroy_stream", [](uintptr_t stream) {
    pc::cuda::check(cudaStreamDestroy(reinterpret_cast<cudaStream_t>(stream)), "destroying a stream");
  });
  module.def("begin_capture",
             [](uintptr_t stream) { pc::emulation::begin_capture(reinterpret_cast<cudaStream_t>(stream)); });
  module.def("end_capture", [](uintptr_t captured) {
    const auto replay = pc::emulation::end_capture(reinterpret_cast<cudaStream_t>(captured));
    return py::cpp_function([replay](uintptr_t stream) { replay(reinterpret_cast<cudaStream_t>(stream)); });
  });
  module.def("copy", [](uintptr_t stream, uintptr_t to, uintptr_t from, size_t bytes) {
    pc::cuda::check(cudaMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes,
                                    cudaMemcpyDefault, reinterpret_cast<cudaStream_t>(stream)),
                    "copying");
  });
  module.def("statistics", [] {
    const auto found = pc::emulation::statistics();
    return std::tuple(found.switches, found.scope_errors, found.torn, found.starved);
  });
}
#else
PYBIND11_MODULE(_cuda, module) {
  module.doc() = "The CUDA kernels of pycollectives, and the memory that they work on.";
  pc::bind_errors(module);
  pc::cuda::bind(module);
  module.def("user_image", [] {
    const std::string_view image = pc::cuda::user_image();
    return py::bytes(image.data(), image.size());
  });
}
#endif
