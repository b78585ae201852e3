/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors cross this ABI as DLPack 1.0 (`struct DLManagedTensorVersioned`, see dlpack.h), in and
 * out, without a copy.
 *
 * Out: the library creates the tensor, the receiver owns it and calls its deleter once
 * (lmn_tensor_destroy does), on any thread. In: the caller lends the tensor for the duration of the
 * call; the library reads it and does not call its deleter.
 */
#ifndef LMNATIVE_TENSOR_H_
#define LMNATIVE_TENSOR_H_

#include "lmnative/common.h"
#include "lmnative/dlpack.h"

LMN_BEGIN_C

/* A new zeroed CPU tensor, compact row-major, 64-byte aligned. `shape` holds `ndim` (1 to 8) sizes,
 * each 0 or more. Its dtype has one lane: dtype_code is kDLInt or kDLUInt with 8, 16, 32 or 64
 * dtype_bits, kDLFloat with 16, 32 or 64, kDLBfloat with 16 or kDLBool with 8. */
LMN_API lmn_status lmn_tensor_create(int32_t dtype_code, int32_t dtype_bits, int32_t ndim,
                                     const int64_t *shape, struct DLManagedTensorVersioned **tensor,
                                     lmn_error **err);

/* Calls the deleter. NULL is a no-op. For tensors of this library and of any other. */
LMN_API void lmn_tensor_destroy(struct DLManagedTensorVersioned *tensor);

LMN_END_C

#endif /* LMNATIVE_TENSOR_H_ */
