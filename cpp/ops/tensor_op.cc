// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_op.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <unordered_map>

#include "ops/attribute_types.h"

namespace lmn::ops {
namespace {

struct Entry {
  std::string_view name, attributes;
  OpClass op_class;
};
constexpr Entry kEntries[] = {
#define LMN_TENSOR_OP(e, name, attributes) {name, attributes, OpClass::kKernel},
#define LMN_VALUE_OP(e, name, attributes) {name, attributes, OpClass::kValue},
#define LMN_CONTROL_OP(e, name, attributes) {name, attributes, OpClass::kControl},
#include "ops/tensor_ops.def"
#undef LMN_CONTROL_OP
#undef LMN_VALUE_OP
#undef LMN_TENSOR_OP
};

const Entry& entry(TensorOp op) { return kEntries[static_cast<int>(op)]; }

// Whether `word` is one of the blank-separated words of `list`.
bool contains(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(' '), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

std::string_view name(TensorOp op) { return entry(op).name; }
std::string_view attribute_names(TensorOp op) { return entry(op).attributes; }
OpClass op_class(TensorOp op) { return entry(op).op_class; }
bool is_random(TensorOp op) {  // every operator that draws numbers has a seed
  return contains(entry(op).attributes, "seed");
}

const TensorOp* find_tensor_op(std::string_view name) {
  static const std::unordered_map<std::string_view, TensorOp> kByName = [] {
    std::unordered_map<std::string_view, TensorOp> map;
    for (int i = 0; i < kTensorOpCount; ++i)
      map.emplace(kEntries[i].name, static_cast<TensorOp>(i));
    return map;
  }();
  const auto found = kByName.find(name);
  return found == kByName.end() ? nullptr : &found->second;
}

std::vector<int64_t> TensorNode::integers(int i) const {
  const int64_t count = shape(i).elements();
  if (dtype(i) == DType::kI64) return {data<int64_t>(i), data<int64_t>(i) + count};
  return {data<int32_t>(i), data<int32_t>(i) + count};
}

int64_t TensorNode::integer(std::string_view key, int64_t fallback) const {
  const auto* found = attributes_.find_as<int64_t>(key);
  return found == nullptr ? fallback : *found;
}
float TensorNode::number(std::string_view key, float fallback) const {
  const auto* found = attributes_.find_as<float>(key);
  return found == nullptr ? fallback : *found;
}
std::string_view TensorNode::text(std::string_view key, std::string_view fallback) const {
  const auto* found = attributes_.find_as<std::string>(key);
  return found == nullptr ? fallback : std::string_view(*found);
}
const Ints* TensorNode::integers(std::string_view key) const {
  return attributes_.find_as<Ints>(key);
}
const Floats* TensorNode::numbers(std::string_view key) const {
  return attributes_.find_as<Floats>(key);
}
const Strings* TensorNode::texts(std::string_view key) const {
  return attributes_.find_as<Strings>(key);
}
const Tensor* TensorNode::tensor(std::string_view key) const {
  const auto* found = attributes_.find_as<std::shared_ptr<const Tensor>>(key);
  return found == nullptr ? nullptr : found->get();
}

namespace {
Status make_error(Code code, TensorOp op, std::string_view node, const char* format,
                  va_list arguments) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::string message(name(op));
  if (!node.empty()) message.append(" '").append(node).append("'");
  return Status(code, message + ": " + text);
}
}  // namespace

Status TensorNode::fail(const char* format, ...) const {
  va_list arguments;
  va_start(arguments, format);
  Status status = make_error(Code::kInvalidArgument, op_, name_, format, arguments);
  va_end(arguments);
  return status;
}

Status TensorNode::unsupported(const char* format, ...) const {
  va_list arguments;
  va_start(arguments, format);
  Status status = make_error(Code::kUnsupported, op_, name_, format, arguments);
  va_end(arguments);
  return status;
}

Status TensorNode::expect_inputs(int least, int most) const {
  for (int i = 0; i < least; ++i) {
    if (!has(i)) return fail("input %d is missing; it takes %d at least", i, least);
  }
  if (inputs() > most) return fail("it has %d inputs and takes %d at most", inputs(), most);
  return {};
}

Status TensorNode::expect_dtype(int i, std::initializer_list<DType> types) const {
  if (!has(i)) return {};
  std::string list;
  for (DType type : types) {
    if (dtype(i) == type) return {};
    list.append(list.empty() ? "" : ", ").append(info(type).name);
  }
  return unsupported("input %d is %s; it takes %s", i, std::string(info(dtype(i)).name).c_str(),
                     list.c_str());
}

Status TensorNode::normalize_axis(int64_t value, int rank, int64_t* axis) const {
  if (value < -rank || value >= rank) {
    return fail("axis %" PRId64 " of a tensor of rank %d; it is between %d and %d", value, rank,
                -rank, rank - 1);
  }
  *axis = value < 0 ? value + rank : value;
  return {};
}

Status infer(const TensorNode& node, TensorTypes outputs) {
  switch (node.op()) {
#define LMN_TENSOR_OP(e, name, attributes) \
  case TensorOp::k##e:                     \
    return infer_##e(node, outputs);
#define LMN_CONTROL_OP(e, name, attributes) \
  case TensorOp::k##e:                      \
    break;
#include "ops/tensor_ops.def"
#undef LMN_CONTROL_OP
#undef LMN_TENSOR_OP
  }
  LMN_CHECK(!"control operators are inferred with their subgraphs");
}

Status check_attributes(TensorOp op, const Attributes& attributes, std::string_view node_name) {
  const std::string_view known = attribute_names(op);
  for (const auto& [key, value] : attributes.entries()) {
    if (contains(known, key)) continue;
    return TensorNode(op, attributes, node_name, {}, 0)
        .fail("attribute '%s' is not one of this operator, which has %s", key.c_str(),
              known.empty() ? "none" : std::string(known).c_str());
  }
  return check_attribute_types(attributes, name(op), node_name, OperatorSets::kNewest);
}

}  // namespace lmn::ops
