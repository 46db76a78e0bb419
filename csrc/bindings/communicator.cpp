// The communicator's native end. Addresses and sizes have been checked by the caller
// (pycollectives/caller.py).
#include "shm/communicator.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "bindings/handle.hpp"
#include "core/verbs.hpp"
#include "shm/reference_ring.hpp"

namespace py = pybind11;

namespace pc {
namespace {

// Runs pending signal handlers; true if one raised. The exception stays set in this thread.
bool interrupted() {
  const HeldGil gil;
  return PyErr_CheckSignals() != 0;
}

// Through `logging`, which may raise. False then: the exception stays set in this thread.
bool warn(const std::string& text) {
  const HeldGil gil;
  try {
    py::module_::import("pycollectives.waiting").attr("warn")(text);
    return true;
  } catch (py::error_already_set& error) {
    error.restore();
    return false;
  }
}

const std::byte* constant(uintptr_t address) { return reinterpret_cast<const std::byte*>(address); }
std::byte* writable(uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

void run(Handle& self, const std::shared_ptr<Prepared>& prepared, uintptr_t in, uintptr_t out,
         double timeout) {
  const uint64_t site = self.sites.here();
  const Call call{prepared.get(), constant(in), writable(out), 0, nanoseconds(timeout), true, site, nullptr};
  const ReleasedGil release;
  self.run(call);
}

// The same call `times` in a row, to measure the executor without the interpreter.
void run_many(Handle& self, const std::shared_ptr<Prepared>& prepared, uintptr_t in, uintptr_t out,
              double timeout, uint32_t times) {
  const uint64_t site = self.sites.here();
  const Call call{prepared.get(), constant(in), writable(out), 0, nanoseconds(timeout), true, site, nullptr};
  const ReleasedGil release;
  for (uint32_t i = 0; i < times; ++i) self.run(call);
}

py::list trace(Handle& self, const std::shared_ptr<Prepared>& prepared, uintptr_t in, uintptr_t out,
               double timeout, uint8_t blank) {
  std::vector<TraceEvent> events;
  const Probe probe{&events, nullptr, std::byte{blank}};
  const uint64_t site = self.sites.here();
  const Call call{prepared.get(), constant(in), writable(out), 0, nanoseconds(timeout), true, site, &probe};
  {
    const ReleasedGil release;
    self.run(call);
  }
  py::list result;
  for (const TraceEvent& event : events)
    result.append(
        py::make_tuple(event.channel, event.slice, event.instruction, event.step, event.ns,
                       py::bytes(reinterpret_cast<const char*>(event.state.data()), event.state.size())));
  return result;
}

std::shared_ptr<Job> submit(Handle& self, const std::shared_ptr<Prepared>& prepared, uintptr_t in,
                            uintptr_t out, double timeout) {
  const uint64_t site = self.sites.here();
  auto job = std::make_shared<Job>();
  job->prepared = prepared;
  job->in = constant(in);
  job->out = writable(out);
  job->timeout_ns = nanoseconds(timeout);
  job->site = site;
  self.submit(job);
  return job;
}

// `function()` makes calls on this communicator when its turn has come, in whatever thread. What it raises is
// its own affair, but for KeyboardInterrupt, which ends the wait that executes it.
std::shared_ptr<Job> submit_task(Handle& self, const py::function& function, double timeout) {
  const uint64_t site = self.sites.here();
  const std::shared_ptr<PyObject> held(Py_NewRef(function.ptr()), [](PyObject* object) {
    const HeldGil gil;
    Py_DECREF(object);
  });
  auto job = std::make_shared<Job>();
  job->task = [held] {
    const HeldGil gil;
    if (PyObject* result = PyObject_CallNoArgs(held.get())) return Py_DECREF(result);
    if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) PyErr_Clear();
    throw Error(ErrorKind::interrupted, "interrupted");
  };
  job->timeout_ns = nanoseconds(timeout);
  job->site = site;
  self.submit(job);
  return job;
}

void wait(Handle& self, const std::shared_ptr<Job>& job, double timeout) {
  const ReleasedGil release;
  self.wait(job, nanoseconds(timeout), true);
}

// The flight recorder of one rank, oldest call first.
py::list records(Handle& self, int rank) {
  if (rank < 0 || rank >= self.group().size())
    throw Error(ErrorKind::invalid_argument, "no such rank: " + std::to_string(rank));
  return recorded_calls(self.group().recorder(rank));
}

std::pair<uint64_t, std::vector<int>> survivors(Handle& self, double timeout) {
  const ReleasedGil release;
  Survivors found = self.survivors(nanoseconds(timeout));
  return {found.attempt, std::move(found.ranks)};
}

void look(Handle& self) {
  const ReleasedGil release;
  try {
    self.group().progress_all();
  } catch (const Error&) {  // one that is lost: the others' mail comes with the next look
  }
}

// For tests: see shm/fault.hpp. `after`: instructions of this process until it happens.
void inject_fault(const std::string& action, uint64_t after, double seconds, uint64_t seed) {
  constexpr std::array actions = {"none", "kill", "stop", "raise", "interrupt", "delay", "jitter"};
  const auto found = std::find(actions.begin(), actions.end(), action);
  if (found == actions.end()) throw Error(ErrorKind::invalid_argument, "no such fault: " + action);
  Fault& fault = Executor::fault;
  fault.nanoseconds = nanoseconds(seconds);
  fault.random = seed;
  fault.left = after;
  fault.action = static_cast<Fault::Action>(found - actions.begin());
}

void add_region(Handle& self, uint32_t id, const std::vector<uintptr_t>& bases, size_t bytes) {
  Region region{id, {}, bytes};
  for (uintptr_t base : bases) region.base.push_back(writable(base));
  const ReleasedGil release;
  self.add_region(std::move(region));
}

}  // namespace

void bind_communicator(py::module_& module) {
  register_membarrier();
  ticks_to_ns(ticks());  // starts the comparison of the two clocks
  Executor::set_interrupt(&interrupted);
  module.def(
      "warn_after",
      [](double seconds) { Executor::set_warning(&warn, std::isfinite(seconds) ? nanoseconds(seconds) : 0); },
      "Warn of waits of so many seconds; 0: never.");
  module.def("inject_fault", &inject_fault, py::arg("action"), py::arg("after") = 1, py::arg("seconds") = 0.0,
             py::arg("seed") = 1);
  module.attr("VERBS") = std::vector<std::string>(kVerbs.begin(), kVerbs.end());
  module.attr("OP_NAMES") = std::vector<std::string>(kOpNames.begin(), kOpNames.end());

  py::class_<Job, std::shared_ptr<Job>>(module, "Job", "A call that was issued asynchronously.")
      .def_property_readonly("done", [](const Job& job) { return job.done.load(std::memory_order_acquire); });

  py::class_<Handle>(module, "Communicator", "One rank's end of a communicator over shared memory.")
      .def(py::init([](int rank, int size, size_t pool_bytes, uint32_t spins, uint32_t yields,
                       uint32_t nap_us, bool crowded, int stores, bool single_copy) {
             return std::make_unique<Handle>(rank, size, pool_bytes,
                                             Patience{spins, yields, register_membarrier(), nap_us, crowded},
                                             static_cast<Stores>(stores), single_copy);
           }),
           py::arg("rank"), py::arg("size"), py::arg("pool_bytes"), py::arg("spins"), py::arg("yields"),
           py::arg("nap_us"), py::arg("crowded") = false, py::arg("stores") = 0,
           py::arg("single_copy") = false)
      .def_property_readonly("fd", [](Handle& self) { return self.group().fd(); })
      .def_property_readonly("pool_bytes", &Communicator::pool_bytes)
      .def_property_readonly("whole_calls", &Communicator::whole_calls,
                             "Calls that were cut into whole blocks, for single copy.")
      .def("attach", [](Handle& self, int peer, int fd) { self.group().attach(peer, fd); })
      .def(
          "watch",
          [](Handle& self, int peer, int pidfd, int pid, const py::object&) {
            self.group().watch(peer, pidfd, pid);
          },
          py::arg("peer"), py::arg("pidfd"), py::arg("pid"), py::arg("owner"), py::keep_alive<1, 5>())
      .def("say", [](Handle& self, const std::string& text) { self.group().say(text, 0); })
      .def("state",
           [](Handle& self, int rank) {
             return recorded_state(self.group().control(rank), self.group().recorder(rank));
           })
      .def("check", &Communicator::check)
      .def("gone", [](Handle& self, int peer) { return self.group().gone(peer); })
      .def("died", [](Handle& self, int peer) { return self.group().died(peer); })
      .def("shrinking",
           [](Handle& self) {
             for (int peer = 0; peer < self.group().size(); ++peer)
               if (peer != self.group().rank() && shrinking(self.group(), peer)) return peer;
             return -1;
           })
      .def("survivors", &survivors, py::arg("timeout"))
      .def("begin_shrink", &Communicator::begin_shrink, py::call_guard<ReleasedGil>())
      .def(
          "end_shrink", [](Handle& self, uint64_t attempt) { end_shrink(self.group(), attempt); },
          py::arg("attempt"), py::call_guard<ReleasedGil>())
      .def(
          "note_absent", [](Handle& self, const std::vector<int>& ranks) { self.group().note_absent(ranks); },
          py::arg("ranks"))
      .def("look", &look, "Reads the mail from other hosts.")
      .def("open_door", [](Handle& self, uint64_t attempt,
                           const std::string& door) { open_door(self.group(), attempt, door); })
      .def("find_door",
           [](Handle& self, int rank, uint64_t attempt) { return find_door(self.group(), rank, attempt); })
      .def("close_fd", [](Handle& self) { self.group().close_fd(); })
      .def("run", &run, py::arg("prepared"), py::arg("input"), py::arg("output"), py::arg("timeout"))
      .def("run_many", &run_many, py::arg("prepared"), py::arg("input"), py::arg("output"),
           py::arg("timeout"), py::arg("times"))
      .def("trace", &trace, py::arg("prepared"), py::arg("input"), py::arg("output"), py::arg("timeout"),
           py::arg("blank"))
      .def("submit", &submit, py::arg("prepared"), py::arg("input"), py::arg("output"), py::arg("timeout"))
      .def("submit_task", &submit_task, py::arg("function"), py::arg("timeout"))
      .def("wait", &wait, py::arg("job"), py::arg("timeout"))
      .def("add_region", &add_region, py::arg("id"), py::arg("bases"), py::arg("nbytes"))
      .def("remove_region", &Communicator::remove_region, py::call_guard<ReleasedGil>())
      .def("records", &records, py::arg("rank"))
      .def_property("sequence", &Communicator::sequence,
                    [](Handle& self, uint64_t next) {
                      const ReleasedGil release;
                      self.set_sequence(next);
                    })
      .def("abort", &Communicator::abort, py::arg("interrupted") = false)
      .def("forget", &Handle::forget)
      .def("close", &Communicator::close, py::call_guard<ReleasedGil>());

  py::class_<ReferenceRing>(
      module, "ReferenceRing",
      "A hand-written ring all-reduce (float32 sum): the yardstick of bench/ring_gate.py.")
      .def(py::init([](Handle& core, uint32_t spins, uint32_t yields) {
             return std::make_unique<ReferenceRing>(core.group(),
                                                    Patience{spins, yields, register_membarrier()});
           }),
           py::keep_alive<1, 2>())
      .def("all_reduce", [](ReferenceRing& self, uintptr_t in, uintptr_t out, size_t count, uint32_t times) {
        const ReleasedGil release;
        for (uint32_t i = 0; i < times; ++i)
          self.all_reduce(reinterpret_cast<const float*>(in), reinterpret_cast<float*>(out), count);
      });
}

}  // namespace pc
