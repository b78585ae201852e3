/* SPDX-License-Identifier: Apache-2.0
 *
 * Generating a token allocates nothing, on no thread, from the step loop to the caller's
 * lmn_request_next: this program's malloc family counts while the default model decodes 200 tokens.
 * The caller reads every token as it comes for half of them, then lags behind and takes the rest in
 * one chunk.
 * Exit code 77: skipped, with the reason. */
#include <lmnative/lmnative.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
int main(void) {
  printf("SKIP steady_state: the C library's malloc cannot be counted in this build\n");
  return 77;
}
#else

static atomic_long allocations;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *data, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

/* Exported, whatever the build hides: the library must find these and not the C library's. */
#pragma GCC visibility push(default)
void *malloc(size_t size) {
  atomic_fetch_add(&allocations, 1);
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  atomic_fetch_add(&allocations, 1);
  return __libc_calloc(count, size);
}
void *realloc(void *data, size_t size) {
  atomic_fetch_add(&allocations, 1);
  return __libc_realloc(data, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  atomic_fetch_add(&allocations, 1);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void **out, size_t alignment, size_t size) {
  atomic_fetch_add(&allocations, 1);
  *out = __libc_memalign(alignment, size);
  return *out == NULL ? 12 : 0;
}
#pragma GCC visibility pop

enum { kWarmUp = 20, kLag = 120, kTokens = 220 };

static int fail(const char *what, lmn_error *error) {
  fprintf(stderr, "steady_state: %s: %s\n", what, error ? lmn_error_message(error) : "");
  lmn_error_destroy(error);
  return 1;
}

int main(void) {
  const char *path = getenv("LMN_TEST_MODEL");
  lmn_error *error = NULL;
  lmn_model *model = NULL;
  const lmn_status opened =
      lmn_model_open(path && *path ? path : "smollm2-135m", NULL, &model, &error);
  if (opened == LMN_NOT_FOUND) {
    printf("SKIP steady_state: %s\n", lmn_error_message(error));
    lmn_error_destroy(error);
    return 77;
  }
  if (opened != LMN_OK) return fail("open", error);
  lmn_engine_options engine_options = {.struct_size = sizeof engine_options, .threads = 2};
  lmn_engine *engine = NULL;
  if (lmn_engine_create(model, &engine_options, &engine, &error) != LMN_OK)
    return fail("create", error);
  const lmn_string stop = {"no such text", 12}; /* so that stop strings are matched, too */
  lmn_request_options options = {
      .struct_size = sizeof options,
      .flags = LMN_REQUEST_IGNORE_EOS | LMN_REQUEST_SEED | LMN_REQUEST_LOGPROBS,
      .prompt = "Once upon a time",
      .prompt_bytes = 16,
      .max_tokens = kTokens,
      .temperature = 0.8f,
      .top_k = 40,
      .top_p = 0.95f,
      .repetition_penalty = 1.1f,
      .top_logprobs = 3,
      .stop = &stop,
      .stop_count = 1};
  lmn_request *request = NULL;
  if (lmn_engine_submit(engine, &options, &request, &error) != LMN_OK) return fail("submit", error);
  long before = -1;
  uint64_t tokens = 0;
  for (;;) {
    lmn_chunk chunk = {.struct_size = sizeof chunk};
    if (lmn_request_next(request, -1, &chunk, &error) != LMN_OK) return fail("next", error);
    tokens += chunk.token_count;
    if (before < 0 && tokens >= kWarmUp) before = atomic_load(&allocations);
    if (chunk.finish_reason != LMN_FINISH_NONE) break;
    if (tokens >= kLag && lmn_request_wait(request, -1, &error) != LMN_OK)
      return fail("wait", error);
  }
  const long counted = atomic_load(&allocations) - before;
  printf("%ld allocations in %llu tokens\n", counted, (unsigned long long)tokens - kWarmUp);
  if (tokens != kTokens || before < kWarmUp || counted != 0) {
    return fail("want 220 tokens, allocations while loading, and none while decoding", NULL);
  }
  lmn_request_destroy(request);
  lmn_engine_destroy(engine);
  lmn_model_destroy(model);
  return 0;
}
#endif
