// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/tensor_kernels.h"
#include "ops/validate.h"

namespace lmn::cuda {
namespace {

// The first worker queues everything.
template <typename Args>
void run(const void* args, const ops::Worker& worker) {
  if (worker.part == 0) launch_op(*static_cast<const Args*>(args), *worker.queue);
}

Result<DType> linear_input_type(DType weight, int64_t columns, bool precise) {
  LMN_RETURN_IF_ERROR(ops::validate_weight_type(weight, columns));
  if (!is_block_quantized(weight)) return DType::kF32;
  return precise ? DType::kQA16 : DType::kQA8;
}

size_t no_bytes(int64_t, int64_t, int64_t) { return 0; }
size_t no_shared_bytes(int64_t, int64_t, int) { return 0; }

ops::KernelTable make_table() {
  ops::KernelTable table;
#define LMN_OP(e, name, Args, text) table.run[static_cast<int>(ops::Op::k##e)] = run<ops::Args>;
#include "ops/ops.def"
#undef LMN_OP
  table.scratch_bytes = no_bytes;
  table.shared_bytes = no_shared_bytes;
  table.workspace_bytes = attention_workspace_bytes;
  table.linear_input_type = linear_input_type;
  table.fuses_quantize = true;
  table.plan_pack = plan_pack;
  table.pack = pack;
  table.packed_range = packed_range;
  table.tensor = tensor_kernels();
  table.sample = run<ops::SampleArgs>;
  table.sample_bytes = sample_bytes;
  return table;
}

}  // namespace

const ops::KernelTable& kernel_table() {
  static const ops::KernelTable table = make_table();
  return table;
}

}  // namespace lmn::cuda
