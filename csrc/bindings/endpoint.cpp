// The base of the Python class Communicator: its native side, and the table of the kinds of calls it has decided.
#include "bindings/endpoint.hpp"

#include <pybind11/pybind11.h>
#include <structmember.h>

#include <new>
#include <utility>

#include "bindings/bindings.hpp"

namespace py = pybind11;

namespace pc {
namespace {

void release(const Entry& entry) {
  Py_XDECREF(entry.key.verb);
  Py_XDECREF(entry.key.op);
  Py_XDECREF(entry.key.algorithm);
}

PyObject* endpoint_new(PyTypeObject* type, PyObject*, PyObject*) {
  auto* self = reinterpret_cast<Endpoint*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  try {
    self->table = new KindTable();
  } catch (const std::bad_alloc&) {
    Py_DECREF(self);
    return PyErr_NoMemory();
  }
  return reinterpret_cast<PyObject*>(self);
}

void endpoint_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<Endpoint*>(object);
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
  self->table->clear();
  Py_RETURN_NONE;
}

// _remember(function, the number of x's dtype or -1, its elements, op or None, root, algorithm or None, deterministic,
// prepared)
PyObject* endpoint_remember(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<Endpoint*>(object);
  PyObject *verb = nullptr, *op = nullptr, *algorithm = nullptr, *prepared = nullptr;
  Py_ssize_t count = 0;
  int type = -1, root = -1, deterministic = 0;
  if (!PyArg_ParseTuple(args, "OinOiOpO", &verb, &type, &count, &op, &root, &algorithm, &deterministic,
                        &prepared))
    return nullptr;
  PyObject* key = op == Py_None ? nullptr : op;
  PyObject* named = algorithm == Py_None ? nullptr : algorithm;
  try {
    self->table->put({verb, key, named, type, root, count, deterministic != 0},
                     py::cast<std::shared_ptr<Prepared>>(py::handle(prepared)));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    return nullptr;
  }
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

// Where it is, else where there is room for it; nullptr: nowhere.
Entry* KindTable::place_in(Entries& entries, const Key& key) {
  Entry* free = nullptr;
  for (size_t i = home(entries, key), end = i + kPlaces; i < end; ++i) {
    if (entries[i].key == key) return &entries[i];
    if (!free && !entries[i].key.verb) free = &entries[i];
  }
  return free;
}

// Until all have a place. What has none in the longest table is remembered again when it is called.
void KindTable::grow() {
  Entries wider;
  std::vector<const Entry*> homeless;
  for (size_t count = 2 * homes(entries_); count <= kMost; count *= 2) {
    wider = empty(count);
    homeless.clear();
    for (const Entry& entry : entries_) {
      if (!entry.key.verb) continue;
      if (Entry* place = place_in(wider, entry.key))
        *place = entry;
      else
        homeless.push_back(&entry);
    }
    if (homeless.empty()) break;
  }
  entries_.swap(wider);
  for (const Entry* entry : homeless) release(*entry);
}

void KindTable::put(const Key& key, std::shared_ptr<Prepared> prepared) {
  Entry* place = place_in(entries_, key);
  while (!place && homes(entries_) < kMost) {
    grow();
    place = place_in(entries_, key);
  }
  if (!place) place = &entries_[home(entries_, key) + turn_++ % kPlaces];
  Py_XINCREF(key.verb);
  Py_XINCREF(key.op);
  Py_XINCREF(key.algorithm);
  const Entry gone = std::exchange(*place, {key, std::move(prepared)});
  release(gone);  // last: what goes may make calls
}

void KindTable::clear() {
  Entries gone = empty(kFewest);
  gone.swap(entries_);
  for (const Entry& entry : gone) release(entry);
}

KindTable::~KindTable() {
  for (const Entry& entry : entries_) release(entry);
}

PyTypeObject* endpoint_type = nullptr;

void bind_endpoint(py::module_& module) { endpoint_type = add_type(module, endpoint_spec, "Endpoint"); }

}  // namespace pc
