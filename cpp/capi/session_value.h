// SPDX-License-Identifier: Apache-2.0
//
// What an lmn_session_value holds, and how values cross to DLPack and back.
#pragma once

#include <memory>

#include "capi/tensor.h"
#include "core/tensor.h"
#include "lmnative/session_value.h"
#include "ops/tensor_kernel.h"

struct lmn_session_value {
  lmn::ops::RuntimeValue object;
};

namespace lmn::capi {

// The DLPack type in whose elements a DType is stored; none for strings.
Result<DLDataType> storage_type(DType dtype);
// INVALID_ARGUMENT lists the names.
Result<DType> find_dtype(const char* name);

// A handle for a value.
inline lmn_session_value* new_value(ops::RuntimeValue value) {
  return new lmn_session_value{std::move(value)};
}

}  // namespace lmn::capi
