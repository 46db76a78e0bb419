#include "cuda/emulation/fibre.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

#if !defined(__x86_64__)
#error "the emulated device switches stacks by x86-64 instructions"
#endif

#ifdef PC_EMULATION_TSAN
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
}
#endif
#ifdef __SANITIZE_ADDRESS__
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** old_bottom, size_t* old_size);
void __asan_unpoison_memory_region(const volatile void* address, size_t size);
}
#endif

extern "C" void pc_switch_stack(void** from, void* to);
// Saves the registers that a call preserves, and continues where `to` was left.
asm(R"(
.text
.type pc_switch_stack,@function
pc_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

namespace pc::emulation {
namespace {

thread_local Fibre* entering;

}  // namespace

Fibre::Fibre(void (*body)(void*)) : bytes_(kStackBytes), body_(body) {
  void* memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<char*>(memory);
  bottom_ = stack_;
#ifdef PC_EMULATION_TSAN
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fibre::~Fibre() {
  if (!stack_) return;
#ifdef PC_EMULATION_TSAN
  __tsan_destroy_fiber(tsan_);
#endif
  munmap(stack_, bytes_);
}

void Fibre::arm(void* argument) {
  argument_ = argument;
  fake_stack_ = nullptr;
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack_, bytes_);  // frames of an earlier body
#endif
  auto** top = reinterpret_cast<void**>(stack_ + bytes_ - 64);
  top[0] = reinterpret_cast<void*>(&Fibre::enter);
  stack_pointer_ = top - 6;
  std::memset(stack_pointer_, 0, 6 * sizeof(void*));
}

void Fibre::adopt([[maybe_unused]] Fibre& own) {
#ifdef PC_EMULATION_TSAN
  own.tsan_ = __tsan_get_current_fiber();
#endif
#ifdef __SANITIZE_ADDRESS__
  pthread_attr_t attributes;
  pthread_getattr_np(pthread_self(), &attributes);
  void* bottom;
  pthread_attr_getstack(&attributes, &bottom, &own.bytes_);
  pthread_attr_destroy(&attributes);
  own.bottom_ = bottom;
#endif
}

void Fibre::change(Fibre& from, Fibre& to) {
  entering = &to;
#ifdef PC_EMULATION_TSAN
  __tsan_switch_to_fiber(to.tsan_, 1);  // no edge between the two
#endif
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.bottom_, to.bytes_);
#endif
  pc_switch_stack(&from.stack_pointer_, to.stack_pointer_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
}

void Fibre::enter() {
  Fibre& own = *entering;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  own.body_(own.argument_);
  __builtin_unreachable();
}

}  // namespace pc::emulation
