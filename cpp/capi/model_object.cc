// SPDX-License-Identifier: Apache-2.0
#include "capi/model_object.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "capi/model_name.h"
#include "capi/tokenizer_data.h"

namespace lmn::capi {
namespace {

// How long a forked child tries for a lock, whose holder may be another thread of its own: longer
// than building a tokenizer takes.
constexpr std::chrono::milliseconds kForkedWait{1000}, kForkedPause{5};

ModelSummary summarize(const formats::GgufModel& file) {
  ModelSummary out;
  const auto text = [&](std::string_view key) -> std::string {
    const formats::GgufValue* value = file.find(key);
    if (value == nullptr) return "";
    const Result<std::string_view> string = value->get<std::string_view>();
    return string.ok() ? std::string(*string) : "";
  };
  out.architecture = text("general.architecture");
  out.name = text("general.name");
  const auto number = [&](const char* key) -> uint32_t {
    const formats::GgufValue* value = file.find(out.architecture + "." + key);
    if (value == nullptr) return 0;
    const Result<uint32_t> result = value->get<uint32_t>();
    return result.ok() ? *result : 0;
  };
  for (const auto& part : file.files()) out.file_bytes += part->bytes().size();
  for (size_t i = 0; i < file.tensor_count(); ++i) {
    out.parameter_count += static_cast<uint64_t>(file.tensor(i).shape.elements());
  }
  out.context_length = number("context_length");
  out.embedding_length = number("embedding_length");
  out.layer_count = number("block_count");
  out.head_count = number("attention.head_count");
  out.head_count_kv = number("attention.head_count_kv");
  if (out.head_count_kv == 0) out.head_count_kv = out.head_count;
  out.head_dim = number("attention.key_length");
  if (out.head_dim == 0 && out.head_count > 0) out.head_dim = out.embedding_length / out.head_count;
  out.vocab_size = number("vocab_size");
  if (const formats::GgufTensor* embedding = file.find_tensor("token_embd.weight");
      embedding != nullptr && embedding->shape.rank == 2) {
    out.vocab_size = static_cast<uint32_t>(embedding->shape[0]);
  }
  return out;
}

Result<std::shared_ptr<const Model>> open_null_model(const std::string& path) {
  LMN_ASSIGN_OR_RETURN(const NullModel null_model, parse_null_model(path));
  std::vector<std::byte> bytes = null_model_gguf(null_model);
  LMN_ASSIGN_OR_RETURN(formats::GgufModel file,
                       formats::GgufModel::parse(bytes, null_model.name()));
  return std::shared_ptr<const Model>(
      std::make_shared<Model>(null_model, std::move(bytes), std::move(file)));
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::open(const std::string& path,
                                                 const formats::GgufOptions& options) {
  if (path.empty()) return error(Code::kInvalidArgument, "the model path is empty");
  if (is_null_model_name(path) && !is_file(path)) return open_null_model(path);
  LMN_ASSIGN_OR_RETURN(const std::string resolved, resolve_model_path(path));
  Result<formats::GgufModel> file = formats::GgufModel::open(resolved, options);
  if (!file.ok()) {
    const std::string hint =
        file.status().code() == Code::kNotFound ? suggest_model_name(path) : "";
    if (hint.empty()) return std::move(file).status();
    return Status(Code::kNotFound, std::string(file.status().message()) + "; " + hint);
  }
  return std::shared_ptr<const Model>(std::make_shared<Model>(std::move(file).value()));
}

Model::Model(formats::GgufModel file)
    : pid_(::getpid()), file_(std::move(file)), summary_(summarize(file_)) {}

Model::Model(const NullModel& null_model, std::vector<std::byte> bytes, formats::GgufModel file)
    : pid_(::getpid()),
      null_model_(null_model),
      bytes_(std::move(bytes)),
      file_(std::move(file)),
      summary_(summarize(file_)) {}

Result<std::unique_lock<std::mutex>> Model::lock(std::mutex& mutex) const {
  if (::getpid() == pid_) return std::unique_lock<std::mutex>(mutex);
  std::unique_lock<std::mutex> held(mutex, std::try_to_lock);
  const auto end = std::chrono::steady_clock::now() + kForkedWait;
  while (!held.owns_lock() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kForkedPause);
    (void)held.try_lock();
  }
  if (held.owns_lock()) return held;
  return error(Code::kClosed,
               "another thread of process %d was using the model when this process was forked; "
               "open the model again in this process",
               static_cast<int>(pid_));
}

Result<std::shared_ptr<const text::Tokenizer>> Model::tokenizer() const {
  LMN_ASSIGN_OR_RETURN(const std::unique_lock<std::mutex> held, lock(tokenizer_mutex_));
  if (!tokenizer_.has_value()) {
    if (null_model_.has_value() && !null_model_->has_tokenizer()) {
      return error(
          Code::kUnsupported,
          "%s has no tokenizer, which needs a vocab of %d or more; raise it, or give token "
          "ids",
          null_model_->name().c_str(), static_cast<int>(kNullTokenizerVocab));
    }
    LMN_RETURN_IF_ERROR(file_.check_unchanged());  // its strings are read from the mapping
    tokenizer_ = build_tokenizer(file_);
  }
  return *tokenizer_;
}

Result<std::string_view> Model::string_element(size_t index, size_t element) const {
  LMN_ASSIGN_OR_RETURN(const std::unique_lock<std::mutex> held, lock(strings_mutex_));
  auto found = strings_.find(index);
  if (found == strings_.end()) {
    LMN_ASSIGN_OR_RETURN(const formats::GgufArray array, file_.value(index).array());
    LMN_ASSIGN_OR_RETURN(const formats::GgufStrings strings, array.strings());
    found = strings_.emplace(index, strings.index()).first;
  }
  return found->second[element];
}

}  // namespace lmn::capi
