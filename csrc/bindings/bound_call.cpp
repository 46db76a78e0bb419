// A persistent call, `comm.plan(...)`: all arguments are decided and checked; calling it only runs it.
#include <pybind11/pybind11.h>
#include <structmember.h>

#include <memory>

#include "bindings/bindings.hpp"
#include "bindings/fast_call.hpp"

namespace py = pybind11;

namespace pc {
namespace {

struct BoundCall {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject *core, *result, *keep;
  Handle* handle;
  std::shared_ptr<Prepared>* prepared;
  const void* in;
  void* out;
  double timeout;
};

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

}  // namespace

void bind_bound_call(py::module_& module) { add_type(module, bound_spec, "BoundCall"); }

}  // namespace pc
