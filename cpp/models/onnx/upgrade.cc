// SPDX-License-Identifier: Apache-2.0
#include "models/onnx/upgrade.h"

#include "models/onnx/tensors.h"

namespace lmn::models {
namespace {

using graph::kNone;
using graph::ValueId;

class Upgrade {
 public:
  Upgrade(int64_t version, ImportedNode& node, NodeSink& sink)
      : version_(version), node_(node), sink_(sink) {}

  Status run(ValueId* result);

 private:
  bool is(std::string_view op) const { return node_.op == op; }
  bool is_reduction() const { return node_.op.starts_with("Reduce"); }

  void set_input(size_t i, ValueId id) {
    if (node_.inputs.size() <= i) node_.inputs.resize(i + 1, kNone);
    node_.inputs[i] = id;
  }
  // The attribute, which is no longer one, as input i.
  void ints_to_input(const char* key, size_t i) {
    if (const auto* list = node_.attributes.find_as<ops::Ints>(key)) {
      const Shape shape{static_cast<int64_t>(list->size())};
      set_input(i, sink_.constant(node_.name + "." + key, tensor_of(DType::kI64, shape, *list)));
    }
    node_.attributes.erase(key);
  }
  void int_to_input(const char* key, size_t i, const Shape& shape) {
    if (const auto* value = node_.attributes.find_as<int64_t>(key)) {
      const std::vector<int64_t> one{*value};
      set_input(i, sink_.constant(node_.name + "." + key, tensor_of(DType::kI64, shape, one)));
    }
    node_.attributes.erase(key);
  }
  // As a scalar of the type of input 0.
  Status float_to_input(const char* key, size_t i) {
    if (const auto* value = node_.attributes.find_as<float>(key)) {
      const std::vector<float> one{*value};
      ValueId id = sink_.constant(node_.name + "." + key, tensor_of(DType::kF32, Shape{}, one));
      if (!node_.inputs.empty() && node_.inputs[0] != kNone &&
          sink_.type(node_.inputs[0]).dtype != DType::kF32) {
        LMN_ASSIGN_OR_RETURN(id, sink_.add("CastLike", {id, node_.inputs[0]}, {}, node_.name));
      }
      set_input(i, id);
    }
    node_.attributes.erase(key);
    return {};
  }
  void floats_to_input(const char* key, size_t i) {
    if (const auto* list = node_.attributes.find_as<ops::Floats>(key)) {
      const Shape shape{static_cast<int64_t>(list->size())};
      set_input(i, sink_.constant(node_.name + "." + key, tensor_of(DType::kF32, shape, *list)));
    }
    node_.attributes.erase(key);
  }
  void erase(std::initializer_list<const char*> keys) {
    for (const char* key : keys) node_.attributes.erase(key);
  }

  Status flattened(ValueId* result);
  void resize_from_upsample();
  void labels_from_classes();

  const int64_t version_;
  ImportedNode& node_;
  NodeSink& sink_;
};

// Before operator set 13, Softmax and its kin saw a matrix: everything before `axis` by everything
// from it on.
Status Upgrade::flattened(ValueId* result) {
  const ValueId x = node_.inputs.empty() ? kNone : node_.inputs[0];
  if (x == kNone) return {};  // inference says what is missing
  int64_t axis = node_.attributes.get_or<int64_t>("axis", 1);
  const graph::ValueType& type = sink_.type(x);
  const auto rank = static_cast<int64_t>(type.dims.size());
  node_.attributes.set("axis", int64_t{-1});
  if (axis == -1 || (type.ranked && axis == rank - 1)) return {};
  ops::Attributes flat;
  flat.set("axis", axis);
  LMN_ASSIGN_OR_RETURN(const ValueId matrix, sink_.add("Flatten", {x}, flat, node_.name));
  LMN_ASSIGN_OR_RETURN(const ValueId y,
                       sink_.add(node_.op, {matrix}, node_.attributes, node_.name));
  LMN_ASSIGN_OR_RETURN(const ValueId shape, sink_.add("Shape", {x}, {}, node_.name));
  LMN_ASSIGN_OR_RETURN(*result, sink_.add("Reshape", {y, shape}, {}, node_.name));
  return {};
}

void Upgrade::resize_from_upsample() {
  node_.op = "Resize";
  floats_to_input("scales", 1);
  if (node_.inputs.size() > 1) {  // X, scales -> X, roi, scales
    set_input(2, node_.inputs[1]);
    node_.inputs[1] = kNone;
  }
  node_.attributes.set("coordinate_transformation_mode", std::string("asymmetric"));
  node_.attributes.set("nearest_mode", std::string("floor"));
  const auto* mode = node_.attributes.find_as<std::string>("mode");
  if (mode != nullptr && (*mode == "bilinear" || *mode == "trilinear"))
    node_.attributes.set("mode", std::string("linear"));
}

// The first version of LabelEncoder: a list of strings and, either way, their places in it.
void Upgrade::labels_from_classes() {
  const auto* classes = node_.attributes.find_as<ops::Strings>("classes_strings");
  if (classes == nullptr || node_.inputs.empty() || node_.inputs[0] == kNone) return;
  ops::Ints places(classes->size());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i);
  const bool from_strings = sink_.type(node_.inputs[0]).dtype == DType::kString;
  const ops::Strings strings = *classes;
  node_.attributes.set(from_strings ? "keys_strings" : "values_strings", strings);
  node_.attributes.set(from_strings ? "values_int64s" : "keys_int64s", std::move(places));
  node_.attributes.erase("classes_strings");
}

Status Upgrade::run(ValueId* result) {
  if (is("Upsample")) {
    resize_from_upsample();
    return {};
  }
  if (is("Scatter")) node_.op = "ScatterElements";
  if (is("Resize") && version_ < 11) {
    resize_from_upsample();
    return {};
  }
  if ((is("Softmax") || is("LogSoftmax") || is("Hardmax")) && version_ < 13)
    return flattened(result);
  if ((is("Squeeze") || is("Unsqueeze") || is("ReduceSum")) && version_ < 13)
    ints_to_input("axes", 1);
  if (is_reduction() && version_ < 18) ints_to_input("axes", 1);
  if (is("Split") && version_ < 13) ints_to_input("split", 1);
  if (is("Split") && node_.inputs.size() < 2 && node_.attributes.find("num_outputs") == nullptr)
    node_.attributes.set("num_outputs", static_cast<int64_t>(node_.outputs));
  if (is("Clip") && version_ < 11) {
    LMN_RETURN_IF_ERROR(float_to_input("min", 1));
    LMN_RETURN_IF_ERROR(float_to_input("max", 2));
  }
  if (is("Pad") && version_ < 11) {
    ints_to_input("pads", 1);
    LMN_RETURN_IF_ERROR(float_to_input("value", 2));
  }
  if (is("Slice") && version_ < 10) {
    ints_to_input("starts", 1);
    ints_to_input("ends", 2);
    ints_to_input("axes", 3);
  }
  if (is("TopK") && version_ < 10) int_to_input("k", 1, Shape{1});
  if (is("Dropout") && version_ < 12) {
    LMN_RETURN_IF_ERROR(float_to_input("ratio", 1));
    node_.inputs.resize(std::min<size_t>(node_.inputs.size(), 2));
  }
  if (is("BatchNormalization") && version_ < 14) {
    // Training was a matter of how many outputs were asked for; what is asked of us is inference.
    erase({"spatial", "momentum", "is_test", "consumed_inputs"});
    node_.outputs = 1;
  }
  if (is("DFT") && version_ < 20) {
    if (node_.attributes.find("axis") == nullptr) node_.attributes.set("axis", int64_t{1});
    int_to_input("axis", 2, Shape{});
  }
  if (is("ai.onnx.ml.LabelEncoder")) labels_from_classes();
  if (is("Scan") && version_ < 9) {
    return error(
        Code::kUnsupported,
        "Scan '%s' is of operator set 8, which batches; export the model with operator set "
        "9 or later",
        node_.name.c_str());
  }
  return {};
}

}  // namespace

Status upgrade(int64_t version, ImportedNode* node, NodeSink& sink, ValueId* result) {
  return Upgrade(version, *node, sink).run(result);
}

}  // namespace lmn::models
