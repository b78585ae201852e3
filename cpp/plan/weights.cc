// SPDX-License-Identifier: Apache-2.0
#include "plan/weights.h"

#include <algorithm>
#include <cstring>

#include "core/float16.h"
#include "plan/arena.h"

namespace lmn::plan {
namespace {

bool same_bytes(const graph::Constant& a, const graph::Constant& b) {
  return std::equal(a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
                    [](const graph::Piece& x, const graph::Piece& y) {
                      return x.view.data == y.view.data && x.view.dtype == y.view.dtype &&
                             x.view.shape == y.view.shape;
                    });
}

// Appends the numbers of a float vector in any of its file types. `data` has no alignment to rely
// on.
void append_floats(const TensorView& view, std::vector<float>* out) {
  for (int64_t i = 0; i < view.shape.elements(); ++i) {
    if (view.dtype == DType::kF32) {
      float value;
      std::memcpy(&value, view.data + i * 4, sizeof(value));
      out->push_back(value);
    } else {
      uint16_t bits;
      std::memcpy(&bits, view.data + i * 2, sizeof(bits));
      out->push_back(view.dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits));
    }
  }
}

Status before_read(const PlanOptions& options, const graph::Piece& piece) {
  if (!options.before_read) return {};
  return options.before_read(piece.view).with_context(piece.name);
}

void after_read(const PlanOptions& options, const graph::Piece& piece) {
  if (options.after_read) options.after_read(piece.view);
}

}  // namespace

int64_t Weights::reserve(int64_t bytes) {
  const int64_t offset = bytes_;
  bytes_ += align_up(bytes);
  return offset;
}

Weights::Matrix* Weights::find(const graph::Constant& constant, bool interleaved,
                               const DType* input_type) {
  for (const auto& matrix : matrices_) {
    if (matrix->packed.interleaved == interleaved && same_bytes(*matrix->constant, constant) &&
        (input_type == nullptr || matrix->packed.input_type == *input_type)) {
      return matrix.get();
    }
  }
  return nullptr;
}

Result<const ops::PackedMatrix*> Weights::add_matrix(const graph::Value& value, DType input_type,
                                                     bool interleaved) {
  if (const Matrix* known = find(*value.constant, interleaved, &input_type)) return &known->packed;
  auto matrix = std::make_unique<Matrix>();
  matrix->constant = value.constant;
  matrix->name = value.name;
  for (const graph::Piece& piece : value.constant->pieces) matrix->views.push_back(piece.view);
  Result<ops::PackedMatrix> packed = table_.plan_pack({matrix->views, input_type, interleaved});
  if (!packed.ok()) return std::move(packed).status().with_context(value.name);
  matrix->packed = std::move(packed).value();
  if (matrix->packed.input_type != input_type) {
    return error(Code::kUnsupported, "%s: device %s multiplies it with %s, the graph with %s",
                 value.name.c_str(), device_.name().c_str(),
                 std::string(info(matrix->packed.input_type).name).c_str(),
                 std::string(info(input_type).name).c_str());
  }
  matrix->offset = reserve(matrix->packed.bytes);
  matrices_.push_back(std::move(matrix));
  return &matrices_.back()->packed;
}

Result<const ops::PackedMatrix*> Weights::add_table(const graph::Value& value) {
  if (const Matrix* known = find(*value.constant, false, nullptr)) return &known->packed;
  const TensorView& view = value.constant->pieces.front().view;
  Result<DType> input_type = table_.linear_input_type(view.dtype, view.shape.last(), false);
  if (!input_type.ok()) return std::move(input_type).status().with_context(value.name);
  return add_matrix(value, *input_type, false);
}

size_t Weights::add_vector(const graph::Value& value) {
  for (size_t i = 0; i < vectors_.size(); ++i) {
    if (same_bytes(*vectors_[i].constant, *value.constant)) return i;
  }
  Vector vector{value.constant, value.name, value.type.dims[0].size, 0};
  vector.offset = reserve(vector.length * static_cast<int64_t>(sizeof(float)));
  vectors_.push_back(std::move(vector));
  return vectors_.size() - 1;
}

Status Weights::fill(Matrix* matrix, parallel::ThreadTeam& team, const PlanOptions& options) {
  for (const graph::Piece& piece : matrix->constant->pieces)
    LMN_RETURN_IF_ERROR(before_read(options, piece));
  const ops::PackRequest request{matrix->views, matrix->packed.input_type,
                                 matrix->packed.interleaved};
  std::byte* data = block_.data() + matrix->offset;
  team.run([&](int index) {
    ops::Worker worker;
    worker.index = worker.part = index;
    worker.parts = team.size();
    table_.pack(request, matrix->packed, data, worker);
  });
  matrix->packed.data = data;
  for (const graph::Piece& piece : matrix->constant->pieces) after_read(options, piece);
  return {};
}

Status Weights::fill(const Vector& vector, const PlanOptions& options) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(vector.length));
  for (const graph::Piece& piece : vector.constant->pieces) {
    LMN_RETURN_IF_ERROR(before_read(options, piece));
    append_floats(piece.view, &values);
    after_read(options, piece);
  }
  return device_.copy_from_host(block_.data() + vector.offset, values.data(),
                                values.size() * sizeof(float));
}

Status Weights::load(parallel::ThreadTeam& team, const PlanOptions& options) {
  Result<DeviceBlock> block = DeviceBlock::create(device_, static_cast<size_t>(bytes_));
  if (!block.ok()) return std::move(block).status().with_context("packed weights");
  block_ = std::move(block).value();
  for (const Vector& vector : vectors_) LMN_RETURN_IF_ERROR(fill(vector, options));
  int64_t done = 0;
  for (const auto& matrix : matrices_) {
    LMN_RETURN_IF_ERROR(fill(matrix.get(), team, options));
    done += matrix->packed.bytes;
    if (options.progress) options.progress(done, bytes_);
  }
  if (options.progress) options.progress(bytes_, bytes_);
  for (const auto& matrix : matrices_) matrix->views.clear();
  for (const auto& matrix : matrices_) matrix->constant.reset();
  for (Vector& vector : vectors_) vector.constant.reset();
  return {};
}

}  // namespace lmn::plan
