// SPDX-License-Identifier: Apache-2.0
#include "fibre.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" {
// Pushes the registers that a call preserves, stores the stack pointer in *save, takes `to` for it,
// and pops them: returns where `to` was saved.
void lmn_switch_stack(void** save, void* to);
}

#if defined(__x86_64__)
asm(R"(
  .text
  .globl lmn_switch_stack
  .hidden lmn_switch_stack
  .type lmn_switch_stack, @function
lmn_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size lmn_switch_stack, .-lmn_switch_stack
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .globl lmn_switch_stack
  .hidden lmn_switch_stack
  .type lmn_switch_stack, @function
lmn_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size lmn_switch_stack, .-lmn_switch_stack
)");
#else
#error "fibres: no stack switch for this processor"
#endif

namespace simt_tests {
namespace {

constexpr size_t kPage = 4096;
thread_local Fibre* starting = nullptr;

}  // namespace

Fibre::Fibre(size_t stack_bytes) : bytes_((stack_bytes + kPage - 1) / kPage * kPage + kPage) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kPage, PROT_NONE) != 0) std::abort();
  memory_ = static_cast<std::byte*>(memory);
}

Fibre::~Fibre() {
  forget_frames();  // or they are still poisoned for who is given these addresses next
  munmap(memory_, bytes_);
}

// Those that were left by never going on.
void Fibre::forget_frames() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(memory_ + kPage, bytes_ - kPage);
#endif
}

void Fibre::run(void*) {
  Fibre* self = starting;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self->caller_stack_, &self->caller_bytes_);
#endif
  self->entry_(self->argument_);
  std::abort();  // entry must not return
}

void Fibre::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  forget_frames();
  // What lmn_switch_stack pops, ending with the address that it returns to.
  auto top = reinterpret_cast<uintptr_t>(memory_ + bytes_) & ~uintptr_t{63};
#if defined(__x86_64__)
  // run() begins with the stack pointer 8 above a multiple of 16, as behind a call.
  auto* frame = reinterpret_cast<uintptr_t*>(top) - 10;
  std::memset(frame, 0, 10 * sizeof(uintptr_t));
  frame[6] = reinterpret_cast<uintptr_t>(&Fibre::run);  // then a zero: the caller of run()
#else
  auto* frame = reinterpret_cast<uintptr_t*>(top) - 20;
  std::memset(frame, 0, 20 * sizeof(uintptr_t));
  frame[11] = reinterpret_cast<uintptr_t>(&Fibre::run);
#endif
  fibre_sp_ = frame;
}

void Fibre::resume() {
  starting = this;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, memory_ + kPage, bytes_ - kPage);
#endif
  lmn_switch_stack(&caller_sp_, fibre_sp_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Fibre::suspend([[maybe_unused]] bool last) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, caller_stack_, caller_bytes_);
#endif
  lmn_switch_stack(&fibre_sp_, caller_sp_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_stack_, &caller_bytes_);
#endif
}

}  // namespace simt_tests
