/* SPDX-License-Identifier: Apache-2.0
 *
 * Values: what goes into a session and comes out of it. Most are tensors; ONNX models may also have
 * tensors of strings, sequences, optionals and maps.
 *
 * An lmn_session_value is immutable, shares its memory with whatever it was made from, and may be
 * used by any number of threads at once, except in destroy. Any order of destruction is safe.
 */
#ifndef LMNATIVE_SESSION_VALUE_H_
#define LMNATIVE_SESSION_VALUE_H_

#include <stddef.h>

#include "lmnative/common.h"
#include "lmnative/dlpack.h"

LMN_BEGIN_C

typedef struct lmn_session_value lmn_session_value;

#define LMN_SESSION_VALUE_TENSOR 0
#define LMN_SESSION_VALUE_SEQUENCE 1 /* items: its elements, all of one kind */
#define LMN_SESSION_VALUE_OPTIONAL 2 /* one item, or none */
#define LMN_SESSION_VALUE_MAP 3      /* two items: a tensor of keys, a tensor of values */

/* Element types by name: "f32" "f64" "f16" "bf16" "i8" "i16" "i32" "i64" "u8" "u16" "u32" "u64"
 * "bool" "string", and the narrow ones, of which an element is a byte: "f8e4m3fn" "f8e4m3fnuz"
 * "f8e5m2" "f8e5m2fnuz" "f8e8m0" "f4e2m1" "i4" "u4" "i2" "u2". */

/* A tensor value over a DLPack tensor on the CPU, of 0 to 8 dimensions. No copy is made unless it
 * is not compact row-major or not aligned to its element. `dtype` may be NULL: the DLPack type says
 * it; or the name of a type whose elements are as wide (a "f4e2m1" is in uint8). The value takes
 * the tensor over, whether the call succeeds or not: its deleter is called when nobody reads it any
 * more, on any thread. */
LMN_API lmn_status lmn_session_value_create(struct DLManagedTensorVersioned *tensor,
                                            const char *dtype, lmn_session_value **value,
                                            lmn_error **err);

/* A tensor of strings, copied: `shape` holds ndim sizes, `strings` and `lengths` as many as their
 * product. Bytes are kept as they are, NULs among them. */
LMN_API lmn_status lmn_session_value_strings_create(int32_t ndim, const int64_t *shape,
                                                    const char *const *strings,
                                                    const size_t *lengths,
                                                    lmn_session_value **value, lmn_error **err);

/* A sequence, optional or map over `count` items, which stay the caller's. `dtype`: the element
 * type of the items. */
LMN_API lmn_status lmn_session_value_items_create(int32_t kind, const char *dtype,
                                                  const lmn_session_value *const *items,
                                                  size_t count, lmn_session_value **value,
                                                  lmn_error **err);

/* NULL is a no-op. */
LMN_API void lmn_session_value_destroy(lmn_session_value *value);

typedef struct lmn_session_value_info {
  uint32_t struct_size;
  int32_t kind;        /* LMN_SESSION_VALUE_* */
  const char *dtype;   /* of the elements; static */
  uint64_t item_count; /* of sequences, optionals and maps */
  int32_t ndim;        /* of a tensor */
  uint32_t reserved;
  int64_t shape[8];
} lmn_session_value_info;
/* What the value is. */
LMN_API lmn_status lmn_session_value_info_get(const lmn_session_value *value,
                                              lmn_session_value_info *info, lmn_error **err);

/* The tensor, sharing the value's memory; narrow types come as uint8 or int8. The caller owns it
 * and calls its deleter. Not for strings. */
LMN_API lmn_status lmn_session_value_tensor_get(const lmn_session_value *value,
                                                struct DLManagedTensorVersioned **tensor,
                                                lmn_error **err);

/* Element `index` of a tensor of strings in row-major order: *length bytes at *text, which live as
 * long as the value. */
LMN_API lmn_status lmn_session_value_string_get(const lmn_session_value *value, uint64_t index,
                                                const char **text, size_t *length, lmn_error **err);

/* Item `index` as a value of its own. */
LMN_API lmn_status lmn_session_value_item_get(const lmn_session_value *value, uint64_t index,
                                              lmn_session_value **item, lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_SESSION_VALUE_H_ */
