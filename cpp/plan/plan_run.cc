// SPDX-License-Identifier: Apache-2.0
//
// Running a plan: the caches that it is given, and its steps on a device that is not the host.
#include <algorithm>

#include "plan/plan_impl.h"

namespace lmn::plan {

Status PlanImpl::bind_kv(std::span<const ops::KvLayer> layers) {
  if (layers.size() != kv_.size()) {
    return error(Code::kInvalidArgument, "%zu KV caches for a model of %zu layers", layers.size(),
                 kv_.size());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const ops::KvLayer& layer = layers[i];
    const bool fits = layer.kv_heads == kv_[i].kv_heads && layer.head_dim == kv_[i].head_dim;
    const bool whole = layer.k != nullptr && layer.v != nullptr && layer.page_tokens > 0 &&
                       layer.page_tokens % 16 == 0 &&
                       (layer.dtype == DType::kF16 || layer.dtype == DType::kF32 ||
                        (layer.dtype == DType::kQ8_0 && layer.head_dim % 32 == 0));
    if (fits && whole) continue;
    return error(Code::kInvalidArgument,
                 "KV cache of layer %zu: %d heads of %d %s in pages of %d tokens; expected %d "
                 "heads of %d f16 or f32, or q8_0 where heads are a multiple of 32, in pages "
                 "of a multiple of 16 tokens",
                 i, layer.kv_heads, layer.head_dim, std::string(info(layer.dtype).name).c_str(),
                 layer.page_tokens, kv_[i].kv_heads, kv_[i].head_dim);
  }
  std::copy(layers.begin(), layers.end(), kv_.begin());
  kv_bound_ = true;
  return {};
}

// Of block tables the columns that rows of this context have, where that spares enough.
Status PlanImpl::send_inputs(int64_t context) {
  sent_.clear();
  for (const Port& port : inputs_) {
    const int64_t rows = rows_of(port);
    int64_t used = port.row_bytes;
    if (port.name == "block_tables" && !kv_.empty() && kv_.front().page_tokens > 0) {
      const int64_t page = kv_.front().page_tokens;
      used = std::min(used, (context + page - 1) / page * info(port.dtype).block_bytes);
    }
    if (rows * (port.row_bytes - used) > kCloseBytes) {
      LMN_RETURN_IF_ERROR(queue_.send_rows(arena_.data(), port.offset, port.row_bytes, used, rows));
    } else {
      sent_.push_back({port.offset, port.offset + rows * port.row_bytes});
    }
  }
  join_close(&sent_);
  return queue_.send(arena_.data(), sent_);
}

Status PlanImpl::enqueue(const StepHints& hints) {
  const EnteredStream entered(queue_.stream());
  ops::LaunchQueue& launches = queue_.launches();
  launches.context = hints.context > 0 ? std::min(hints.context, max_context_) : max_context_;
  launches.single_rows = hints.single_rows;
  if (!profiles_.empty()) return enqueue_profiled();
  LMN_RETURN_IF_ERROR(send_inputs(launches.context));
  for (size_t i = 0; i < stages_.size(); ++i) enqueue_stage(i);
  return queue_.take_launch_error();
}

void PlanImpl::enqueue_stage(size_t stage) {
  if (stages_[stage].kernel == nullptr) return;
  ops::Worker worker;
  worker.queue = &queue_.launches();
  queue_.stream().push_range(bound_.stages[stage].name.c_str());
  stages_[stage].kernel(stages_[stage].args, worker);
  queue_.stream().pop_range();
}

// With an event before each stage and one at the end. Waits for all of it, unless it fails.
Status PlanImpl::enqueue_profiled() {
  Stream& stream = queue_.stream();
  while (events_.size() < stages_.size() + 2) {
    LMN_ASSIGN_OR_RETURN(events_.emplace_back(), stream.create_event());
  }
  LMN_RETURN_IF_ERROR(stream.record_event(*events_[0]));
  LMN_RETURN_IF_ERROR(send_inputs(queue_.launches().context));
  LMN_RETURN_IF_ERROR(stream.record_event(*events_[1]));
  for (size_t i = 0; i < stages_.size(); ++i) {
    enqueue_stage(i);
    LMN_RETURN_IF_ERROR(queue_.take_launch_error());
    LMN_RETURN_IF_ERROR(stream.record_event(*events_[i + 2]));
  }
  LMN_RETURN_IF_ERROR(stream.synchronize());
  StageProfile& profile = *profiles_[selected_];
  for (size_t i = 0; i <= stages_.size(); ++i) {
    LMN_ASSIGN_OR_RETURN(const int64_t ns, stream.elapsed_ns(*events_[i], *events_[i + 1]));
    if (i == 0) {
      profile.add_start(ns);
    } else if (stages_[i - 1].kernel != nullptr) {
      profile.add(i - 1, ns, 0);
    }
  }
  profile.end_run(0, static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(queue_.inputs()) -
                                            reinterpret_cast<uintptr_t>(arena_.data())));
  return {};
}

Status PlanImpl::fetch(std::string_view name, int64_t begin, int64_t count) {
  const Port* port = find(outputs_, name);
  LMN_CHECK(port != nullptr && begin >= 0 && begin + count <= port->rows);
  return queue_.stream().copy_to_host(port->host + begin * port->row_bytes,
                                      arena_.data() + port->offset + begin * port->row_bytes,
                                      static_cast<size_t>(count * port->row_bytes));
}

Status PlanImpl::run_queued(const StepHints& hints) {
  LMN_RETURN_IF_ERROR(enqueue(hints));
  for (const Port& port : outputs_) LMN_RETURN_IF_ERROR(fetch(port.name, 0, rows_of(port)));
  return queue_.stream().synchronize();
}

}  // namespace lmn::plan
