/* SPDX-License-Identifier: Apache-2.0
 *
 * Generating a token allocates nothing, on no thread, from the step loop to the caller's
 * lmn_request_next: this program's malloc family counts while the default model decodes 200 tokens.
 * The caller reads every token as it comes for half of them, then lags behind and takes the rest in
 * one chunk. Then 16 requests at once, read through the engine's descriptor: of the default model,
 * and of the null model, whose steps are so short that the reader meets every race.
 * Exit code 77: skipped, with the reason. */
#include <lmnative/lmnative.h>
#include <poll.h>
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

static lmn_request_options request_options(uint32_t max_tokens) {
  static const lmn_string stop = {"no such text", 12}; /* so that stop strings are matched, too */
  return (lmn_request_options){
      .struct_size = sizeof(lmn_request_options),
      .flags = LMN_REQUEST_IGNORE_EOS | LMN_REQUEST_SEED | LMN_REQUEST_LOGPROBS,
      .prompt = "Once upon a time",
      .prompt_bytes = 16,
      .max_tokens = max_tokens,
      .temperature = 0.8f,
      .top_k = 40,
      .top_p = 0.95f,
      .repetition_penalty = 1.1f,
      .top_logprobs = 3,
      .stop = &stop,
      .stop_count = 1};
}

/* One request, read by waiting for it. What main returns; so below. */
static int read_one(lmn_engine *engine) {
  lmn_error *error = NULL;
  lmn_request_options options = request_options(kTokens);
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
  return 0;
}

enum { kMany = 16 };

/* kMany requests through the descriptor: counted from when each has kWarmUp tokens. */
static int read_many(lmn_engine *engine, uint32_t max_tokens) {
  lmn_error *error = NULL;
  lmn_request *requests[kMany];
  uint64_t tokens[kMany] = {0};
  lmn_request_options options = request_options(max_tokens);
  options.flags |= LMN_REQUEST_NOTIFY;
  for (uint64_t i = 0; i < kMany; ++i) {
    options.tag = options.seed = i;
    if (lmn_engine_submit(engine, &options, &requests[i], &error) != LMN_OK)
      return fail("submit", error);
  }
  int32_t descriptor = -1;
  if (lmn_engine_descriptor_get(engine, &descriptor, &error) != LMN_OK)
    return fail("descriptor", error);
  long before = -1;
  uint64_t first = 0, all = 0;
  int warm = 0;
  for (int open = kMany; open > 0;) {
    struct pollfd news = {.fd = descriptor, .events = POLLIN};
    if (poll(&news, 1, 60000) != 1) return fail("no news within a minute", NULL);
    uint64_t tags[kMany];
    size_t count = 0;
    if (lmn_engine_drain(engine, tags, kMany, &count, &error) != LMN_OK)
      return fail("drain", error);
    for (size_t i = 0; i < count; ++i) {
      lmn_chunk chunk = {.struct_size = sizeof chunk};
      while (lmn_request_next(requests[tags[i]], 0, &chunk, &error) == LMN_OK) {
        const uint64_t had = tokens[tags[i]];
        tokens[tags[i]] += chunk.token_count;
        all += chunk.token_count;
        warm += had < kWarmUp && tokens[tags[i]] >= kWarmUp;
        open -= chunk.finish_reason != LMN_FINISH_NONE;
      }
      lmn_error_destroy(error); /* "no news": allocates nothing either */
      error = NULL;
    }
    if (before < 0 && warm == kMany) {
      before = atomic_load(&allocations);
      first = all;
    }
  }
  const long counted = atomic_load(&allocations) - before;
  printf("%ld allocations in %llu tokens of %d requests\n", counted,
         (unsigned long long)(all - first), kMany);
  if (all != (uint64_t)kMany * max_tokens || all == first || counted != 0)
    return fail("want all tokens, and no allocation", NULL);
  for (int i = 0; i < kMany; ++i) lmn_request_destroy(requests[i]);
  return 0;
}

/* 77: there is no such model. */
static int with_engine(const char *path, lmn_engine **engine) {
  lmn_error *error = NULL;
  lmn_model *model = NULL;
  const lmn_status opened = lmn_model_open(path, NULL, &model, &error);
  if (opened == LMN_NOT_FOUND) {
    printf("SKIP steady_state: %s\n", lmn_error_message(error));
    lmn_error_destroy(error);
    return 77;
  }
  if (opened != LMN_OK) return fail("open", error);
  const lmn_engine_options options = {
      .struct_size = sizeof options, .threads = 2, .kv_tokens = 32768};
  if (lmn_engine_create(model, &options, engine, &error) != LMN_OK) return fail("create", error);
  lmn_model_destroy(model);
  return 0;
}

int main(void) {
  lmn_engine *engine = NULL;
  int result = with_engine("null:", &engine);
  if (result == 0) result = read_many(engine, 2000);
  if (result != 0) return result;
  lmn_engine_destroy(engine);
  const char *path = getenv("LMN_TEST_MODEL");
  result = with_engine(path && *path ? path : "smollm2-135m", &engine);
  if (result == 0) result = read_one(engine);
  if (result == 0) result = read_many(engine, 60);
  if (result == 0) lmn_engine_destroy(engine);
  return result;
}
#endif
