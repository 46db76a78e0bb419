// The flight recorder for Python.
#include "shm/recorder.hpp"

#include <cstring>

#include "bindings/bindings.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "core/verbs.hpp"
#include "shm/layout.hpp"
#include "shm/memory.hpp"
#include "shm/wait.hpp"

namespace py = pybind11;

namespace pc {
namespace {

const char* state_name(CallState state) {
  switch (state) {
    case CallState::none:
      return "none";
    case CallState::running:
      return "running";
    case CallState::done:
      return "done";
    case CallState::failed:
      return "failed";
  }
  return "?";
}

// The segment of a rank, mapped by another process, maybe after its death.
py::dict read_segment(const Mapping& segment) {
  if (segment.size() < kSegmentHead) throw Error(ErrorKind::invalid_argument, "not a segment");
  const Layout layout(1, 0);
  return recorded_state(*reinterpret_cast<const Control*>(segment.data() + layout.control),
                        *reinterpret_cast<const Recorder*>(segment.data() + layout.recorder));
}

}  // namespace

py::dict recorded_state(const Control& control, const Recorder& recorder) {
  py::dict entry;
  entry["rank"] = control.rank.load(std::memory_order_relaxed);
  entry["size"] = control.size.load(std::memory_order_relaxed);
  entry["pid"] = control.pid.load(std::memory_order_relaxed);
  const bool left = control.presence.load(std::memory_order_acquire) == Presence::departed;
  entry["left_ns"] = left ? ticks_to_ns(control.left.load(std::memory_order_relaxed)) : 0;
  entry["failed"] = control.poison.load(std::memory_order_acquire) != 0;
  entry["error"] = "";
  if (control.has_text.load(std::memory_order_acquire))
    entry["error"] = std::string(control.text, strnlen(control.text, sizeof control.text));
  const uint64_t awaits = control.awaits.load(std::memory_order_relaxed);
  entry["awaits"] = py::make_tuple(awaits >> 16, static_cast<int>(awaits & 0xffff) - 1);
  entry["waits"] = awaited_message(recorder);
  entry["calls"] = recorded_calls(recorder);
  return entry;
}

py::list recorded_calls(const Recorder& recorder) {
  py::list result;
  const uint64_t last = last_sequence(recorder);
  for (uint64_t sequence = last > kRecords ? last - kRecords + 1 : 1; sequence <= last; ++sequence) {
    const auto call = read_call(recorder, sequence);
    if (!call) continue;
    py::dict entry;
    entry["sequence"] = call->sequence;
    entry["call"] = call->text();
    if (call->kind) {
      entry["collective"] = verb_name(call->kind->verb);
      entry["count"] = call->kind->count;
      const auto dtype = static_cast<DType>(call->kind->dtype);
      entry["nbytes"] = call->kind->dtype < dtype_count ? call->kind->count * item_size(dtype) : 0;
      entry["root"] = call->kind->root;
      entry["algorithm"] = call->kind->algorithm;
    }
    entry["state"] = state_name(call->state);
    entry["started_ns"] = ticks_to_ns(call->started);
    entry["ended_ns"] = call->state == CallState::running ? 0 : ticks_to_ns(call->ended);
    entry["site"] = call->site;
    entry["fingerprint"] = call->fingerprint;
    result.append(entry);
  }
  return result;
}

void bind_recorder(py::module_& module) {
  module.attr("SEGMENT_HEAD") = kSegmentHead;
  module.def("read_segment", &read_segment, py::arg("segment"),
             "The state and the last calls of the rank whose segment begins with this memory.");
}

}  // namespace pc
