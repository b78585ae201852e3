// SPDX-License-Identifier: Apache-2.0
#include "engine/device_runner.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "engine/plan_runner.h"

namespace lmn::engine {
namespace {

// A recording of some hundred kernels takes a few MB of device and host memory.
constexpr size_t kMaxRecordings = 64;
// After one for which there was no room: an attempt takes as long as some steps.
constexpr int64_t kStepsWithoutTrying = 1000;
// The least that a recording is made for: a device's unit of work along the context, below which a
// step costs the same. Any figure is correct, as the context is a bound: larger than the unit,
// short steps queue more than they need; smaller, they need more recordings. So the engine has a
// figure of its own and asks no device. A test holds it to the splits of cuda/kernels/attention.
constexpr int64_t kShortestContext = 128;

enum class Draw : uint8_t { kNothing, kGreedy, kAny };

struct RecordingKey {
  int32_t rows;
  int64_t context;
  Draw draw;  // of a token for each row
};
// Whether a recording does what is wanted, and not much besides.
bool serves(const RecordingKey& known, const RecordingKey& wanted) {
  return known.rows == wanted.rows && known.draw == wanted.draw &&
         known.context >= wanted.context && known.context <= kSpareContext * wanted.context;
}
struct Recorded {
  RecordingKey key;
  int64_t last_use;
  std::unique_ptr<Recording> recording;
};

class DeviceRunnerImpl final : public DeviceRunner {
 public:
  DeviceRunnerImpl(std::unique_ptr<plan::Plan> plan, const StepLimits& limits,
                   const StepInputs& inputs)
      : plan_(std::move(plan)),
        limits_(limits),
        inputs_(inputs),
        samples_(!plan_->samples().empty()) {}
  ~DeviceRunnerImpl() override { recordings_.clear(); }

  StepLimits limits() const override { return limits_; }
  KvShape kv_shape() const override { return kv_shape_of(*plan_); }
  StepInputs inputs() override { return inputs_; }
  Status bind_kv(const KvBinding& kv) override {
    recordings_.clear();  // they hold the addresses
    return plan_->bind_kv(kv_layers_of(*plan_, kv));
  }

  Result<const float*> run(const StepSizes& sizes, parallel::ThreadTeam&) override {
    const EnteredStream entered(*plan_->stream());
    Status queued = enqueue(sizes, Draw::kNothing);
    if (queued.ok()) queued = plan_->fetch("logits", 0, sizes.outputs);
    LMN_RETURN_IF_ERROR(wait_after(std::move(queued)));
    return plan_->output("logits");
  }

  bool samples() const override { return samples_; }

  // With the step where there is a sample for each of its rows at most, which is the rule; samples
  // of one prompt may be more, and follow it.
  Status run_sampling(const StepSizes& sizes, const StepSampling& wanted,
                      std::span<SampleChoice> choices, parallel::ThreadTeam&) override {
    const EnteredStream entered(*plan_->stream());
    const std::span<const SampleRow> samples = wanted.samples;
    const bool with_step = !samples.empty() && samples.size() <= static_cast<size_t>(sizes.outputs);
    if (with_step) set_samples(samples);
    Status queued = enqueue(sizes, with_step ? draw_of(samples) : Draw::kNothing);
    for (const int32_t row : wanted.host_rows) {
      if (queued.ok()) queued = plan_->fetch("logits", row, 1);
    }
    LMN_RETURN_IF_ERROR(wait_after(std::move(queued)));
    if (!with_step) return sample_in_parts(samples, choices);
    std::copy_n(plan_->choices().begin(), samples.size(), choices.begin());
    return {};
  }

  const float* logits(int32_t output_row) const override {
    return plan_->output("logits") + int64_t{output_row} * limits_.vocab_size;
  }

  void keep_profiles() override {
    plan_->set_profiles(kStepKinds);
    profiled_ = true;
  }
  std::vector<plan::ProfileEntry> profile(StepKind kind) const override {
    if (!profiled_) return {};
    return plan_->profile(static_cast<int>(kind));
  }
  const DeviceRunnerCounters& counters() const override { return counters_; }

 private:
  void set_sizes(const StepSizes& sizes) {
    plan_->set_symbol("tokens", sizes.tokens);
    plan_->set_symbol("sequences", sizes.sequences);
    plan_->set_symbol("outputs", sizes.outputs);
  }

  int64_t longest_context(const StepSizes& sizes) const {
    return sizes.tokens == 0
               ? 1
               : int64_t{*std::max_element(inputs_.positions, inputs_.positions + sizes.tokens)} +
                     1;
  }

  int64_t single_rows(const StepSizes& sizes) const {
    const int32_t* sequence = inputs_.sequence_index;
    int64_t n = 0;
    while (n < sizes.tokens && (n + 1 == sizes.tokens || sequence[n + 1] != sequence[n])) ++n;
    return n;
  }

  static Draw draw_of(std::span<const SampleRow> samples) {
    const bool greedy = std::all_of(samples.begin(), samples.end(),
                                    [](const SampleRow& sample) { return sample.scale == 0; });
    return greedy ? Draw::kGreedy : Draw::kAny;
  }

  // The first samples; none for the rows behind.
  void set_samples(std::span<const SampleRow> samples) {
    const std::span<SampleRow> all = plan_->samples();
    std::copy(samples.begin(), samples.end(), all.begin());
    std::fill(all.begin() + static_cast<ptrdiff_t>(samples.size()), all.end(), SampleRow{});
  }

  Status sample_in_parts(std::span<const SampleRow> samples, std::span<SampleChoice> choices) {
    const size_t most = plan_->samples().size();
    for (size_t begin = 0; begin < samples.size(); begin += most) {
      const std::span<const SampleRow> part =
          samples.subspan(begin, std::min(most, samples.size() - begin));
      set_samples(part);
      LMN_RETURN_IF_ERROR(wait_after(plan_->enqueue_sampling(static_cast<int64_t>(part.size()),
                                                             draw_of(part) == Draw::kGreedy)));
      std::copy_n(plan_->choices().begin(), part.size(),
                  choices.begin() + static_cast<ptrdiff_t>(begin));
    }
    return {};
  }

  // Waits for what was queued, and for what a step that failed in the middle had queued until then,
  // too: its pages and inputs are written again as soon as it has returned.
  Status wait_after(Status queued) {
    Status waited = plan_->stream()->synchronize();
    return queued.ok() ? waited : queued;
  }

  // Queues the step, and the draw for its rows of logits.
  Status enqueue(const StepSizes& sizes, Draw draw) {
    if (profiled_) plan_->select_profile(static_cast<int>(step_kind(sizes)));
    const int64_t context = longest_context(sizes);
    const bool alike = sizes.tokens == sizes.sequences && sizes.outputs == sizes.tokens;
    if (alike && !profiled_ && sizes.tokens > 0) return replay(sizes.tokens, context, draw);
    ++counters_.queued;
    set_sizes(sizes);
    return enqueue_parts({context, single_rows(sizes)}, sizes.outputs, draw);
  }
  Status enqueue_parts(const plan::StepHints& hints, int32_t outputs, Draw draw) {
    LMN_RETURN_IF_ERROR(plan_->enqueue(hints));
    if (draw == Draw::kNothing) return {};
    return plan_->enqueue_sampling(outputs, draw == Draw::kGreedy);
  }

  Status replay(int32_t rows, int64_t context, Draw draw) {
    const int32_t all =
        recorded_rows(rows, std::min({limits_.sequences, limits_.tokens, limits_.outputs}));
    for (int32_t i = rows; i < all; ++i) {
      inputs_.token_ids[i] = 0;
      inputs_.positions[i] = -1;
      inputs_.sequence_index[i] = i;
      inputs_.kv_slots[i] = -1;
      inputs_.output_rows[i] = i;
    }
    const RecordingKey key{all, recorded_context(context), draw};
    Result<Recording*> recording = find(key);
    if (!recording.ok()) {  // no room for one, perhaps: a device that failed says so again
      if (uses_ >= record_again_) record_again_ = uses_ + kStepsWithoutTrying;
      ++counters_.queued;
      set_sizes({all, all, all});
      return enqueue_parts({key.context, all}, all, draw);
    }
    ++counters_.replayed;
    return plan_->stream()->replay(**recording);
  }

  Result<Recording*> find(const RecordingKey& key) {
    ++uses_;
    Recorded* best = nullptr;
    for (Recorded& known : recordings_) {
      if (!serves(known.key, key)) continue;
      if (best == nullptr || known.key.context < best->key.context) best = &known;
    }
    if (best != nullptr) {
      best->last_use = uses_;
      return best->recording.get();
    }
    if (uses_ < record_again_) return error(Code::kOutOfMemory, "there was no room lately");
    if (recordings_.size() == kMaxRecordings) {
      recordings_.erase(std::min_element(
          recordings_.begin(), recordings_.end(),
          [](const Recorded& a, const Recorded& b) { return a.last_use < b.last_use; }));
    }
    LMN_ASSIGN_OR_RETURN(std::unique_ptr<Recording> made, record(key));
    recordings_.push_back({key, uses_, std::move(made)});
    return recordings_.back().recording.get();
  }

  Result<std::unique_ptr<Recording>> record(const RecordingKey& key) {
    set_sizes({key.rows, key.rows, key.rows});
    LMN_RETURN_IF_ERROR(plan_->stream()->begin_recording());
    const Status queued = enqueue_parts({key.context, key.rows}, key.rows, key.draw);
    Result<std::unique_ptr<Recording>> made = plan_->stream()->end_recording();
    if (!queued.ok()) return queued;
    if (made.ok()) ++counters_.recorded;
    return made;
  }

  std::unique_ptr<plan::Plan> plan_;
  StepLimits limits_;
  StepInputs inputs_;
  const bool samples_;
  bool profiled_ = false;
  std::vector<Recorded> recordings_;
  int64_t uses_ = 0, record_again_ = 0;
  DeviceRunnerCounters counters_;
};

}  // namespace

int32_t recorded_rows(int32_t rows, int32_t most) {
  // At most a seventh more rows than the step has from 8 on, which is where they begin to cost.
  const auto up = [rows](int32_t step) { return (rows + step - 1) / step * step; };
  const int32_t all = rows <= 8 ? static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(rows)))
                      : rows <= 64  ? up(8)
                      : rows <= 256 ? up(32)
                                    : up(128);
  return std::min(all, most);
}

int64_t recorded_context(int64_t context) {
  return std::max(kShortestContext,
                  static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(context))));
}

Result<std::unique_ptr<DeviceRunner>> make_device_runner(std::unique_ptr<plan::Plan> plan,
                                                         const StepLimits& limits) {
  if (plan->stream() == nullptr)
    return error(Code::kInvalidArgument, "the plan's device has no stream");
  LMN_ASSIGN_OR_RETURN(const StepInputs inputs, step_inputs_of(*plan));
  LMN_RETURN_IF_ERROR(check_logits(*plan));
  return std::unique_ptr<DeviceRunner>(
      std::make_unique<DeviceRunnerImpl>(std::move(plan), limits, inputs));
}

}  // namespace lmn::engine
