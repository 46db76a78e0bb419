// The base of the Python class Communicator: its native side, and the table of the kinds of calls it has decided.
#include "bindings/endpoint.hpp"

#include <pybind11/pybind11.h>
#include <structmember.h>

#include <new>

#include "bindings/bindings.hpp"

namespace py = pybind11;

namespace pc {
namespace {

void clear_table(Endpoint* self) {
  if (!self->table) return;
  for (Entry& entry : *self->table) {
    Py_CLEAR(entry.verb);
    Py_CLEAR(entry.op);
    Py_CLEAR(entry.algorithm);
    entry = Entry{};
  }
}

PyObject* endpoint_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = reinterpret_cast<Endpoint*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->table = new (std::nothrow) std::array<Entry, 64>();
  if (!self->table) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

void endpoint_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Endpoint*>(object);
  clear_table(self);
  delete self->table;
  Py_CLEAR(self->owner);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

// _open(core, size, timeout): calls may go to this native communicator.
PyObject* endpoint_open(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<Endpoint*>(object);
  PyObject* core = nullptr;
  if (!PyArg_ParseTuple(args, "Oid", &core, &self->size, &self->timeout)) return nullptr;
  try {
    self->handle = py::cast<Handle*>(py::handle(core));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    return nullptr;
  }
  Py_XSETREF(self->owner, Py_NewRef(core));
  Py_RETURN_NONE;
}

// _shut(): no more fast calls.
PyObject* endpoint_shut(PyObject* object, PyObject*) {
  auto* self = reinterpret_cast<Endpoint*>(object);
  self->handle = nullptr;
  clear_table(self);
  Py_RETURN_NONE;
}

// _remember(function, the number of x's dtype or -1, its elements, op or None, root, algorithm or None, prepared)
PyObject* endpoint_remember(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<Endpoint*>(object);
  PyObject *verb = nullptr, *op = nullptr, *algorithm = nullptr, *prepared = nullptr;
  Py_ssize_t count = 0;
  int type = -1, root = -1;
  if (!PyArg_ParseTuple(args, "OinOiOO", &verb, &type, &count, &op, &root, &algorithm, &prepared))
    return nullptr;
  PyObject* key = op == Py_None ? nullptr : op;
  PyObject* named = algorithm == Py_None ? nullptr : algorithm;
  Entry& entry = slot(*self, verb, type, count, key, root, named);
  try {
    entry.prepared = py::cast<std::shared_ptr<Prepared>>(py::handle(prepared));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    return nullptr;
  }
  Py_XSETREF(entry.verb, Py_NewRef(verb));
  Py_XSETREF(entry.op, Py_XNewRef(key));
  Py_XSETREF(entry.algorithm, Py_XNewRef(named));
  entry.type = type;
  entry.count = count;
  entry.root = root;
  Py_RETURN_NONE;
}

PyMethodDef endpoint_methods[] = {
    {"_open", &endpoint_open, METH_VARARGS, nullptr},
    {"_shut", &endpoint_shut, METH_NOARGS, nullptr},
    {"_remember", &endpoint_remember, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef endpoint_members[] = {
    {"timeout", T_DOUBLE, offsetof(Endpoint, timeout), 0,
     "Seconds until a call raises CollectiveTimeoutError."},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot endpoint_slots[] = {
    {Py_tp_doc,
     const_cast<char*>("The native side of a communicator, and its table of remembered kinds of calls.")},
    {Py_tp_new, reinterpret_cast<void*>(&endpoint_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&endpoint_dealloc)},
    {Py_tp_methods, endpoint_methods},
    {Py_tp_members, endpoint_members},
    {0, nullptr},
};

PyType_Spec endpoint_spec = {"pycollectives._core.Endpoint", sizeof(Endpoint), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, endpoint_slots};

}  // namespace

PyTypeObject* endpoint_type = nullptr;

void bind_endpoint(py::module_& module) { endpoint_type = add_type(module, endpoint_spec, "Endpoint"); }

}  // namespace pc
