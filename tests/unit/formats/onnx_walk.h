// SPDX-License-Identifier: Apache-2.0
//
// Reads everything an OnnxFile hands out, as damage tests and the fuzz target do after any
// successful open: a pointer outside the file shows as a crash or a sanitizer report, a size that
// contradicts its tensor as a std::logic_error.
#pragma once

#include <stdexcept>

#include "formats/onnx/onnx.h"

namespace onnx_test {

class Walk {
 public:
  explicit Walk(const lmn::formats::OnnxFile& file) : file_(file) {
    const lmn::formats::OnnxModel& model = file.model();
    read(model.producer_name);
    read(model.producer_version);
    read(model.domain);
    read(model.doc_string);
    read(model.opset_imports);
    read(model.metadata);
    read(model.functions);
    read(model.graph);
  }
  uint64_t sum() const { return sum_; }
  int readable_tensors() const { return readable_tensors_; }

 private:
  void read(std::string_view text) {
    for (const char c : text) sum_ += static_cast<unsigned char>(c);
  }
  void read(const lmn::formats::OnnxEntry& entry) {
    read(entry.key);
    read(entry.value);
  }
  void read(const lmn::formats::OnnxOpset& opset) { read(opset.domain); }
  void read(const lmn::formats::OnnxTensor& tensor) {
    read(tensor.name);
    for (const std::string_view text : tensor.strings) read(text);
    read(tensor.external.location);
    const auto data = lmn::formats::tensor_bytes(file_, tensor);
    if (!data.ok()) {
      if (data.status().message().empty()) throw std::logic_error("an error without a message");
      return;
    }
    ++readable_tensors_;
    for (const std::byte b : data->bytes) sum_ += static_cast<uint64_t>(b);
    uint64_t elements = 1;
    for (const int64_t dim : data->dims) elements *= static_cast<uint64_t>(dim);
    const auto* type = lmn::formats::find_onnx_data_type(data->data_type);
    if (type == nullptr || elements != data->elements ||
        (type->bits != 0 ? data->bytes.size() != (elements * type->bits + 7) / 8
                         : data->strings.size() != elements)) {
      throw std::logic_error("a tensor's size contradicts its shape");
    }
  }
  void read(const lmn::formats::OnnxSparseTensor& sparse) {
    read(sparse.values);
    read(sparse.indices);
  }
  void read(const lmn::formats::OnnxType& type) {
    for (const auto& dim : type.shape) read(dim.param);
    read(type.element);
    read(type.opaque_domain);
    read(type.opaque_name);
  }
  void read(const lmn::formats::OnnxValueInfo& info) {
    read(info.name);
    read(info.type);
  }
  void read(const lmn::formats::OnnxAttribute& attribute) {
    read(attribute.name);
    read(attribute.ref_attr_name);
    read(attribute.s);
    if (attribute.t) read(*attribute.t);
    if (attribute.g) read(*attribute.g);
    if (attribute.sparse_tensor) read(*attribute.sparse_tensor);
    if (attribute.type_proto) read(*attribute.type_proto);
    sum_ += attribute.floats.size();
    for (const int64_t i : attribute.ints) sum_ += static_cast<uint64_t>(i);
    read(attribute.strings);
    read(attribute.tensors);
    read(attribute.graphs);
    read(attribute.sparse_tensors);
    read(attribute.type_protos);
  }
  void read(const lmn::formats::OnnxNode& node) {
    read(node.name);
    read(node.op_type);
    read(node.domain);
    read(node.overload);
    read(node.inputs);
    read(node.outputs);
    read(node.attributes);
  }
  void read(const lmn::formats::OnnxGraph& graph) {
    read(graph.name);
    read(graph.nodes);
    read(graph.initializers);
    read(graph.sparse_initializers);
    read(graph.inputs);
    read(graph.outputs);
    read(graph.value_infos);
    read(graph.metadata);
  }
  void read(const lmn::formats::OnnxFunction& function) {
    read(function.name);
    read(function.domain);
    read(function.overload);
    read(function.inputs);
    read(function.outputs);
    read(function.attributes);
    read(function.attribute_protos);
    read(function.nodes);
    read(function.opset_imports);
    read(function.value_infos);
  }
  template <typename T>
  void read(const std::vector<T>& all) {
    for (const T& each : all) read(each);
  }

  const lmn::formats::OnnxFile& file_;
  uint64_t sum_ = 0;
  int readable_tensors_ = 0;
};

}  // namespace onnx_test
