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
 * News of a request can be had in four ways, which may be mixed, but for the last two:
 *   lmn_request_next with timeout 0   polls;
 *   lmn_request_next, lmn_request_wait   wait, with a time-out;
 *   lmn_request_options.callback      is called on a thread of the engine;
 *   LMN_REQUEST_NOTIFY                makes the engine's one descriptor readable, and
 *                                     lmn_engine_drain says which requests have news: for event
 *                                     loops, one wake-up per step and not per token.
 *
 * Results are reproducible: the same request gives the same tokens and bit-identical logits,
 * whatever the thread count, the prefill chunk, the prefix cache, or what else the engine is doing
 * (same library version, same CPU target).
 */
#ifndef LMNATIVE_ENGINE_H_
#define LMNATIVE_ENGINE_H_

#include "lmnative/tokenizer.h"

LMN_BEGIN_C

typedef struct lmn_engine lmn_engine;
typedef struct lmn_request lmn_request;

#define LMN_ENGINE_PROFILE 1u /* keep what lmn_engine_profile_get tells: steps take 1 % longer */

/* Keys and values in the KV cache. Bytes of one token, layer and KV head, for both, with head_dim
 * 64: 256, 512, 136. In Q8_0 they are signed bytes in blocks of 32 with a float16 scale: half the
 * memory, and less time where reading it is what takes time (many threads, long contexts). The
 * logits of SmolLM2-135M move by 0.05 to 0.09 (root mean square; in F16 by 0.002). Heads must be of
 * a multiple of 32 elements (else LMN_UNSUPPORTED). */
#define LMN_KV_F16 1u
#define LMN_KV_F32 2u
#define LMN_KV_Q8_0 3u

typedef struct lmn_engine_options {
  uint32_t struct_size;
  uint32_t flags;  /* LMN_ENGINE_* */
  int32_t threads; /* worker threads, 1 to 1024; 0: usable CPUs (affinity and cgroup quota) */
  uint32_t context_tokens; /* longest sequence, prompt and answer; 0: the model's context length */
  uint32_t kv_tokens;      /* tokens the KV cache holds; 0: context_tokens */
  uint32_t prefill_chunk_tokens; /* prompt tokens of one step, 1 to 4096; 0: 512 */
  uint32_t queue_capacity;       /* requests that may wait, up to 1048576; 0: 1024 */
  uint32_t kv_type;              /* of the KV cache's elements: LMN_KV_*; 0: LMN_KV_F16 */
  lmn_progress_fn progress;      /* or NULL */
  void *progress_user;
  uint32_t max_sequences; /* sequences that run at once, 1 to 16384; 0: 64. A step takes up to 1024,
                             in turn */
  uint32_t prefix_cache;  /* reuse of computed prompts: LMN_DEFAULT (yes), LMN_YES, LMN_NO */
  uint64_t queue_tokens;  /* prompt tokens that may wait, all requests together; 0: no bound */
  uint64_t queue_bytes;   /* bytes of live requests' buffers, logits not counted; 0: 1 GiB */
  /* While answers are being generated, prompts are computed in chunks that keep a step below this;
   * 0: below twice what a step takes without, or more (8 at most) for more prompts than answers. */
  uint64_t inter_token_target_ns;
  /* Idle threads spin so long before they sleep; negative: not at all. 0: 50 us, workers 200 us;
   * the engine's thread not at all after news for lmn_engine_drain where no two CPUs are to spare.
   */
  int64_t idle_spin_ns;
  uint32_t trace_events; /* spans kept for lmn_engine_trace_get, up to 2^24; 0: no trace */
  /* What quantised weights are multiplied with; 0: 8 on the CPU, 16 on other devices, where
   * decoding takes as long. 8: inputs rounded to 8 bits in blocks of 32, but to 16 bits where that
   * moves logits most: for q, k and v, the last layer and the output layer. The logits of
   * SmolLM2-135M move by 0.05 (root mean square; with 8 bits everywhere by 0.1). 16: to 16 bits,
   * which moves them by less than 0.002, and computes prompts and batches up to 1.6 times as long:
   * of 4-bit weights on any CPU, of 5-bit ones with AVX2 too, and of 8-bit ones with VNNI or
   * dotprod. Others, as Q6_K, get 16 bits always; float weights are not affected.
   */
  uint32_t activation_bits;
  /* Where the model runs: "cpu", which NULL is too; "cuda" or "cuda:N", the first NVIDIA
   * device or the N-th, from 0, of those that CUDA shows to the process. Read during create. Layers
   * that do not fit into its memory run on the CPU (device_layers of lmn_engine_stats). Results are
   * reproducible on each kind of device and with as many layers on it; between kinds they differ in
   * the last bits where activation_bits is the same, which by default it is not. */
  const char *device;
} lmn_engine_options;

/* Builds an engine for `model`, which it keeps alive. LMN_UNSUPPORTED names an architecture, tensor
 * type or option that this version lacks, or says why there is no such device (library built
 * without, no driver, a driver or a device that is too old); LMN_INTERNAL what is wrong with a
 * device that is there and cannot be used; LMN_IO_ERROR a model file that changed since it was
 * opened; LMN_OUT_OF_MEMORY how much it needs (weights, activations, KV cache), how much memory
 * there is to this process, and what lowers the need. */
LMN_API lmn_status lmn_engine_create(const lmn_model *model, const lmn_engine_options *options,
                                     lmn_engine **engine, lmn_error **err);
/* Cancels what is in flight, joins all threads. Requests that still have handles end with
 * LMN_CANCELLED; what they had already produced stays readable. An engine that a server (server.h)
 * serves lives on there until that is destroyed, and its requests go on. */
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
#define LMN_REQUEST_NOTIFY 64u       /* news goes to lmn_engine_drain, by the request's tag */

/* Called when a request has news (new tokens, or its end), on a thread that belongs to the engine.
 * Take the news with lmn_request_next(request, 0, ...) until it says LMN_TIMEOUT or LMN_CLOSED;
 * what is not taken causes no further call until there is more. The first call may come before
 * lmn_engine_submit returns, but its *request is set by then. Calls for one request never overlap;
 * a callback that takes long delays only its own request (up to 64 such at once). It must not
 * throw. lmn_request_destroy of this request is legal in the callback and makes it the last call;
 * on any other thread it returns after a running call has. lmn_engine_destroy returns after the
 * last call of all has. So in a callback everything is legal except lmn_engine_destroy, waiting for
 * this request, and destroying another request that has a callback (two that destroy each other's
 * would wait for ever): cancel that one instead. */
typedef void (*lmn_request_fn)(void *user, lmn_request *request);

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
  uint64_t tag;         /* the caller's own number: see lmn_request_stats_get, lmn_engine_drain */
  uint64_t
      tenant; /* waiting requests of different tenants take turns, within a priority; 0: none */
  uint32_t n; /* answers to the prompt, "samples", 1 to 64; 0: 1. Sample i has seed + i */
  uint32_t reserved;
  lmn_request_fn callback; /* or NULL */
  void *callback_user;
  /* An answer at reading speed: token k of a sample comes k times so long after its first one, at
   * the earliest, and the engine does other work meanwhile. It changes no token. A token that comes
   * late delays none of those behind it, up to one interval. 0: as soon as it can */
  uint64_t token_interval_ns;
} lmn_request_options;

/* Queues a request; never blocks. LMN_QUEUE_FULL, with the figures, if the queue has no room for
 * it; LMN_OUT_OF_MEMORY if all of the KV cache or of queue_bytes has none; LMN_INVALID_ARGUMENT
 * names the field and the range. */
LMN_API lmn_status lmn_engine_submit(lmn_engine *engine, const lmn_request_options *options,
                                     lmn_request **request, lmn_error **err);

/* Why a request ended. */
#define LMN_FINISH_NONE 0   /* it has not */
#define LMN_FINISH_STOP 1   /* end-of-generation token, stop token or stop string */
#define LMN_FINISH_LENGTH 2 /* max_tokens or the context's end */
#define LMN_FINISH_CANCELLED 3
#define LMN_FINISH_ERROR 4
#define LMN_FINISH_DEADLINE 5 /* deadline_ns passed */

/* News of one sample of a request. */
typedef struct lmn_chunk {
  uint32_t struct_size;
  uint32_t finish_reason;   /* LMN_FINISH_*; not NONE in the sample's last chunk */
  const int32_t *token_ids; /* [token_count] */
  uint64_t token_count;     /* may be 0 in the last chunk */
  const char *text;         /* complete characters only; may lag behind the tokens */
  uint64_t text_bytes;
  const float *logprobs;  /* [token_count], natural log of softmax(logits); NULL unless asked for */
  const int32_t *top_ids; /* [token_count, top_logprobs], likeliest first */
  const float *top_logprobs;  /* [token_count, top_logprobs] */
  const float *logits;        /* [token_count, vocab]; NULL unless asked for */
  uint32_t top_logprob_count; /* alternatives per token */
  uint32_t sample;            /* 0 to n - 1: which of the answers this belongs to */
} lmn_chunk;

/* Waits for news and hands out all of it, of one sample at a time. `timeout_ns`: 0 polls, negative
 * waits without end. The chunk's pointers live until the request's destroy. Returns LMN_OK with a
 * chunk; LMN_TIMEOUT if there is nothing yet; after the last chunk of the last sample LMN_CLOSED. A
 * request that failed returns its own status and message once its tokens were handed out. */
LMN_API lmn_status lmn_request_next(lmn_request *request, int64_t timeout_ns, lmn_chunk *chunk,
                                    lmn_error **err);
/* Waits until the request has ended, all samples of it, without taking its chunks. LMN_TIMEOUT if
 * it has not. */
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
  uint64_t generated_tokens; /* of all samples */
  uint64_t queue_ns;         /* submit to start */
  uint64_t prefill_ns;       /* start to first token */
  uint64_t decode_ns;        /* first token to last */
  uint64_t seed;             /* in use */
  uint64_t tag;
  uint64_t cached_tokens; /* prompt tokens that the prefix cache held at the start */
  uint32_t preemptions;   /* times its pages were taken for others and it was computed anew */
  uint32_t reserved;
} lmn_request_stats;

/* The figures of a request so far. finish_reason is LMN_FINISH_NONE until every sample has ended,
 * then that of sample 0. */
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
  uint32_t waiting; /* sequences not started or preempted; a request has n of them */
  uint32_t running;
  uint64_t kv_pages;
  uint64_t kv_pages_used;
  uint32_t kv_page_tokens;
  uint32_t layers;    /* of the model; 0: a null model has none */
  uint64_t submitted; /* since create; so below */
  uint64_t finished;
  uint64_t cancelled;
  uint64_t failed;
  uint64_t rejected;
  uint64_t prompt_tokens;
  uint64_t generated_tokens;
  uint64_t steps;
  uint64_t load_ns; /* what lmn_engine_create took */
  uint32_t max_sequences;
  uint32_t device_layers;   /* so many of `layers`, the last ones, run on lmn_engine_options.device,
                               the others on the CPU */
  uint64_t kv_pages_cached; /* held by the prefix cache alone; counted neither as used nor free */
  uint64_t queue_tokens;    /* prompt tokens that wait */
  uint64_t queue_bytes;     /* of live requests' buffers */
  uint64_t prefix_lookup_tokens; /* prompt tokens of requests that started, since create */
  uint64_t prefix_hit_tokens;    /* of those, found in the prefix cache */
  uint64_t preemptions;
  uint64_t rejected_queue;   /* `rejected`, by reason: queue_capacity, */
  uint64_t rejected_tokens;  /* queue_tokens, */
  uint64_t rejected_bytes;   /* queue_bytes, */
  uint64_t rejected_memory;  /* more KV cache than there is, or no memory for buffers, */
  uint64_t rejected_invalid; /* arguments, */
  uint64_t rejected_closed;  /* after the engine closed */
} lmn_engine_stats;

/* Each figure is exact; together they are not one moment. */
LMN_API lmn_status lmn_engine_stats_get(const lmn_engine *engine, lmn_engine_stats *stats,
                                        lmn_error **err);

/* A descriptor that is readable while requests submitted with LMN_REQUEST_NOTIFY have news, for
 * poll, epoll or an event loop. It belongs to the engine: do not read, write or close it. */
LMN_API lmn_status lmn_engine_descriptor_get(const lmn_engine *engine, int32_t *descriptor,
                                             lmn_error **err);

/* Writes the tags of up to `capacity` requests that have news to `tags`, and their number to
 * *count; never blocks. A request is listed once for all that it has when it is listed, and again
 * when there is more: call lmn_request_next(request, 0, ...) until it says LMN_TIMEOUT or
 * LMN_CLOSED, which costs no more than looking. One that was destroyed is not listed. When more
 * than `capacity` have news the descriptor stays readable. Any thread. */
LMN_API lmn_status lmn_engine_drain(lmn_engine *engine, uint64_t *tags, size_t capacity,
                                    size_t *count, lmn_error **err);

/* How long things took since create. Bucket b holds what took less than 64 ns (b = 0), or from
 * (4 + b % 4) << (b / 4 + 4) ns on: four buckets for each power of two. */
#define LMN_HISTOGRAM_BUCKETS 128
typedef struct lmn_histogram {
  const char *name; /* static */
  uint64_t count;
  uint64_t sum_ns;
  uint64_t max_ns;
  uint64_t p50_ns; /* percentiles, exact to their bucket */
  uint64_t p90_ns;
  uint64_t p99_ns;
  uint64_t buckets[LMN_HISTOGRAM_BUCKETS];
} lmn_histogram;

/* Histograms by (buffer, capacity, count), see tokenizer.h. Of steps: "step", and its parts
 * "schedule", "prepare", "run", "sample", "deliver". Of requests: "queue" (submit to start),
 * "first_token" (submit to first token), "inter_token". */
LMN_API lmn_status lmn_engine_histogram_get(const lmn_engine *engine, lmn_histogram *histograms,
                                            size_t capacity, size_t *count, lmn_error **err);

/* A span of time on the engine thread (request is 0), or of a request's life. */
typedef struct lmn_trace_event {
  const char *name;  /* "schedule", "run", ..., "queue", "prefill", "decode"; static */
  uint64_t begin_ns; /* CLOCK_MONOTONIC */
  uint64_t end_ns;
  uint64_t request;   /* its number in the engine, from 1 */
  uint32_t tokens;    /* computed in the step; of the request's prompt or answer */
  uint32_t sequences; /* in the step */
} lmn_trace_event;

/* Takes up to `capacity` spans out of the trace, oldest first, and writes their number to *count;
 * *lost becomes the number of spans, since create, for which there was no room. LMN_UNSUPPORTED
 * when trace_events was 0. One thread at a time. */
LMN_API lmn_status lmn_engine_trace_get(lmn_engine *engine, lmn_trace_event *events,
                                        size_t capacity, size_t *count, uint64_t *lost,
                                        lmn_error **err);

/* Of steps: those in which each sequence has one token, and those that hold parts of prompts. */
#define LMN_STEP_DECODE 0
#define LMN_STEP_PREFILL 1

/* What a part of the steps of one kind did since create, in the order of a step. */
typedef struct lmn_profile_entry {
  const char *op;     /* "linear", "paged_attention", ... or "team", "engine"; static */
  const char *name;   /* of the node, "blk.0.attn_output"; lives as long as the engine */
  uint32_t step_kind; /* LMN_STEP_* */
  uint32_t reserved;
  uint64_t calls;
  uint64_t run_ns;     /* on the engine's thread, which has its share of the work; of operators on a
                          GPU the GPU's time, each by itself */
  uint64_t wait_ns;    /* after that for other threads, that were longer at theirs */
  uint64_t bytes;      /* of all threads, as the operator needs at least: weights once, then rows in
                          and out, and the keys and values attended to */
  uint64_t operations; /* arithmetic ones: 2 for a weight and a row, 4 * head_dim for a head, a row
                          and a position attended to, ... */
} lmn_profile_entry;

/* Entries by (buffer, capacity, count), see tokenizer.h: for each kind of step the operators of the
 * model, before them "team" "start" (setting the other threads going; on a GPU, sending it the
 * inputs); then "engine" "schedule",
 * "prepare", "run", "sample" and "deliver", of which "run" holds "team" "start" and all operators.
 * The time of an operator is run_ns + wait_ns. Each figure is exact; together they are not one
 * moment. LMN_UNSUPPORTED without LMN_ENGINE_PROFILE. */
LMN_API lmn_status lmn_engine_profile_get(const lmn_engine *engine, lmn_profile_entry *entries,
                                          size_t capacity, size_t *count, lmn_error **err);

/* Who holds memory, in bytes. `peak` are the highest values so far. */
typedef struct lmn_memory_entry {
  const char *owner; /* "mapped", "packed_weights", "kv", …; static */
  uint64_t current;
  uint64_t peak;
} lmn_memory_entry;

/* Entries by (buffer, capacity, count), see tokenizer.h; the last one is "total". "mapped" counts
 * the model file's address space, which costs memory only where it was touched and not given back;
 * "file_copy" the file under LMN_READ_COPY, held as long as the model; "pinned" page-locked memory
 * of the host, for inputs and outputs of an engine on a device of its own. "requests" includes
 * logits: of a request until the step after its destroy, of a score until it is handed out. */
LMN_API lmn_status lmn_engine_memory_get(const lmn_engine *engine, lmn_memory_entry *entries,
                                         size_t capacity, size_t *count, lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_ENGINE_H_ */
