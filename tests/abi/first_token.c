/* SPDX-License-Identifier: Apache-2.0
 *
 * From the start of a process to its first token, and what of that is what. Usage: first_token [MODEL [RUNS]]. The program
 * starts itself anew for each run, so that loading the library counts. Prints milliseconds; it judges nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lmnative/lmnative.h"

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* One run: opens, builds, asks, and prints the moments after `start` at which each was done. */
static int run(const char *path, double start) {
  static const char prompt[] = "The capital of France is";
  const double main_ms = now_ms();
  lmn_error *err = NULL;
  lmn_model *model = NULL;
  lmn_engine *engine = NULL;
  lmn_request *request = NULL;
  const lmn_request_options options = {
      .struct_size = sizeof options, .prompt = prompt, .prompt_bytes = sizeof prompt - 1, .max_tokens = 1};
  lmn_chunk chunk = {.struct_size = sizeof chunk};
  if (lmn_model_open(path, NULL, &model, &err) != LMN_OK) goto failed;
  const double open_ms = now_ms();
  if (lmn_engine_create(model, NULL, &engine, &err) != LMN_OK) goto failed;
  const double engine_ms = now_ms();
  if (lmn_engine_submit(engine, &options, &request, &err) != LMN_OK) goto failed;
  if (lmn_request_next(request, -1, &chunk, &err) != LMN_OK) goto failed;
  const double token_ms = now_ms();
  printf("%.3f %.3f %.3f %.3f\n", main_ms - start, open_ms - start, engine_ms - start, token_ms - start);
  lmn_request_destroy(request);
  lmn_engine_destroy(engine);
  lmn_model_destroy(model);
  return 0;
failed:
  fprintf(stderr, "%s\n", lmn_error_message(err));
  return 1;
}

/* Runs `program` once more and reads what it printed. */
static int measure(const char *program, const char *path, double at[4]) {
  int ends[2];
  char start[32];
  if (pipe(ends) != 0) return 0;
  snprintf(start, sizeof start, "%.6f", now_ms());
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], 1);
    execl(program, program, "--run", path, start, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  FILE *in = fdopen(ends[0], "r");
  const int read = fscanf(in, "%lf %lf %lf %lf", &at[0], &at[1], &at[2], &at[3]);
  fclose(in);
  int status = 0;
  waitpid(pid, &status, 0);
  return read == 4 && status == 0;
}

static int by_last(const void *a, const void *b) {
  const double x = ((const double *)a)[3], y = ((const double *)b)[3];
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "--run") == 0) return run(argv[2], atof(argv[3]));
  const char *path = argc > 1 ? argv[1] : getenv("LMN_TEST_MODEL");
  if (path == NULL || *path == '\0') path = "smollm2-135m";
  lmn_model *model = NULL;
  if (lmn_model_open(path, NULL, &model, NULL) == LMN_NOT_FOUND) {
    printf("SKIP first_token: no model '%s'\n", path);
    return 77;
  }
  lmn_model_destroy(model);
  double runs[32][4];
  const int wanted = argc > 2 ? atoi(argv[2]) : 5;
  int count = 0;
  while (count < wanted && count < 32) {
    if (!measure("/proc/self/exe", path, runs[count++])) return 1;
  }
  qsort(runs, (size_t)count, sizeof runs[0], by_last);
  const double *best = runs[0], *median = runs[count / 2];
  printf("process start to first token: %.0f ms at best, %.0f ms median of %d\n", best[3], median[3], count);
  printf("median: %.1f ms to main, %.1f open, %.1f engine, %.1f prompt and token\n", median[0], median[1] - median[0],
         median[2] - median[1], median[3] - median[2]);
  return 0;
}
