// SPDX-License-Identifier: Apache-2.0
#include "capi/engine_builder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "capi/devices.h"
#include "capi/placement.h"
#include "engine/kv_cache.h"
#include "engine/null_runner.h"
#include "models/model.h"
#include "parallel/os_thread.h"
#include "parallel/thread_team.h"
#include "plan/plan.h"

namespace lmn::capi {
namespace {

// Logits rows of one step at least. A score of n tokens takes n / kOutputs steps; more rows would
// not make a step of a matrix product cheaper per row, and each costs a row of the vocabulary in
// the arena.
constexpr int32_t kOutputs = 64;

// What the engine points into; released after everything else of it. The ledger outlives its
// entries.
struct KeepAlive {
  std::shared_ptr<const Model> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::unique_ptr<Device> device, host;  // host: where some layers are beside the device's
  std::shared_ptr<memory::Ledger> ledger;
  std::vector<memory::LedgerEntry> entries;

  void record(memory::Owner owner, int64_t bytes) {
    entries.emplace_back(ledger.get(), owner, bytes);
  }
};

// Builds the model's tokenizer beside the packing of weights. What it makes is cached in the Model.
class TokenizerTask {
 public:
  explicit TokenizerTask(const Model* model) {  // which outlives the task
    Result<parallel::OsThread> thread =
        parallel::OsThread::start("lmn-tokenizer", build, const_cast<Model*>(model));
    // No thread to be had: built by the first caller of tokenizer().
    if (thread.ok()) thread_ = std::move(thread).value();
  }
  void join() { thread_.join(); }

 private:
  static void build(void* model) {
    try {
      (void)static_cast<const Model*>(model)->tokenizer();
    } catch (...) {  // out of memory: the caller of tokenizer() meets it again
    }
  }

  parallel::OsThread thread_;
};

// Tells the file that the bytes lie in.
void advise(const formats::GgufModel& file, std::span<const std::byte> bytes, plan::FileUse use) {
  for (const auto& part : file.files()) {
    const std::span<const std::byte> all = part->bytes();
    if (bytes.data() < all.data() || bytes.data() >= all.data() + all.size()) continue;
    const auto offset = static_cast<uint64_t>(bytes.data() - all.data());
    switch (use) {
      case plan::FileUse::kSoon:
        return part->advise_will_need(offset, bytes.size());
      case plan::FileUse::kOver:
        return part->advise_dont_need(offset, bytes.size());
    }
  }
}

Status cancelled() {
  return error(Code::kCancelled, "lmn_engine_create was stopped by its progress callback");
}

Result<int32_t> choose_context(const models::LanguageModelConfig& config, int32_t wanted) {
  const int64_t most = std::min<int64_t>(config.context_length, INT32_MAX);
  if (wanted > most) {
    return error(Code::kInvalidArgument,
                 "context_tokens is %d; the model was made for %lld at most", wanted,
                 static_cast<long long>(most));
  }
  return static_cast<int32_t>(wanted == 0 ? most : wanted);
}

// Each sequence of a step has its token and its logits, however small prompts are cut.
engine::StepLimits step_limits(const models::LanguageModelConfig& config,
                               const engine::EngineOptions& how, int32_t sequences) {
  engine::StepLimits limits;
  limits.sequences = sequences;
  limits.tokens = std::max(how.prefill_chunk_tokens, sequences);
  limits.outputs = std::min(std::max(kOutputs, sequences), limits.tokens);
  limits.table_stride = static_cast<int32_t>(engine::kv_pages(how.context_tokens));
  limits.vocab_size = static_cast<int32_t>(config.vocab);
  return limits;
}

// A null model has no graph, and of its configuration what an engine asks for.
Result<models::LanguageModel> build_language_model(const Model& model) {
  if (!model.null_model().has_value()) return models::build(model.file(), model.file().owner());
  models::LanguageModel language;
  language.config.vocab = model.null_model()->vocab;
  language.config.context_length = model.null_model()->context;
  return language;
}

Result<PlacedModel> place_null_model(const NullModel& model, const engine::StepLimits& limits,
                                     MemoryNeed need, Device& device) {
  PlacedModel out;
  need.activations = out.memory.arena = engine::null_runner_bytes(limits);
  LMN_RETURN_IF_ERROR(need.check(device));
  LMN_ASSIGN_OR_RETURN(out.runner, engine::make_null_runner({limits, model.step_ns, model.token_ns,
                                                             model.likeliest_token()}));
  return out;
}

PlanRecipe recipe_of(const Model& model, parallel::ThreadTeam& team,
                     const engine::StepLimits& limits, bool precise, const MemoryNeed& need,
                     int64_t layers, Progress& progress) {
  PlanRecipe recipe{team, limits, precise, need, layers, {}, {}, {}, {}, {}};
  recipe.check_stopped = [&progress]() -> Status {
    return progress.stopped() ? cancelled() : Status();
  };
  recipe.before_read = [&model, &progress](const TensorView&) -> Status {
    if (progress.stopped()) return cancelled();
    return model.file().check_unchanged();
  };
  recipe.file_use = [&model](std::span<const std::byte> bytes, plan::FileUse use) {
    advise(model.file(), bytes, use);
  };
  recipe.progress = [&progress](int64_t done, int64_t total) {
    (void)progress.step("packing weights", static_cast<uint64_t>(done),
                        static_cast<uint64_t>(total));
  };
  recipe.open_host = [] { return open_device("cpu"); };
  return recipe;
}

}  // namespace

Result<BuiltEngine> build_engine(std::shared_ptr<const Model> model, const BuildOptions& options,
                                 Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  const formats::GgufModel& file = model->file();
  LMN_RETURN_IF_ERROR(file.check_unchanged());  // before anybody reads from the mapping
  TokenizerTask tokenizer_task(model.get());
  LMN_ASSIGN_OR_RETURN(models::LanguageModel language, build_language_model(*model));

  auto keep = std::make_shared<KeepAlive>();
  keep->model = model;
  keep->ledger = std::make_shared<memory::Ledger>();
  for (const auto& part : file.files()) {
    const bool copied = part->mode() == formats::ReadMode::kCopy;
    keep->record(copied ? memory::Owner::kFileCopy : memory::Owner::kMapped,
                 static_cast<int64_t>(part->bytes().size()));
  }
  keep->record(memory::Owner::kFileCopy, static_cast<int64_t>(model->generated_bytes()));
  LMN_ASSIGN_OR_RETURN(keep->device, open_device(options.device));
  engine::EngineParts parts;
  LMN_ASSIGN_OR_RETURN(parts.team,
                       parallel::ThreadTeam::create(
                           {.threads = options.threads, .spin_ns = options.engine.idle_spin_ns}));

  const bool precise =
      options.activation_bits == 16 || (options.activation_bits == 0 && !keep->device->is_host());
  engine::EngineOptions how = options.engine;
  LMN_ASSIGN_OR_RETURN(how.context_tokens, choose_context(language.config, options.context_tokens));
  if (how.queue_capacity == 0) how.queue_capacity = engine::kDefaultQueueCapacity;
  how.prefill_chunk_tokens =
      options.prefill_chunk_tokens == 0 ? kDefaultPrefillChunk : options.prefill_chunk_tokens;
  const int32_t sequences = options.max_sequences == 0 ? kDefaultSequences : options.max_sequences;
  how.max_sequences = sequences;
  const engine::StepLimits limits =
      step_limits(language.config, how, std::min(sequences, kMaxStepSequences));
  const engine::KvShape kv_shape = {static_cast<int32_t>(language.config.layers),
                                    static_cast<int32_t>(language.config.kv_heads),
                                    static_cast<int32_t>(language.config.head_dim)};
  MemoryNeed need;
  need.sequences = sequences;
  need.kv_tokens = how.kv_tokens == 0 ? how.context_tokens : how.kv_tokens;
  need.kv_dtype = how.kv_dtype;
  need.kv_q8_fits = kv_shape.head_dim % 32 == 0;
  LMN_ASSIGN_OR_RETURN(need.kv, engine::kv_bytes(kv_shape, how.kv_dtype, need.kv_tokens));
  PlacedModel placed;
  if (const std::optional<NullModel>& null_model = model->null_model(); null_model.has_value()) {
    LMN_ASSIGN_OR_RETURN(placed, place_null_model(*null_model, limits, need, *keep->device));
  } else {
    const PlanRecipe recipe =
        recipe_of(*model, *parts.team, limits, precise, need, language.config.layers, progress);
    LMN_ASSIGN_OR_RETURN(placed, place_model(recipe, language.graph, *keep->device));
    keep->record(memory::Owner::kPackedWeights, placed.memory.packed);
  }
  keep->record(memory::Owner::kArena, placed.memory.arena);
  keep->record(memory::Owner::kPinned, placed.memory.pinned);
  keep->host = std::move(placed.host);
  parts.runner = std::move(placed.runner);
  parts.kv_parts = std::move(placed.kv_parts);
  const int32_t device_layers = parts.kv_parts.empty() ? 0 : parts.kv_parts.back().layers;
  language.graph = {};  // what it holds of the file

  BuiltEngine built;
  tokenizer_task.join();
  Result<std::shared_ptr<const text::Tokenizer>> tokenizer = model->tokenizer();
  if (tokenizer.ok()) {
    built.tokenizer = std::move(tokenizer).value();
    keep->tokenizer = built.tokenizer;
    keep->record(memory::Owner::kTokenizer, built.tokenizer->memory_bytes());
  } else {  // the engine still takes token ids
    built.tokenizer_error = std::move(tokenizer).status();
  }
  parts.tokenizer = built.tokenizer.get();
  parts.ledger = keep->ledger;
  built.ledger = keep->ledger;
  parts.keep_alive = keep;
  LMN_ASSIGN_OR_RETURN(built.object, engine::Engine::create(std::move(parts), how));
  built.model = std::move(model);
  built.queue_capacity = how.queue_capacity;
  built.max_sequences = sequences;
  built.layers = static_cast<int32_t>(language.config.layers);
  built.device_layers = device_layers;
  built.load_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count();
  return built;
}

}  // namespace lmn::capi
