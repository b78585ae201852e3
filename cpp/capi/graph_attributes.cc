// SPDX-License-Identifier: Apache-2.0
#include "capi/graph_attributes.h"

#include <algorithm>
#include <span>
#include <string>

#include "capi/graph_object.h"
#include "capi/guard.h"
#include "capi/session_value.h"
#include "ops/attribute_types.h"

namespace lmn::capi {
namespace {

Result<Tensor> read_tensor(const lmn_session_value* value, const char* name) {
  if (value->object.kind != ops::ValueKind::kTensor)
    return error(Code::kInvalidArgument, "attribute '%s' is not a tensor", name);
  return value->object.tensor;
}

template <typename T>
Result<std::span<const T>> read_array(const lmn_attribute& given) {
  if (given.data == nullptr && given.count > 0)
    return error(Code::kInvalidArgument, "attribute '%s': data is NULL", given.name);
  return std::span<const T>(static_cast<const T*>(given.data), given.count);
}

Result<ops::Attribute> read_attribute(const lmn_attribute& given) {
  switch (given.kind) {
    case LMN_ATTRIBUTE_FLOAT:
      return ops::Attribute(given.f);
    case LMN_ATTRIBUTE_INT:
      return ops::Attribute(given.i);
    case LMN_ATTRIBUTE_STRING: {
      LMN_ASSIGN_OR_RETURN(const auto text, read_array<char>(given));
      return ops::Attribute(std::string(text.begin(), text.end()));
    }
    case LMN_ATTRIBUTE_FLOATS: {
      LMN_ASSIGN_OR_RETURN(const auto list, read_array<float>(given));
      return ops::Attribute(ops::Floats(list.begin(), list.end()));
    }
    case LMN_ATTRIBUTE_INTS: {
      LMN_ASSIGN_OR_RETURN(const auto list, read_array<int64_t>(given));
      return ops::Attribute(ops::Ints(list.begin(), list.end()));
    }
    case LMN_ATTRIBUTE_STRINGS: {
      LMN_ASSIGN_OR_RETURN(const auto list, read_array<const char*>(given));
      if (std::find(list.begin(), list.end(), nullptr) != list.end())
        return error(Code::kInvalidArgument, "attribute '%s': a string is NULL", given.name);
      return ops::Attribute(ops::Strings(list.begin(), list.end()));
    }
    case LMN_ATTRIBUTE_TENSOR: {
      LMN_RETURN_IF_ERROR(require(given.data, given.name));
      LMN_ASSIGN_OR_RETURN(
          Tensor tensor,
          read_tensor(static_cast<const lmn_session_value*>(given.data), given.name));
      return ops::Attribute(
          std::shared_ptr<const Tensor>(std::make_shared<Tensor>(std::move(tensor))));
    }
    case LMN_ATTRIBUTE_GRAPH: {
      LMN_RETURN_IF_ERROR(require(given.data, given.name));
      const graph::Graph& graph = static_cast<const lmn_graph*>(given.data)->object;
      return ops::Attribute(
          std::shared_ptr<const graph::Graph>(std::make_shared<graph::Graph>(graph)));
    }
    default:
      return error(Code::kInvalidArgument, "attribute '%s': kind is %d; it is a LMN_ATTRIBUTE_*",
                   given.name, given.kind);
  }
}

// `value` as an attribute of the type that its name has: integers as numbers, no integers as
// nothing of another type. Others stay: the graph refuses them.
ops::Attribute convert(ops::Attribute value, ops::AttributeType type) {
  if (const auto* i = std::get_if<int64_t>(&value);
      i != nullptr && type == ops::AttributeType::kNumber)
    return static_cast<float>(*i);
  const auto* list = std::get_if<ops::Ints>(&value);
  if (list != nullptr && list->empty() && type == ops::AttributeType::kTexts) return ops::Strings();
  if (list != nullptr && type == ops::AttributeType::kNumbers)
    return ops::Floats(list->begin(), list->end());
  return value;
}

}  // namespace

Result<ops::Attributes> read_attributes(const char* op, const lmn_attribute* given, size_t count) {
  ops::Attributes out;
  for (size_t i = 0; i < count; ++i) {
    if (given[i].name == nullptr)
      return error(Code::kInvalidArgument, "%s: attributes[%zu].name is NULL", op, i);
    Result<ops::Attribute> one = read_attribute(given[i]);
    if (!one.ok()) return std::move(one).status().with_context(op);
    const auto type = ops::attribute_type(given[i].name);
    out.set(given[i].name, convert(*std::move(one), type.value_or(ops::AttributeType::kSeveral)));
  }
  return out;
}

}  // namespace lmn::capi
