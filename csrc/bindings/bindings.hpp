// The parts of the extension `_core`, one file each.
#pragma once

#include <pybind11/pybind11.h>

namespace pc {

class Error;
struct Control;
struct Recorder;
void raise_error(const Error& error);  // sets the Python exception

pybind11::dict recorded_state(const Control& control, const Recorder& recorder);
pybind11::list recorded_calls(const Recorder& recorder);  // oldest first, a dict each

void bind_reduce(pybind11::module_& module);
void bind_errors(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
void bind_communicator(pybind11::module_& module);
void bind_messages(pybind11::module_& module);
void bind_endpoint(pybind11::module_& module);
void bind_fast_method(pybind11::module_& module);
void bind_bound_call(pybind11::module_& module);
void bind_mpi(pybind11::module_& module);  // after bind_communicator
void bind_recorder(pybind11::module_& module);

}  // namespace pc
