// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_sampler.h"

#include "ops/sample_args.h"

namespace lmn::plan {

PlanSampler::Bytes PlanSampler::bytes(const ops::KernelTable& table, int64_t rows, int64_t vocab) {
  if (table.sample == nullptr || vocab > ops::kMaxSampledVocab) return {};
  const int64_t exchanged = rows * static_cast<int64_t>(sizeof(SampleRow) + sizeof(SampleChoice));
  return {exchanged + static_cast<int64_t>(table.sample_bytes(rows, vocab)), exchanged};
}

Result<PlanSampler> PlanSampler::create(Device& device, int64_t rows, int64_t vocab) {
  PlanSampler out;
  const ops::KernelTable& table = device.kernels();
  if (table.sample == nullptr || vocab > ops::kMaxSampledVocab) return out;
  const auto count = static_cast<size_t>(rows);
  LMN_ASSIGN_OR_RETURN(out.host_samples_, PinnedBlock::create(device, count * sizeof(SampleRow)));
  LMN_ASSIGN_OR_RETURN(out.host_choices_,
                       PinnedBlock::create(device, count * sizeof(SampleChoice)));
  LMN_ASSIGN_OR_RETURN(out.samples_, DeviceBlock::create(device, count * sizeof(SampleRow)));
  LMN_ASSIGN_OR_RETURN(out.choices_, DeviceBlock::create(device, count * sizeof(SampleChoice)));
  LMN_ASSIGN_OR_RETURN(out.workspace_,
                       DeviceBlock::create_uninitialized(device, table.sample_bytes(rows, vocab)));
  out.kernel_ = table.sample;
  out.rows_ = count;
  out.vocab_ = vocab;
  return out;
}

Status PlanSampler::enqueue(PlanQueue& queue, const float* logits, int64_t count, bool greedy) {
  const auto n = static_cast<size_t>(count);
  const EnteredStream entered(queue.stream());
  LMN_RETURN_IF_ERROR(
      queue.stream().copy_from_host(samples_.data(), host_samples_.data(), n * sizeof(SampleRow)));
  ops::SampleArgs args{};
  args.rows = count;
  args.logits = logits;
  args.stride = args.vocab = vocab_;
  args.samples = reinterpret_cast<const SampleRow*>(samples_.data());
  args.choices = reinterpret_cast<SampleChoice*>(choices_.data());
  args.workspace = workspace_.data();
  args.greedy = greedy;
  ops::Worker worker;
  worker.queue = &queue.launches();
  kernel_(&args, worker);
  LMN_RETURN_IF_ERROR(queue.take_launch_error());
  return queue.stream().copy_to_host(host_choices_.data(), choices_.data(),
                                     n * sizeof(SampleChoice));
}

}  // namespace lmn::plan
