// SPDX-License-Identifier: Apache-2.0
//
// Fibre: a stack and a place to go on from. Switching saves what a called function has to save and
// nothing else. Fibres of one thread only.
#pragma once

#include <cstddef>
#include <memory>

namespace simt_tests {

class Fibre {
 public:
  explicit Fibre(size_t stack_bytes);
  ~Fibre();
  Fibre(const Fibre&) = delete;

  // The next resume() calls entry(argument) on an empty stack. It does not return: it ends with
  // suspend() and is not resumed again.
  void start(void (*entry)(void*), void* argument);
  // From the thread's own stack: runs the fibre until it suspends.
  void resume();
  // From the fibre: back to who resumed it. `last`: it is never resumed without start().
  void suspend(bool last = false);

 private:
  static void run(void* self);
  void forget_frames();

  std::byte* memory_ = nullptr;  // a guard page below the stack
  size_t bytes_ = 0;
  void* fibre_sp_ = nullptr;
  void* caller_sp_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  // AddressSanitizer's idea of the two stacks.
  void* fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_bytes_ = 0;
};

}  // namespace simt_tests
