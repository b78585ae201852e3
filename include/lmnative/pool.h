/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory pool: what the engine allocates from, for callers that want buffers and DLPack tensors
 * at its speed. Size classes, a cache for each thread, memory returned by any thread.
 *
 * An lmn_pool may be used by any number of threads at once, except in destroy and check. A child
 * process after fork may free what it inherited and use what is left of the forking thread's cache;
 * new memory from an inherited pool is LMN_CLOSED. No call waits there. The child makes its own.
 */
#ifndef LMNATIVE_POOL_H_
#define LMNATIVE_POOL_H_

#include "lmnative/common.h"
#include "lmnative/dlpack.h"

LMN_BEGIN_C

typedef struct lmn_pool lmn_pool;

/* What is checked beyond what costs nothing (see lmn_pool_free). With either, all threads share a
 * lock. */
#define LMN_POOL_DEBUG_OFF 0
#define LMN_POOL_DEBUG_CHECKS 1 /* 16 bytes behind each allocation are checked when it is freed */
#define LMN_POOL_DEBUG_FULL 2   /* and new and freed memory is filled, freed memory checked */

typedef struct lmn_pool_options {
  uint32_t struct_size;
  uint32_t debug;       /* LMN_POOL_DEBUG_* */
  uint64_t block_bytes; /* reserved from the system at once, backed where touched; 64 KiB to 64 TiB;
                           0: 256 MiB, or less where less than 2 GiB of memory are available */
  uint64_t limit_bytes; /* of memory held at once; 0: none */
  uint64_t keep_bytes;  /* of freed allocations above 4 MiB, kept for requests of sizes that were
                           seen several times; 0: block_bytes; UINT64_MAX: none are kept */
} lmn_pool_options;

/* `options` may be NULL. */
LMN_API lmn_status lmn_pool_create(const lmn_pool_options *options, lmn_pool **pool,
                                   lmn_error **err);
/* Memory from lmn_pool_alloc that was not freed goes with the pool; a tensor keeps its pool's
 * memory until its deleter is called. */
LMN_API void lmn_pool_destroy(lmn_pool *pool);

/* `bytes` of memory (0: as 1), not initialised, 64-byte aligned; sizes that are a power of two from
 * 64 to 65536 are aligned to their size while debug is off. It is the caller's until lmn_pool_free.
 * LMN_OUT_OF_MEMORY names the size and what is held. */
LMN_API lmn_status lmn_pool_alloc(lmn_pool *pool, uint64_t bytes, void **data, lmn_error **err);
/* Gives back what lmn_pool_alloc of the same pool gave, on any thread. NULL is a no-op. An address
 * that is not the start of an allocation of this pool, or was freed, is LMN_INVALID_ARGUMENT and
 * changes nothing. Not seen, unless debug is on: a second free after the memory was allocated anew,
 * and writes outside of allocations. With debug on, LMN_CORRUPT: bytes behind the allocation were
 * written; it is freed. */
LMN_API lmn_status lmn_pool_free(lmn_pool *pool, void *data, lmn_error **err);

/* A new CPU tensor as of lmn_tensor_create (same arguments), but from the pool, and not
 * initialised. Its deleter may run on any thread and at any time: it keeps the pool's memory. */
LMN_API lmn_status lmn_pool_tensor_create(lmn_pool *pool, int32_t dtype_code, int32_t dtype_bits,
                                          int32_t ndim, const int64_t *shape,
                                          struct DLManagedTensorVersioned **tensor,
                                          lmn_error **err);

/* Gives back to the system what no allocation uses; other threads keep a few empty spans.
 * *released, when not NULL, becomes the bytes given back. */
LMN_API lmn_status lmn_pool_trim(lmn_pool *pool, uint64_t *released, lmn_error **err);

typedef struct lmn_pool_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t reserved_bytes;      /* address space taken from the system */
  uint64_t held_bytes;          /* of these, for allocations now and kept for new ones */
  uint64_t held_peak_bytes;     /* most of it at once */
  uint64_t in_use_bytes;        /* of live allocations, as their size classes have it */
  uint64_t large_in_use_bytes;  /* of these, allocations above 4 MiB */
  uint64_t large_kept_bytes;    /* freed allocations above 4 MiB, kept */
  uint64_t live_count;          /* live allocations */
  uint64_t allocation_count;    /* so far */
  uint64_t requested_bytes;     /* asked for by all of them so far… */
  uint64_t granted_bytes;       /* …and what they got; 1 - requested / granted is the internal
                                   fragmentation, 1 - in_use / held the external one */
  uint64_t promoted_size_count; /* sizes above 4 MiB with a class of their own */
} lmn_pool_stats;

/* Exact when no other thread is in the pool. */
LMN_API lmn_status lmn_pool_stats_get(const lmn_pool *pool, lmn_pool_stats *stats, lmn_error **err);

/* Walks all records. LMN_OK, or the first fault that lmn_pool_free reported, LMN_CORRUPT for bytes
 * that a caller overwrote (debug on), LMN_INTERNAL for a broken record. No other thread may be in
 * the pool. */
LMN_API lmn_status lmn_pool_check(const lmn_pool *pool, lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_POOL_H_ */
