// SPDX-License-Identifier: Apache-2.0
#include "engine/plan_runner.h"

#include <utility>
#include <vector>

namespace lmn::engine {
namespace {

class PlanRunner final : public StepRunner {
 public:
  PlanRunner(std::unique_ptr<plan::Plan> plan, const StepLimits& limits, const StepInputs& inputs)
      : plan_(std::move(plan)), limits_(limits), inputs_(inputs) {}

  StepLimits limits() const override { return limits_; }
  KvShape kv_shape() const override { return kv_shape_of(*plan_); }
  StepInputs inputs() override { return inputs_; }

  Status bind_kv(const KvBinding& kv) override { return plan_->bind_kv(kv_layers_of(*plan_, kv)); }

  Result<const float*> run(const StepSizes& sizes, parallel::ThreadTeam& team) override {
    plan_->set_symbol("tokens", sizes.tokens);
    plan_->set_symbol("sequences", sizes.sequences);
    plan_->set_symbol("outputs", sizes.outputs);
    if (profiled_) plan_->select_profile(static_cast<int>(step_kind(sizes)));
    LMN_RETURN_IF_ERROR(plan_->run(team));
    return plan_->output("logits");
  }

  void keep_profiles() override {
    plan_->set_profiles(kStepKinds);
    profiled_ = true;
  }
  std::vector<plan::ProfileEntry> profile(StepKind kind) const override {
    if (!profiled_) return {};
    return plan_->profile(static_cast<int>(kind));
  }

 private:
  std::unique_ptr<plan::Plan> plan_;
  StepLimits limits_;
  StepInputs inputs_;
  bool profiled_ = false;
};

}  // namespace

KvShape kv_shape_of(const plan::Plan& plan) {
  return {plan.kv_layers(), plan.kv_heads(), plan.head_dim()};
}

std::vector<ops::KvLayer> kv_layers_of(const plan::Plan& plan, const KvBinding& kv) {
  std::vector<ops::KvLayer> layers;
  for (const KvLayerMemory& memory : kv.layers) {
    ops::KvLayer layer;
    layer.k = memory.k;
    layer.v = memory.v;
    layer.dtype = kv.dtype;
    layer.page_tokens = kv.page_tokens;
    layer.kv_heads = plan.kv_heads();
    layer.head_dim = plan.head_dim();
    layers.push_back(layer);
  }
  return layers;
}

Result<StepInputs> step_inputs_of(plan::Plan& plan) {
  StepInputs inputs;
  const std::pair<const char*, int32_t**> names[] = {
      {"token_ids", &inputs.token_ids},           {"positions", &inputs.positions},
      {"sequence_index", &inputs.sequence_index}, {"kv_slots", &inputs.kv_slots},
      {"block_tables", &inputs.block_tables},     {"output_rows", &inputs.output_rows},
  };
  for (const auto& [name, pointer] : names) {
    *pointer = plan.input<int32_t>(name);
    if (*pointer == nullptr)
      return error(Code::kInvalidArgument, "plan has no int32 input \"%s\"", name);
  }
  return inputs;
}

Status check_logits(const plan::Plan& plan) {
  if (plan.output("logits") != nullptr) return {};
  return error(Code::kInvalidArgument, "plan has no output \"logits\"");
}

Result<std::unique_ptr<StepRunner>> make_plan_runner(std::unique_ptr<plan::Plan> plan,
                                                     const StepLimits& limits) {
  LMN_ASSIGN_OR_RETURN(const StepInputs inputs, step_inputs_of(*plan));
  LMN_RETURN_IF_ERROR(check_logits(*plan));
  return std::unique_ptr<StepRunner>(std::make_unique<PlanRunner>(std::move(plan), limits, inputs));
}

}  // namespace lmn::engine
