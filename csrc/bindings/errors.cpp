// pc::Error becomes the matching class of pycollectives.errors.
#include "bindings/bindings.hpp"
#include "core/error.hpp"
#include "core/verbs.hpp"

namespace py = pybind11;

namespace pc {
namespace {

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "InvalidArgumentError";
    case ErrorKind::unsupported:
      return "UnsupportedError";
    case ErrorKind::mismatch:
      return "MismatchError";
    case ErrorKind::bootstrap:
      return "BootstrapError";
    case ErrorKind::transport:
      return "TransportError";
    case ErrorKind::peer:
      return "PeerError";
    case ErrorKind::timeout:
      return "CollectiveTimeoutError";
    case ErrorKind::aborted:
      return "AbortedError";
    case ErrorKind::schedule:
      return "ScheduleError";
    case ErrorKind::interrupted:
      return "AbortedError";
    case ErrorKind::device:
      return "DeviceError";
  }
  return "CollectiveError";
}

// The program may want to know more than the exception says. Nothing but a signal handler's exception comes out of it.
void report_failure() {
  try {
    py::module_::import("pycollectives.waiting").attr("failed")();
  } catch (py::error_already_set& problem) {
    if (!problem.matches(PyExc_Exception)) throw;
    problem.discard_as_unraisable("pycollectives.waiting.failed");
  }
}

}  // namespace

void raise_error(const Error& error) try {
  if (PyErr_Occurred()) return;  // KeyboardInterrupt, set by the signal handler that ended the wait
  const py::object type = py::module_::import("pycollectives.errors").attr(class_name(error.kind()));
  py::dict attributes;
  if (error.peer() >= 0) attributes["peer"] = error.peer();
  if (error.rank >= 0) attributes["rank"] = error.rank;
  if (error.verb >= 0) attributes["collective"] = verb_name(static_cast<uint16_t>(error.verb));
  if (error.sequence) attributes["sequence"] = error.sequence;
  if (error.sequence) report_failure();
  const py::object made = type(error.what(), **attributes);
  PyErr_SetObject(type.ptr(), made.ptr());
} catch (py::error_already_set& instead) {
  instead.restore();  // a signal handler raised while the error was made
}

void bind_errors(py::module_&) {
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      raise_error(error);
    }
  });
}

}  // namespace pc
