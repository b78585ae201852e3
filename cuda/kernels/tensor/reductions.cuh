// SPDX-License-Identifier: Apache-2.0
//
// Reductions of any set of axes, and the softmaxes. Terms are taken as group.cuh says.
#pragma once

#include "cuda/kernels/tensor/group.cuh"

namespace lmn::cuda::tensor {

enum class Reduction : uint8_t {
  kSum,
  kMean,
  kSquares,
  kL1,
  kL2,
  kLogSum,
  kLogSumExp,
  kProduct,
  kMax,
  kMin
};

struct ReduceParams {
  const void* x;
  void* y;
  DType type;
  Reduction reduction;
  Form form;
  uint32_t outputs, terms;
  int32_t kept_rank, reduced_rank;
  uint32_t kept_sizes[8], kept_strides[8], reduced_sizes[8], reduced_strides[8];
};

LMN_DEVICE uint32_t offset_of(uint32_t i, int rank, const uint32_t* sizes,
                              const uint32_t* strides) {
  uint32_t offset = 0;
  for (int d = rank - 1; d > 0; --d) {
    const uint32_t rest = i / sizes[d];
    offset += (i - rest * sizes[d]) * strides[d];
    i = rest;
  }
  return rank == 0 ? 0 : offset + i * strides[0];
}

template <typename C>
LMN_DEVICE C lowest() {
  if constexpr (sizeof(C) == sizeof(float)) return -HUGE_VALF;
  return static_cast<C>(INT64_MIN);
}
template <typename C>
LMN_DEVICE C highest() {
  if constexpr (sizeof(C) == sizeof(float)) return HUGE_VALF;
  return static_cast<C>(INT64_MAX);
}

LMN_DEVICE Merge merge_of(Reduction r) {
  return r == Reduction::kProduct ? Merge::kProduct
         : r == Reduction::kMax   ? Merge::kMax
         : r == Reduction::kMin   ? Merge::kMin
                                  : Merge::kSum;
}

// The accumulator of one output, for all threads of its group. `shift` is what kLogSumExp
// subtracts.
template <typename C>
LMN_DEVICE C accumulate(const ReduceParams& p, const Group& group, Reduction r, uint32_t base,
                        C shift) {
  C sum = r == Reduction::kProduct ? C(1)
          : r == Reduction::kMax   ? lowest<C>()
          : r == Reduction::kMin   ? highest<C>()
                                   : C(0);
  const uint32_t terms = group.output < p.outputs ? p.terms : 0;
  for (uint32_t t = group.first; t < terms; t += group.step) {
    const C v = load<C>(p.x, p.type,
                        base + offset_of(t, p.reduced_rank, p.reduced_sizes, p.reduced_strides));
    switch (r) {
      case Reduction::kSquares:
      case Reduction::kL2:
        sum += v * v;
        break;
      case Reduction::kL1:
        sum += v < 0 ? -v : v;
        break;
      case Reduction::kLogSumExp:
        if constexpr (sizeof(C) == sizeof(float)) sum += expf(v - shift);
        break;
      default:
        sum = merge(merge_of(r), sum, v);
    }
  }
  return group.combine(merge_of(r), sum);
}

LMN_DEVICE float finish(Reduction r, float sum, float shift, uint32_t terms) {
  switch (r) {
    case Reduction::kMean:
      return sum / static_cast<float>(terms);
    case Reduction::kL2:
      return simt::square_root(sum);
    case Reduction::kLogSum:
      return logf(sum);
    case Reduction::kLogSumExp:
      return shift + logf(sum);
    default:
      return sum;
  }
}
LMN_DEVICE int64_t finish(Reduction r, int64_t sum, int64_t, uint32_t terms) {
  switch (r) {
    case Reduction::kMean:
      return static_cast<int64_t>(static_cast<double>(sum) / static_cast<double>(terms));
    case Reduction::kL2:
      return static_cast<int64_t>(sqrt(static_cast<double>(sum)));
    default:
      return sum;
  }
}

template <typename C>
LMN_KERNEL(kGroupThreads, 4)
void reduce(ReduceParams p) {
  simt::wait_for_previous();
  const Group group(p.form);
  const uint32_t base = offset_of(group.output, p.kept_rank, p.kept_sizes, p.kept_strides);
  C shift = 0;
  if (p.reduction == Reduction::kLogSumExp) {
    shift = accumulate<C>(p, group, Reduction::kMax, base, 0);
    if (!(shift - shift == 0)) shift = 0;  // an infinity, or no number
  }
  const C sum = accumulate<C>(p, group, p.reduction, base, shift);
  const bool is_first = p.form == Form::kColumns ? simt::warp() == 0
                        : p.form == Form::kWarp  ? simt::lane() == 0
                                                 : simt::thread_index() == 0;
  if (is_first && group.output < p.outputs)
    store(p.y, p.type, group.output, finish(p.reduction, sum, shift, p.terms));
}

// Of [outer, terms, inner] along the middle: e^(x - most) / sum, or its logarithm.
struct SoftmaxParams {
  const void* x;
  void* y;
  DType type;
  Form form;
  bool logarithm;
  uint32_t outputs, terms, inner;
};

LMN_KERNEL(kGroupThreads, 4) void softmax(SoftmaxParams p) {
  simt::wait_for_previous();
  const Group group(p.form);
  const uint32_t outer = group.output / p.inner;
  const uint32_t base = outer * p.terms * p.inner + (group.output - outer * p.inner);
  const uint32_t terms = group.output < p.outputs ? p.terms : 0;
  float most = -HUGE_VALF, sum = 0;
  for (uint32_t t = group.first; t < terms; t += group.step)
    most = merge(Merge::kMax, most, load<float>(p.x, p.type, base + t * p.inner));
  most = group.combine(Merge::kMax, most);
  for (uint32_t t = group.first; t < terms; t += group.step)
    sum += expf(load<float>(p.x, p.type, base + t * p.inner) - most);
  sum = group.combine(Merge::kSum, sum);
  const float by = p.logarithm ? logf(sum) : 1.0f / sum;
  for (uint32_t t = group.first; t < terms; t += group.step) {
    const uint32_t at = base + t * p.inner;
    const float shifted = load<float>(p.x, p.type, at) - most;
    store(p.y, p.type, at, p.logarithm ? shifted - by : expf(shifted) * by);
  }
}

}  // namespace lmn::cuda::tensor
