/* SPDX-License-Identifier: Apache-2.0
 *
 * inter_token MODEL THREADS PROMPT_TOKENS
 *
 * How an answer fares beside a long prompt: the time from one token to the next, in the client's
 * hands, while a prompt of PROMPT_TOKENS is computed, and of the same tokens of the same answer
 * when it runs alone. Prints one line of JSON, in µs. Exit code 1 and a message when the tokens
 * differ. */
#include <lmnative/lmnative.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMost = 6000, kBefore = 200 };

static lmn_error *error;
static double gaps[2][kMost]; /* beside the prompt, alone */
static int32_t ids[2][kMost];

static void fail(const char *what) {
  fprintf(stderr, "inter_token: %s%s%s\n", what, error ? ": " : "",
          error ? lmn_error_message(error) : "");
  exit(1);
}
static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double percentile(const double *values, int count, double p) {
  double *sorted = malloc((size_t)count * sizeof *sorted);
  memcpy(sorted, values, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, ascending);
  const double value = sorted[(int)(p * (count - 1))];
  free(sorted);
  return value;
}

static lmn_request *submit(lmn_engine *engine, const int32_t *prompt, uint64_t count,
                           uint32_t max_tokens) {
  const lmn_request_options options = {.struct_size = sizeof options,
                                       .flags = LMN_REQUEST_IGNORE_EOS,
                                       .prompt_ids = prompt,
                                       .prompt_id_count = count,
                                       .max_tokens = max_tokens};
  lmn_request *request = NULL;
  if (lmn_engine_submit(engine, &options, &request, &error) != LMN_OK) fail("submit");
  return request;
}
/* Takes news of token number `at` and those behind it, with the time since *last for each, and sets
 * *last. Returns the number of tokens. */
static int take(lmn_request *request, int run, int at, double *last) {
  lmn_chunk chunk = {.struct_size = sizeof chunk};
  if (lmn_request_next(request, -1, &chunk, &error) != LMN_OK) fail("next");
  const double now = now_us();
  const int count = (int)chunk.token_count;
  memcpy(ids[run] + at, chunk.token_ids, chunk.token_count * sizeof(int32_t));
  for (int i = 0; i < count; ++i) gaps[run][at + i] = (now - *last) / count;
  *last = now;
  return count;
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: inter_token MODEL THREADS PROMPT_TOKENS\n");
    return 2;
  }
  const int prompt_tokens = atoi(argv[3]);
  lmn_model *model = NULL;
  if (lmn_model_open(argv[1], NULL, &model, &error) != LMN_OK) fail("open");
  const lmn_engine_options options = {.struct_size = sizeof options, .threads = atoi(argv[2])};
  lmn_engine *engine = NULL;
  if (lmn_engine_create(model, &options, &engine, &error) != LMN_OK) fail("create");

  int32_t *prompt = malloc((size_t)prompt_tokens * sizeof *prompt);
  for (int i = 0; i < prompt_tokens; ++i) prompt[i] = 1000 + (int)((unsigned)i * 7919u % 40000u);

  /* The answer, and after kBefore tokens the prompt beside it. */
  lmn_request *answer = submit(engine, prompt, 8, kMost);
  lmn_request *beside = NULL;
  double last = now_us(), began = 0, took = 0;
  int tokens = 0, first = 0;
  while (tokens < kMost - 64 && took == 0) {
    tokens += take(answer, 0, tokens, &last);
    if (beside == NULL && tokens >= kBefore) {
      first = tokens;
      began = now_us();
      beside = submit(engine, prompt, (uint64_t)prompt_tokens, 1);
    } else if (beside != NULL && lmn_request_wait(beside, 0, NULL) == LMN_OK) {
      took = now_us() - began;
    }
  }
  if (took == 0) fail("the prompt was not computed while the answer ran");
  lmn_request_destroy(answer);
  lmn_request_destroy(beside);

  /* The same answer alone. */
  last = now_us();
  answer = submit(engine, prompt, 8, (uint32_t)tokens);
  for (int got = 0; got < tokens;) got += take(answer, 1, got, &last);
  if (memcmp(ids[0], ids[1], (size_t)tokens * sizeof(int32_t)) != 0)
    fail("the answer's tokens depend on what runs beside it");
  lmn_request_destroy(answer);
  const int loaded = tokens - first;
  printf(
      "{\"alone_p50\": %.1f, \"alone_p99\": %.1f, \"beside_p50\": %.1f, \"beside_p99\": %.1f, "
      "\"prompt_ms\": %.1f, \"tokens\": %d}\n",
      percentile(gaps[1] + first, loaded, 0.5), percentile(gaps[1] + first, loaded, 0.99),
      percentile(gaps[0] + first, loaded, 0.5), percentile(gaps[0] + first, loaded, 0.99),
      took / 1e3, loaded);
  lmn_engine_destroy(engine);
  lmn_model_destroy(model);
  return 0;
}
