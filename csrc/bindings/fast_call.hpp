// What the C types of the fast way into a call share. A pybind11 call with keywords costs 0.4 us, a vectorcall 0.02.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "bindings/handle.hpp"

namespace pc {

// Runs with the GIL released; translates errors. True on success.
inline bool execute(Handle& handle, const std::shared_ptr<Prepared>& prepared, const void* in, void* out,
                    double timeout) {
  const uint64_t site = handle.sites.here();
  const Call call{prepared.get(),
                  static_cast<const std::byte*>(in),
                  static_cast<std::byte*>(out),
                  0,
                  nanoseconds(timeout),
                  true,
                  site,
                  nullptr};
  try {
    const ReleasedGil release;
    handle.run(call);
    return true;
  } catch (const Error& error) {
    raise_error(error);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return false;
}

inline PyTypeObject* add_type(pybind11::module_& module, PyType_Spec& spec, const char* name) {
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw pybind11::error_already_set();
  module.attr(name) = pybind11::handle(type);
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace pc
