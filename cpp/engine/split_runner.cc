// SPDX-License-Identifier: Apache-2.0
#include "engine/split_runner.h"

#include <algorithm>
#include <utility>

#include "engine/kv_cache.h"
#include "engine/plan_runner.h"

namespace lmn::engine {
namespace {

class SplitRunner final : public StepRunner {
 public:
  SplitRunner(SplitParts parts, const StepInputs& head_inputs, std::vector<const float*> cut)
      : head_(std::move(parts.head)),
        tail_(std::move(parts.tail)),
        crossing_(std::move(parts.crossing)),
        cut_(std::move(cut)),
        head_inputs_(head_inputs),
        inputs_(tail_->inputs()),
        limits_(tail_->limits()) {}

  StepLimits limits() const override { return limits_; }
  KvShape kv_shape() const override {
    KvShape shape = tail_->kv_shape();
    shape.layers += head_->kv_layers();
    return shape;
  }
  StepInputs inputs() override { return inputs_; }

  Status bind_kv(const KvBinding& kv) override {
    const auto layers = static_cast<size_t>(head_->kv_layers());
    LMN_RETURN_IF_ERROR(
        head_->bind_kv(kv_layers_of(*head_, {kv.layers.first(layers), kv.dtype, kv.page_tokens})));
    return tail_->bind_kv({kv.layers.subspan(layers), kv.dtype, kv.page_tokens});
  }

  Result<const float*> run(const StepSizes& sizes, parallel::ThreadTeam& team) override {
    LMN_RETURN_IF_ERROR(run_head(sizes, team));
    return tail_->run(sizes, team);
  }
  bool samples() const override { return tail_->samples(); }
  Status run_sampling(const StepSizes& sizes, const StepSampling& wanted,
                      std::span<SampleChoice> choices, parallel::ThreadTeam& team) override {
    LMN_RETURN_IF_ERROR(run_head(sizes, team));
    return tail_->run_sampling(sizes, wanted, choices, team);
  }
  const float* logits(int32_t output_row) const override { return tail_->logits(output_row); }

  void keep_profiles() override {
    head_->set_profiles(kStepKinds);
    tail_->keep_profiles();
    profiled_ = true;
  }
  std::vector<plan::ProfileEntry> profile(StepKind kind) const override {
    if (!profiled_) return {};
    std::vector<plan::ProfileEntry> out = head_->profile(static_cast<int>(kind));
    const std::vector<plan::ProfileEntry> more = tail_->profile(kind);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }

 private:
  // And carries over what crosses.
  Status run_head(const StepSizes& sizes, parallel::ThreadTeam& team) {
    give_head_its_inputs(sizes);
    head_->set_symbol("tokens", sizes.tokens);
    head_->set_symbol("sequences", sizes.sequences);
    head_->set_symbol("outputs", sizes.outputs);
    if (profiled_) head_->select_profile(static_cast<int>(step_kind(sizes)));
    LMN_RETURN_IF_ERROR(head_->run(team));
    for (size_t i = 0; i < crossing_.size(); ++i)
      std::copy_n(cut_[i], sizes.tokens * crossing_[i].columns, crossing_[i].to);
    return {};
  }

  // Page numbers count the arrays of a page (KvCache::page_step), of which the head has others.
  void give_head_its_inputs(const StepSizes& sizes) {
    const int32_t from = 2 * tail_->kv_shape().layers, to = 2 * head_->kv_layers();
    std::copy_n(inputs_.token_ids, sizes.tokens, head_inputs_.token_ids);
    std::copy_n(inputs_.positions, sizes.tokens, head_inputs_.positions);
    std::copy_n(inputs_.sequence_index, sizes.tokens, head_inputs_.sequence_index);
    std::copy_n(inputs_.output_rows, sizes.outputs, head_inputs_.output_rows);
    for (int32_t t = 0; t < sizes.tokens; ++t) {
      const int32_t slot = inputs_.kv_slots[t];
      head_inputs_.kv_slots[t] =
          slot / kKvPageTokens / from * to * kKvPageTokens + slot % kKvPageTokens;
      const int32_t sequence = inputs_.sequence_index[t];
      if (t + 1 < sizes.tokens && inputs_.sequence_index[t + 1] == sequence) continue;
      // The sequence's last row; what a table has behind its page is not read.
      const int64_t row = int64_t{sequence} * limits_.table_stride;
      for (int32_t p = 0; p <= inputs_.positions[t] / kKvPageTokens; ++p)
        head_inputs_.block_tables[row + p] = inputs_.block_tables[row + p] / from * to;
    }
  }

  std::unique_ptr<plan::Plan> head_;
  std::unique_ptr<StepRunner> tail_;
  std::vector<SplitParts::Crossing> crossing_;
  std::vector<const float*> cut_;
  StepInputs head_inputs_, inputs_;
  StepLimits limits_;
  bool profiled_ = false;
};

}  // namespace

Result<std::unique_ptr<StepRunner>> make_split_runner(SplitParts parts) {
  LMN_ASSIGN_OR_RETURN(const StepInputs inputs, step_inputs_of(*parts.head));
  std::vector<const float*> cut;
  for (const SplitParts::Crossing& crossing : parts.crossing) {
    cut.push_back(parts.head->output(crossing.name));
    if (cut.back() == nullptr || crossing.to == nullptr) {
      return error(Code::kInvalidArgument, "a split plan has no value \"%s\" on both sides",
                   crossing.name.c_str());
    }
  }
  return std::unique_ptr<StepRunner>(
      std::make_unique<SplitRunner>(std::move(parts), inputs, std::move(cut)));
}

}  // namespace lmn::engine
