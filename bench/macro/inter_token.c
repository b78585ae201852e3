/* SPDX-License-Identifier: Apache-2.0
 *
 * inter_token MODEL THREADS PROMPT_TOKENS
 *
 * How an answer fares beside a long prompt: the time from one token to the next, in the client's
 * hands, while the answer runs alone, and while a prompt of PROMPT_TOKENS is computed. Prints one
 * line of JSON, in µs. The answer's tokens are compared with those of the same request run alone;
 * exit code 1 and a message when they differ. */
#include <lmnative/lmnative.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMost = 6000, kAlone = 200 };

static lmn_error *error;
static double gaps[kMost];
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
/* Takes news of `request`; returns the number of tokens. */
static int take(lmn_request *request, int32_t *out) {
  lmn_chunk chunk = {.struct_size = sizeof chunk};
  if (lmn_request_next(request, -1, &chunk, &error) != LMN_OK) fail("next");
  memcpy(out, chunk.token_ids, chunk.token_count * sizeof *out);
  return (int)chunk.token_count;
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

  /* The answer, and after kAlone tokens the prompt beside it. */
  lmn_request *answer = submit(engine, prompt, 8, kMost);
  lmn_request *beside = NULL;
  int tokens = take(answer, ids[0]), alone = 0, loaded = 0;
  double last = now_us(), began = 0, took = 0;
  static double beside_gaps[kMost];
  while (tokens < kMost - 64) {
    const int count = take(answer, ids[0] + tokens);
    const double now = now_us();
    tokens += count;
    for (int i = 0; i < count; ++i) {
      if (beside == NULL && alone < kAlone) gaps[alone++] = (now - last) / count;
      if (beside != NULL && loaded < kMost) beside_gaps[loaded++] = (now - last) / count;
    }
    last = now;
    if (alone == kAlone && beside == NULL) {
      beside = submit(engine, prompt, (uint64_t)prompt_tokens, 1);
      began = now_us();
    } else if (beside != NULL) {
      const lmn_status status = lmn_request_wait(beside, 0, NULL);
      if (status == LMN_OK) {
        took = now_us() - began;
        break;
      }
    }
  }
  if (took == 0) fail("the prompt was not computed while the answer ran");
  lmn_request_destroy(answer);
  lmn_request_destroy(beside);

  /* The same answer alone. */
  answer = submit(engine, prompt, 8, (uint32_t)tokens);
  for (int got = 0; got < tokens;) got += take(answer, ids[1] + got);
  if (memcmp(ids[0], ids[1], (size_t)tokens * sizeof(int32_t)) != 0)
    fail("the answer's tokens depend on what runs beside it");
  lmn_request_destroy(answer);
  printf(
      "{\"alone_p50\": %.1f, \"alone_p99\": %.1f, \"beside_p50\": %.1f, \"beside_p99\": %.1f, "
      "\"prompt_ms\": %.1f, "
      "\"tokens\": %d}\n",
      percentile(gaps, alone, 0.5), percentile(gaps, alone, 0.99),
      percentile(beside_gaps, loaded, 0.5), percentile(beside_gaps, loaded, 0.99), took / 1e3,
      loaded);
  lmn_engine_destroy(engine);
  lmn_model_destroy(model);
  return 0;
}
