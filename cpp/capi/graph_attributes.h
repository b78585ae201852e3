// SPDX-License-Identifier: Apache-2.0
//
// Attributes of callers' nodes: from lmn_attribute to those of the graph.
#pragma once

#include <cstddef>

#include "core/status.h"
#include "lmnative/graph.h"
#include "ops/attributes.h"

namespace lmn::capi {

// Integers become numbers where the name is that of numbers; no other types are checked.
// INVALID_ARGUMENT names `op` and the attribute.
Result<ops::Attributes> read_attributes(const char* op, const lmn_attribute* given, size_t count);

}  // namespace lmn::capi
