// SPDX-License-Identifier: Apache-2.0
#include "engine/batch.h"

#include <algorithm>

#include "engine/kv_cache.h"

namespace lmn::engine {

StepSizes write_batch(std::span<const Slice> step, std::span<Sequence* const> members,
                      const StepLimits& limits, int32_t page_step, const StepInputs& inputs) {
  StepSizes sizes;
  for (const Slice& slice : step) {
    const Sequence& sequence = *members[static_cast<size_t>(slice.sequence)];
    const std::vector<int32_t>& pages = sequence.cache.pages;
    std::transform(pages.begin(), pages.end(),
                   inputs.block_tables + int64_t{sizes.sequences} * limits.table_stride,
                   [page_step](int32_t page) { return page * page_step; });
    std::copy_n(sequence.tokens() + slice.begin, slice.tokens, inputs.token_ids + sizes.tokens);
    for (int32_t i = 0; i < slice.tokens; ++i) {
      const int32_t position = slice.begin + i, row = sizes.tokens + i;
      inputs.positions[row] = position;
      inputs.sequence_index[row] = sizes.sequences;
      const int32_t place = pages[static_cast<size_t>(position / kKvPageTokens)] * page_step;
      inputs.kv_slots[row] = place * kKvPageTokens + position % kKvPageTokens;
    }
    // A step without outputs for a sequence, its last row, or all rows.
    for (int32_t i = slice.tokens - slice.outputs; i < slice.tokens; ++i) {
      inputs.output_rows[sizes.outputs++] = sizes.tokens + i;
    }
    sizes.tokens += slice.tokens;
    sizes.sequences += 1;
  }
  return sizes;
}

}  // namespace lmn::engine
