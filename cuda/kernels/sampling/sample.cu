// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/sampling/sample.cuh"

namespace lmn::cuda {
namespace {

// Cuts the workspace, or, at null, counts its bytes.
size_t divide_workspace(std::byte* workspace, int64_t rows, int64_t vocab, SampleParams* p) {
  size_t used = 0;
  const auto take = [&](size_t bytes) {
    std::byte* at = workspace == nullptr ? nullptr : workspace + used;
    used += (bytes + 255) / 256 * 256;
    return at;
  };
  const auto count = static_cast<size_t>(rows);
  p->vocab = static_cast<int32_t>(vocab);
  p->blocks = row_blocks(p->vocab);
  p->splits = static_cast<int32_t>(simt::div_up(p->blocks, kSplitBlocks));
  const auto blocks = count * static_cast<size_t>(p->blocks);
  p->sums = reinterpret_cast<uint64_t*>(take(blocks * sizeof(uint64_t)));
  p->levels = reinterpret_cast<uint64_t*>(take(count * kLevels * sizeof(uint64_t)));
  p->block_max = reinterpret_cast<float*>(take(blocks * sizeof(float)));
  p->parts =
      reinterpret_cast<ScanPart*>(take(count * static_cast<size_t>(p->splits) * sizeof(ScanPart)));
  return used;
}

}  // namespace

size_t sample_bytes(int64_t rows, int64_t vocab) {
  SampleParams p{};
  return divide_workspace(nullptr, rows, vocab, &p);
}

void launch_op(const ops::SampleArgs& a, ops::LaunchQueue& queue) {
  SampleParams p{};
  p.a = a;
  divide_workspace(a.workspace, a.rows, a.vocab, &p);
  const auto rows = static_cast<uint32_t>(a.rows);
  const simt::LaunchShape split{static_cast<uint32_t>(p.splits), rows, 1, kSplitThreads,
                                static_cast<uint32_t>(sizeof(Bins))};
  simt::launch<sample_scan>(queue, split, p);
  uint32_t shared = sizeof(PickSpace);
  if (!a.greedy) {
    simt::launch<sample_weigh>(queue, split, p);
    shared += static_cast<uint32_t>(p.blocks) * static_cast<uint32_t>(sizeof(uint64_t));
  }
  simt::launch<sample_pick>(queue, {rows, 1, 1, kPickThreads, shared}, p);
}

}  // namespace lmn::cuda
