// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/model.h.
#include "lmnative/model.h"

#include "capi/handles.h"
#include "capi/options.h"
#include "capi/progress.h"
#include "capi/tensor.h"

namespace lmn::capi {
namespace {

using formats::GgufArray;
using formats::GgufTensor;
using formats::GgufType;
using formats::GgufValue;

Result<formats::ReadMode> read_mode(uint32_t mode) {
  switch (mode) {
    case LMN_READ_MAP:
      return formats::ReadMode::kMap;
    case LMN_READ_MAP_POPULATE:
      return formats::ReadMode::kMapPopulate;
    case LMN_READ_COPY:
      return formats::ReadMode::kCopy;
    default:
      return error(Code::kInvalidArgument,
                   "lmn_model_options.read_mode is %u; it is one of LMN_READ_*", mode);
  }
}

struct Kind {
  uint32_t kind;
  uint32_t bits;
};

Kind kind_of(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return {LMN_VALUE_UINT, 8};
    case GgufType::kU16:
      return {LMN_VALUE_UINT, 16};
    case GgufType::kU32:
      return {LMN_VALUE_UINT, 32};
    case GgufType::kU64:
      return {LMN_VALUE_UINT, 64};
    case GgufType::kI8:
      return {LMN_VALUE_INT, 8};
    case GgufType::kI16:
      return {LMN_VALUE_INT, 16};
    case GgufType::kI32:
      return {LMN_VALUE_INT, 32};
    case GgufType::kI64:
      return {LMN_VALUE_INT, 64};
    case GgufType::kF32:
      return {LMN_VALUE_FLOAT, 32};
    case GgufType::kF64:
      return {LMN_VALUE_FLOAT, 64};
    case GgufType::kBool:
      return {LMN_VALUE_BOOL, 0};
    case GgufType::kString:
      return {LMN_VALUE_STRING, 0};
    case GgufType::kArray:
      return {LMN_VALUE_ARRAY, 0};
  }
  return {0, 0};
}

Status fill_value(const GgufValue& from, lmn_value* out) {
  const Kind kind = kind_of(from.type());
  out->kind = kind.kind;
  out->bits = kind.bits;
  switch (kind.kind) {
    case LMN_VALUE_UINT: {
      LMN_ASSIGN_OR_RETURN(out->u64, from.get<uint64_t>());
      break;
    }
    case LMN_VALUE_INT: {
      LMN_ASSIGN_OR_RETURN(out->i64, from.get<int64_t>());
      break;
    }
    case LMN_VALUE_FLOAT: {
      LMN_ASSIGN_OR_RETURN(out->f64, from.get<double>());
      break;
    }
    case LMN_VALUE_BOOL: {
      LMN_ASSIGN_OR_RETURN(const bool value, from.get<bool>());
      out->u64 = value ? 1 : 0;
      break;
    }
    case LMN_VALUE_STRING: {
      LMN_ASSIGN_OR_RETURN(const std::string_view text, from.get<std::string_view>());
      out->text = text.data();
      out->text_bytes = text.size();
      break;
    }
    default: {
      LMN_ASSIGN_OR_RETURN(const GgufArray array, from.array());
      out->array_kind = kind_of(array.element_type()).kind;
      out->bits = kind_of(array.element_type()).bits;
      out->array_count = array.size();
      break;
    }
  }
  return {};
}

// `value` is what stands under metadata entry `index`, or an element of it.
Status put_value(const Model& model, size_t index, const GgufValue& value, lmn_value* out) {
  lmn_value result{};
  const std::string_view key = model.file().key(index);
  result.key = key.data();
  result.key_bytes = key.size();
  LMN_RETURN_IF_ERROR(fill_value(value, &result));
  write_output(result, out);
  return {};
}

Status check_index(const formats::GgufModel& file, uint64_t index) {
  if (index < file.size()) return {};
  return error(Code::kNotFound, "metadata entry %llu: %s has %zu",
               static_cast<unsigned long long>(index), file.path().c_str(), file.size());
}

// How a tensor of the file looks as DLPack. Block-quantised types are bytes: [rows, bytes per row].
DLDataType dlpack_type(DType type) {
  switch (type) {
    case DType::kF16:
      return {kDLFloat, 16, 1};
    case DType::kF32:
      return {kDLFloat, 32, 1};
    case DType::kF64:
      return {kDLFloat, 64, 1};
    case DType::kBF16:
      return {kDLBfloat, 16, 1};
    case DType::kI8:
      return {kDLInt, 8, 1};
    case DType::kI16:
      return {kDLInt, 16, 1};
    case DType::kI32:
      return {kDLInt, 32, 1};
    case DType::kI64:
      return {kDLInt, 64, 1};
    case DType::kBool:
      return {kDLBool, 8, 1};
    default:
      return {kDLUInt, 8, 1};
  }
}

}  // namespace
}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_model_open(const char* path, const lmn_model_options* options, lmn_model** model,
                          lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(path);
    LMN_REQUIRE_ONE(model);
    lmn_model_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_model_options", &given));
    Progress progress(given.progress, given.progress_user);
    formats::GgufOptions how;
    LMN_ASSIGN_OR_RETURN(how.mode, read_mode(given.read_mode));
    if (progress) {
      how.progress = [&](uint64_t done, uint64_t total) {
        return progress.step("reading the model", done, total);
      };
    }
    LMN_ASSIGN_OR_RETURN(std::shared_ptr<const Model> object, Model::open(path, how));
    *model = new lmn_model{std::move(object)};
    return {};
  });
}

void lmn_model_destroy(lmn_model* model) {
  guard_destroy([&] { delete model; });
}

lmn_status lmn_model_info_get(const lmn_model* model, lmn_model_info* info, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(model);
    LMN_RETURN_IF_ERROR(check_output(info, "info", "lmn_model_info"));
    const formats::GgufModel& file = model->object->file();
    const ModelSummary& summary = model->object->summary();
    lmn_model_info out{};
    out.format_version = file.version();
    out.path = file.path().c_str();
    out.architecture = summary.architecture.c_str();
    out.name = summary.name.c_str();
    out.file_bytes = summary.file_bytes;
    out.tensor_count = file.tensor_count();
    out.metadata_count = file.size();
    out.parameter_count = summary.parameter_count;
    out.file_count = static_cast<uint32_t>(file.files().size());
    out.vocab_size = summary.vocab_size;
    out.context_length = summary.context_length;
    out.embedding_length = summary.embedding_length;
    out.layer_count = summary.layer_count;
    out.head_count = summary.head_count;
    out.head_count_kv = summary.head_count_kv;
    out.head_dim = summary.head_dim;
    write_output(out, info);
    return {};
  });
}

lmn_status lmn_model_metadata_get(const lmn_model* model, uint64_t index, lmn_value* value,
                                  lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(model);
    LMN_RETURN_IF_ERROR(check_output(value, "value", "lmn_value"));
    const formats::GgufModel& file = model->object->file();
    LMN_RETURN_IF_ERROR(check_index(file, index));
    LMN_RETURN_IF_ERROR(file.check_unchanged());
    return put_value(*model->object, index, file.value(index), value);
  });
}

lmn_status lmn_model_metadata_find(const lmn_model* model, const char* key, lmn_value* value,
                                   lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(model);
    LMN_REQUIRE_ONE(key);
    LMN_RETURN_IF_ERROR(check_output(value, "value", "lmn_value"));
    const formats::GgufModel& file = model->object->file();
    LMN_RETURN_IF_ERROR(file.check_unchanged());
    const std::string_view wanted = key;
    for (size_t i = 0; i < file.size(); ++i) {
      if (file.key(i) == wanted) return put_value(*model->object, i, file.value(i), value);
    }
    return error(Code::kNotFound, "%s has no metadata key '%s'", file.path().c_str(), key);
  });
}

lmn_status lmn_model_metadata_element_get(const lmn_model* model, uint64_t index, uint64_t element,
                                          lmn_value* value, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(model);
    LMN_RETURN_IF_ERROR(check_output(value, "value", "lmn_value"));
    const formats::GgufModel& file = model->object->file();
    LMN_RETURN_IF_ERROR(check_index(file, index));
    LMN_RETURN_IF_ERROR(file.check_unchanged());
    const std::string key(file.key(index));
    if (file.value(index).type() != GgufType::kArray) {
      return error(Code::kInvalidArgument, "metadata '%s' is not an array", key.c_str());
    }
    LMN_ASSIGN_OR_RETURN(const GgufArray array, file.value(index).array());
    if (element >= array.size()) {
      return error(Code::kNotFound, "element %llu: metadata '%s' has %zu",
                   static_cast<unsigned long long>(element), key.c_str(), array.size());
    }
    if (array.element_type() == GgufType::kArray) {
      return error(Code::kUnsupported,
                   "metadata '%s' is an array of arrays, whose elements this version does not read",
                   key.c_str());
    }
    if (array.element_type() != GgufType::kString) {
      return put_value(*model->object, index, array.at(element), value);
    }
    LMN_ASSIGN_OR_RETURN(const std::string_view text,
                         model->object->string_element(index, element));
    lmn_value out{};
    const std::string_view name = file.key(index);
    out.kind = LMN_VALUE_STRING;
    out.key = name.data();
    out.key_bytes = name.size();
    out.text = text.data();
    out.text_bytes = text.size();
    write_output(out, value);
    return {};
  });
}

lmn_status lmn_model_tensor_get(const lmn_model* model, uint64_t index, lmn_tensor_info* info,
                                lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(model);
    LMN_RETURN_IF_ERROR(check_output(info, "info", "lmn_tensor_info"));
    const formats::GgufModel& file = model->object->file();
    if (index >= file.tensor_count()) {
      return error(Code::kNotFound, "tensor %llu: %s has %zu",
                   static_cast<unsigned long long>(index), file.path().c_str(),
                   file.tensor_count());
    }
    const GgufTensor& tensor = file.tensor(index);
    lmn_tensor_info out{};
    out.ndim = static_cast<uint32_t>(tensor.shape.rank);
    out.name = tensor.name.data();
    out.name_bytes = tensor.name.size();
    out.type = tensor.type_name.data();  // a literal of the type tables: NUL-terminated
    for (int i = 0; i < tensor.shape.rank && i < 4; ++i) out.shape[i] = tensor.shape[i];
    out.bytes = tensor.bytes;
    out.offset = tensor.offset;
    out.file_index = tensor.part;
    out.supported = tensor.supported ? 1 : 0;
    write_output(out, info);
    return {};
  });
}

lmn_status lmn_model_tensor_export(const lmn_model* model, const char* name,
                                   DLManagedTensorVersioned** tensor, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(model);
    LMN_REQUIRE_ONE(name);
    LMN_REQUIRE_ONE(tensor);
    LMN_RETURN_IF_ERROR(model->object->file().check_unchanged());
    LMN_ASSIGN_OR_RETURN(const TensorView view, model->object->file().view(std::string_view(name)));
    TensorSpec spec;
    spec.dtype = dlpack_type(view.dtype);
    spec.read_only = true;
    const int64_t blocks[] = {view.shape.rows(), row_bytes(view.dtype, view.shape.last())};
    spec.shape = is_block_quantized(view.dtype)
                     ? std::span<const int64_t>(blocks)
                     : std::span<const int64_t>(view.shape.dims.data(),
                                                static_cast<size_t>(view.shape.rank));
    // DLPack has no pointer to const; the flag says that nobody may write.
    *tensor = make_tensor(spec, const_cast<std::byte*>(view.data), model->object->file().owner());
    return {};
  });
}

}  // extern "C"
