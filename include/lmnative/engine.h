/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine: packs a model's weights for this machine, owns the threads, the KV cache and the
 * queue, and answers requests.
 *
 * An lmn_engine may be used by any number of threads at once, except in destroy. An lmn_request is
 * for one thread at a time, except lmn_request_cancel and lmn_request_stats_get, which any thread
 * may call at any time before its destroy. A child process after fork gets LMN_CLOSED from every
 * call on an inherited engine or request.
 *
 * Results are reproducible: the same request gives the same tokens and bit-identical logits,
 * whatever the thread count, the prefill chunk, or what else the engine is doing (same library
 * version, same CPU target).
 */
#ifndef LMNATIVE_ENGINE_H_
#define LMNATIVE_ENGINE_H_

#include "lmnative/tokenizer.h"

LMN_BEGIN_C

typedef struct lmn_engine lmn_engine;
typedef struct lmn_request lmn_request;

typedef struct lmn_engine_options {
  uint32_t struct_size;
  uint32_t flags;  /* LMN_ENGINE_*; 0 */
  int32_t threads; /* worker threads, 1 to 1024; 0: usable CPUs (affinity and cgroup quota) */
  uint32_t context_tokens; /* longest sequence, prompt and answer; 0: the model's context length */
  uint32_t kv_tokens;      /* tokens the KV cache holds; 0: context_tokens */
  uint32_t prefill_chunk_tokens; /* prompt tokens of one step, 1 to 4096; 0: 512 */
  uint32_t queue_capacity;       /* requests that may wait; 0: 1024 */
  uint32_t reserved;
  lmn_progress_fn progress; /* or NULL */
  void *progress_user;
} lmn_engine_options;

/* Builds an engine for `model`, which it keeps alive. LMN_UNSUPPORTED names an architecture, tensor
 * type or option that this version lacks; LMN_IO_ERROR a model file that changed since it was
 * opened; LMN_OUT_OF_MEMORY how much it needs (weights, activations, KV cache), how much memory
 * there is to this process, and what lowers the need. */
LMN_API lmn_status lmn_engine_create(const lmn_model *model, const lmn_engine_options *options,
                                     lmn_engine **engine, lmn_error **err);
/* Cancels what is in flight, joins all threads. Requests that still have handles end with
 * LMN_CANCELLED; what they had already produced stays readable. */
LMN_API void lmn_engine_destroy(lmn_engine *engine);

typedef struct lmn_token_bias {
  int32_t id;
  float bias; /* added to the logit; -INFINITY forbids the token */
} lmn_token_bias;

typedef struct lmn_string {
  const char *data; /* UTF-8, not NUL-terminated */
  uint64_t bytes;
} lmn_string;

#define LMN_REQUEST_PARSE_SPECIAL 1u /* control tokens in `prompt` are parsed: chat templates */
#define LMN_REQUEST_SEED 2u          /* `seed` is given, also if it is 0 */
#define LMN_REQUEST_IGNORE_EOS 4u    /* end-of-generation tokens do not stop */
#define LMN_REQUEST_LOGPROBS 8u      /* chunks carry logprobs (and top_logprobs alternatives) */
#define LMN_REQUEST_LOGITS 16u       /* chunks carry logits, float32 [token_count, vocab] */
#define LMN_REQUEST_KEEP_SPECIAL 32u /* control tokens appear in the text of chunks */

/* All pointers are read during submit only. */
typedef struct lmn_request_options {
  uint32_t struct_size;
  uint32_t flags;     /* LMN_REQUEST_* */
  const char *prompt; /* UTF-8 text, or NULL and prompt_ids */
  uint64_t prompt_bytes;
  const int32_t *prompt_ids; /* tokens, used as they are */
  uint64_t prompt_id_count;
  uint32_t add_bos;    /* `prompt` text: LMN_DEFAULT, LMN_YES, LMN_NO */
  uint32_t max_tokens; /* 0: as many as context and KV cache hold */
  float temperature;   /* 0: greedy. Up to 100 */
  int32_t top_k;       /* keep the k likeliest; 0: all */
  float top_p;         /* keep the likeliest with this much probability, (0, 1]; 0: 1 */
  float min_p; /* keep tokens of at least this times the likeliest one's probability, [0, 1] */
  float repetition_penalty; /* divides positive, multiplies negative logits of tokens in prompt and
                               answer, > 0; 0: 1 */
  float presence_penalty;  /* subtracted from the logit of tokens seen in the answer, [-100, 100] */
  float frequency_penalty; /* subtracted once per occurrence in the answer, [-100, 100] */
  uint32_t penalty_last_n; /* how many of the last tokens the penalties look at; 0: all */
  uint64_t seed; /* with LMN_REQUEST_SEED; otherwise drawn, and reported by lmn_request_stats_get */
  uint32_t top_logprobs; /* likeliest alternatives per token, 0 to 64; above 0 implies
                            LMN_REQUEST_LOGPROBS */
  int32_t priority;      /* higher first: -2 to 2 */
  const lmn_token_bias *logit_bias;
  uint64_t logit_bias_count;
  const lmn_string *stop; /* stop strings, not empty; the text ends before the first match */
  uint64_t stop_count;
  const int32_t *stop_token_ids; /* beside the model's own */
  uint64_t stop_token_id_count;
  uint64_t deadline_ns; /* from submit; then the request ends with LMN_FINISH_DEADLINE; 0: none */
  uint64_t tag;         /* the caller's own number, handed back by lmn_request_stats_get */
} lmn_request_options;

/* Queues a request; never blocks. LMN_QUEUE_FULL if the queue is full; LMN_INVALID_ARGUMENT names
 * the field and the range. */
LMN_API lmn_status lmn_engine_submit(lmn_engine *engine, const lmn_request_options *options,
                                     lmn_request **request, lmn_error **err);

/* Why a request ended. */
#define LMN_FINISH_NONE 0   /* it has not */
#define LMN_FINISH_STOP 1   /* end-of-generation token, stop token or stop string */
#define LMN_FINISH_LENGTH 2 /* max_tokens or the context's end */
#define LMN_FINISH_CANCELLED 3
#define LMN_FINISH_ERROR 4
#define LMN_FINISH_DEADLINE 5 /* deadline_ns passed */

typedef struct lmn_chunk {
  uint32_t struct_size;
  uint32_t finish_reason;   /* LMN_FINISH_*; not NONE in the last chunk */
  const int32_t *token_ids; /* [token_count] */
  uint64_t token_count;     /* may be 0 in the last chunk */
  const char *text;         /* complete characters only; may lag behind the tokens */
  uint64_t text_bytes;
  const float *logprobs;  /* [token_count], natural log of softmax(logits); NULL unless asked for */
  const int32_t *top_ids; /* [token_count, top_logprobs], likeliest first */
  const float *top_logprobs;  /* [token_count, top_logprobs] */
  const float *logits;        /* [token_count, vocab]; NULL unless asked for */
  uint32_t top_logprob_count; /* alternatives per token */
  uint32_t reserved;
} lmn_chunk;

/* Waits for news and hands out all of it. `timeout_ns`: 0 polls, negative waits without end. The
 * chunk's pointers live until the next call of lmn_request_next or the request's destroy. Returns
 * LMN_OK with a chunk; LMN_TIMEOUT if there is nothing yet; after the last chunk LMN_CLOSED. A
 * request that failed returns its own status and message once its tokens were handed out. */
LMN_API lmn_status lmn_request_next(lmn_request *request, int64_t timeout_ns, lmn_chunk *chunk,
                                    lmn_error **err);
/* Waits until the request has ended, without taking its chunks. LMN_TIMEOUT if it has not. */
LMN_API lmn_status lmn_request_wait(lmn_request *request, int64_t timeout_ns, lmn_error **err);
/* Asks the engine to stop the request, within one step. Its last chunk says LMN_FINISH_CANCELLED.
 * No-op once ended. */
LMN_API lmn_status lmn_request_cancel(lmn_request *request, lmn_error **err);
/* Cancels if need be, and frees. */
LMN_API void lmn_request_destroy(lmn_request *request);

typedef struct lmn_request_stats {
  uint32_t struct_size;
  uint32_t finish_reason;
  uint64_t prompt_tokens;
  uint64_t generated_tokens;
  uint64_t queue_ns;   /* submit to start */
  uint64_t prefill_ns; /* start to first token */
  uint64_t decode_ns;  /* first token to last */
  uint64_t seed;       /* in use */
  uint64_t tag;
} lmn_request_stats;

/* The figures of a request so far. */
LMN_API lmn_status lmn_request_stats_get(const lmn_request *request, lmn_request_stats *stats,
                                         lmn_error **err);

typedef struct lmn_score_options {
  uint32_t struct_size;
  uint32_t chunk_tokens;    /* of one step; 0: prefill_chunk_tokens. Never changes the result */
  lmn_progress_fn progress; /* or NULL; gets tokens, 20 times a second, also before its turn */
  void *progress_user;
} lmn_score_options;

/* The logits after every token of a sequence: *logits becomes float32 [tokens, vocab], owned by the
 * caller. `ids` is a borrowed 1-D CPU tensor of int32 or int64, any stride. Blocks until done, or
 * until `progress` stops it: the engine then leaves off within one step, and the result is
 * LMN_CANCELLED. */
LMN_API lmn_status lmn_engine_score(lmn_engine *engine, const struct DLManagedTensorVersioned *ids,
                                    const lmn_score_options *options,
                                    struct DLManagedTensorVersioned **logits, lmn_error **err);

typedef struct lmn_engine_stats {
  uint32_t struct_size;
  uint32_t threads;
  uint32_t context_tokens;
  uint32_t queue_capacity;
  uint32_t waiting; /* requests in the queue */
  uint32_t running;
  uint64_t kv_pages;
  uint64_t kv_pages_used;
  uint32_t kv_page_tokens;
  uint32_t reserved;
  uint64_t submitted; /* since create; so below */
  uint64_t finished;
  uint64_t cancelled;
  uint64_t failed;
  uint64_t rejected;
  uint64_t prompt_tokens;
  uint64_t generated_tokens;
  uint64_t steps;
  uint64_t load_ns; /* what lmn_engine_create took */
} lmn_engine_stats;

/* Each figure is exact; together they are not one moment. */
LMN_API lmn_status lmn_engine_stats_get(const lmn_engine *engine, lmn_engine_stats *stats,
                                        lmn_error **err);

/* Who holds memory, in bytes. `peak` are the highest values so far. */
typedef struct lmn_memory_entry {
  const char *owner; /* "mapped", "packed_weights", "kv", …; static */
  uint64_t current;
  uint64_t peak;
} lmn_memory_entry;

/* Entries by (buffer, capacity, count), see tokenizer.h; the last one is "total". "mapped" counts
 * the model file's address space, which costs memory only where it was touched and not given back;
 * "file_copy" the file under LMN_READ_COPY, held as long as the model. "requests" includes logits:
 * of a request until its destroy, of a score until it is handed out. */
LMN_API lmn_status lmn_engine_memory_get(const lmn_engine *engine, lmn_memory_entry *entries,
                                         size_t capacity, size_t *count, lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_ENGINE_H_ */
