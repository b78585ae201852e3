// SPDX-License-Identifier: Apache-2.0
//
// ModelFile: what an architecture asks of a model file. Keys are looked up under the architecture's
// prefix; sizes and shapes are checked on the spot, with messages that name the key or the tensor
// and what was expected of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/status.h"
#include "formats/gguf.h"
#include "graph/graph.h"

namespace lmn::models {

class ModelFile {
 public:
  // `file` outlives this object; `owner` is handed on to every piece.
  ModelFile(const formats::GgufModel& file, std::shared_ptr<const void> owner,
            std::string architecture);

  const std::string& architecture() const { return architecture_; }

  // "<architecture>.<key>", in [1, 2^31). NOT_FOUND when absent, CORRUPT when out of range.
  Result<int64_t> size(std::string_view key) const;
  Result<int64_t> size_or(std::string_view key, int64_t fallback) const;
  // "<architecture>.<key>", finite and positive.
  Result<float> positive(std::string_view key) const;
  Result<float> positive_or(std::string_view key, float fallback) const;
  Result<std::string> text_or(std::string_view key, std::string_view fallback) const;
  bool has_key(std::string_view key) const;

  bool has_tensor(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  // The tensor, which must have this shape. NOT_FOUND, CORRUPT (another shape), UNSUPPORTED (a type
  // without kernels).
  Result<graph::Piece> tensor(const std::string& name, const Shape& shape);
  // The shape of a tensor of rank 2. NOT_FOUND, CORRUPT.
  Result<Shape> matrix_shape(const std::string& name) const;
  // The numbers of a small float32 vector of this length.
  Result<std::vector<float>> numbers(const std::string& name, int64_t length);

  // UNSUPPORTED names a tensor that nobody has asked for: a part of the model that the graph would
  // lack.
  Status check_all_used() const;

  // An error about this file: CORRUPT or UNSUPPORTED with its path in front.
  Status about(Code code, const std::string& what) const;

 private:
  std::string full(std::string_view key) const { return architecture_ + "." + std::string(key); }
  Result<const formats::GgufTensor*> find(const std::string& name) const;

  const formats::GgufModel& file_;
  std::shared_ptr<const void> owner_;
  std::string architecture_;
  std::unordered_set<std::string_view> used_;  // names in the file
};

}  // namespace lmn::models
