#include "bindings/site.hpp"

#include <frameobject.h>

#include <string>

#include "shm/group.hpp"

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

std::string resolve(const Record& record) {
  auto* code = reinterpret_cast<PyCodeObject*>(record.code);
  if (!code || !Py_IsInitialized()) return "";
  const PyGILState_STATE gil = PyGILState_Ensure();
  const int line = PyCode_Addr2Line(code, record.instruction);
  const char* path = PyUnicode_AsUTF8(code->co_filename);
  std::string text = path ? path : "?";
  if (!path) PyErr_Clear();
  text = text.substr(text.find_last_of('/') + 1) + ":" + std::to_string(line);
  PyGILState_Release(gil);
  return text;
}

}  // namespace

Sites::~Sites() {
  if (!Py_IsInitialized()) return;
  for (PyObject* code : codes_) Py_XDECREF(code);
}

// Takes over a reference. False if there are too many code objects to keep this one, too.
bool Sites::keep(PyObject* code) {
  PyObject*& recent = recent_[(reinterpret_cast<uintptr_t>(code) >> 6) % recent_.size()];
  bool kept = recent == code;
  if (!kept) {
    kept = codes_.contains(code);
    if (!kept && codes_.size() < kMostCodes) {
      codes_.insert(code);
      recent = code;
      return true;
    }
    if (kept) recent = code;
  }
  Py_DECREF(code);
  return kept;
}

Site Sites::here() {
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
  if (!frame) return {0, 0};
  const Site site{reinterpret_cast<uint64_t>(code), PyFrame_GetLasti(frame)};
  Py_DECREF(frame);
  return keep(reinterpret_cast<PyObject*>(code)) ? site : Site{0, 0};
}

void install_site_resolver() { set_site_resolver(&resolve); }

}  // namespace pc
