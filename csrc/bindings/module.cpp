#include "bindings/bindings.hpp"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The native core of pycollectives: reduction kernels, plans, and shared memory.";
  pc::bind_errors(module);
  pc::bind_reduce(module);
  pc::bind_memory(module);
  pc::bind_plan(module);
  pc::bind_communicator(module);
  pc::bind_messages(module);
  pc::bind_endpoint(module);
  pc::bind_fast_method(module);
  pc::bind_bound_call(module);
  pc::bind_mpi(module);
  pc::bind_recorder(module);
}
