// SPDX-License-Identifier: Apache-2.0
#include "capi/tokenizer_data.h"

#include <utility>

namespace lmn::capi {
namespace {

using formats::GgufModel;

template <typename T>
Status read_optional(const GgufModel& file, std::string_view key, T* out) {
  if (file.find(key) == nullptr) return {};
  LMN_ASSIGN_OR_RETURN(*out, file.get<T>(key));
  return {};
}

Status read_optional(const GgufModel& file, std::string_view key, std::optional<bool>* out) {
  if (file.find(key) == nullptr) return {};
  LMN_ASSIGN_OR_RETURN(*out, file.get<bool>(key));
  return {};
}

Status read_strings(const GgufModel& file, std::string_view key,
                    std::vector<std::string_view>* out) {
  LMN_ASSIGN_OR_RETURN(const formats::GgufStrings strings, file.get_strings(key));
  *out = strings.index();
  return {};
}

template <typename T>
Status read_numbers(const GgufModel& file, std::string_view key, std::vector<T>* out) {
  if (file.find(key) == nullptr) return {};
  LMN_ASSIGN_OR_RETURN(*out, file.get_numbers<T>(key));
  return {};
}

// Some writers store "none" as the largest 32-bit number.
Status read_id(const GgufModel& file, std::string_view key, int32_t* out) {
  if (file.find(key) == nullptr) return {};
  LMN_ASSIGN_OR_RETURN(const int64_t id, file.get<int64_t>(key));
  *out = id >= 0 && id < INT32_MAX ? static_cast<int32_t>(id) : -1;
  return {};
}

}  // namespace

Result<std::shared_ptr<const text::Tokenizer>> build_tokenizer(const GgufModel& file) {
  text::TokenizerData data;
  LMN_ASSIGN_OR_RETURN(data.model, file.get<std::string_view>("tokenizer.ggml.model"));
  LMN_RETURN_IF_ERROR(read_strings(file, "tokenizer.ggml.tokens", &data.tokens));
  LMN_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.pre", &data.pre));
  LMN_RETURN_IF_ERROR(read_numbers(file, "tokenizer.ggml.scores", &data.scores));
  LMN_RETURN_IF_ERROR(read_numbers(file, "tokenizer.ggml.token_type", &data.token_types));
  if (file.find("tokenizer.ggml.merges") != nullptr) {
    LMN_RETURN_IF_ERROR(read_strings(file, "tokenizer.ggml.merges", &data.merges));
  }
  const std::pair<std::string_view, int32_t*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &data.bos_id},
      {"tokenizer.ggml.eos_token_id", &data.eos_id},
      {"tokenizer.ggml.eot_token_id", &data.eot_id},
      {"tokenizer.ggml.unknown_token_id", &data.unk_id},
      {"tokenizer.ggml.padding_token_id", &data.pad_id},
  };
  for (const auto& [key, id] : ids) LMN_RETURN_IF_ERROR(read_id(file, key, id));
  LMN_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.add_bos_token", &data.add_bos));
  LMN_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.add_eos_token", &data.add_eos));
  LMN_RETURN_IF_ERROR(
      read_optional(file, "tokenizer.ggml.add_space_prefix", &data.add_space_prefix));
  LMN_RETURN_IF_ERROR(read_optional(file, "tokenizer.chat_template", &data.chat_template));
  Result<std::unique_ptr<text::Tokenizer>> tokenizer = text::Tokenizer::create(data);
  if (!tokenizer.ok()) return std::move(tokenizer).status().with_context(file.path());
  return std::shared_ptr<const text::Tokenizer>(std::move(tokenizer).value());
}

}  // namespace lmn::capi
