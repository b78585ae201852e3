// SPDX-License-Identifier: Apache-2.0
//
// What is served, by name. A model lives as long as the table or any request holds it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/handles.h"

namespace lmn::server {

struct ServedModel {
  virtual ~ServedModel() = default;

  std::string name;
  std::string quoted_name;  // as JSON
  int64_t created_s = 0;    // UNIX time
};

struct ServedEngine final : ServedModel {
  ModelHandle model;
  EngineHandle engine;
  TokenizerHandle tokenizer;  // null: `no_tokenizer` says why
  Failure no_tokenizer;
  uint32_t context_tokens = 0;
  std::string bos;  // the text of its BOS token, or ""
};

struct ServedSession final : ServedModel {
  SessionHandle session;
  TokenizerHandle tokenizer;
  lmn_tokenize_fn tokenize = nullptr;
  void* tokenize_user = nullptr;
  bool raw = false;
  uint32_t pooling = LMN_POOLING_MEAN;
  uint32_t max_tokens = 512;
  uint32_t max_batch = 32;
  int32_t pad_id = 0;
  struct Input {
    enum class Role { kIds, kMask, kTypes, kPositions } role;
    bool is_64;
  };
  std::vector<Input> inputs;
  size_t outputs = 1;
  int64_t fixed_tokens = -1;  // where the model takes one length only
  bool one_at_a_time = false;
};

// A model that /admin loads.
struct LoadState {
  double progress = 0;
  bool failed = false;
  std::string error;
};

class ModelTable {
 public:
  // False: the name is taken.
  bool add(std::shared_ptr<ServedModel> model);
  // Null: there is none.
  std::shared_ptr<ServedModel> remove(std::string_view name);
  std::shared_ptr<ServedModel> find(std::string_view name) const;
  // The only one, or null.
  std::shared_ptr<ServedModel> only() const;
  std::vector<std::shared_ptr<ServedModel>> all() const;  // by name
  size_t size() const;
  void clear();

  // Names that are being loaded, or failed to.
  bool begin_load(const std::string& name);  // false: taken
  void set_load(const std::string& name, LoadState state);
  void end_load(const std::string& name);
  bool forget_load(std::string_view name);  // one that failed
  std::map<std::string, LoadState> loads() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ServedModel>, std::less<>> models_;
  std::map<std::string, LoadState, std::less<>> loads_;
};

// What a served model may be called.
Failure check_name(std::string_view name);

// Fills a model from handles. A failure names what is wrong with them.
Failure make_served_engine(EngineHandle engine, ModelHandle model, std::string name,
                           ServedEngine* out);
Failure make_served_session(SessionHandle session, TokenizerHandle tokenizer,
                            const lmn_embedding_options& options, ServedSession* out);

// A file's name without folder and ending: "smollm2-135m" of "/models/smollm2-135m.gguf".
std::string default_name(const lmn_model* model);

}  // namespace lmn::server
