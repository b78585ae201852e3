/* SPDX-License-Identifier: Apache-2.0
 *
 * host steps VOCAB BATCH STEPS | host first_token VOCAB ROUNDS | host first_news VOCAB ROUNDS
 *
 * What the engine costs around the model: null models, whose plan does no work, and one client
 * thread that sleeps on the engine's descriptor and drains it. Prints one line of JSON. Every token
 * is compared with the null model's likeliest one before anything is printed; exit code 1 and a
 * message otherwise.
 *
 * steps: BATCH greedy answers, until STEPS steps had a token of each; then they are cancelled. A
 * step's host time is from its begin to the begin of the next one, without "run", out of the
 * engine's trace: all that the engine thread does, announcing the news included.
 * Allocations are those of the whole process in these steps; tokens_per_s is by the clock.
 *
 * first_token: one request after the other on an idle engine; from submit to its first token in the
 * hands of a client that waits in lmn_request_next. first_news: of one that sleeps on the
 * descriptor, which costs two changes of context by the kernel. */
#include <lmnative/lmnative.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static atomic_long allocations;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *data, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  return __libc_calloc(count, size);
}
void *realloc(void *data, size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  return __libc_realloc(data, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void **out, size_t alignment, size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  *out = __libc_memalign(alignment, size);
  return *out == NULL ? 12 : 0;
}

enum { kMaxBatch = 1024, kSpansPerStep = 5, kPrompt = 8 };
static const int32_t prompt[kPrompt] = {72, 101, 108, 108, 111, 44, 32, 119};
static lmn_error *error;

static void fail(const char *what) {
  fprintf(stderr, "host: %s%s%s\n", what, error ? ": " : "", error ? lmn_error_message(error) : "");
  exit(1);
}
static void must(lmn_status status, const char *what) {
  if (status != LMN_OK) fail(what);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}
static double percentile_us(const int64_t *sorted, size_t count, double percent) {
  return (double)sorted[(size_t)((double)(count - 1) * percent / 100)] / 1e3;
}

static lmn_engine *engine_of(long vocab, uint32_t batch, uint32_t tokens, uint32_t trace_events) {
  char name[64];
  snprintf(name, sizeof name, "null:vocab=%ld,context=%u", vocab, tokens + kPrompt);
  lmn_model *model = NULL;
  lmn_engine *engine = NULL;
  must(lmn_model_open(name, NULL, &model, &error), "open");
  const lmn_engine_options options = {.struct_size = sizeof options,
                                      .threads = 1,
                                      .kv_tokens = batch * (tokens + kPrompt + 64),
                                      .max_sequences = batch,
                                      .trace_events = trace_events};
  must(lmn_engine_create(model, &options, &engine, &error), "create");
  lmn_model_destroy(model);
  return engine;
}

static lmn_request *submit(lmn_engine *engine, uint64_t tag, uint32_t tokens, int notify) {
  const lmn_request_options options = {
      .struct_size = sizeof options,
      .flags = (notify ? LMN_REQUEST_NOTIFY : 0) | LMN_REQUEST_IGNORE_EOS,
      .prompt_ids = prompt,
      .prompt_id_count = kPrompt,
      .max_tokens = tokens,
      .tag = tag};
  lmn_request *request = NULL;
  must(lmn_engine_submit(engine, &options, &request, &error), "submit");
  return request;
}

/* Takes what the request has: tokens, all of which must be `wanted`. Returns why it ended. */
static uint32_t take(lmn_request *request, int64_t timeout_ns, int32_t wanted, uint64_t *taken) {
  lmn_chunk chunk = {.struct_size = sizeof chunk};
  const lmn_status status = lmn_request_next(request, timeout_ns, &chunk, NULL);
  /* CLOSED: the end was taken with what came before. */
  if (status == LMN_TIMEOUT || status == LMN_CLOSED) return LMN_FINISH_NONE;
  if (status != LMN_OK) fail(lmn_status_name(status));
  for (uint64_t i = 0; i < chunk.token_count; ++i) {
    if (chunk.token_ids[i] != wanted) fail("a token is not the likeliest one");
  }
  *taken += chunk.token_count;
  return chunk.finish_reason;
}

static size_t wait_and_drain(lmn_engine *engine, int descriptor, uint64_t *tags, size_t capacity) {
  struct pollfd wait = {.fd = descriptor, .events = POLLIN};
  if (poll(&wait, 1, 60000) != 1) fail("no news in a minute");
  size_t count = 0;
  must(lmn_engine_drain(engine, tags, capacity, &count, &error), "drain");
  return count;
}

/* Adds to `times` the host times of the steps of `batch` sequences, one token each, that are in the
 * trace now; returns how many there are then. */
static size_t host_times(lmn_engine *engine, uint32_t batch, int64_t *times, size_t found,
                         size_t capacity) {
  static lmn_trace_event events[kSpansPerStep * 1000];
  const size_t room = sizeof events / sizeof events[0];
  size_t count = room;
  uint64_t lost = 0;
  int64_t begin = 0, run = 0; /* of the step before; begin 0: there is none of the whole batch */
  while (count == room) {
    must(lmn_engine_trace_get(engine, events, room, &count, &lost, &error), "trace");
    for (size_t i = 0; i < count; ++i) {
      const lmn_trace_event *event = &events[i];
      if (event->request != 0) continue;
      if (strcmp(event->name, "run") == 0) run = (int64_t)(event->end_ns - event->begin_ns);
      if (strcmp(event->name, "schedule") != 0) continue;
      if (begin != 0 && found < capacity) times[found++] = (int64_t)event->begin_ns - begin - run;
      const int whole = event->tokens == batch && event->sequences == batch;
      begin = whole ? (int64_t)event->begin_ns : 0;
    }
  }
  return found;
}

typedef struct {
  int64_t ns;
  long allocations;
  uint64_t steps, tokens;
} moment;

static moment moment_of(const lmn_engine *engine) {
  lmn_engine_stats stats = {.struct_size = sizeof stats};
  must(lmn_engine_stats_get(engine, &stats, &error), "stats");
  return (moment){now_ns(), atomic_load(&allocations), stats.steps, stats.generated_tokens};
}

static int steps(long vocab, uint32_t batch, uint32_t wanted_steps) {
  static lmn_request *requests[kMaxBatch];
  static uint64_t taken[kMaxBatch], tags[kMaxBatch];
  const int32_t wanted = vocab > 'a' ? 'a' : (int32_t)vocab - 1;
  /* The first answers run on while the last ones start, and all until the client wakes. */
  const uint32_t longest = 4 * wanted_steps + 60000;
  lmn_engine *engine = engine_of(vocab, batch, longest, 2 * kSpansPerStep * wanted_steps);
  int32_t descriptor = -1;
  must(lmn_engine_descriptor_get(engine, &descriptor, &error), "descriptor");
  int64_t *times = malloc(wanted_steps * sizeof *times);
  for (uint32_t i = 0; i < batch; ++i) requests[i] = submit(engine, i, longest, 1);
  uint32_t flowing = 0, ended = 0;
  moment begin = {0}, end = {0};
  while (ended < batch) {
    const size_t count = wait_and_drain(engine, descriptor, tags, batch);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t tag = tags[i], before = taken[tag];
      const uint32_t reason = take(requests[tag], 0, wanted, &taken[tag]);
      flowing += before == 0 && taken[tag] > 0;
      if (reason != LMN_FINISH_NONE && reason != LMN_FINISH_CANCELLED)
        fail("an answer ended before it was cancelled");
      ended += reason != LMN_FINISH_NONE;
    }
    if (begin.ns == 0 && flowing == batch) {
      host_times(engine, batch, times, 0, 0); /* takes what was before out of the trace */
      begin = moment_of(engine);
    } else if (begin.ns != 0 && end.ns == 0) {
      const moment now = moment_of(engine);
      if (now.steps - begin.steps < wanted_steps) continue;
      end = now;
      for (uint32_t i = 0; i < batch; ++i) must(lmn_request_cancel(requests[i], &error), "cancel");
    }
  }
  for (uint32_t i = 0; i < batch; ++i) {
    lmn_request_stats stats = {.struct_size = sizeof stats};
    must(lmn_request_stats_get(requests[i], &stats, &error), "stats");
    if (taken[i] != stats.generated_tokens) fail("an answer lacks tokens");
    lmn_request_destroy(requests[i]);
  }
  const size_t found = host_times(engine, batch, times, 0, wanted_steps);
  if (found < wanted_steps / 2) fail("most steps were not of the whole batch");
  qsort(times, found, sizeof times[0], by_value);
  printf(
      "{\"step_us_p50\": %.3f, \"step_us_p10\": %.3f, \"step_us_p90\": %.3f, \"steps\": %llu, "
      "\"allocations\": %ld, \"tokens_per_s\": %.0f}\n",
      percentile_us(times, found, 50), percentile_us(times, found, 10),
      percentile_us(times, found, 90), (unsigned long long)(end.steps - begin.steps),
      end.allocations - begin.allocations,
      (double)(end.tokens - begin.tokens) / ((double)(end.ns - begin.ns) / 1e9));
  free(times);
  lmn_engine_destroy(engine);
  return 0;
}

static int first_token(long vocab, long rounds, int by_descriptor) {
  const int32_t wanted = vocab > 'a' ? 'a' : (int32_t)vocab - 1;
  lmn_engine *engine = engine_of(vocab, 4, 64, 0);
  int32_t descriptor = -1;
  must(lmn_engine_descriptor_get(engine, &descriptor, &error), "descriptor");
  int64_t *times = malloc((size_t)rounds * sizeof *times);
  for (long i = -100; i < rounds; ++i) { /* the first ones warm up */
    const int64_t start = now_ns();
    lmn_request *request = submit(engine, (uint64_t)i, 8, by_descriptor);
    uint64_t taken = 0;
    uint32_t reason = LMN_FINISH_NONE;
    int64_t first = 0;
    while (reason == LMN_FINISH_NONE) {
      uint64_t tag = (uint64_t)i;
      if (by_descriptor && wait_and_drain(engine, descriptor, &tag, 1) == 0) continue;
      if (tag != (uint64_t)i) fail("news of another request");
      reason = take(request, by_descriptor ? 0 : -1, wanted, &taken);
      if (first == 0 && taken > 0) first = now_ns();
    }
    if (taken != 8 || reason != LMN_FINISH_LENGTH) fail("an answer lacks tokens");
    if (i >= 0) times[i] = first - start;
    lmn_request_destroy(request);
  }
  qsort(times, (size_t)rounds, sizeof times[0], by_value);
  printf("{\"p50\": %.3f, \"p90\": %.3f, \"p99\": %.3f, \"max\": %.3f, \"rounds\": %ld}\n",
         percentile_us(times, (size_t)rounds, 50), percentile_us(times, (size_t)rounds, 90),
         percentile_us(times, (size_t)rounds, 99), percentile_us(times, (size_t)rounds, 100),
         rounds);
  free(times);
  lmn_engine_destroy(engine);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 5 && strcmp(argv[1], "steps") == 0 && atol(argv[3]) >= 1 &&
      atol(argv[3]) <= kMaxBatch)
    return steps(atol(argv[2]), (uint32_t)atol(argv[3]), (uint32_t)atol(argv[4]));
  if (argc == 4 && strcmp(argv[1], "first_token") == 0 && atol(argv[3]) >= 1)
    return first_token(atol(argv[2]), atol(argv[3]), 0);
  if (argc == 4 && strcmp(argv[1], "first_news") == 0 && atol(argv[3]) >= 1)
    return first_token(atol(argv[2]), atol(argv[3]), 1);
  fprintf(stderr,
          "usage: host steps VOCAB BATCH STEPS | host first_token|first_news VOCAB ROUNDS\n");
  return 2;
}
