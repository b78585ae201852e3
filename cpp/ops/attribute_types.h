// SPDX-License-Identifier: Apache-2.0
//
// What attributes are, by their names: an operator reads one of another type as if it were absent,
// so that has to be refused before.
#pragma once

#include "core/status.h"
#include "ops/attributes.h"

namespace lmn::ops {

// INVALID_ARGUMENT names an attribute that is of another type than all operators have it. Those
// that are of several types by operator, and unknown ones, may be anything. `op` and `node_name`
// are for the message.
Status check_attribute_types(const Attributes& attributes, std::string_view op,
                             std::string_view node_name);

}  // namespace lmn::ops
