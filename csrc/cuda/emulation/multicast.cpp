#include "cuda/emulation/multicast.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda/emulation/scheduler.hpp"

namespace pc::emulation {
namespace {

struct Window {
  const char* begin;
  MulticastObject* object;
};

std::vector<Window> windows;
std::vector<MulticastObject*> objects;

// The replica `which` of the place that `at` stands for.
struct Found {
  uint64_t *memory, *view, *synced;
};

Window& window_of(const void* at) {
  const auto* place = static_cast<const char*>(at);
  for (Window& window : windows)
    if (window.begin <= place && place < window.begin + window.object->bytes) return window;
  std::fputs("the emulated device: multimem by an address that is not of a multicast object\n", stderr);
  std::abort();
}

Found find(const void* at, unsigned which) {
  const Window& window = window_of(at);
  const Replica& one = window.object->replicas[which];
  const size_t offset = static_cast<size_t>(static_cast<const char*>(at) - window.begin);
  return {reinterpret_cast<uint64_t*>(one.memory + offset), one.view.get() + offset / sizeof(uint64_t),
          one.synced.get() + offset / sizeof(uint64_t)};
}

}  // namespace

MulticastObject::MulticastObject(size_t size) : bytes(size) { objects.push_back(this); }
MulticastObject::~MulticastObject() { std::erase(objects, this); }

void MulticastObject::bind(char* memory) {
  const size_t count = bytes / sizeof(uint64_t);
  Replica replica{memory, std::make_unique<uint64_t[]>(count), std::make_unique<uint64_t[]>(count)};
  std::memcpy(replica.view.get(), memory, bytes);
  std::memcpy(replica.synced.get(), memory, bytes);
  replicas.push_back(std::move(replica));
}

void MulticastObject::unbind(const char* memory) {
  std::erase_if(replicas, [&](const Replica& replica) { return replica.memory == memory; });
}

void open_window(const char* begin, MulticastObject* object) { windows.push_back({begin, object}); }
void close_window(const char* begin) {
  std::erase_if(windows, [&](const Window& window) { return window.begin == begin; });
}

unsigned replicas(const void* at) { return static_cast<unsigned>(window_of(at).object->replicas.size()); }
void* replica(const void* at, unsigned which) { return find(at, which).memory; }
void* view(const void* at, unsigned which) { return find(at, which).view; }

void peek_replica(const void* at, unsigned which, void* vector) {
  const uint64_t* from = find(at, which).view;
  const uint64_t two[2] = {peek(from), peek(from + 1)};
  std::memcpy(vector, two, sizeof two);
}

void post_replica(void* at, unsigned which, const void* vector) {
  const Found found = find(at, which);
  uint64_t two[2];
  std::memcpy(two, vector, sizeof two);
  for (int i = 0; i < 2; ++i) post({found.view + i, two[i], 0, found.memory + i, found.synced + i, false});
}

// By whomever, for all that has been written: this finds fences that are missing, not those of a wrong thread.
void fence_aliases() {
#ifdef PC_EMULATION_TSAN
  return;  // there are no views: it would see this as accesses of the kernel's
#endif
  for (Pending& pending : scheduler().current->block->pending) pending.fenced |= pending.alias != nullptr;
  for (const MulticastObject* object : objects) {
    for (const Replica& one : object->replicas) {
      auto* memory = reinterpret_cast<uint64_t*>(one.memory);
      if (std::memcmp(memory, one.synced.get(), object->bytes) == 0 &&
          std::memcmp(one.view.get(), one.synced.get(), object->bytes) == 0)
        continue;
      for (size_t i = 0; i < object->bytes / sizeof(uint64_t); ++i) {
        if (memory[i] != one.synced[i])
          one.view[i] = one.synced[i] = memory[i];
        else if (one.view[i] != one.synced[i])
          memory[i] = one.synced[i] = one.view[i];
      }
    }
  }
}

unsigned pick(unsigned count) { return static_cast<unsigned>(scheduler().draw() >> 7) % count; }

}  // namespace pc::emulation
