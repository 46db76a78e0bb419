// The fast way into a call: for a contiguous NumPy array and a kind of call that was decided before, without
// Python code.
//
//     comm.all_reduce(x, out=x)  ->  FastMethod (vectorcall)  ->  Endpoint's table  ->  Communicator::run
//                                         \-- anything else  ->  the Python method it decorates, which fills
//                                         the table
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <algorithm>
#include <array>
#include <memory>

#include "bindings/bindings.hpp"
#include "bindings/endpoint.hpp"

namespace py = pybind11;

namespace pc {
namespace {

// What a call's shape must be, by the verb: pycollectives/verbs.py says more.
enum class Form : int { same, gathers, scatters, nothing, exchanges, deals };

// Which ranks get a result.
enum class Taker : int { all, root, all_but_first };

struct FastMethod {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* wrapped;
  PyObject* dict;
  Form form;
  Taker taker;
};

PyObject *name_out, *name_op, *name_root, *name_algorithm, *name_timeout, *name_async, *name_deterministic,
    *name_accumulate;
int overrides = 0;  // active `pc.use` blocks: the remembered decisions do not hold

constexpr int kMostAxes = 16;  // of an array that goes this way

bool plain(PyObject* object) {
  if (!PyArray_CheckExact(object)) return false;
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  const int type = PyArray_TYPE(array);  // says all about the elements, but for strings, records and times
  return PyArray_NDIM(array) <= kMostAxes && PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISNOTSWAPPED(array) &&
         !PyTypeNum_ISFLEXIBLE(type) && !PyTypeNum_ISDATETIME(type);
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
    case Form::deals:
      return PyArray_SIZE(out) * self.size == PyArray_SIZE(x) && apart;
    case Form::exchanges:
      return PyArray_SAMESHAPE(x, out) && apart;
    case Form::nothing:
      return false;
  }
  return false;
}

// What a call says besides its array.
struct Options {
  PyObject *op = nullptr, *out = nullptr, *algorithm = nullptr;
  int root = -1;
  bool deterministic = false;
  double timeout;
};

// Reads them; false where only Python knows what to do.
bool read(Options& options, const Endpoint& self, PyObject* const* args, Py_ssize_t nargs, PyObject* names) {
  options.op = nargs > 2 ? args[2] : nullptr;
  options.timeout = self.timeout;
  const Py_ssize_t nnames = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < nnames; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    PyObject* value = args[nargs + i];
    if (name == name_out) {
      options.out = value == Py_None ? nullptr : value;
    } else if (name == name_op && !options.op) {
      options.op = value;
    } else if (name == name_root && PyLong_CheckExact(value)) {
      int overflow = 0;
      const long given = PyLong_AsLongAndOverflow(value, &overflow);
      if (overflow || given < 0 || given >= self.size) return false;
      options.root = static_cast<int>(given);
    } else if (name == name_algorithm && (value == Py_None || PyUnicode_CheckExact(value))) {
      options.algorithm = value == Py_None ? nullptr : value;
    } else if (name == name_timeout && PyFloat_CheckExact(value) && PyFloat_AS_DOUBLE(value) >= 0) {
      options.timeout = PyFloat_AS_DOUBLE(value);
    } else if (name == name_deterministic && PyBool_Check(value)) {
      options.deterministic = value == Py_True;
    } else if (!(value == Py_None && (name == name_timeout || name == name_accumulate)) &&
               !(value == Py_False && name == name_async)) {
      return false;
    }
  }
  return true;
}

// Can the first axis of x be cut into `size` equal blocks?
bool divides(PyArrayObject* x, int size) { return PyArray_NDIM(x) > 0 && PyArray_DIM(x, 0) % size == 0; }

// Does this rank get a result?
bool takes(Taker taker, const Endpoint& self, int root) {
  const int rank = self.handle->group().rank();
  return taker == Taker::all || (taker == Taker::root ? rank == std::max(root, 0) : rank > 0);
}

// A new array for the result; nullptr with an error set.
PyObject* new_result(Form form, PyArrayObject* x, int size) {
  std::array<npy_intp, kMostAxes + 1> shape{};
  int axes = PyArray_NDIM(x);
  std::copy_n(PyArray_DIMS(x), axes, shape.begin() + (form == Form::gathers));
  if (form == Form::scatters || form == Form::deals) shape[0] /= size;
  if (form == Form::gathers) {
    shape[0] = size;
    ++axes;
  }
  PyArray_Descr* type = PyArray_DESCR(x);
  Py_INCREF(type);
  return PyArray_NewFromDescr(&PyArray_Type, type, axes, shape.data(), nullptr, nullptr, 0, nullptr);
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
    const Entry* entry = self->table->find({.verb = method.wrapped, .count = 0});
    if (!entry) return Py_NotImplemented;
    const std::shared_ptr<Prepared> prepared = entry->prepared;
    return execute(*self->handle, prepared, nullptr, nullptr, self->timeout) ? Py_NewRef(Py_None) : nullptr;
  }
  if (nargs < 2 || !plain(args[1])) return Py_NotImplemented;
  Options options;
  if (!read(options, *self, args, nargs, names)) return Py_NotImplemented;
  auto* x = reinterpret_cast<PyArrayObject*>(args[1]);
  const Entry* entry = self->table->find({method.wrapped, options.op, options.algorithm, PyArray_TYPE(x),
                                          options.root, PyArray_SIZE(x), options.deterministic});
  if (!entry) return Py_NotImplemented;
  const std::shared_ptr<Prepared> prepared = entry->prepared;
  // What is remembered by the number of elements was checked for another shape, perhaps.
  const bool cut = method.form == Form::exchanges || method.form == Form::deals ||
                   (method.form == Form::scatters && !options.out);
  if (cut && !divides(x, self->size)) return Py_NotImplemented;
  py::object result;
  void* target = nullptr;
  if (!takes(method.taker, *self, options.root)) {
    if (options.out && !plain(options.out)) return Py_NotImplemented;
    result = py::none();
  } else {
    if (!options.out)
      result = py::reinterpret_steal<py::object>(new_result(method.form, x, self->size));
    else if (plain(options.out) && fits(method, *self, x, reinterpret_cast<PyArrayObject*>(options.out)))
      result = py::reinterpret_borrow<py::object>(options.out);
    else
      return Py_NotImplemented;
    if (!result) return nullptr;
    target = PyArray_DATA(reinterpret_cast<PyArrayObject*>(result.ptr()));
  }
  const py::object keep = py::reinterpret_borrow<py::object>(args[1]);
  return execute(*self->handle, prepared, PyArray_DATA(x), target, options.timeout) ? result.release().ptr()
                                                                                    : nullptr;
}

PyObject* method_vectorcall(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* names) {
  const auto& method = *reinterpret_cast<FastMethod*>(callable);
  PyObject* result = attempt(method, args, PyVectorcall_NARGS(nargsf), names);
  return result == Py_NotImplemented ? PyObject_Vectorcall(method.wrapped, args, nargsf, names) : result;
}

PyObject* method_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* wrapped = nullptr;
  int form = 0, taker = 0;
  if (!PyArg_ParseTuple(args, "Oii", &wrapped, &form, &taker)) return nullptr;
  auto* self = reinterpret_cast<FastMethod*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = &method_vectorcall;
  self->wrapped = Py_NewRef(wrapped);
  self->form = static_cast<Form>(form);
  self->taker = static_cast<Taker>(taker);
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

int import_numpy() {
  import_array1(-1);
  return 0;
}

}  // namespace

void bind_fast_method(py::module_& module) {
  if (import_numpy() < 0) throw py::error_already_set();
  name_out = PyUnicode_InternFromString("out");
  name_op = PyUnicode_InternFromString("op");
  name_root = PyUnicode_InternFromString("root");
  name_algorithm = PyUnicode_InternFromString("algorithm");
  name_timeout = PyUnicode_InternFromString("timeout");
  name_async = PyUnicode_InternFromString("async_op");
  name_deterministic = PyUnicode_InternFromString("deterministic");
  name_accumulate = PyUnicode_InternFromString("accumulate");
  add_type(module, method_spec, "FastMethod");
  module.def(
      "override", [](int change) { overrides += change; },
      "Enter (1) or leave (-1) a block in which decisions differ.");
}

}  // namespace pc
