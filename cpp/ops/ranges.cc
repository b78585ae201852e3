// SPDX-License-Identifier: Apache-2.0
#include "ops/ranges.h"

#include <cinttypes>
#include <numeric>

#include "ops/infer/axes.h"

namespace lmn::ops {
namespace {

// The axes that lists of `length` values are about: operand i, or the first ones.
Status listed_axes(const TensorNode& node, int i, size_t length, std::vector<int64_t>* axes) {
  const int rank = node.rank(0);
  if (node.has(i)) {
    *axes = node.integers(i);
    if (axes->size() != length) {
      return node.fail("%zu axes for lists of %zu", axes->size(), length);
    }
  } else {
    if (length > static_cast<size_t>(rank)) {
      return node.fail("lists of %zu for an input of rank %d", length, rank);
    }
    axes->resize(length);
    std::iota(axes->begin(), axes->end(), int64_t{0});
  }
  uint32_t bits;
  LMN_RETURN_IF_ERROR(axis_bits(node, *axes, rank, &bits));
  for (int64_t& axis : *axes) axis += axis < 0 ? rank : 0;
  return {};
}

// Bounds and step of a Slice over `size` elements.
SliceAxis slice_of(int64_t size, int64_t start, int64_t end, int64_t step) {
  if (size < 0) {
    // All of it, or nothing that is known.
    const bool all = step == 1
                         ? start == 0 && end >= INT32_MAX
                         : step == -1 && (start == -1 || start >= INT32_MAX) && end <= INT32_MIN;
    return {0, step, all ? size : kUnknownSize};
  }
  const int64_t last = step > 0 ? size : size - 1, first = step > 0 ? 0 : -1;
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, std::max<int64_t>(last, 0));
  end = std::clamp<int64_t>(end, first, std::max(last, first));
  const int64_t distance = step > 0 ? end - start : start - end;
  if (distance <= 0 || size == 0) return {0, 1, 0};
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const auto count = static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride + 1);
  return {start, count == 1 ? 1 : step, count};
}

}  // namespace

Status slice_axes(const TensorNode& node, SliceAxes* out) {
  const Shape& x = node.shape(0);
  for (int i = 0; i < x.rank; ++i) (*out)[static_cast<size_t>(i)] = {0, 1, x[i]};
  const std::vector<int64_t> starts = node.integers(1), ends = node.integers(2);
  if (starts.size() != ends.size()) {
    return node.fail("%zu starts and %zu ends", starts.size(), ends.size());
  }
  std::vector<int64_t> axes, steps(starts.size(), 1);
  LMN_RETURN_IF_ERROR(listed_axes(node, 3, starts.size(), &axes));
  if (node.has(4)) steps = node.integers(4);
  if (steps.size() != starts.size()) {
    return node.fail("%zu starts and %zu steps", starts.size(), steps.size());
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (steps[i] == 0) return node.fail("steps[%zu] is 0", i);
    (*out)[static_cast<size_t>(axes[i])] =
        slice_of(x[static_cast<int>(axes[i])], starts[i], ends[i], steps[i]);
  }
  return {};
}

Status pad_axes(const TensorNode& node, PadAxes* out) {
  const Shape& x = node.shape(0);
  *out = {};
  const std::vector<int64_t> pads = node.integers(1);
  if (pads.size() % 2 != 0) return node.fail("pads has %zu values, an odd number", pads.size());
  const size_t count = pads.size() / 2;
  std::vector<int64_t> axes;
  LMN_RETURN_IF_ERROR(listed_axes(node, 3, count, &axes));
  if (!node.has(3) && count != static_cast<size_t>(x.rank)) {
    return node.fail("pads has %zu values for an input of rank %d; it takes two for each axis",
                     pads.size(), x.rank);
  }
  for (size_t i = 0; i < count; ++i) {
    const PadAxis axis{pads[i], pads[i + count]};
    for (const int64_t pad : {axis.begin, axis.end}) {
      if (pad < -kMaxElements || pad > kMaxElements) {
        return node.fail("a pad of %" PRId64 "; at most 2^40", pad);
      }
    }
    const int64_t size = x[static_cast<int>(axes[i])];
    if (size >= 0 && size + std::min<int64_t>(axis.begin, 0) + std::min<int64_t>(axis.end, 0) < 0) {
      return node.fail("pads %" PRId64 " and %" PRId64 " cut more off axis %" PRId64
                       " than its %" PRId64 " elements",
                       axis.begin, axis.end, axes[i], size);
    }
    (*out)[static_cast<size_t>(axes[i])] = axis;
  }
  return {};
}

Status center_axes(const TensorNode& node, PadAxes* out) {
  const Shape& x = node.shape(0);
  *out = {};
  const std::vector<int64_t> sizes = node.integers(1);
  const Ints* axes = node.integers("axes");
  if (sizes.size() != (axes == nullptr ? static_cast<size_t>(x.rank) : axes->size())) {
    return node.fail("shape has %zu sizes; it takes one for each axis", sizes.size());
  }
  if (axes != nullptr) {
    uint32_t bits;
    LMN_RETURN_IF_ERROR(axis_bits(node, *axes, x.rank, &bits));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t axis = static_cast<int64_t>(i);
    if (axes != nullptr) axis = (*axes)[i] < 0 ? (*axes)[i] + x.rank : (*axes)[i];
    const int64_t have = x[static_cast<int>(axis)], want = sizes[i];
    if (want < 0 || want > kMaxElements) return node.fail("shape[%zu] is %" PRId64, i, want);
    if (have < 0) continue;
    // What is cut is halved downwards at the start, and so is what is added.
    const int64_t begin = have > want ? -((have - want) / 2) : (want - have) / 2;
    (*out)[static_cast<size_t>(axis)] = {begin, want - have - begin};
  }
  return {};
}

Status pad_mode(const TensorNode& node, PadMode* mode) {
  const std::string_view text = node.text("mode", "constant");
  if (text == "constant") {
    *mode = PadMode::kConstant;
  } else if (text == "reflect") {
    *mode = PadMode::kReflect;
  } else if (text == "edge") {
    *mode = PadMode::kEdge;
  } else if (text == "wrap") {
    *mode = PadMode::kWrap;
  } else {
    return node.fail("mode '%s'; it is constant, reflect, edge or wrap", std::string(text).c_str());
  }
  return {};
}

}  // namespace lmn::ops
