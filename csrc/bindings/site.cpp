#include "bindings/site.hpp"

#include <frameobject.h>

#include <string>
#include <utility>

namespace pc {
namespace {

// The folder of the package, as its code objects name it; "" until known.
PyObject* package_prefix() {
  static PyObject* prefix = [] {
    PyObject* module = PyImport_ImportModule("pycollectives.errors");
    PyObject* file = module ? PyObject_GetAttrString(module, "__file__") : nullptr;
    PyObject* folder =
        file ? PyUnicode_Substring(file, 0, PyUnicode_GetLength(file) - 9) : nullptr;  // less "errors.py"
    Py_XDECREF(module);
    Py_XDECREF(file);
    if (!folder) PyErr_Clear();
    return folder ? folder : PyUnicode_FromString("\n");
  }();
  return prefix;
}

CallSite describe(PyCodeObject* code, int instruction) {
  CallSite site{};
  const std::string line = ":" + std::to_string(PyCode_Addr2Line(code, instruction));
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  if (!path) PyErr_Clear();
  std::string file = path ? path : "?";
  file = file.substr(file.find_last_of('/') + 1);
  copy_text(site.text, file.substr(0, sizeof site.text - 1 - line.size()) + line);
  return site;
}

}  // namespace

Sites::~Sites() {
  if (!Py_IsInitialized()) return;
  for (const Known& known : known_) Py_XDECREF(known.code);
}

uint64_t Sites::here() {
  if (!texts_) return 0;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  PyCodeObject* code = frame ? PyFrame_GetCode(frame) : nullptr;
  while (frame && PyUnicode_Tailmatch(code->co_filename, package_prefix(), 0, PY_SSIZE_T_MAX, -1) == 1) {
    PyFrameObject* back = PyFrame_GetBack(frame);
    if (!back) break;
    Py_DECREF(code);
    Py_DECREF(frame);
    frame = back;
    code = PyFrame_GetCode(frame);
  }
  if (!frame) return 0;
  const int instruction = PyFrame_GetLasti(frame);
  Py_DECREF(frame);
  auto* object = reinterpret_cast<PyObject*>(code);
  Known& known =
      known_[((reinterpret_cast<uintptr_t>(code) >> 5) + static_cast<uintptr_t>(instruction) * 31) %
             known_.size()];
  if (known.code == object && known.instruction == instruction && texts_->fresh(known.number)) {
    Py_DECREF(object);
    return known.number;
  }
  const uint64_t number = texts_->add(describe(code, instruction));
  PyObject* before = std::exchange(known.code, object);
  known.instruction = instruction;
  known.number = number;
  Py_XDECREF(before);  // may run code
  return number;
}

}  // namespace pc
