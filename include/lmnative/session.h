/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: ONNX models, loaded and optimised once, run many times. Shapes may differ from run to
 * run; what a combination of shapes needs is prepared at its first run and kept.
 *
 * An lmn_session may be used by any number of threads at once, except in destroy. A run uses the
 * session's threads when no other run does, and the calling thread alone otherwise; results are the
 * same, bit for bit. A child process after fork gets LMN_CLOSED.
 */
#ifndef LMNATIVE_SESSION_H_
#define LMNATIVE_SESSION_H_

#include <stddef.h>

#include "lmnative/common.h"
#include "lmnative/session_value.h"

LMN_BEGIN_C

typedef struct lmn_session lmn_session;
typedef struct lmn_binding lmn_binding;

typedef struct lmn_session_options {
  uint32_t struct_size;
  int32_t threads;          /* 0: from affinity and cgroup quota; 1: the calling thread alone */
  uint32_t max_shapes;      /* combinations of input shapes that are kept; 0: 64 */
  uint32_t optimize;        /* LMN_DEFAULT, LMN_YES (the default) or LMN_NO */
  uint64_t max_arena_bytes; /* of one run: intermediate values, values whose shape depends on data,
                               outputs that it allocates, what was computed beforehand for inputs
                               of these shapes; more is LMN_OUT_OF_MEMORY. What is kept between
                               runs is bounded by the same. 0: no limit */
  const char *base_folder;  /* of lmn_session_bytes_create: where external data lies; NULL: there is
                               none */
  uint32_t max_run_ms; /* a run that takes longer ends between two operators, or iterations of a
                          loop, with LMN_TIMEOUT; 0: no limit */
  uint32_t runner;     /* LMN_RUNNER_*, 0: LMN_RUNNER_AUTO. Results do not depend on it */
  uint32_t batch_window_us; /* how long a run waits for others that differ from it in the number of
                               rows only, to run as one with them; 0: not at all. See below */
  uint32_t max_batch;       /* rows of such a run; 0: 64 */
  uint32_t max_queue;       /* submitted runs that have not ended; 0: 1024 */
  uint32_t reserved;
  /* Where the model runs: "cpu", which NULL is too; "cuda" or "cuda:N", the first NVIDIA
   * device or the N-th, from 0, of those that CUDA shows to the process. Operators that the device
   * has no kernel for, and subgraphs, run on the CPU; values are copied between the two, inputs and
   * outputs are memory of the host. Results are reproducible on each kind of device; between kinds
   * they differ in the last bits. Read during create. */
  const char *device;
} lmn_session_options;

#define LMN_RUNNER_AUTO 0
/* The threads go through the operators together, and share each one out. */
#define LMN_RUNNER_LOCKSTEP 1
/* Each thread takes operators whose inputs are there: for graphs with many small ones side by side.
 * What has values whose shapes depend on data runs in lockstep all the same. */
#define LMN_RUNNER_GRAPH 2

/* Opens the ONNX file at `path`, operator sets 7 and newer. Weights stay in the mapped file.
 * `options` may be NULL. LMN_UNSUPPORTED lists operators that are not known, or
 * says why there is no such device; LMN_CORRUPT names the field that is damaged. */
LMN_API lmn_status lmn_session_create(const char *path, const lmn_session_options *options,
                                      lmn_session **session, lmn_error **err);
/* The same for a model in memory, which is copied. */
LMN_API lmn_status lmn_session_bytes_create(const void *data, size_t size,
                                            const lmn_session_options *options,
                                            lmn_session **session, lmn_error **err);
/* NULL is a no-op. Cancels the runs that have not ended, and returns after their callbacks.
 * Bindings, handles of runs and values live on. */
LMN_API void lmn_session_destroy(lmn_session *session);

typedef struct lmn_session_info {
  uint32_t struct_size;
  uint32_t input_count;
  uint32_t output_count;
  int32_t threads;
  uint32_t
      lockstep_shapes; /* combinations of input shapes that are prepared now, by their runner */
  uint32_t graph_shapes;
  uint32_t batches; /* 1: runs may be joined, as batch_window_us asks for and the model allows */
  uint32_t device_operators; /* of the combination of input shapes that ran last: how many of its
                                operators run on the device that is not the CPU, and how many on
                                the CPU */
  uint32_t host_operators;
  uint32_t library_operators; /* of those on the device, how many leave their product to cuBLASLt */
} lmn_session_info;
/* How many inputs and outputs the model has, how many threads the session, and how it runs. */
LMN_API lmn_status lmn_session_info_get(const lmn_session *session, lmn_session_info *info,
                                        lmn_error **err);

typedef struct lmn_port_info {
  uint32_t struct_size;
  int32_t kind;      /* LMN_SESSION_VALUE_* */
  const char *name;  /* lives as long as the session */
  const char *dtype; /* of the elements; static */
  int32_t ndim;      /* of a tensor; -1: not known */
  uint32_t reserved;
  int64_t shape[8];       /* -1: differs from run to run */
  const char *symbols[8]; /* the name of such a size, or NULL; live as long as the session */
} lmn_port_info;
/* Input `index` in the model's order; LMN_NOT_FOUND past the end. Weights that the file lists as
 * inputs as well are none. */
LMN_API lmn_status lmn_session_input_get(const lmn_session *session, uint32_t index,
                                         lmn_port_info *info, lmn_error **err);
/* Output `index` in the model's order. */
LMN_API lmn_status lmn_session_output_get(const lmn_session *session, uint32_t index,
                                          lmn_port_info *info, lmn_error **err);

/* Runs the model on all of its inputs, in order. outputs[i], one for each output in order: NULL on
 * entry, a new value of the caller's afterwards; or a tensor value on entry, whose memory becomes
 * the result (its type must be the output's; it overlaps no input and no other output). After an
 * error the entries that were NULL still are. */
LMN_API lmn_status lmn_session_run(lmn_session *session, const lmn_session_value *const *inputs,
                                   size_t input_count, lmn_session_value **outputs,
                                   size_t output_count, lmn_error **err);

/* The graph as text: the file's, or what the optimiser made of it. Written by the rule of
 * tokenizer.h for buffers: *length becomes the bytes, without a NUL, that there are. */
LMN_API lmn_status lmn_session_graph_get(const lmn_session *session, uint32_t optimized,
                                         char *buffer, size_t capacity, size_t *length,
                                         lmn_error **err);

/* A run with fixed buffers: input and output values, all tensors, whose memory is read and written
 * at every lmn_binding_run. Preparing is done here, so that running costs little. Outputs overlap
 * no input and no other output. The values may be destroyed; the binding keeps their memory. */
LMN_API lmn_status lmn_binding_create(lmn_session *session, const lmn_session_value *const *inputs,
                                      size_t input_count, const lmn_session_value *const *outputs,
                                      size_t output_count, lmn_binding **binding, lmn_error **err);
/* One run of a binding at a time. */
LMN_API lmn_status lmn_binding_run(lmn_binding *binding, lmn_error **err);
LMN_API void lmn_binding_destroy(lmn_binding *binding);

/* Runs that nobody waits for. One at a time in the order of their submission, beside
 * lmn_session_run on other threads.
 *
 * With batch_window_us, submitted runs, and those of lmn_session_run on several threads, are
 * joined: if every input and output of the model has the same named size first, and no operator
 * mixes, reads or moves the rows, then runs whose inputs have the same sizes but for the first run
 * as one, and come apart again. Results are the same, bit for bit. max_arena_bytes and max_run_ms
 * then hold for the joint run; if that fails, each runs alone. */
typedef struct lmn_run lmn_run;

/* Called once when a run has ended, on a thread of the library's, one call at a time. `run` may be
 * waited for and cancelled in the call, and is gone after it. It must not throw, and the session
 * must not be destroyed in it; everything else is legal. */
typedef void (*lmn_run_fn)(void *user, lmn_run *run);

/* Puts a run into the queue and returns. `outputs`, read now, and input_count are as in
 * lmn_session_run, but NULL for `outputs` means new values only; inputs may be destroyed, their
 * memory must stay as it is until the run has ended. `callback` may be NULL. `run` becomes the
 * caller's, and may be NULL where there is a callback. LMN_QUEUE_FULL when max_queue runs have not
 * ended yet, LMN_CLOSED in a child process after fork. */
LMN_API lmn_status lmn_session_submit(lmn_session *session, const lmn_session_value *const *inputs,
                                      size_t input_count, const lmn_session_value *const *outputs,
                                      size_t output_count, lmn_run_fn callback, void *user,
                                      lmn_run **run, lmn_error **err);

/* Waits for the end of the run: `timeout_ns` 0 polls, negative waits without end; LMN_TIMEOUT when
 * it has not ended. Then what the run ended with (LMN_CANCELLED after lmn_run_cancel and after the
 * end of the session; LMN_TIMEOUT may also be the run's own, by max_run_ms: the message says it),
 * and, if that is LMN_OK, outputs[i] becomes a new value, one for each output. `outputs` may be
 * NULL with output_count 0. Any number of threads at once, and again. */
LMN_API lmn_status lmn_run_wait(lmn_run *run, int64_t timeout_ns, lmn_session_value **outputs,
                                size_t output_count, lmn_error **err);

/* The run ends before its next operator, or never begins. One that was joined with others is
 * computed with them, and ends with LMN_CANCELLED. Any thread, at any time. */
LMN_API void lmn_run_cancel(lmn_run *run);

/* Gives the handle back; the run goes on. NULL is a no-op. Handles may outlive the session. */
LMN_API void lmn_run_destroy(lmn_run *run);

LMN_END_C

#endif /* LMNATIVE_SESSION_H_ */
