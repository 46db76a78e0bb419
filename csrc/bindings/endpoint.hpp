// The table of remembered kinds of calls: filled by Python when a call was decided (endpoint.cpp), read by the next
// call of that kind (fast_method.cpp).
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/fast_call.hpp"

namespace pc {

// What tells kinds of calls apart here: the Python function of the verb and the operator by identity.
struct Key {
  PyObject* verb = nullptr;
  PyObject* op = nullptr;
  PyObject* algorithm = nullptr;  // a str
  int type = -1, root = -1;
  Py_ssize_t count = -1;
  bool deterministic = false;

  bool operator==(const Key& other) const {
    return verb == other.verb && count == other.count && type == other.type && op == other.op &&
           root == other.root && deterministic == other.deterministic &&
           (algorithm == other.algorithm ||
            (algorithm && other.algorithm && PyUnicode_Compare(algorithm, other.algorithm) == 0));
  }
  size_t hash() const {
    size_t found = 0;
    for (const size_t each :
         {reinterpret_cast<size_t>(verb), static_cast<size_t>(type), static_cast<size_t>(count),
          reinterpret_cast<size_t>(op), static_cast<size_t>(root) * 2 + deterministic,
          algorithm ? static_cast<size_t>(PyObject_Hash(algorithm)) : 0})
      found = (found ^ each) * 0x9e3779b97f4a7c15u, found ^= found >> 32;
    return found;
  }
};

// One remembered kind of call; it holds references.
struct alignas(64) Entry {
  Key key;
  std::shared_ptr<Prepared> prepared;
};

// A kind is in one of the sixteen places from where it hashes to. The table grows until each has one, so that kinds which hash
// alike do not put each other out with every call.
class KindTable {
 public:
  ~KindTable();

  // Until the next call.
  const Entry* find(const Key& key) const {
    const auto first = home(entries_, key);
    for (size_t i = first; i < first + kPlaces; ++i)
      if (entries_[i].key == key) return &entries_[i];
    return nullptr;
  }
  void put(const Key& key, std::shared_ptr<Prepared> prepared);
  void clear();

 private:
  using Entries = std::vector<Entry>;
  static constexpr size_t kPlaces = 16, kFewest = 64;
  // A few for each kind that Python keeps: what is left out of a call, such as a root, is remembered apart.
  static constexpr size_t kMost = 4096;

  static Entries empty(size_t homes) { return Entries(homes + kPlaces - 1); }
  static size_t homes(const Entries& entries) { return entries.size() - kPlaces + 1; }
  static size_t home(const Entries& entries, const Key& key) { return key.hash() & (homes(entries) - 1); }
  static Entry* place_in(Entries& entries, const Key& key);
  void grow();

  Entries entries_{empty(kFewest)};
  size_t turn_ = 0;  // of the place that is given up next, in the longest table
};

struct Endpoint {
  PyObject_HEAD PyObject* owner;  // keeps `handle` alive
  Handle* handle;
  double timeout;
  int size;
  KindTable* table;
};

extern PyTypeObject* endpoint_type;

}  // namespace pc
