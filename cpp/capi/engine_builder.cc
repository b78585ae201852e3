// SPDX-License-Identifier: Apache-2.0
#include "capi/engine_builder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "capi/available_memory.h"
#include "capi/devices.h"
#include "engine/device_runner.h"
#include "engine/kv_cache.h"
#include "engine/null_runner.h"
#include "engine/plan_runner.h"
#include "engine/split_runner.h"
#include "graph/passes/passes.h"
#include "graph/split.h"
#include "models/model.h"
#include "ops/kernel.h"
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
  std::vector<engine::KvPart> kv_parts;  // empty: all layers on `device`
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

// Memory of an engine, in bytes, before any of it is taken.
struct Need {
  int64_t weights = 0;
  int64_t activations = 0;
  int64_t kv = 0;
  int64_t kv_tokens = 0;
  DType kv_dtype = DType::kF16;
  bool kv_q8_fits = false;  // the model's heads allow kv_type q8_0
  int32_t sequences = 0;

  Status check(Device& device) const {
    char what[200];
    std::snprintf(what, sizeof(what),
                  "lmn_engine_create (%.1f MiB of weights, %.1f MiB of activations for %d "
                  "sequences, %.1f MiB of KV cache for %lld tokens in %s)",
                  mebibytes(weights), mebibytes(activations), sequences, mebibytes(kv),
                  static_cast<long long>(kv_tokens), info(kv_dtype).name.data());
    return check_device_fits(
        device, weights + activations + kv, what,
        kv_dtype == DType::kQ8_0 || !kv_q8_fits
            ? "lower kv_tokens, context_tokens, max_sequences or prefill_chunk_tokens"
            : "lower kv_tokens, context_tokens, max_sequences or "
              "prefill_chunk_tokens, or set kv_type to q8_0");
  }
};

// What all plans of an engine are built with.
struct PlanRecipe {
  const Model& model;
  parallel::ThreadTeam& team;
  const engine::StepLimits& limits;
  bool precise;
  const Need& need;  // kv: of all layers
  int64_t layers;    // of the model
  Progress& progress;
};

// `layers`: so many of the model's, whose part of the KV cache the device holds.
Result<std::unique_ptr<plan::Plan>> build_plan(const PlanRecipe& recipe, graph::Graph graph,
                                               Device& device, int64_t layers) {
  graph::PassOptions passes;
  passes.linear_input_type = [&](DType weight, int64_t columns, bool asked) {
    return device.kernels().linear_input_type(weight, columns, recipe.precise || asked);
  };
  LMN_ASSIGN_OR_RETURN(graph::Graph optimized, graph::optimize(std::move(graph), passes));
  Need need = recipe.need;
  if (recipe.layers > 0) need.kv = need.kv / recipe.layers * layers;
  plan::PlanOptions options;
  options.max_tokens = recipe.limits.tokens;
  options.max_outputs = recipe.limits.outputs;
  options.max_sequences = recipe.limits.sequences;
  options.max_pages_per_sequence = recipe.limits.table_stride;
  options.max_context = int64_t{recipe.limits.table_stride} * engine::kKvPageTokens;
  options.before_allocation = [&](int64_t packed, int64_t arena) {
    need.weights = packed;
    need.activations = arena;
    return need.check(device);
  };
  options.before_read = [&](const TensorView&) -> Status {
    if (recipe.progress.stopped()) return cancelled();
    return recipe.model.file().check_unchanged();
  };
  options.file_use = [&](std::span<const std::byte> bytes, plan::FileUse use) {
    advise(recipe.model.file(), bytes, use);
  };
  options.progress = [&](int64_t done, int64_t total) {
    (void)recipe.progress.step("packing weights", static_cast<uint64_t>(done),
                               static_cast<uint64_t>(total));
  };
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<plan::Plan> plan,
                       plan::Plan::build(std::move(optimized), device, recipe.team, options));
  if (recipe.progress.stopped()) return cancelled();
  return plan;
}

// The last `layers` layers and the output on the device, the others on the host. *fits: the
// device's part did.
Result<std::unique_ptr<engine::StepRunner>> build_split(const PlanRecipe& recipe,
                                                        const graph::Graph& graph, int64_t layers,
                                                        KeepAlive& keep, bool* fits) {
  const int64_t head = recipe.layers - layers;
  const graph::NodeId begin = graph::find_node(graph, "blk." + std::to_string(head) + ".");
  LMN_ASSIGN_OR_RETURN(graph::SplitGraph parts, graph::split(graph, begin));
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<plan::Plan> tail,
                       build_plan(recipe, std::move(parts.second), *keep.device, layers));
  *fits = true;
  LMN_ASSIGN_OR_RETURN(keep.host, open_device("cpu"));
  engine::SplitParts split;
  LMN_ASSIGN_OR_RETURN(split.head, build_plan(recipe, std::move(parts.first), *keep.host, head));
  for (const plan::Plan* plan : {split.head.get(), tail.get()}) {
    keep.record(memory::Owner::kPackedWeights, plan->packed_bytes());
    keep.record(memory::Owner::kArena, plan->arena_bytes());
  }
  for (const std::string& name : parts.crossing) {
    split.crossing.push_back({name, tail->input<float>(name), tail->columns(name)});
  }
  LMN_ASSIGN_OR_RETURN(split.tail, engine::make_device_runner(std::move(tail), recipe.limits));
  keep.kv_parts = {{keep.host.get(), static_cast<int32_t>(head)},
                   {keep.device.get(), static_cast<int32_t>(layers)}};
  return engine::make_split_runner(std::move(split));
}

Result<std::unique_ptr<engine::StepRunner>> build_whole(const PlanRecipe& recipe,
                                                        graph::Graph graph, KeepAlive& keep) {
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<plan::Plan> plan,
                       build_plan(recipe, std::move(graph), *keep.device, recipe.layers));
  keep.record(memory::Owner::kPackedWeights, plan->packed_bytes());
  keep.record(memory::Owner::kArena, plan->arena_bytes());
  if (keep.device->is_host()) return engine::make_plan_runner(std::move(plan), recipe.limits);
  LMN_ASSIGN_OR_RETURN(std::unique_ptr<engine::StepRunner> runner,
                       engine::make_device_runner(std::move(plan), recipe.limits));
  return runner;
}

// As much on the device as its memory takes, layer by layer from the last: a plan that does not fit
// is refused before anything of it is read. The error is that of the whole model.
Result<std::unique_ptr<engine::StepRunner>> place_layers(const PlanRecipe& recipe,
                                                         graph::Graph graph, KeepAlive& keep) {
  if (keep.device->is_host()) return build_whole(recipe, std::move(graph), keep);
  Result<std::unique_ptr<engine::StepRunner>> whole = build_whole(recipe, graph, keep);
  if (whole.ok() || whole.status().code() != Code::kOutOfMemory) return whole;
  for (int64_t layers = recipe.layers - 1; layers > 0; --layers) {
    bool fits = false;
    Result<std::unique_ptr<engine::StepRunner>> split =
        build_split(recipe, graph, layers, keep, &fits);
    if (fits || split.status().code() != Code::kOutOfMemory) return split;
  }
  return whole;
}

// A null model has no graph, and of its configuration what an engine asks for.
Result<models::LanguageModel> build_language_model(const Model& model) {
  if (!model.null_model().has_value()) return models::build(model.file(), model.file().owner());
  models::LanguageModel language;
  language.config.vocab = model.null_model()->vocab;
  language.config.context_length = model.null_model()->context;
  return language;
}

Result<std::unique_ptr<engine::StepRunner>> build_runner(const Model& model,
                                                         models::LanguageModel language,
                                                         parallel::ThreadTeam& team,
                                                         const engine::StepLimits& limits,
                                                         bool precise, Need need, KeepAlive& keep,
                                                         Progress& progress) {
  if (const std::optional<NullModel>& null_model = model.null_model(); null_model.has_value()) {
    need.activations = engine::null_runner_bytes(limits);
    LMN_RETURN_IF_ERROR(need.check(*keep.device));
    keep.record(memory::Owner::kArena, need.activations);
    return engine::make_null_runner(
        {limits, null_model->step_ns, null_model->token_ns, null_model->likeliest_token()});
  }
  const PlanRecipe recipe{model, team, limits, precise, need, language.config.layers, progress};
  return place_layers(recipe, std::move(language.graph), keep);
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
  Need need;
  need.sequences = sequences;
  need.kv_tokens = how.kv_tokens == 0 ? how.context_tokens : how.kv_tokens;
  need.kv_dtype = how.kv_dtype;
  need.kv_q8_fits = kv_shape.head_dim % 32 == 0;
  LMN_ASSIGN_OR_RETURN(need.kv, engine::kv_bytes(kv_shape, how.kv_dtype, need.kv_tokens));
  LMN_ASSIGN_OR_RETURN(parts.runner, build_runner(*model, std::move(language), *parts.team, limits,
                                                  precise, need, *keep, progress));

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
  parts.kv_parts = keep->kv_parts;
  if (parts.kv_parts.empty()) parts.kv_parts = {{keep->device.get(), kv_shape.layers}};
  parts.tokenizer = built.tokenizer.get();
  parts.ledger = keep->ledger;
  built.ledger = keep->ledger;
  parts.keep_alive = keep;
  LMN_ASSIGN_OR_RETURN(built.object, engine::Engine::create(std::move(parts), how));
  built.model = std::move(model);
  built.queue_capacity = how.queue_capacity;
  built.max_sequences = sequences;
  built.load_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count();
  return built;
}

}  // namespace lmn::capi
