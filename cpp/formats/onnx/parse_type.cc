// SPDX-License-Identifier: Apache-2.0
//
// ValueInfoProto and TypeProto with its parts. The numbers are those of onnx.proto.
#include "formats/onnx/parse.h"

namespace lmn::formats {
namespace {

using Kind = OnnxType::Kind;

// The messages inside TypeProto, each filling its share of one OnnxType.
struct TensorPart {
  OnnxType* type;
};
struct ElementPart {  // Sequence, Optional
  OnnxType* type;
};
struct MapPart {
  OnnxType* type;
};
struct OpaquePart {
  OnnxType* type;
};
struct ShapePart {
  std::vector<OnnxDim>* dims;
};

Status add_element(Message& message, const Field& field, const char* name, OnnxType* type) {
  if (!type->element.empty()) return message.twice(field, name);
  LMN_RETURN_IF_ERROR(message.input()->charge(sizeof(OnnxType)));
  type->element.resize(1);
  return message.get(field, name, &type->element[0]);
}

Status parse(Message& message, ShapePart* shape) {
  return message.each([&](const Field& field) -> Status {
    return field.number == 1 ? message.add(field, "dim", shape->dims) : Status();
  });
}

Status parse(Message& message, TensorPart* part) {
  return message.each([&](const Field& field) -> Status {
    ShapePart shape{&part->type->shape};
    switch (field.number) {
      case 1:
        return message.get(field, "elem_type", &part->type->elem_type);
      case 2:
        if (part->type->has_shape) return message.twice(field, "shape");
        part->type->has_shape = true;
        return message.get(field, "shape", &shape);
      default:
        return {};
    }
  });
}

Status parse(Message& message, ElementPart* part) {
  return message.each([&](const Field& field) -> Status {
    return field.number == 1 ? add_element(message, field, "elem_type", part->type) : Status();
  });
}

Status parse(Message& message, MapPart* part) {
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return message.get(field, "key_type", &part->type->elem_type);
      case 2:
        return add_element(message, field, "value_type", part->type);
      default:
        return {};
    }
  });
}

Status parse(Message& message, OpaquePart* part) {
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return message.get(field, "domain", &part->type->opaque_domain);
      case 2:
        return message.get(field, "name", &part->type->opaque_name);
      default:
        return {};
    }
  });
}

}  // namespace

Status parse(Message& message, OnnxDim* dim) {
  return message.each([&](const Field& field) -> Status {
    int64_t value = 0;
    switch (field.number) {
      case 1:
        LMN_RETURN_IF_ERROR(message.get(field, "dim_value", &value));
        dim->param = {};
        dim->value.reset();
        if (value >= 0) dim->value = value;
        return {};
      case 2:
        dim->value.reset();
        return message.get(field, "dim_param", &dim->param);
      default:
        return {};
    }
  });
}

Status parse(Message& message, OnnxType* type) {
  const auto read = [&](const Field& field, const char* name, Kind kind, auto part) -> Status {
    if (type->kind != Kind::kUnset) {
      return message.damaged(field.at, "%s is a second type beside another", name);
    }
    type->kind = kind;
    return message.get(field, name, &part);
  };
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return read(field, "tensor_type", Kind::kTensor, TensorPart{type});
      case 4:
        return read(field, "sequence_type", Kind::kSequence, ElementPart{type});
      case 5:
        return read(field, "map_type", Kind::kMap, MapPart{type});
      case 7:
        return read(field, "opaque_type", Kind::kOpaque, OpaquePart{type});
      case 8:
        return read(field, "sparse_tensor_type", Kind::kSparseTensor, TensorPart{type});
      case 9:
        return read(field, "optional_type", Kind::kOptional, ElementPart{type});
      default:
        return {};
    }
  });
}

Status parse(Message& message, OnnxValueInfo* info) {
  bool has_type = false;
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        return message.get(field, "name", &info->name);
      case 2:
        if (has_type) return message.twice(field, "type");
        has_type = true;
        return message.get(field, "type", &info->type);
      default:
        return {};
    }
  });
}

}  // namespace lmn::formats
