/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs that are written down operator by operator instead of read from an ONNX file; what comes
 * of one is a session like any other. C = ReLU(A.B + bias):
 *
 *   const int64_t shape[] = {16, 16};
 *   int32_t a, b, bias, x;
 *   lmn_graph_create(&graph, &err);
 *   lmn_graph_input_create(graph, "A", "f32", 2, shape, NULL, &a, &err);
 *   lmn_graph_constant_create(graph, "B", b_value, &b, &err);
 *   lmn_graph_constant_create(graph, "bias", bias_value, &bias, &err);
 *   lmn_graph_node_create(graph, "MatMul", (int32_t[]){a, b}, 2, NULL, 0, &x, 1, &err);
 *   lmn_graph_node_create(graph, "Add", (int32_t[]){x, bias}, 2, NULL, 0, &x, 1, &err);
 *   lmn_graph_node_create(graph, "Relu", &x, 1, NULL, 0, &x, 1, &err);
 *   lmn_graph_output_create(graph, "C", x, &err);
 *   lmn_graph_session_create(graph, NULL, &session, &err);
 *
 * Values of a graph are numbers. Operators, their attributes and their meaning are ONNX's, of the
 * newest operator set (https://onnx.ai/onnx/operators); those of other domains are named with the
 * domain in front, "ai.onnx.ml.Scaler"; upper and lower case are the same. A node is checked and
 * the types of its outputs are inferred when it is added, so that an error names the node and the
 * operand; a graph is as before after an error. An lmn_graph is used by one thread at a time.
 */
#ifndef LMNATIVE_GRAPH_H_
#define LMNATIVE_GRAPH_H_

#include <stddef.h>

#include "lmnative/common.h"
#include "lmnative/session.h"

LMN_BEGIN_C

typedef struct lmn_graph lmn_graph;

#define LMN_GRAPH_ABSENT (-1) /* an optional operand that a node does without */

/* Kinds of attributes: the numbers of ONNX's AttributeProto. */
#define LMN_ATTRIBUTE_FLOAT 1   /* f */
#define LMN_ATTRIBUTE_INT 2     /* i */
#define LMN_ATTRIBUTE_STRING 3  /* data: char[count] */
#define LMN_ATTRIBUTE_TENSOR 4  /* data: an lmn_session_value, whose memory is shared */
#define LMN_ATTRIBUTE_GRAPH 5   /* data: an lmn_graph with outputs, as it is now */
#define LMN_ATTRIBUTE_FLOATS 6  /* data: float[count] */
#define LMN_ATTRIBUTE_INTS 7    /* data: int64_t[count] */
#define LMN_ATTRIBUTE_STRINGS 8 /* data: char *[count], NUL-terminated */

/* A named constant of a node. Everything but the memory of tensors is copied. */
typedef struct lmn_attribute {
  const char *name;
  int32_t kind; /* LMN_ATTRIBUTE_*: which of the fields below counts */
  float f;
  int64_t i;
  const void *data;
  uint64_t count;
} lmn_attribute;

/* An empty graph. */
LMN_API lmn_status lmn_graph_create(lmn_graph **graph, lmn_error **err);
/* NULL is a no-op. Sessions and graphs that were made with it live on. */
LMN_API void lmn_graph_destroy(lmn_graph *graph);

/* An input, a tensor. `dtype`: a name of session_value.h. ndim is 0 to 8, or -1: any, as the inputs
 * of the bodies of Loop and Scan must have it. shape[i] is a size, or -1 for one that differs from
 * run to run; symbols[i] is then its name, equal for equal sizes, or NULL. `symbols` may be NULL.
 */
LMN_API lmn_status lmn_graph_input_create(lmn_graph *graph, const char *name, const char *dtype,
                                          int32_t ndim, const int64_t *shape,
                                          const char *const *symbols, int32_t *value,
                                          lmn_error **err);

/* A constant over the memory of a tensor value, which is neither copied nor to be changed any more;
 * the graph and its sessions keep it. `name` is for messages and may be NULL. */
LMN_API lmn_status lmn_graph_constant_create(lmn_graph *graph, const char *name,
                                             const lmn_session_value *tensor, int32_t *value,
                                             lmn_error **err);

/* A node: operator `op` on values of the graph, LMN_GRAPH_ABSENT among them where it allows that
 * (trailing ones may be left out). `outputs` receives its first output_count (1 or more) outputs.
 * INVALID_ARGUMENT says what is wrong with which operand; NOT_FOUND: there is no such operator.
 *
 * Graphs of If, Loop, Scan and SequenceMap see nothing of the graph around them: what they take
 * from it are further inputs, of the node and of all its graphs, at the end; the node's INT
 * attribute "captures" says how many. */
LMN_API lmn_status lmn_graph_node_create(lmn_graph *graph, const char *op, const int32_t *inputs,
                                         size_t input_count, const lmn_attribute *attributes,
                                         size_t attribute_count, int32_t *outputs,
                                         size_t output_count, lmn_error **err);

/* Makes a value the next output, under a name that no other output has. */
LMN_API lmn_status lmn_graph_output_create(lmn_graph *graph, const char *name, int32_t value,
                                           lmn_error **err);

/* What is known of a value. Pointers in *info live until the graph changes. */
LMN_API lmn_status lmn_graph_value_get(const lmn_graph *graph, int32_t value, lmn_port_info *info,
                                       lmn_error **err);

/* The graph as it is now, optimised and ready to run. base_folder of `options`, which may be NULL,
 * has no meaning. The graph can be changed, used again and destroyed. */
LMN_API lmn_status lmn_graph_session_create(const lmn_graph *graph,
                                            const lmn_session_options *options,
                                            lmn_session **session, lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_GRAPH_H_ */
