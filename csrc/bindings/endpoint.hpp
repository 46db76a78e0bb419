// The table of remembered kinds of calls: filled by Python when a call was decided (endpoint.cpp), read by the next
// call of that kind (fast_method.cpp).
#pragma once

#include <Python.h>

#include <array>
#include <cstddef>
#include <memory>

#include "bindings/fast_call.hpp"

namespace pc {

// One remembered kind of call.
struct Entry {
  PyObject* verb = nullptr;  // the Python function
  PyObject* op = nullptr;    // by identity, as is the next
  PyObject* algorithm = nullptr;
  int type = -1, root = -1;
  Py_ssize_t count = -1;
  std::shared_ptr<Prepared> prepared;
};

struct Endpoint {
  PyObject_HEAD PyObject* owner;  // keeps `handle` alive
  Handle* handle;
  double timeout;
  int size;
  std::array<Entry, 64>* table;
};

extern PyTypeObject* endpoint_type;

inline Entry& slot(const Endpoint& self, PyObject* verb, int type, Py_ssize_t count, PyObject* op, int root,
                   PyObject* algorithm) {
  size_t hash = reinterpret_cast<size_t>(verb) >> 4;
  hash = hash * 31 + static_cast<size_t>(type);
  hash = hash * 31 + static_cast<size_t>(count);
  hash = hash * 31 + (reinterpret_cast<size_t>(op) >> 4);
  hash = hash * 31 + static_cast<size_t>(root);
  hash = hash * 31 + (reinterpret_cast<size_t>(algorithm) >> 4);
  return (*self.table)[(hash * 0x9e3779b97f4a7c15u) >> 58];
}

}  // namespace pc
