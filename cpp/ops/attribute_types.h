// SPDX-License-Identifier: Apache-2.0
//
// What attributes are, by their names: an operator reads one of another type as if it were absent,
// so that has to be refused before.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/status.h"
#include "ops/attributes.h"

namespace lmn::ops {

// The first are the alternatives of Attribute, in their order.
enum class AttributeType : uint8_t {
  kInteger,
  kNumber,
  kText,
  kIntegers,
  kNumbers,
  kTexts,
  kTensor,
  kGraph,
  kSeveral  // by operator
};

// Of all operators of the newest operator sets that have it; none: no operator has it.
std::optional<AttributeType> attribute_type(std::string_view name);

// Those whose types are meant: newest is what graphs have, all is what files have.
enum class OperatorSets : uint8_t { kNewest, kAll };

// INVALID_ARGUMENT names an attribute that is of another type than all operators have it. Those
// that are of several types, and unknown ones, may be anything. `op` and `node_name` are for the
// message.
Status check_attribute_types(const Attributes& attributes, std::string_view op,
                             std::string_view node_name, OperatorSets sets);

}  // namespace lmn::ops
