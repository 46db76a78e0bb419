// The parts of the extensions `_cuda` and `_cuda_emulated`, one file each.
#pragma once

#include <pybind11/pybind11.h>

namespace pc::cuda {

void bind_copies(pybind11::module_& module);
void bind_regions(pybind11::module_& module);

}  // namespace pc::cuda
