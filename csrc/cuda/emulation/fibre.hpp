// Fibres: stacks that one OS thread switches between. The sanitizers are told of each switch.
#pragma once

#include <cstddef>
#include <memory>

namespace pc::emulation {

class Fibre {
 public:
  Fibre() = default;                    // the OS thread's own stack
  explicit Fibre(void (*body)(void*));  // runs body(argument) each time it is armed
  ~Fibre();
  Fibre(const Fibre&) = delete;

  void arm(void* argument);       // the next switch to it begins its body, which never returns
  static void adopt(Fibre& own);  // `own` stands for the stack of the running OS thread
  static void change(Fibre& from, Fibre& to);

  void* tsan() const { return tsan_; }

  static constexpr size_t kStackBytes = 64 * 1024;

 private:
  static void enter();

  void* stack_pointer_ = nullptr;
  char* stack_ = nullptr;         // what it owns
  const void* bottom_ = nullptr;  // of the stack that it runs on
  size_t bytes_ = 0;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* tsan_ = nullptr;
  void* fake_stack_ = nullptr;
};

}  // namespace pc::emulation
