// SPDX-License-Identifier: Apache-2.0
#include "server/models.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "server/json.h"
#include "server/utf8.h"

namespace lmn::server {
namespace {

constexpr size_t kMaxNameBytes = 255;

Failure set_name(std::string name, ServedModel* model) {
  if (Failure failure = check_name(name); failure.failed()) return failure;
  model->quoted_name = json_quoted(name);
  model->name = std::move(name);
  model->created_s = static_cast<int64_t>(std::time(nullptr));
  return {};
}

}  // namespace

Failure check_name(std::string_view name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && c != 0x7F;
  });
  const std::string shown = lossy(name);
  if (!name.empty() && name.size() <= kMaxNameBytes && printable && shown == name) return {};
  return {LMN_INVALID_ARGUMENT,
          "the name of a served model is 1 to 255 bytes of UTF-8 without spaces, not " +
              json_quoted(cut(shown, kMaxNameBytes))};
}

bool ModelTable::add(std::shared_ptr<ServedModel> model) {
  const std::lock_guard lock(mutex_);
  const std::string& name = model->name;
  return models_.try_emplace(name, std::move(model)).second;
}

std::shared_ptr<ServedModel> ModelTable::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end()) return nullptr;
  std::shared_ptr<ServedModel> model = std::move(found->second);
  models_.erase(found);
  return model;
}

std::shared_ptr<ServedModel> ModelTable::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(name);
  return found == models_.end() ? nullptr : found->second;
}

std::shared_ptr<ServedModel> ModelTable::only() const {
  const std::lock_guard lock(mutex_);
  return models_.size() == 1 ? models_.begin()->second : nullptr;
}

std::vector<std::shared_ptr<ServedModel>> ModelTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<ServedModel>> out;
  for (const auto& [name, model] : models_) out.push_back(model);
  return out;
}

size_t ModelTable::size() const {
  const std::lock_guard lock(mutex_);
  return models_.size();
}

void ModelTable::clear() {
  std::map<std::string, std::shared_ptr<ServedModel>, std::less<>> models;
  const std::lock_guard lock(mutex_);
  models.swap(models_);
}

bool ModelTable::begin_load(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (models_.contains(name)) return false;
  const auto [at, is_new] = loads_.try_emplace(name);
  if (!is_new && !at->second.failed) return false;
  at->second = {};
  return true;
}

void ModelTable::set_load(const std::string& name, LoadState state) {
  const std::lock_guard lock(mutex_);
  loads_[name] = std::move(state);
}

void ModelTable::end_load(const std::string& name) {
  const std::lock_guard lock(mutex_);
  loads_.erase(name);
}

bool ModelTable::forget_load(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = loads_.find(name);
  if (found == loads_.end() || !found->second.failed) return false;
  loads_.erase(found);
  return true;
}

std::map<std::string, LoadState> ModelTable::loads() const {
  const std::lock_guard lock(mutex_);
  return {loads_.begin(), loads_.end()};
}

Failure make_served_engine(EngineHandle engine, ModelHandle model, std::string name,
                           ServedEngine* out) {
  if (Failure failure = set_name(std::move(name), out); failure.failed()) return failure;
  auto stats = sized<lmn_engine_stats>();
  Failure failure =
      attempt([&](lmn_error** err) { return lmn_engine_stats_get(engine.get(), &stats, err); });
  if (failure.failed()) return failure;
  out->context_tokens = stats.context_tokens;
  lmn_tokenizer* tokenizer = nullptr;
  out->no_tokenizer =
      attempt([&](lmn_error** err) { return lmn_tokenizer_create(model.get(), &tokenizer, err); });
  out->tokenizer.reset(tokenizer);
  if (tokenizer != nullptr) {
    auto info = sized<lmn_tokenizer_info>();
    auto bos = sized<lmn_token_info>();
    if (lmn_tokenizer_info_get(tokenizer, &info, nullptr) == LMN_OK && info.bos_id >= 0 &&
        lmn_tokenizer_token_get(tokenizer, info.bos_id, &bos, nullptr) == LMN_OK)
      out->bos.assign(bos.bytes, static_cast<size_t>(bos.byte_count));
  }
  out->engine = std::move(engine);
  out->model = std::move(model);
  return {};
}

Failure make_served_session(SessionHandle session, TokenizerHandle tokenizer,
                            const lmn_embedding_options& options, ServedSession* out) {
  if (Failure failure = set_name(options.name == nullptr ? "" : options.name, out);
      failure.failed())
    return failure;
  const auto refuse = [&](const std::string& problem) {
    return Failure{LMN_UNSUPPORTED,
                   "the session cannot be served as an embedding model: " + problem};
  };
  if (options.pooling > LMN_POOLING_LAST) {
    return {LMN_INVALID_ARGUMENT, "lmn_embedding_options.pooling is " +
                                      std::to_string(options.pooling) + "; it is LMN_POOLING_*"};
  }
  auto info = sized<lmn_session_info>();
  Failure failure =
      attempt([&](lmn_error** err) { return lmn_session_info_get(session.get(), &info, err); });
  if (failure.failed()) return failure;
  using Role = ServedSession::Input::Role;
  for (uint32_t i = 0; i < info.input_count; ++i) {
    auto port = sized<lmn_port_info>();
    failure = attempt(
        [&](lmn_error** err) { return lmn_session_input_get(session.get(), i, &port, err); });
    if (failure.failed()) return failure;
    const std::string_view input = port.name, dtype = port.dtype;
    Role role;
    if (input == "input_ids") {
      role = Role::kIds;
    } else if (input == "attention_mask") {
      role = Role::kMask;
    } else if (input == "token_type_ids") {
      role = Role::kTypes;
    } else if (input == "position_ids") {
      role = Role::kPositions;
    } else {
      return refuse("its input " + json_quoted(input) +
                    " is not one of input_ids, attention_mask, token_type_ids, position_ids");
    }
    if ((dtype != "i64" && dtype != "i32") || port.ndim > 2 || port.ndim == 0 || port.ndim == 1)
      return refuse("its input " + json_quoted(input) + " is not int64 or int32 [batch, tokens]");
    if (port.ndim == 2 && port.shape[0] > 1)
      return refuse("its batch is always " + std::to_string(port.shape[0]));
    out->one_at_a_time |= port.ndim == 2 && port.shape[0] == 1;
    if (port.ndim == 2 && port.shape[1] >= 0) out->fixed_tokens = port.shape[1];
    out->inputs.push_back({role, dtype == "i64"});
  }
  if (std::none_of(out->inputs.begin(), out->inputs.end(),
                   [](const auto& input) { return input.role == Role::kIds; }))
    return refuse("it has no input input_ids");
  out->outputs = info.output_count;
  if (out->outputs == 0) return refuse("it has no output");
  out->raw = (options.flags & LMN_EMBEDDING_RAW) != 0;
  if (options.pooling != 0) out->pooling = options.pooling;
  if (options.max_tokens != 0) out->max_tokens = options.max_tokens;
  if (out->fixed_tokens >= 0)
    out->max_tokens = std::min(out->max_tokens, static_cast<uint32_t>(out->fixed_tokens));
  if (options.max_batch != 0) out->max_batch = options.max_batch;
  out->pad_id = options.pad_id;
  out->tokenize = options.tokenize;
  out->tokenize_user = options.tokenize_user;
  out->session = std::move(session);
  out->tokenizer = std::move(tokenizer);
  return {};
}

std::string default_name(const lmn_model* model) {
  auto info = sized<lmn_model_info>();
  if (lmn_model_info_get(model, &info, nullptr) != LMN_OK) return "model";
  std::string_view path = info.path;
  if (path.starts_with("null:")) return "null";
  path.remove_prefix(path.rfind('/') + 1);
  if (path.ends_with(".gguf")) path.remove_suffix(5);
  std::string name = lossy(path);
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

}  // namespace lmn::server
