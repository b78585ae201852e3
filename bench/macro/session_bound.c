/* SPDX-License-Identifier: Apache-2.0
 *
 * session_bound MODEL THREADS RUNS REPEATS: runs a bound session whose inputs have fixed shapes of
 * float32, all elements 0.5; prints the microseconds of one run, the median of REPEATS times RUNS,
 * and the sum of the first output. */
#include <lmnative/lmnative.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kMaxPorts = 16 };

static lmn_error *error = NULL;

static void check(lmn_status status) {
  if (status == LMN_OK) return;
  fprintf(stderr, "session_bound: %s\n", lmn_error_message(error));
  exit(1);
}

static double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The tensor of a port and its value, which is the caller's. */
static lmn_session_value *create_value(const lmn_port_info *port, float **data, int64_t *count) {
  struct DLManagedTensorVersioned *tensor = NULL;
  check(lmn_tensor_create(kDLFloat, 32, port->ndim, port->shape, &tensor, &error));
  *data = tensor->dl_tensor.data;
  *count = 1;
  for (int i = 0; i < port->ndim; ++i) *count *= port->shape[i];
  lmn_session_value *value = NULL;
  check(lmn_session_value_create(tensor, NULL, &value, &error));
  return value;
}

int main(int argc, char **argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: session_bound MODEL THREADS RUNS REPEATS\n");
    return 2;
  }
  const int runs = atoi(argv[3]), repeats = atoi(argv[4]);
  const lmn_session_options options = {.struct_size = sizeof options, .threads = atoi(argv[2])};
  lmn_session *session = NULL;
  check(lmn_session_create(argv[1], &options, &session, &error));
  lmn_session_info info = {.struct_size = sizeof info};
  check(lmn_session_info_get(session, &info, &error));
  if (info.input_count > kMaxPorts || info.output_count > kMaxPorts || runs < 1 || repeats < 1) {
    fprintf(stderr, "session_bound: at most %d inputs and outputs, and a run\n", kMaxPorts);
    return 2;
  }
  lmn_session_value *inputs[kMaxPorts], *outputs[kMaxPorts];
  float *result = NULL;
  int64_t result_count = 0;
  lmn_port_info port = {.struct_size = sizeof port};
  for (uint32_t i = 0; i < info.input_count; ++i) {
    float *data;
    int64_t count;
    check(lmn_session_input_get(session, i, &port, &error));
    inputs[i] = create_value(&port, &data, &count);
    for (int64_t j = 0; j < count; ++j) data[j] = 0.5f;
  }
  for (uint32_t i = info.output_count; i-- > 0;) {
    check(lmn_session_output_get(session, i, &port, &error));
    outputs[i] = create_value(&port, &result, &result_count);
  }
  lmn_binding *binding = NULL;
  check(lmn_binding_create(session, (const lmn_session_value *const *)inputs, info.input_count,
                           (const lmn_session_value *const *)outputs, info.output_count, &binding,
                           &error));
  double *times = malloc(sizeof *times * (size_t)repeats);
  for (int r = 0; r < repeats; ++r) {
    const double start = now_us();
    for (int i = 0; i < runs; ++i) check(lmn_binding_run(binding, &error));
    times[r] = (now_us() - start) / runs;
  }
  qsort(times, (size_t)repeats, sizeof *times, compare);
  double sum = 0;
  for (int64_t i = 0; i < result_count; ++i) sum += result[i];
  printf("%.4f %.6f\n", times[repeats / 2], sum);
  free(times);
  lmn_binding_destroy(binding);
  for (uint32_t i = 0; i < info.input_count; ++i) lmn_session_value_destroy(inputs[i]);
  for (uint32_t i = 0; i < info.output_count; ++i) lmn_session_value_destroy(outputs[i]);
  lmn_session_destroy(session);
  return 0;
}
