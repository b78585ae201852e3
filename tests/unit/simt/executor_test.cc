// SPDX-License-Identifier: Apache-2.0
//
// The executor's checks can fail: each kernel of faulty_kernels.h is reported, with words that say
// what it does, which thread and where; and the kernel without a fault is not.
#include "executor.h"

#include <cstdio>
#include <string>
#include <vector>

#include "faulty_kernels.h"
#include "guarded_heap.h"
#include "testing.h"

namespace simt_tests {
namespace {

// Of 64 floats, from the guarded heap.
struct Array {
  Array() : data(static_cast<float*>(guarded_allocate(64 * sizeof(float)))) {
    for (int i = 0; i < 64; ++i) data[i] = static_cast<float>(i);
  }
  ~Array() { guarded_free(data); }
  float* data;
};

std::string fault_of(Fault fault) {
  Array in, out;
  launch_faulty(fault, in.data, out.data);
  if (fault == Fault::kNone) {
    for (int i = 0; i < 64; ++i) EXPECT_EQ(out.data[i], 63.0F);
  }
  return take_fault();
}

void expect_words(Fault fault, const std::vector<const char*>& words) {
  const std::string text = fault_of(fault);
  bool all = text.find("reverse, block (0, 0, 0): ") != std::string::npos;
  for (const char* word : words) all = all && text.find(word) != std::string::npos;
  if (all) return;
  testing::report_failure(__FILE__, __LINE__,
                          "fault " + std::to_string(static_cast<int>(fault)) + " gives: " + text);
}

TEST(a_right_kernel_has_no_fault) {
  EXPECT_EQ(fault_of(Fault::kNone), std::string());
  EXPECT_EQ(fault_of(Fault::kAtomicAndPlain), std::string());
}

TEST(threads_that_wait_for_ever_are_reported) {
  expect_words(Fault::kLeavesBarrier, {"waits in sync_block for ever: thread 9 has ended"});
  expect_words(Fault::kOtherCollectives,
               {"thread ", " is in ballot while thread ", "is in shuffle"});
  expect_words(Fault::kBarrierAndShuffle,
               {" waits in shuffle for ever: thread ", " waits in sync_block"});
  expect_words(Fault::kCopyLeftOpen, {"ends before its asynchronous copies"});
  EXPECT(fault_of(Fault::kTooManyThreads).find("a block of 2048 threads") != std::string::npos);
}

TEST(accesses_that_break_a_rule_are_reported) {
  if (!observes_memory()) {
    testing::skip(
        "kernels' accesses are seen where GCC compiled them with -fsanitize=thread: not under a "
        "sanitizer, whose runtime answers those calls, and not with Clang");
  }
  const char* const kRace = "without a barrier between them, at byte ";
  expect_words(Fault::kWriteWrite, {" writes 1 bytes that thread ", kRace});
  expect_words(Fault::kReadOfWritten, {"thread ", kRace});
  expect_words(Fault::kWriteOfRead, {"thread ", kRace});
  expect_words(Fault::kWithinWarp, {"thread ", kRace});
  expect_words(Fault::kUnwrittenShared,
               {"thread 3 reads", "shared memory that nobody wrote", "280"});
  expect_words(Fault::kAtomicOnUnwritten, {"atomic operation on shared memory that nobody wrote"});
  expect_words(Fault::kCopyNotWaitedFor, {"thread 0 reads", "shared memory that nobody wrote"});
  expect_words(Fault::kCopyWaitedByOther, {" reads ", "shared memory"});
  expect_words(Fault::kBeyondAllocation, {"thread 6 reads 4 bytes outside of every allocation"});
  expect_words(Fault::kBeforeAllocation, {"thread 6 writes 4 bytes outside of every allocation"});
  expect_words(Fault::kBeyondShared, {"thread 5 writes 4 bytes"});
  expect_words(Fault::kMisaligned, {"thread 8 reads", "not aligned to its size"});
  expect_words(Fault::kCopyMisaligned, {"thread 8 reads 16 bytes not aligned to its size"});
}

}  // namespace
}  // namespace simt_tests
