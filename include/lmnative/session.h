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
  uint32_t reserved;
} lmn_session_options;

/* Opens the ONNX file at `path`, operator sets 7 and newer. Weights stay in the mapped file.
 * `options` may be NULL. LMN_UNSUPPORTED lists operators that are not known; LMN_CORRUPT names the
 * field that is damaged. */
LMN_API lmn_status lmn_session_create(const char *path, const lmn_session_options *options,
                                      lmn_session **session, lmn_error **err);
/* The same for a model in memory, which is copied. */
LMN_API lmn_status lmn_session_bytes_create(const void *data, size_t size,
                                            const lmn_session_options *options,
                                            lmn_session **session, lmn_error **err);
/* NULL is a no-op. Bindings and values live on. */
LMN_API void lmn_session_destroy(lmn_session *session);

typedef struct lmn_session_info {
  uint32_t struct_size;
  uint32_t input_count;
  uint32_t output_count;
  int32_t threads;
} lmn_session_info;
/* How many inputs and outputs the model has, and how many threads the session. */
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
 * the result (its type must be the output's). After an error the entries that were NULL still are.
 */
LMN_API lmn_status lmn_session_run(lmn_session *session, const lmn_session_value *const *inputs,
                                   size_t input_count, lmn_session_value **outputs,
                                   size_t output_count, lmn_error **err);

/* The graph as text: the file's, or what the optimiser made of it. Written by the rule of
 * tokenizer.h for buffers: *length becomes the bytes, without a NUL, that there are. */
LMN_API lmn_status lmn_session_graph_get(const lmn_session *session, uint32_t optimized,
                                         char *buffer, size_t capacity, size_t *length,
                                         lmn_error **err);

/* A run with fixed buffers: input and output values, all tensors, whose memory is read and written
 * at every lmn_binding_run. Preparing is done here, so that running costs little. The values may be
 * destroyed; the binding keeps their memory. */
LMN_API lmn_status lmn_binding_create(lmn_session *session, const lmn_session_value *const *inputs,
                                      size_t input_count, const lmn_session_value *const *outputs,
                                      size_t output_count, lmn_binding **binding, lmn_error **err);
/* One run of a binding at a time. */
LMN_API lmn_status lmn_binding_run(lmn_binding *binding, lmn_error **err);
LMN_API void lmn_binding_destroy(lmn_binding *binding);

LMN_END_C

#endif /* LMNATIVE_SESSION_H_ */
