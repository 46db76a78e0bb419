// The fast way into a call: for a contiguous NumPy array and a kind of call that was decided before, without
// Python code.
//
//     comm.all_reduce(x, out=x)  ->  FastMethod (vectorcall)  ->  Endpoint's table  ->  Communicator::run
//                                         \-- anything else  ->  the Python method it decorates, which fills
//                                         the table
//
// A pybind11 call with keywords costs 0.4 us, a vectorcall 0.02: hence the C types here.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <array>
#include <memory>
#include <new>

#include "bindings/bindings.hpp"
#include "bindings/handle.hpp"

namespace py = pybind11;

namespace pc {
namespace {

// What a call's shape must be, by the verb.
enum class Form : int { same, gathers, scatters, nothing };

// One remembered kind of call.
struct Entry {
  PyObject* verb = nullptr;  // the Python function
  PyObject* op = nullptr;    // by identity
  int type = -1, root = -1;
  npy_intp count = -1;
  std::shared_ptr<Prepared> prepared;
};

struct Endpoint {                 // the base of the Python class Communicator
  PyObject_HEAD PyObject* owner;  // keeps `handle` alive
  Handle* handle;
  double timeout;
  int size;
  std::array<Entry, 64>* table;
};

struct FastMethod {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* wrapped;
  PyObject* dict;
  Form form;
};

struct BoundCall {  // a persistent call: everything is known
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *core, *result, *keep;
  Handle* handle;
  std::shared_ptr<Prepared>* prepared;
  const void* in;
  void* out;
  double timeout;
};

PyTypeObject* endpoint_type = nullptr;
PyObject *name_out, *name_op, *name_root;
int overrides = 0;  // active `pc.use` blocks: the remembered decisions do not hold

Entry& slot(const Endpoint& self, PyObject* verb, int type, npy_intp count, PyObject* op, int root) {
  size_t hash = reinterpret_cast<size_t>(verb) >> 4;
  hash = hash * 31 + static_cast<size_t>(type);
  hash = hash * 31 + static_cast<size_t>(count);
  hash = hash * 31 + (reinterpret_cast<size_t>(op) >> 4);
  hash = hash * 31 + static_cast<size_t>(root);
  return (*self.table)[(hash * 0x9e3779b97f4a7c15u) >> 58];
}

// Runs with the GIL released; translates errors. True on success.
bool execute(Handle& handle, const std::shared_ptr<Prepared>& prepared, const void* in, void* out,
             double timeout) {
  const Site site = handle.sites.here();
  const Call call{prepared.get(),
                  static_cast<const std::byte*>(in),
                  static_cast<std::byte*>(out),
                  0,
                  nanoseconds(timeout),
                  true,
                  site.code,
                  site.instruction,
                  nullptr};
  try {
    const py::gil_scoped_release release;
    handle.run(call);
    return true;
  } catch (const Error& error) {
    raise_error(error);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return false;
}

bool plain(PyObject* object) {
  if (!PyArray_CheckExact(object)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  const int type = PyArray_TYPE(array);  // says all about the elements, but for strings, records and times
  return PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISNOTSWAPPED(array) && !PyTypeNum_ISFLEXIBLE(type) &&
         !PyTypeNum_ISDATETIME(type);
}

// Is `out` fit for the result, and either x itself or apart from it?
bool fits(const FastMethod& method, const Endpoint& self, PyArrayObject* x, PyArrayObject* out) {
  if (PyArray_TYPE(x) != PyArray_TYPE(out) || !PyArray_ISWRITEABLE(out)) return false;
  const char* from = PyArray_BYTES(x);
  const char* to = PyArray_BYTES(out);
  const bool apart = from + PyArray_NBYTES(x) <= to || to + PyArray_NBYTES(out) <= from;
  switch (method.form) {
    case Form::same:
      return PyArray_SAMESHAPE(x, out) && (apart || from == to);
    case Form::gathers:
      return PyArray_SIZE(out) == PyArray_SIZE(x) * self.size && apart;
    case Form::scatters:
      return PyArray_SIZE(out) * self.size == PyArray_SIZE(x) && apart;
    case Form::nothing:
      return false;
  }
  return false;
}

// The call, if it is of a remembered kind: a new reference, nullptr with an error set, or Py_NotImplemented
// (borrowed).
PyObject* attempt(const FastMethod& method, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  if (overrides || nargs < 1 || nargs > 3 || !PyObject_TypeCheck(args[0], endpoint_type))
    return Py_NotImplemented;
  auto* self = reinterpret_cast<Endpoint*>(args[0]);
  if (!self->handle) return Py_NotImplemented;
  if (method.form == Form::nothing) {  // barrier
    if (nargs > 1 || (names && PyTuple_GET_SIZE(names))) return Py_NotImplemented;
    const Entry& entry = slot(*self, method.wrapped, -1, 0, nullptr, -1);
    if (entry.verb != method.wrapped) return Py_NotImplemented;
    const std::shared_ptr<Prepared> prepared = entry.prepared;
    return execute(*self->handle, prepared, nullptr, nullptr, self->timeout) ? Py_NewRef(Py_None) : nullptr;
  }
  if (nargs < 2 || !plain(args[1])) return Py_NotImplemented;
  PyObject *op = nargs > 2 ? args[2] : nullptr, *out = nullptr;
  int root = -1;
  const Py_ssize_t nnames = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < nnames; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    PyObject* value = args[nargs + i];
    if (name == name_out) {
      out = value;
    } else if (name == name_op && !op) {
      op = value;
    } else if (name == name_root && PyLong_CheckExact(value)) {
      int overflow = 0;
      const long given = PyLong_AsLongAndOverflow(value, &overflow);
      if (overflow || given < 0 || given >= self->size) return Py_NotImplemented;
      root = static_cast<int>(given);
    } else {
      return Py_NotImplemented;
    }
  }
  auto* x = reinterpret_cast<PyArrayObject*>(args[1]);
  const Entry& entry = slot(*self, method.wrapped, PyArray_TYPE(x), PyArray_SIZE(x), op, root);
  if (entry.verb != method.wrapped || entry.type != PyArray_TYPE(x) || entry.count != PyArray_SIZE(x) ||
      entry.op != op || entry.root != root)
    return Py_NotImplemented;
  py::object result;
  if (out && out != Py_None) {
    if (!plain(out) || !fits(method, *self, x, reinterpret_cast<PyArrayObject*>(out)))
      return Py_NotImplemented;
    result = py::reinterpret_borrow<py::object>(out);
  } else {
    if (method.form != Form::same) return Py_NotImplemented;
    result = py::reinterpret_steal<py::object>(PyArray_NewLikeArray(x, NPY_CORDER, nullptr, 0));
    if (!result) return nullptr;
  }
  const py::object keep = py::reinterpret_borrow<py::object>(args[1]);
  const std::shared_ptr<Prepared> prepared = entry.prepared;
  auto* target = reinterpret_cast<PyArrayObject*>(result.ptr());
  return execute(*self->handle, prepared, PyArray_DATA(x), PyArray_DATA(target), self->timeout)
             ? result.release().ptr()
             : nullptr;
}

PyObject* method_vectorcall(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* names) {
  const auto& method = *reinterpret_cast<FastMethod*>(callable);
  PyObject* result = attempt(method, args, PyVectorcall_NARGS(nargsf), names);
  return result == Py_NotImplemented ? PyObject_Vectorcall(method.wrapped, args, nargsf, names) : result;
}

PyObject* method_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* wrapped = nullptr;
  int form = 0;
  if (!PyArg_ParseTuple(args, "Oi", &wrapped, &form)) return nullptr;
  auto* self = reinterpret_cast<FastMethod*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = &method_vectorcall;
  self->wrapped = Py_NewRef(wrapped);
  self->form = static_cast<Form>(form);
  return reinterpret_cast<PyObject*>(self);
}

void method_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<FastMethod*>(object);
  Py_CLEAR(self->wrapped);
  Py_CLEAR(self->dict);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject* method_get(PyObject* object, PyObject* instance, PyObject*) {
  return instance ? PyMethod_New(object, instance) : Py_NewRef(object);
}

PyMemberDef method_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FastMethod, vectorcall), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(FastMethod, dict), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef method_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot method_slots[] = {
    {Py_tp_doc, const_cast<char*>("A method with a fast way in for remembered kinds of calls.")},
    {Py_tp_new, reinterpret_cast<void*>(&method_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&method_dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(&method_get)},
    {Py_tp_members, method_members},
    {Py_tp_getset, method_getset},
    {0, nullptr},
};

PyType_Spec method_spec = {"pycollectives._core.FastMethod", sizeof(FastMethod), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                           method_slots};

PyObject* bound_vectorcall(PyObject* callable, PyObject* const*, size_t nargsf, PyObject* names) {
  const auto& self = *reinterpret_cast<BoundCall*>(callable);
  if (PyVectorcall_NARGS(nargsf) || (names && PyTuple_GET_SIZE(names))) {
    PyErr_SetString(PyExc_TypeError, "a persistent call takes no arguments");
    return nullptr;
  }
  return execute(*self.handle, *self.prepared, self.in, self.out, self.timeout) ? Py_NewRef(self.result)
                                                                                : nullptr;
}

// BoundCall(core, prepared, input address, output address, timeout, result, what to keep alive)
PyObject* bound_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *core, *prepared, *result, *keep;
  unsigned long long in = 0, out = 0;
  double timeout = 0;
  if (!PyArg_ParseTuple(args, "OOKKdOO", &core, &prepared, &in, &out, &timeout, &result, &keep))
    return nullptr;
  Handle* handle = nullptr;
  std::unique_ptr<std::shared_ptr<Prepared>> held;
  try {
    handle = py::cast<Handle*>(py::handle(core));
    held = std::make_unique<std::shared_ptr<Prepared>>(
        py::cast<std::shared_ptr<Prepared>>(py::handle(prepared)));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    return nullptr;
  }
  auto* self = reinterpret_cast<BoundCall*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = &bound_vectorcall;
  self->core = Py_NewRef(core);
  self->result = Py_NewRef(result);
  self->keep = Py_NewRef(keep);
  self->handle = handle;
  self->prepared = held.release();
  self->in = reinterpret_cast<const void*>(in);
  self->out = reinterpret_cast<void*>(out);
  self->timeout = timeout;
  return reinterpret_cast<PyObject*>(self);
}

void bound_dealloc(PyObject* object) {
  auto* self = reinterpret_cast<BoundCall*>(object);
  Py_CLEAR(self->result);
  Py_CLEAR(self->keep);
  delete self->prepared;
  Py_CLEAR(self->core);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef bound_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BoundCall, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot bound_slots[] = {
    {Py_tp_doc, const_cast<char*>("A call on fixed contiguous arrays; calling it makes it.")},
    {Py_tp_new, reinterpret_cast<void*>(&bound_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&bound_dealloc)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_members, bound_members},
    {0, nullptr},
};

PyType_Spec bound_spec = {"pycollectives._core.BoundCall", sizeof(BoundCall), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL, bound_slots};

void clear_table(Endpoint* self) {
  if (!self->table) return;
  for (Entry& entry : *self->table) {
    Py_CLEAR(entry.verb);
    Py_CLEAR(entry.op);
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

// _remember(function, x or None, op or None, root, prepared)
PyObject* endpoint_remember(PyObject* object, PyObject* args) {
  auto* self = reinterpret_cast<Endpoint*>(object);
  PyObject *verb = nullptr, *x = nullptr, *op = nullptr, *prepared = nullptr;
  int root = -1;
  if (!PyArg_ParseTuple(args, "OOOiO", &verb, &x, &op, &root, &prepared)) return nullptr;
  const bool data = PyArray_Check(x);
  auto* array = reinterpret_cast<PyArrayObject*>(x);
  PyObject* key = op == Py_None ? nullptr : op;
  Entry& entry =
      slot(*self, verb, data ? PyArray_TYPE(array) : -1, data ? PyArray_SIZE(array) : 0, key, root);
  try {
    entry.prepared = py::cast<std::shared_ptr<Prepared>>(py::handle(prepared));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
    return nullptr;
  }
  Py_XSETREF(entry.verb, Py_NewRef(verb));
  Py_XSETREF(entry.op, Py_XNewRef(key));
  entry.type = data ? PyArray_TYPE(array) : -1;
  entry.count = data ? PyArray_SIZE(array) : 0;
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

PyTypeObject* add_type(py::module_& module, PyType_Spec& spec, const char* name) {
  PyObject* type = PyType_FromSpec(&spec);
  if (!type) throw py::error_already_set();
  module.attr(name) = py::handle(type);
  return reinterpret_cast<PyTypeObject*>(type);
}

int import_numpy() {
  import_array1(-1);
  return 0;
}

}  // namespace

void bind_fastcall(py::module_& module) {
  if (import_numpy() < 0) throw py::error_already_set();
  name_out = PyUnicode_InternFromString("out");
  name_op = PyUnicode_InternFromString("op");
  name_root = PyUnicode_InternFromString("root");
  endpoint_type = add_type(module, endpoint_spec, "Endpoint");
  add_type(module, method_spec, "FastMethod");
  add_type(module, bound_spec, "BoundCall");
  module.def(
      "override", [](int change) { overrides += change; },
      "Enter (1) or leave (-1) a block in which decisions differ.");
}

}  // namespace pc
