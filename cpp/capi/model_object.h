// SPDX-License-Identifier: Apache-2.0
//
// Model: what stands behind lmn_model, shared by every handle that came from it: the file's
// directory, and what is derived from it once, on demand. Immutable to its users: the lazy parts
// are built under a mutex and never change afterwards.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "capi/null_model.h"
#include "core/status.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"

namespace lmn::capi {

// Numbers are 0, and strings are empty, where the file does not say or says something else than a
// number.
struct ModelSummary {
  std::string architecture;
  std::string name;
  uint64_t file_bytes = 0;
  uint64_t parameter_count = 0;
  uint32_t vocab_size = 0;
  uint32_t context_length = 0;
  uint32_t embedding_length = 0;
  uint32_t layer_count = 0;
  uint32_t head_count = 0;
  uint32_t head_count_kv = 0;
  uint32_t head_dim = 0;
};

class Model {
 public:
  // `path` may be a known name (model_name.h, null_model.h).
  static Result<std::shared_ptr<const Model>> open(const std::string& path,
                                                   const formats::GgufOptions& options);
  explicit Model(formats::GgufModel file);
  // `bytes` are what `file` was parsed from.
  Model(const NullModel& null_model, std::vector<std::byte> bytes, formats::GgufModel file);

  const formats::GgufModel& file() const { return file_; }
  // Of a null model; else nothing. `file` then describes it, and has no files behind it.
  const std::optional<NullModel>& null_model() const { return null_model_; }
  size_t generated_bytes() const { return bytes_.size(); }  // of a null model's description
  const ModelSummary& summary() const { return summary_; }

  // Built by the first caller, while others wait; the same object, or the same error, for all. IO
  // when the mapped file was changed before it was built, CLOSED as for lock().
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer() const;

  // Element `element` of the string array of metadata entry `index`, both in range. Constant time
  // but for the first call. The caller has made sure that the file is unchanged. CLOSED as for
  // lock().
  Result<std::string_view> string_element(size_t index, size_t element) const;

 private:
  // In a child of fork(), `mutex` may be held by a thread that does not exist there: CLOSED when it
  // cannot be had.
  Result<std::unique_lock<std::mutex>> lock(std::mutex& mutex) const;

  const pid_t pid_;  // that opened it
  std::optional<NullModel> null_model_;
  std::vector<std::byte> bytes_;  // what a null model's `file_` points into
  formats::GgufModel file_;
  ModelSummary summary_;

  mutable std::mutex tokenizer_mutex_;
  mutable std::optional<Result<std::shared_ptr<const text::Tokenizer>>> tokenizer_;
  mutable std::mutex strings_mutex_;
  mutable std::map<size_t, std::vector<std::string_view>> strings_;  // by metadata entry
};

}  // namespace lmn::capi
