// SPDX-License-Identifier: Apache-2.0
//
// Evaluation of tensor_ops/values.def: tensors whose shapes depend on data.
#include "cpu/tensor/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "cpu/tensor/dispatch.h"

namespace lmn::cpu {

void copy_elements(const Tensor& source, int64_t from, int64_t count, const Tensor& target,
                   int64_t to) {
  if (source.dtype == DType::kString) {
    std::copy_n(source.as<std::string>() + from, count, target.as<std::string>() + to);
  } else if (count > 0) {
    const int64_t size = info(source.dtype).block_bytes;
    std::memcpy(target.data + to * size, source.data + from * size,
                static_cast<size_t>(count * size));
  }
}

Result<ops::RuntimeValue> owned_value(const ops::RuntimeValue& value,
                                      const ops::AllocateTensor& allocate) {
  ops::RuntimeValue owned = value;
  const Tensor& tensor = value.tensor;
  if (value.kind == ops::ValueKind::kTensor && tensor.owner == nullptr) {
    LMN_ASSIGN_OR_RETURN(owned.tensor, allocate(tensor.dtype, tensor.shape));
    copy_elements(tensor, 0, tensor.shape.elements(), owned.tensor, 0);
  }
  return owned;
}

Status evaluate_NonZero(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor& x = context.tensor(0);
  const auto find = [&](auto is_zero) -> Status {
    const int64_t count = x.shape.elements();
    std::vector<int64_t> found;
    for (int64_t i = 0; i < count; ++i) {
      if (!is_zero(i)) found.push_back(i);
    }
    const int64_t n = static_cast<int64_t>(found.size()), rank = x.shape.rank;
    LMN_ASSIGN_OR_RETURN(int64_t* const out, context.make<int64_t>(0, DType::kI64, {rank, n}));
    for (int64_t i = 0; i < n; ++i) {
      int64_t index = found[static_cast<size_t>(i)];
      for (int64_t d = rank - 1; d >= 0; --d) {
        const int64_t size = x.shape[static_cast<int>(d)];
        out[d * n + i] = index % size;
        index /= size;
      }
    }
    return {};
  };
  if (x.dtype == DType::kString) {
    return find([&](int64_t i) { return x.as<std::string>()[i].empty(); });
  }
  if (x.dtype == DType::kBool) return find([&](int64_t i) { return x.as<uint8_t>()[i] == 0; });
  return with_number(node, x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return find([&](int64_t i) { return x.as<T>()[i] == T(0); });
  });
}

namespace {

// A number whose order, among all of one type, is that of `value`; equal values have equal keys.
// Every NaN is one value, above all others.
template <typename T>
uint64_t order_key(T value) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if constexpr (std::is_unsigned_v<T>) {
    return value;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(value)) ^ kSign;
  } else {
    const double wide = static_cast<double>(value);
    if (std::isnan(wide)) return ~uint64_t{0};
    const auto bits = std::bit_cast<uint64_t>(wide == 0 ? 0.0 : wide);
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  }
}

Status order_keys(const ops::TensorNode& node, const Tensor& x, std::vector<uint64_t>* keys) {
  const int64_t count = x.shape.elements();
  keys->resize(static_cast<size_t>(count));
  if (x.dtype == DType::kString) {  // the place in the order of the strings themselves
    const std::string* text = x.as<std::string>();
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return text[a] < text[b]; });
    uint64_t key = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && text[order[i]] != text[order[i - 1]]) ++key;
      (*keys)[static_cast<size_t>(order[i])] = key;
    }
    return {};
  }
  const auto fill = [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < count; ++i) (*keys)[static_cast<size_t>(i)] = order_key(x.as<T>()[i]);
    return {};
  };
  if (x.dtype == DType::kBool) return fill(TypeTag<uint8_t>{});
  return with_number(node, x.dtype, fill);
}

}  // namespace

// Along an axis, or of all elements, n parts of outer × inner elements each; they are ordered by
// their elements, one after the other.
Status evaluate_Unique(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor& x = context.tensor(0);
  std::vector<uint64_t> keys;
  LMN_RETURN_IF_ERROR(order_keys(node, x, &keys));
  const bool has_axis = node.attributes().find("axis") != nullptr;
  int64_t axis = 0, outer = 1, n = x.shape.elements(), inner = 1;
  if (has_axis) {
    LMN_RETURN_IF_ERROR(node.normalize_axis(node.integer("axis", 0), x.shape.rank, &axis));
    n = x.shape[static_cast<int>(axis)];
    for (int i = 0; i < x.shape.rank; ++i) {
      if (i != axis) (i < axis ? outer : inner) *= x.shape[i];
    }
  }
  if (n > int64_t{1} << 32) return node.unsupported("more than 2^32 parts");
  // Below 0, 0, above 0: part a is before, equal to, behind part b.
  const auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < outer; ++o) {
      const uint64_t* of_a = keys.data() + (o * n + a) * inner;
      const uint64_t* of_b = keys.data() + (o * n + b) * inner;
      for (int64_t i = 0; i < inner; ++i) {
        if (of_a[i] != of_b[i]) return of_a[i] < of_b[i] ? -1 : 1;
      }
    }
    return 0;
  };
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const int way = compare(a, b);
    return way != 0 ? way < 0 : a < b;
  });

  // Groups of equal parts: the first of each, and the group of every part.
  std::vector<int64_t> first, count, group(static_cast<size_t>(n));
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || compare(order[i - 1], order[i]) != 0) {
      first.push_back(order[i]);
      count.push_back(0);
    }
    ++count.back();
    group[static_cast<size_t>(order[i])] = static_cast<int64_t>(first.size()) - 1;
  }
  const auto groups = static_cast<int64_t>(first.size());
  std::vector<int64_t> listed(first.size());  // groups in the order of the outputs
  std::iota(listed.begin(), listed.end(), 0);
  if (node.integer("sorted", 1) == 0) {
    std::sort(listed.begin(), listed.end(), [&](int64_t a, int64_t b) {
      return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)];
    });
  }

  Shape shape{groups};
  if (has_axis) {
    shape = x.shape;
    shape[static_cast<int>(axis)] = groups;
  }
  LMN_ASSIGN_OR_RETURN(const Tensor y, context.allocate(x.dtype, shape));
  context.output(0).tensor = y;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t from = first[static_cast<size_t>(listed[static_cast<size_t>(g)])];
      copy_elements(x, (o * n + from) * inner, inner, y, (o * groups + g) * inner);
    }
  }
  std::vector<int64_t> place(first.size());  // of a group in the outputs
  for (size_t g = 0; g < listed.size(); ++g) {
    place[static_cast<size_t>(listed[g])] = static_cast<int64_t>(g);
  }
  for (int i = 1; i < node.outputs(); ++i) {
    const int64_t length = i == 2 ? n : groups;
    LMN_ASSIGN_OR_RETURN(int64_t* const out, context.make<int64_t>(i, DType::kI64, {length}));
    for (int64_t j = 0; j < length; ++j) {
      const auto at = static_cast<size_t>(j);
      out[j] = i == 1   ? first[static_cast<size_t>(listed[at])]
               : i == 2 ? place[static_cast<size_t>(group[at])]
                        : count[static_cast<size_t>(listed[at])];
    }
  }
  return {};
}

namespace {

struct BoundingBox {
  float x_min, x_max, y_min, y_max;
};

BoundingBox make_box(const float* values, bool center) {
  if (center) {
    const float w = values[2] / 2, h = values[3] / 2;
    return {values[0] - w, values[0] + w, values[1] - h, values[1] + h};
  }
  return {std::min(values[1], values[3]), std::max(values[1], values[3]),
          std::min(values[0], values[2]), std::max(values[0], values[2])};
}

float area(const BoundingBox& box) { return (box.x_max - box.x_min) * (box.y_max - box.y_min); }

bool overlap_above(const BoundingBox& a, const BoundingBox& b, float threshold) {
  const float width = std::min(a.x_max, b.x_max) - std::max(a.x_min, b.x_min);
  const float height = std::min(a.y_max, b.y_max) - std::max(a.y_min, b.y_min);
  if (!(width > 0) || !(height > 0)) return false;
  const float both = width * height, area_a = area(a), area_b = area(b);
  const float either = area_a + area_b - both;
  if (!(both > 0) || !(area_a > 0) || !(area_b > 0) || !(either > 0)) return false;
  return both / either > threshold;
}

}  // namespace

// A box whose score is no number is never selected.
Status evaluate_NonMaxSuppression(const ops::TensorNode& node,
                                  const ops::EvaluateContext& context) {
  const Tensor &boxes = context.tensor(0), &scores = context.tensor(1);
  const int64_t batches = boxes.shape[0], count = boxes.shape[1], classes = scores.shape[1];
  const bool center = node.integer("center_point_box", 0) != 0;
  const int64_t most =
      node.has(2) ? std::clamp<int64_t>(*context.tensor(2).as<int64_t>(), 0, count) : 0;
  const float overlap = node.has(3) ? *context.tensor(3).as<float>() : 0;
  const float least =
      node.has(4) ? *context.tensor(4).as<float>() : -std::numeric_limits<float>::infinity();
  if (!(overlap >= 0 && overlap <= 1)) {
    return node.fail("iou_threshold is %g; it is between 0 and 1", static_cast<double>(overlap));
  }
  std::vector<int64_t> selected;  // batch, class, box of each
  std::vector<int64_t> candidates;
  std::vector<BoundingBox> kept;
  for (int64_t batch = 0; most > 0 && batch < batches; ++batch) {
    for (int64_t c = 0; c < classes; ++c) {
      const float* score = scores.as<float>() + (batch * classes + c) * count;
      candidates.clear();
      for (int64_t i = 0; i < count; ++i) {
        if (node.has(4) ? score[i] > least : !std::isnan(score[i])) candidates.push_back(i);
      }
      std::sort(candidates.begin(), candidates.end(), [score](int64_t a, int64_t b) {
        return score[a] != score[b] ? score[a] > score[b] : a < b;
      });
      kept.clear();
      for (const int64_t i : candidates) {
        const BoundingBox box = make_box(boxes.as<float>() + (batch * count + i) * 4, center);
        const bool overlaps = std::any_of(kept.begin(), kept.end(), [&](const BoundingBox& other) {
          return overlap_above(box, other, overlap);
        });
        if (overlaps) continue;
        kept.push_back(box);
        selected.insert(selected.end(), {batch, c, i});
        if (static_cast<int64_t>(kept.size()) == most) break;
      }
    }
  }
  const auto n = static_cast<int64_t>(selected.size()) / 3;
  LMN_ASSIGN_OR_RETURN(int64_t* const out, context.make<int64_t>(0, DType::kI64, {n, 3}));
  std::copy(selected.begin(), selected.end(), out);
  return {};
}

}  // namespace lmn::cpu
