// SPDX-License-Identifier: Apache-2.0
//
// ModelProto, FunctionProto, GraphProto, NodeProto, AttributeProto. The numbers are those of
// onnx.proto.
#include "formats/onnx/parse.h"

namespace lmn::formats {
namespace {

// For files of IR version 1, which do not say: the type of the one field that is set.
int32_t only_field_set(uint32_t fields) {
  constexpr struct {
    uint32_t field;
    int32_t type;
  } kTypes[] = {
      {2, OnnxAttribute::FLOAT},          {3, OnnxAttribute::INT},
      {4, OnnxAttribute::STRING},         {5, OnnxAttribute::TENSOR},
      {6, OnnxAttribute::GRAPH},          {7, OnnxAttribute::FLOATS},
      {8, OnnxAttribute::INTS},           {9, OnnxAttribute::STRINGS},
      {10, OnnxAttribute::TENSORS},       {11, OnnxAttribute::GRAPHS},
      {14, OnnxAttribute::TYPE_PROTO},    {15, OnnxAttribute::TYPE_PROTOS},
      {22, OnnxAttribute::SPARSE_TENSOR}, {23, OnnxAttribute::SPARSE_TENSORS},
  };
  for (const auto& [field, type] : kTypes) {
    if (fields == 1u << field) return type;
  }
  return OnnxAttribute::UNDEFINED;
}

}  // namespace

Status parse(Message& message, OnnxAttribute* attribute) {
  uint32_t values = 0;  // bit n: field n, one that holds a value, is there
  Status status = message.each([&](const Field& field) -> Status {
    constexpr uint32_t kValues = 0b1100'0000'1100'1111'1111'1100;
    if (field.number < 24) values |= kValues & (1u << field.number);
    std::span<const std::byte> text;
    switch (field.number) {
      case 1:
        return message.get(field, "name", &attribute->name);
      case 2:
        return message.get(field, "f", &attribute->f);
      case 3:
        return message.get(field, "i", &attribute->i);
      case 4:
        LMN_RETURN_IF_ERROR(message.get_bytes(field, "s", &text));
        attribute->s = {reinterpret_cast<const char*>(text.data()), text.size()};
        return {};
      case 5:
        return message.get(field, "t", &attribute->t);
      case 6:
        return message.get(field, "g", &attribute->g);
      case 7:
        return message.add(field, "floats", &attribute->floats);
      case 8:
        return message.add(field, "ints", &attribute->ints);
      case 9:
        return message.add_bytes(field, "strings", &attribute->strings);
      case 10:
        return message.add(field, "tensors", &attribute->tensors);
      case 11:
        return message.add(field, "graphs", &attribute->graphs);
      case 14:
        return message.get(field, "tp", &attribute->type_proto);
      case 15:
        return message.add(field, "type_protos", &attribute->type_protos);
      case 20:
        return message.get(field, "type", &attribute->type);
      case 21:
        return message.get(field, "ref_attr_name", &attribute->ref_attr_name);
      case 22:
        return message.get(field, "sparse_tensor", &attribute->sparse_tensor);
      case 23:
        return message.add(field, "sparse_tensors", &attribute->sparse_tensors);
      default:
        return {};
    }
  });
  if (!status.ok()) return status;
  if (attribute->type == OnnxAttribute::UNDEFINED) attribute->type = only_field_set(values);
  return {};
}

Status parse(Message& message, OnnxNode* node) {
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return message.add(field, "input", &node->inputs);
      case 2:
        return message.add(field, "output", &node->outputs);
      case 3:
        return message.get(field, "name", &node->name);
      case 4:
        return message.get(field, "op_type", &node->op_type);
      case 5:
        return message.add(field, "attribute", &node->attributes);
      case 7:
        return message.get(field, "domain", &node->domain);
      case 8:
        return message.get(field, "overload", &node->overload);
      default:
        return {};
    }
  });
}

Status parse(Message& message, OnnxGraph* graph) {
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return message.add(field, "node", &graph->nodes);
      case 2:
        return message.get(field, "name", &graph->name);
      case 5:
        return message.add(field, "initializer", &graph->initializers);
      case 11:
        return message.add(field, "input", &graph->inputs);
      case 12:
        return message.add(field, "output", &graph->outputs);
      case 13:
        return message.add(field, "value_info", &graph->value_infos);
      case 15:
        return message.add(field, "sparse_initializer", &graph->sparse_initializers);
      case 16:
        return message.add(field, "metadata_props", &graph->metadata);
      default:
        return {};
    }
  });
}

Status parse(Message& message, OnnxFunction* function) {
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return message.get(field, "name", &function->name);
      case 4:
        return message.add(field, "input", &function->inputs);
      case 5:
        return message.add(field, "output", &function->outputs);
      case 6:
        return message.add(field, "attribute", &function->attributes);
      case 7:
        return message.add(field, "node", &function->nodes);
      case 9:
        return message.add(field, "opset_import", &function->opset_imports);
      case 10:
        return message.get(field, "domain", &function->domain);
      case 11:
        return message.add(field, "attribute_proto", &function->attribute_protos);
      case 12:
        return message.add(field, "value_info", &function->value_infos);
      case 13:
        return message.get(field, "overload", &function->overload);
      default:
        return {};
    }
  });
}

Status parse(Message& message, OnnxModel* model) {
  bool has_version = false;
  bool has_graph = false;
  Status status = message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        has_version = true;
        return message.get(field, "ir_version", &model->ir_version);
      case 2:
        return message.get(field, "producer_name", &model->producer_name);
      case 3:
        return message.get(field, "producer_version", &model->producer_version);
      case 4:
        return message.get(field, "domain", &model->domain);
      case 5:
        return message.get(field, "model_version", &model->model_version);
      case 6:
        return message.get(field, "doc_string", &model->doc_string);
      case 7:
        if (has_graph) return message.twice(field, "graph");
        has_graph = true;
        return message.get(field, "graph", &model->graph);
      case 8:
        return message.add(field, "opset_import", &model->opset_imports);
      case 14:
        return message.add(field, "metadata_props", &model->metadata);
      case 25:
        return message.add(field, "functions", &model->functions);
      default:
        return {};
    }
  });
  if (!status.ok()) return status;
  const std::byte* end = message.input()->bytes.data() + message.input()->bytes.size();
  if (!has_graph) return message.damaged(end, "there is no graph in it");
  if (!has_version) return message.damaged(end, "there is no ir_version in it");
  return {};
}

Status parse(Message& message, OnnxOpset* opset) {
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return message.get(field, "domain", &opset->domain);
      case 2:
        return message.get(field, "version", &opset->version);
      default:
        return {};
    }
  });
}

Status parse(Message& message, OnnxEntry* entry) {
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return message.get(field, "key", &entry->key);
      case 2:
        return message.get(field, "value", &entry->value);
      default:
        return {};
    }
  });
}

}  // namespace lmn::formats
