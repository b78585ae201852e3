// SPDX-License-Identifier: Apache-2.0
#include "ops/infer/einsum.h"

#include <algorithm>
#include <cctype>
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"
#include "ops/infer/spatial.h"

namespace lmn::ops {
namespace {

// Labels are letters; the dimensions of an ellipsis are numbered from its end: kEllipsis + 0 is the
// last.
constexpr int kEllipsis = 256;

Status read_term(const TensorNode& node, std::string_view term, std::vector<int>* labels,
                 int* ellipsis_at) {
  *ellipsis_at = -1;
  for (size_t i = 0; i < term.size(); ++i) {
    const char c = term[i];
    if (c == ' ') continue;
    if (c == '.') {
      if (*ellipsis_at >= 0 || term.substr(i, 3) != "...")
        return node.fail("the equation has a dot that is not one ellipsis of a term");
      *ellipsis_at = static_cast<int>(labels->size());
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      labels->push_back(static_cast<unsigned char>(c));
    } else {
      return node.fail("the equation has the character '%c'", c);
    }
  }
  return {};
}

struct Terms {
  std::vector<std::vector<int>> inputs;  // with the ellipsis' dimensions put in
  std::vector<int> output;
};

Status read_terms(const TensorNode& node, Terms* terms) {
  std::string_view equation = node.text("equation", "");
  if (equation.size() > 1024) return node.fail("the equation is longer than 1024 characters");
  const size_t arrow = equation.find("->");
  const std::string_view output =
      arrow == std::string_view::npos ? std::string_view() : equation.substr(arrow + 2);
  equation = equation.substr(0, arrow);
  int most = 0;
  for (int i = 0;; ++i) {
    const size_t comma = equation.find(',');
    if (i >= node.inputs() || !node.has(i))
      return node.fail("the equation has more terms than there are inputs (%d)", node.inputs());
    std::vector<int> labels;
    int at = 0;
    LMN_RETURN_IF_ERROR(read_term(node, equation.substr(0, comma), &labels, &at));
    const int extra = node.rank(i) - static_cast<int>(labels.size());
    if (extra < 0 || (extra > 0 && at < 0)) {
      return node.fail("term %d has %zu labels and the input rank %d", i, labels.size(),
                       node.rank(i));
    }
    for (int e = 0; e < extra; ++e) labels.insert(labels.begin() + at, kEllipsis + e);
    most = std::max(most, extra);
    terms->inputs.push_back(std::move(labels));
    if (comma == std::string_view::npos) {
      if (i + 1 != node.inputs())
        return node.fail("the equation has %d terms for %d inputs", i + 1, node.inputs());
      break;
    }
    equation.remove_prefix(comma + 1);
  }
  if (arrow != std::string_view::npos) {
    int at = 0;
    LMN_RETURN_IF_ERROR(read_term(node, output, &terms->output, &at));
    for (int e = 0; at >= 0 && e < most; ++e)
      terms->output.insert(terms->output.begin() + at, kEllipsis + e);
    return {};
  }
  for (int e = most - 1; e >= 0; --e) terms->output.push_back(kEllipsis + e);
  for (int label = 0; label < kEllipsis; ++label) {
    int count = 0;
    for (const auto& term : terms->inputs)
      count += static_cast<int>(std::count(term.begin(), term.end(), label));
    if (count == 1) terms->output.push_back(label);
  }
  return {};
}

}  // namespace

Status read_einsum(const TensorNode& node, Einsum* einsum) {
  Terms terms;
  LMN_RETURN_IF_ERROR(read_terms(node, &terms));
  Einsum e;
  std::vector<int> order = terms.output;
  for (size_t i = 0; i < order.size(); ++i) {
    if (std::count(order.begin(), order.end(), order[i]) > 1)
      return node.fail("a label comes twice in the output");
    bool known = false;
    for (const auto& term : terms.inputs)
      known = known || std::count(term.begin(), term.end(), order[i]) > 0;
    if (!known) return node.fail("a label of the output is in no input");
  }
  e.output_labels = static_cast<int>(order.size());
  for (const auto& term : terms.inputs) {
    for (int label : term) {
      if (std::find(order.begin(), order.end(), label) == order.end()) order.push_back(label);
    }
  }
  if (order.size() > kMaxLabels || e.output_labels > kMaxRank) {
    return node.unsupported("%zu labels, %d of the output; at most %d and %d", order.size(),
                            e.output_labels, kMaxLabels, kMaxRank);
  }
  e.labels = static_cast<int>(order.size());
  e.size.fill(1);
  for (size_t i = 0; i < terms.inputs.size(); ++i) {
    const Shape& shape = node.shape(static_cast<int>(i));
    std::array<int64_t, kMaxLabels> strides{};
    uint32_t has = 0;
    int64_t stride = 1;
    for (int d = shape.rank - 1; d >= 0; --d) {
      const auto label = static_cast<size_t>(
          std::find(order.begin(), order.end(), terms.inputs[i][static_cast<size_t>(d)]) -
          order.begin());
      if (!broadcast_size(e.size[label], shape[d], &e.size[label])) {
        return node.fail("dimension %d of input %zu is %" PRId64 ", and %" PRId64
                         " elsewhere in the equation",
                         d, i, shape[d], e.size[label]);
      }
      if (shape[d] != 1) strides[label] += stride;
      if (shape[d] > 0) stride *= shape[d];
      has |= 1u << label;
    }
    e.strides.push_back(strides);
    e.has.push_back(has);
  }
  *einsum = e;
  return {};
}

Status infer_Einsum(const TensorNode& node, TensorTypes outputs) {
  if (node.inputs() < 1 || !node.has(0)) return node.fail("it needs an input");
  for (int i = 0; i < node.inputs(); ++i) {
    LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                                              DType::kI32, DType::kI64, DType::kU32, DType::kU64}));
    if (node.has(i) && node.dtype(i) != node.dtype(0)) return node.fail("inputs differ in type");
  }
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  Einsum e;
  LMN_RETURN_IF_ERROR(read_einsum(node, &e));
  Shape out;
  for (int i = 0; i < e.output_labels; ++i) out[out.rank++] = e.size[static_cast<size_t>(i)];
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_Det(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  Shape x = node.shape(0);
  if (x.rank < 2 || (x[x.rank - 1] >= 0 && x[x.rank - 2] >= 0 && x[x.rank - 1] != x[x.rank - 2])) {
    return node.fail("the input has shape %s; its last two dimensions are a square",
                     x.to_string().c_str());
  }
  x.rank -= 2;
  outputs[0].shape = x;
  return {};
}

// Operands: a [..., K], b [N, blocks, bytes], scales, zero points, group indices, bias.
Status infer_MatMulNBits(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(3, 6));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32, DType::kF16, DType::kBF16}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kU8}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(2, {node.dtype(0)}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(3, {DType::kU8, node.dtype(0)}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(4, {DType::kI32}));
  LMN_RETURN_IF_ERROR(node.expect_dtype(5, {node.dtype(0)}));
  constexpr int64_t kMax = int64_t{1} << 31;
  const int64_t k = node.integer("K", 0), n = node.integer("N", 0);
  const int64_t bits = node.integer("bits", 4), block = node.integer("block_size", 0);
  if (bits != 2 && bits != 4 && bits != 8)
    return node.unsupported("%" PRId64 " bits; it takes 2, 4 and 8", bits);
  if (node.integer("weight_prepacked", 0) != 0)
    return node.unsupported("weights that were packed for another program");
  if (k < 1 || n < 1 || k > kMax || n > kMax || block < 16 || block > kMax ||
      (block & (block - 1)) != 0) {
    return node.fail("K is %" PRId64 ", N %" PRId64 " and block_size %" PRId64
                     "; the last is a power of two, 16 at least",
                     k, n, block);
  }
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  const Shape& a = node.shape(0);
  if (a.rank < 1 || (a.last() >= 0 && a.last() != k))
    return node.fail("A has shape %s and K is %" PRId64, a.to_string().c_str(), k);
  const int64_t blocks = (k + block - 1) / block;
  const auto check = [&](int i, const char* what, int64_t elements) -> Status {
    if (!node.has(i) || !node.type(i).is_known()) return {};
    LMN_RETURN_IF_ERROR(check_elements(node, node.shape(i)));
    if (node.shape(i).elements() == elements) return {};
    return node.fail("%s has shape %s; %" PRId64 " elements are needed", what,
                     node.shape(i).to_string().c_str(), elements);
  };
  LMN_RETURN_IF_ERROR(check(1, "B", n * blocks * (block * bits / 8)));
  LMN_RETURN_IF_ERROR(check(2, "scales", n * blocks));
  const bool packed = node.has(3) && node.dtype(3) == DType::kU8;
  LMN_RETURN_IF_ERROR(check(3, "zero_points", packed ? n * ((blocks * bits + 7) / 8) : n * blocks));
  LMN_RETURN_IF_ERROR(check(5, "bias", n));
  if (node.has(4) && node.type(4).is_known() && node.shape(4).elements() < k)
    return node.fail("g_idx has shape %s and K is %" PRId64, node.shape(4).to_string().c_str(), k);
  outputs[0].shape = a;
  outputs[0].shape[a.rank - 1] = n;
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
