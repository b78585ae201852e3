/* SPDX-License-Identifier: Apache-2.0
 *
 * The two physical limits the benchmarks divide by, on T threads: read bandwidth over a buffer far
 * larger than the caches, and fused multiply-add throughput in registers. Prints {"read_gb_s": x,
 * "fma_gflop_s": y}. Compiled with -march=native. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kLanes = 8, kChains = 12, kRounds = 5 };
static const size_t kBytes = (size_t)256 << 20; /* per thread */
static const long kSteps = 20000000;

typedef float vec __attribute__((vector_size(kLanes * sizeof(float))));
typedef uint64_t word __attribute__((vector_size(32)));

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct job {
  pthread_barrier_t *barrier;
  char *buffer;
  double read_s[kRounds], fma_s;
  volatile uint64_t sink;
};

static void *work(void *arg) {
  struct job *job = arg;
  memset(job->buffer, 1, kBytes);
  for (int round = 0; round < kRounds; ++round) {
    pthread_barrier_wait(job->barrier);
    const double start = now();
    word sum[4] = {{0}, {0}, {0}, {0}};
    const word *p = (const word *)job->buffer;
    for (size_t i = 0; i < kBytes / sizeof(word); i += 4) {
      for (int j = 0; j < 4; ++j) sum[j] += p[i + (size_t)j];
    }
    job->sink = sum[0][0] + sum[1][0] + sum[2][0] + sum[3][0];
    pthread_barrier_wait(job->barrier);
    job->read_s[round] = now() - start;
  }
  vec acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = (vec){0} + (float)i;
  vec a = (vec){0} + 0.999f, b = (vec){0} + 0.001f;
  __asm__ volatile("" : "+x"(a), "+x"(b));
  pthread_barrier_wait(job->barrier);
  const double start = now();
  for (long s = 0; s < kSteps; ++s) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) acc[i] = acc[i] * a + b;
  }
  job->fma_s = now() - start;
  float total = 0;
  for (int i = 0; i < kChains; ++i) total += acc[i][0];
  job->sink += (uint64_t)total;
  return NULL;
}

int main(int argc, char **argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  if (threads < 1 || threads > 256) {
    fprintf(stderr, "usage: probe THREADS\n");
    return 2;
  }
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  struct job *jobs = calloc((size_t)threads, sizeof *jobs);
  pthread_t *ids = calloc((size_t)threads, sizeof *ids);
  for (int i = 0; i < threads; ++i) {
    jobs[i].barrier = &barrier;
    if (posix_memalign((void **)&jobs[i].buffer, 4096, kBytes)) return 1;
    pthread_create(&ids[i], NULL, work, &jobs[i]);
  }
  double fma_s = 0;
  for (int i = 0; i < threads; ++i) {
    pthread_join(ids[i], NULL);
    if (jobs[i].fma_s > fma_s) fma_s = jobs[i].fma_s;
  }
  /* A round takes as long as its slowest thread: one that starts late has the memory for itself. */
  double read_s = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    double slowest = 0;
    for (int i = 0; i < threads; ++i) {
      if (jobs[i].read_s[round] > slowest) slowest = jobs[i].read_s[round];
    }
    if (slowest < read_s) read_s = slowest;
  }
  printf("{\"read_gb_s\": %.2f, \"fma_gflop_s\": %.1f}\n", (double)kBytes * threads / read_s / 1e9,
         2.0 * kLanes * kChains * (double)kSteps * threads / fma_s / 1e9);
  return 0;
}
