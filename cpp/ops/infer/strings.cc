// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/values.def: strings.
#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"
#include "ops/regex.h"

namespace lmn::ops {

Status infer_StringConcat(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  for (int i : {0, 1}) LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kString}));
  outputs[0].dtype = DType::kString;
  if (!node.ranked()) return {};
  LMN_RETURN_IF_ERROR(broadcast_all(node, &outputs[0].shape));
  return check_elements(node, outputs[0].shape);
}

Status infer_StringSplit(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kString}));
  outputs[0].dtype = DType::kString;
  if (outputs.size() > 1) outputs[1].dtype = DType::kI64;
  if (!node.ranked()) return {};
  Shape out = node.shape(0);
  if (outputs.size() > 1) outputs[1].shape = out;
  if (out.rank == kMaxRank) return node.unsupported("rank above %d", kMaxRank);
  out[out.rank++] = kUnknownSize;
  outputs[0].shape = out;
  return {};
}

Status infer_StringNormalizer(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kString}));
  const std::string_view action = node.text("case_change_action", "NONE");
  if (action != "NONE" && action != "LOWER" && action != "UPPER") {
    return node.fail("case_change_action is '%.*s'; it is NONE, LOWER or UPPER",
                     static_cast<int>(std::min<size_t>(action.size(), 64)), action.data());
  }
  outputs[0].dtype = DType::kString;
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  if (x.rank == 1) {
    outputs[0].shape = Shape{kUnknownSize};
  } else if (x.rank == 2 && (x[0] < 0 || x[0] == 1)) {
    outputs[0].shape = Shape{1, kUnknownSize};
  } else {
    return node.fail("the input is %s; it is [C] or [1, C]", x.to_string().c_str());
  }
  return {};
}

Status infer_RegexFullMatch(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kString}));
  const Result<Regex> regex = Regex::parse(node.text("pattern", ""));
  if (!regex.ok()) {
    return node.unsupported("%s", std::string(regex.status().message()).c_str());
  }
  outputs[0].dtype = DType::kBool;
  outputs[0].shape = node.shape(0);
  return {};
}

// A pool lists its 1-grams, then its 2-grams, and so on: those of i + 1 items begin at
// ngram_counts[i].
Status infer_TfIdfVectorizer(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  const Ints *counts = node.integers("ngram_counts"), *indexes = node.integers("ngram_indexes"),
             *integers = node.integers("pool_int64s");
  const Strings* texts = node.texts("pool_strings");
  const Floats* weights = node.numbers("weights");
  const bool is_text = texts != nullptr && !texts->empty();
  if (is_text == (integers != nullptr && !integers->empty())) {
    return node.fail("one of pool_int64s and pool_strings is to be given");
  }
  if (is_text) {
    LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kString}));
  } else {
    LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kI32, DType::kI64}));
  }
  const std::string_view mode = node.text("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") {
    return node.fail("mode is TF, IDF or TFIDF");
  }
  const int64_t least = node.integer("min_gram_length", 0),
                most = node.integer("max_gram_length", 0),
                skips = node.integer("max_skip_count", 0);
  if (least < 1 || most < least || skips < 0) {
    return node.fail("n-grams of %" PRId64 " to %" PRId64 " items with %" PRId64 " skips", least,
                     most, skips);
  }
  if (counts == nullptr || counts->empty() || indexes == nullptr || indexes->empty()) {
    return node.fail("ngram_counts and ngram_indexes are to be given");
  }
  if (static_cast<uint64_t>(most) > counts->size()) {
    return node.fail("max_gram_length is %" PRId64 ", and ngram_counts has %zu entries", most,
                     counts->size());
  }
  const auto items = static_cast<int64_t>(is_text ? texts->size() : integers->size());
  int64_t grams = 0;
  for (size_t i = 0; i < counts->size(); ++i) {
    const int64_t begin = (*counts)[i], end = i + 1 < counts->size() ? (*counts)[i + 1] : items;
    const auto length = static_cast<int64_t>(i) + 1;
    if (begin < 0 || begin > end || end > items || (end - begin) % length != 0) {
      return node.fail("the %" PRId64 "-grams are items %" PRId64 " to %" PRId64
                       " of a pool of %" PRId64,
                       length, begin, end, items);
    }
    grams += (end - begin) / length;
  }
  if (grams != static_cast<int64_t>(indexes->size())) {
    return node.fail("the pool has %" PRId64 " n-grams, and ngram_indexes %zu entries", grams,
                     indexes->size());
  }
  int64_t width = 0;
  for (const int64_t index : *indexes) {
    if (index < 0 || index >= kMaxElements)
      return node.fail("an n-gram's index is %" PRId64, index);
    width = std::max(width, index + 1);
  }
  if (weights != nullptr && !weights->empty() && weights->size() != indexes->size()) {
    return node.fail("%zu weights for %zu n-grams", weights->size(), indexes->size());
  }
  outputs[0].dtype = DType::kF32;
  if (!node.ranked()) return {};
  const Shape& x = node.shape(0);
  if (x.rank > 2) return node.fail("the input has rank %d; it is [C] or [N, C]", x.rank);
  outputs[0].shape = x.rank == 2 ? Shape{x[0], width} : Shape{width};
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
