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

// What tells kinds of calls apart here: the Python function of the verb, the operator and the algorithm by identity.
struct Key {
  PyObject* verb = nullptr;
  PyObject* op = nullptr;
  PyObject* algorithm = nullptr;
  int type = -1, root = -1;
  Py_ssize_t count = -1;
  bool deterministic = false;

  bool operator==(const Key&) const = default;
};

// One remembered kind of call; it holds references.
struct alignas(64) Entry {
  Key key;
  std::shared_ptr<Prepared> prepared;
};

// A kind is in one of the four places from where it hashes to. The table grows when all four are others', so that kinds which
// hash alike do not put each other out with every call.
class KindTable {
 public:
  ~KindTable() { clear(); }

  // Until the next call.
  const Entry* find(const Key& key) const {
    for (size_t i = home(key), end = i + kPlaces; i < end; ++i)
      if (entries_[i].key == key) return &entries_[i];
    return nullptr;
  }
  void put(const Key& key, std::shared_ptr<Prepared> prepared);
  void clear();

 private:
  static constexpr size_t kPlaces = 4;
  static constexpr uint32_t kFewest = 6, kMost = 13;  // bits

  size_t home(const Key& key) const {
    size_t hash = reinterpret_cast<size_t>(key.verb) >> 4;
    hash = hash * 31 + static_cast<size_t>(key.type);
    hash = hash * 31 + static_cast<size_t>(key.count);
    hash = hash * 31 + (reinterpret_cast<size_t>(key.op) >> 4);
    hash = hash * 31 + static_cast<size_t>(key.root) * 2 + key.deterministic;
    hash = hash * 31 + (reinterpret_cast<size_t>(key.algorithm) >> 4);
    return (hash * 0x9e3779b97f4a7c15u) >> (64 - bits_);
  }
  Entry* place_of(const Key& key);
  void grow();

  uint32_t bits_ = kFewest;
  std::vector<Entry> entries_{places()};
  size_t turn_ = 0;  // of the place that is given up next, in the longest table

  size_t places() const { return (size_t{1} << bits_) + kPlaces - 1; }
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
