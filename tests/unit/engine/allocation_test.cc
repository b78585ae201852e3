// SPDX-License-Identifier: Apache-2.0
//
// No heap allocation per token: this executable's malloc family counts, on every thread, while a
// request is in steady state.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"
#include "testing.h"
#include "tiny_tokenizer.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define LMN_TEST_COUNTS_ALLOCATIONS 1

namespace {
std::atomic<long> allocations{0};
std::atomic<bool> counting{false};
void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

// operator new ends in malloc, so this sees both. glibc's own names take over where these hand on.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(size_t n, size_t size) {
  count();
  return __libc_calloc(n, size);
}
void* realloc(void* data, size_t size) {
  count();
  return __libc_realloc(data, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  count();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;
}
}
#endif

namespace lmn::engine {
namespace {

// Streams a long answer and counts what is allocated between its 20th and its 1,400th step, by all
// threads together.
void expect_no_allocations(const char* what, int threads, const SamplingParams& sampling,
                           bool text) {
#ifdef LMN_TEST_COUNTS_ALLOCATIONS
  const TinyVocabulary vocabulary;
  const auto tokenizer = tiny_tokenizer(vocabulary);
  FakeSetup setup;
  setup.threads = threads;
  setup.context = 2'000;
  setup.tokenizer = tokenizer.get();
  long steps = 0, counted = -1;  // of the engine thread
  setup.adjust = [&](FakeRunner& runner) {
    runner.on_step = [&](const StepSizes&) {
      ++steps;
      if (steps == 20) {
        allocations = 0;
        counting = true;
      } else if (steps == 1'400) {
        counting = false;
        counted = allocations;
      }
    };
  };
  FakeEngine engine(setup);
  RequestOptions options = greedy(some_prompt(1, 50), 1'500);
  options.sampling = sampling;
  options.text = text;
  if (text) options.stop = {"never in here", "nor this"};
  const auto request = must_submit(*engine.engine, std::move(options));
  size_t tokens = 0;
  for (Chunk chunk; chunk.finish_reason == FinishReason::kNone;) {  // the client's side counts too
    if (!request->next(-1, &chunk).ok()) break;
    tokens += chunk.token_ids.size();
  }
  EXPECT_EQ(tokens, size_t{1'500});
  if (counted != 0)
    testing::report_failure(__FILE__, __LINE__,
                            std::string(what) + ": " + std::to_string(counted) + " allocations");
#else
  (void)what, (void)threads, (void)sampling, (void)text;
  testing::skip("the sanitizer owns malloc");
#endif
}

TEST(the_counter_counts) {
#ifdef LMN_TEST_COUNTS_ALLOCATIONS
  allocations = 0;
  counting = true;
  std::vector<int>* vector = new std::vector<int>(100);
  void* block = std::malloc(10);
  counting = false;
  EXPECT(allocations >= 3);
  delete vector;
  std::free(block);
#else
  testing::skip("the sanitizer owns malloc");
#endif
}

TEST(steady_decoding_allocates_nothing) {
  SamplingParams greedy_params;
  greedy_params.temperature = 0;
  expect_no_allocations("greedy", 1, greedy_params, false);
  expect_no_allocations("greedy, 3 threads, text and stop strings", 3, greedy_params, true);
  SamplingParams all;
  all.temperature = 1.2F;
  all.top_k = 30;
  all.top_p = 0.9F;
  all.min_p = 0.01F;
  all.repetition_penalty = 1.1F;
  all.presence_penalty = 0.1F;
  all.frequency_penalty = 0.1F;
  all.logit_bias = {{5, 1.0F}};
  all.logprobs = 10;
  expect_no_allocations("every sampling field, text", 2, all, true);
  all.top_k = 0;
  expect_no_allocations("top_p over the whole vocabulary", 1, all, false);
}

}  // namespace
}  // namespace lmn::engine
