// SPDX-License-Identifier: Apache-2.0
#include "models/model_file.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace lmn::models {

ModelFile::ModelFile(const formats::GgufModel& file, std::shared_ptr<const void> owner,
                     std::string architecture)
    : file_(file), owner_(std::move(owner)), architecture_(std::move(architecture)) {}

Status ModelFile::about(Code code, const std::string& what) const {
  return error(code, "%s: %s", file_.path().c_str(), what.c_str());
}

bool ModelFile::has_key(std::string_view key) const { return file_.find(full(key)) != nullptr; }

Result<int64_t> ModelFile::size(std::string_view key) const {
  LMN_ASSIGN_OR_RETURN(const int64_t value, file_.get<int64_t>(full(key)));
  if (value < 1 || value > std::numeric_limits<int32_t>::max()) {
    return about(Code::kCorrupt,
                 full(key) + " is " + std::to_string(value) + ", expected 1 to 2147483647");
  }
  return value;
}

Result<int64_t> ModelFile::size_or(std::string_view key, int64_t fallback) const {
  if (!has_key(key)) return fallback;
  return size(key);
}

Result<float> ModelFile::positive(std::string_view key) const {
  LMN_ASSIGN_OR_RETURN(const float value, file_.get<float>(full(key)));
  if (!std::isfinite(value) || value <= 0) {
    return about(Code::kCorrupt,
                 full(key) + " is " + std::to_string(value) + ", expected a positive number");
  }
  return value;
}

Result<float> ModelFile::positive_or(std::string_view key, float fallback) const {
  if (!has_key(key)) return fallback;
  return positive(key);
}

Result<std::string> ModelFile::text_or(std::string_view key, std::string_view fallback) const {
  if (!has_key(key)) return std::string(fallback);
  LMN_ASSIGN_OR_RETURN(const std::string_view text, file_.get<std::string_view>(full(key)));
  return std::string(text);
}

Result<const formats::GgufTensor*> ModelFile::find(const std::string& name) const {
  const formats::GgufTensor* tensor = file_.find_tensor(name);
  if (tensor != nullptr) return tensor;
  return about(Code::kNotFound,
               "tensor '" + name + "' is missing; architecture '" + architecture_ + "' needs it");
}

Result<graph::Piece> ModelFile::tensor(const std::string& name, const Shape& shape) {
  LMN_ASSIGN_OR_RETURN(const formats::GgufTensor* tensor, find(name));
  if (!(tensor->shape == shape)) {
    return about(Code::kCorrupt, "tensor '" + name + "' is " + tensor->shape.to_string() +
                                     ", expected " + shape.to_string() + " from the metadata");
  }
  LMN_ASSIGN_OR_RETURN(const TensorView view, file_.view(*tensor));
  if (shape.rank == 1 && view.dtype != DType::kF32 && view.dtype != DType::kF16 &&
      view.dtype != DType::kBF16) {
    return about(Code::kUnsupported, "tensor '" + name + "' is a vector of " +
                                         std::string(info(view.dtype).name) +
                                         ", expected f32, f16 or bf16");
  }
  used_.insert(tensor->name);
  return graph::Piece{name, view, owner_};
}

Result<Shape> ModelFile::matrix_shape(const std::string& name) const {
  LMN_ASSIGN_OR_RETURN(const formats::GgufTensor* tensor, find(name));
  if (tensor->shape.rank != 2) {
    return about(Code::kCorrupt,
                 "tensor '" + name + "' is " + tensor->shape.to_string() + ", expected a matrix");
  }
  return tensor->shape;
}

Result<std::vector<float>> ModelFile::numbers(const std::string& name, int64_t length) {
  LMN_ASSIGN_OR_RETURN(const graph::Piece piece, tensor(name, Shape{length}));
  if (piece.view.dtype != DType::kF32) {
    return about(
        Code::kUnsupported,
        "tensor '" + name + "' is " + std::string(info(piece.view.dtype).name) + ", expected f32");
  }
  std::vector<float> out(static_cast<size_t>(length));
  std::memcpy(out.data(), piece.view.data, out.size() * sizeof(float));
  return out;
}

Status ModelFile::check_all_used() const {
  for (size_t i = 0; i < file_.tensor_count(); ++i) {
    const std::string_view name = file_.tensor(i).name;
    // Written by old converters, and follows from the metadata.
    const bool redundant =
        name.ends_with(".attn_rot_embd") || name.ends_with(".attn_rot_embd.weight");
    if (redundant || used_.contains(name)) continue;
    return about(Code::kUnsupported, "tensor '" + std::string(name) +
                                         "' is no part of architecture '" + architecture_ +
                                         "' as it is known here");
  }
  return {};
}

}  // namespace lmn::models
