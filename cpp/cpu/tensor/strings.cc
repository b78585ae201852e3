// SPDX-License-Identifier: Apache-2.0
//
// Evaluation of tensor_ops/values.def: strings.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "cpu/tensor/broadcast.h"
#include "cpu/tensor/dispatch.h"
#include "ops/regex.h"
#include "ops/unicode.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

constexpr std::string_view kBlanks = " \t\n\v\f\r";

// Parts of `text` between delimiters, or, without one, between runs of blanks, of which none are at
// its ends. Of more than most + 1 parts, the last is what is left.
void split(std::string_view text, std::string_view delimiter, uint64_t most,
           std::vector<std::string_view>* parts) {
  parts->clear();
  if (delimiter.empty()) {
    const size_t end = text.find_last_not_of(kBlanks);
    text = text.substr(0, end == text.npos ? 0 : end + 1);
    for (;;) {
      text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
      if (text.empty()) return;
      const size_t stop = parts->size() < most ? text.find_first_of(kBlanks) : text.npos;
      parts->push_back(text.substr(0, stop));
      text.remove_prefix(std::min(stop, text.size()));
    }
  }
  for (;;) {
    const size_t stop = parts->size() < most ? text.find(delimiter) : text.npos;
    parts->push_back(text.substr(0, stop));
    if (stop == text.npos) return;
    text.remove_prefix(stop + delimiter.size());
  }
}

}  // namespace

Status evaluate_StringConcat(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor &x = context.tensor(0), &y = context.tensor(1);
  ops::TensorType type;
  LMN_RETURN_IF_ERROR(ops::infer(node, {&type, 1}));
  LMN_ASSIGN_OR_RETURN(std::string * out, context.make<std::string>(0, DType::kString, type.shape));
  const auto walk = make_walk<2>(type.shape, {&x.shape, &y.shape});
  if (type.shape.elements() == 0) return {};
  for (int64_t row = 0; row < walk.rows(); ++row) {
    const auto [at_x, at_y] = walk.offsets(row);
    for (int64_t i = 0; i < walk.inner(); ++i) {
      *out++ = x.as<std::string>()[at_x + i * walk.inner_stride(0)] +
               y.as<std::string>()[at_y + i * walk.inner_stride(1)];
    }
  }
  return {};
}

Status evaluate_StringSplit(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor& x = context.tensor(0);
  const std::string* text = x.as<std::string>();
  const int64_t count = x.shape.elements();
  const std::string_view delimiter = node.text("delimiter", "");
  const int64_t maxsplit = node.integer("maxsplit", -1);
  const uint64_t most = maxsplit < 0 ? ~uint64_t{0} : static_cast<uint64_t>(maxsplit);
  std::vector<std::string_view> parts;
  std::vector<int64_t> lengths;
  int64_t width = 0;
  for (int64_t i = 0; i < count; ++i) {
    split(text[i], delimiter, most, &parts);
    lengths.push_back(static_cast<int64_t>(parts.size()));
    width = std::max(width, lengths.back());
  }
  Shape shape = x.shape;
  shape[shape.rank++] = width;
  LMN_ASSIGN_OR_RETURN(std::string* const out, context.make<std::string>(0, DType::kString, shape));
  for (int64_t i = 0; i < count; ++i) {
    split(text[i], delimiter, most, &parts);
    std::string* const rest = std::copy(parts.begin(), parts.end(), out + i * width);
    std::fill(rest, out + (i + 1) * width, std::string());
  }
  if (node.outputs() < 2) return {};
  LMN_ASSIGN_OR_RETURN(int64_t* const numbers, context.make<int64_t>(1, DType::kI64, x.shape));
  std::copy(lengths.begin(), lengths.end(), numbers);
  return {};
}

// Case is mapped code point by code point, whatever the locale.
Status evaluate_StringNormalizer(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor& x = context.tensor(0);
  const bool exact = node.integer("is_case_sensitive", 0) != 0;
  const std::string_view action = node.text("case_change_action", "NONE");
  std::unordered_set<std::string> stops;
  if (const ops::Strings* words = node.texts("stopwords")) {
    for (const std::string& word : *words) stops.insert(exact ? word : ops::to_lower(word));
  }
  std::vector<std::string> kept;
  const int64_t count = x.shape.elements();
  for (int64_t i = 0; i < count; ++i) {
    const std::string& word = x.as<std::string>()[i];
    if (!stops.empty() && stops.count(exact ? word : ops::to_lower(word)) != 0) continue;
    kept.push_back(action == "LOWER"   ? ops::to_lower(word)
                   : action == "UPPER" ? ops::to_upper(word)
                                       : word);
  }
  if (kept.empty()) kept.emplace_back();
  const auto n = static_cast<int64_t>(kept.size());
  const Shape shape = x.shape.rank == 2 ? Shape{1, n} : Shape{n};
  LMN_ASSIGN_OR_RETURN(std::string* const out, context.make<std::string>(0, DType::kString, shape));
  std::move(kept.begin(), kept.end(), out);
  return {};
}

Status evaluate_RegexFullMatch(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const Tensor& x = context.tensor(0);
  LMN_ASSIGN_OR_RETURN(const ops::Regex regex, ops::Regex::parse(node.text("pattern", "")));
  LMN_ASSIGN_OR_RETURN(uint8_t* const out, context.make<uint8_t>(0, DType::kBool, x.shape));
  const int64_t count = x.shape.elements();
  for (int64_t i = 0; i < count; ++i) out[i] = regex.full_match(x.as<std::string>()[i]);
  return {};
}

namespace {

// N-grams as paths of a tree: from node `parent`, item `token` leads to a node. Nodes are numbered
// from 0, the root; each may be the end of an n-gram, which counts at a coordinate.
struct NgramTree {
  struct Edge {
    int32_t parent;
    int64_t token;
    bool operator==(const Edge&) const = default;
  };
  struct Hash {
    size_t operator()(const Edge& edge) const {
      uint64_t x = static_cast<uint64_t>(edge.token) * 0x9E3779B97F4A7C15u +
                   static_cast<uint64_t>(edge.parent);
      x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
      return static_cast<size_t>(x ^ (x >> 32));
    }
  };
  std::unordered_map<Edge, int32_t, Hash> edges;
  std::vector<int64_t> coordinate{-1};             // of the n-gram that ends at a node; -1: none
  std::unordered_map<std::string, int64_t> words;  // tokens of strings

  int32_t step(int32_t parent, int64_t token) const {  // -1: no n-gram goes on like this
    const auto found = edges.find({parent, token});
    return found == edges.end() ? -1 : found->second;
  }
  int32_t grow(int32_t parent, int64_t token) {
    const auto [at, is_new] = edges.emplace(Edge{parent, token}, 0);
    if (is_new) {
      at->second = static_cast<int32_t>(coordinate.size());
      coordinate.push_back(-1);
    }
    return at->second;
  }
};

NgramTree make_tree(const ops::TensorNode& node, int64_t least, int64_t most) {
  const ops::Ints &counts = *node.integers("ngram_counts"), *pool = node.integers("pool_int64s"),
                  &indexes = *node.integers("ngram_indexes");
  const ops::Strings* words = node.texts("pool_strings");
  const bool is_text = words != nullptr && !words->empty();
  const size_t items = is_text ? words->size() : pool->size();
  NgramTree tree;
  size_t gram = 0;
  for (size_t n = 1; n <= counts.size(); ++n) {
    const auto begin = static_cast<size_t>(counts[n - 1]);
    const size_t end = n < counts.size() ? static_cast<size_t>(counts[n]) : items;
    const auto length = static_cast<int64_t>(n);
    for (size_t at = begin; at < end; at += n, ++gram) {
      if (length < least || length > most) continue;
      int32_t place = 0;
      for (size_t i = at; i < at + n; ++i) {
        int64_t token;
        if (is_text) {
          token = tree.words.emplace((*words)[i], static_cast<int64_t>(tree.words.size()))
                      .first->second;
        } else {
          token = (*pool)[i];
        }
        place = tree.grow(place, token);
      }
      tree.coordinate[static_cast<size_t>(place)] = indexes[gram];
    }
  }
  return tree;
}

// Counts the n-grams of one row of tokens. 1-grams do not depend on what is skipped and are counted
// once.
template <typename TokenAt>
void count_ngrams(const NgramTree& tree, int64_t columns, int64_t least, int64_t most,
                  int64_t skips, const TokenAt& token_at, float* counts) {
  for (int64_t skip = 0; skip <= skips && skip < std::max<int64_t>(columns, 1); ++skip) {
    const int64_t distance = skip + 1,
                  first_counted = skip == 0 ? least : std::max<int64_t>(2, least);
    if (first_counted > most) return;
    for (int64_t start = 0; start < columns; ++start) {
      int32_t place = 0;
      int64_t length = 1;
      for (int64_t at = start; at < columns && length <= most; at += distance, ++length) {
        const int64_t token = token_at(at);
        place = tree.step(place, token);
        if (place < 0) break;
        const int64_t coordinate = tree.coordinate[static_cast<size_t>(place)];
        if (coordinate >= 0 && length >= first_counted) counts[coordinate] += 1;
      }
    }
  }
}

}  // namespace

Status bind_TfIdfVectorizer(const Binding& b) {
  const Shape x = b.node.shape(0);
  const int64_t columns = x.last(), rows = x.rank == 2 ? x[0] : 1,
                width = b.outputs[0].shape.last();
  const int64_t least = b.node.integer("min_gram_length", 1),
                most = b.node.integer("max_gram_length", 1),
                skips = b.node.integer("max_skip_count", 0);
  const NgramTree tree = make_tree(b.node, least, most);
  const std::string_view mode = b.node.text("mode", "TF");
  const bool once = mode == "IDF";
  std::vector<float> weights;  // of the coordinates
  const ops::Floats* given = b.node.numbers("weights");
  if (mode != "TF" && given != nullptr && !given->empty()) {
    weights.resize(static_cast<size_t>(width));
    const ops::Ints& indexes = *b.node.integers("ngram_indexes");
    for (size_t i = 0; i < given->size(); ++i) {
      weights[static_cast<size_t>(indexes[i])] = (*given)[i];
    }
  }
  const DType dtype = b.node.dtype(0);
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(rows, worker);
    for (int64_t row = begin; row < end; ++row) {
      float* out = io.output<float>(0) + row * width;
      std::fill_n(out, width, 0.0f);
      const auto count = [&](const auto& token_at) {
        count_ngrams(tree, columns, least, most, skips, token_at, out);
      };
      if (dtype == DType::kString) {
        const std::string* text = io.input<std::string>(0) + row * columns;
        count([&](int64_t i) {
          const auto found = tree.words.find(text[i]);
          return found == tree.words.end() ? int64_t{-1} : found->second;  // -1 is no word's
        });
      } else if (dtype == DType::kI32) {
        const int32_t* values = io.input<int32_t>(0) + row * columns;
        count([&](int64_t i) { return int64_t{values[i]}; });
      } else {
        const int64_t* values = io.input<int64_t>(0) + row * columns;
        count([&](int64_t i) { return values[i]; });
      }
      for (int64_t i = 0; once && i < width; ++i) out[i] = out[i] > 0 ? 1.0f : 0.0f;
      for (int64_t i = 0; !weights.empty() && i < width; ++i) {
        out[i] *= weights[static_cast<size_t>(i)];
      }
    }
  });
  return {};
}

}  // namespace lmn::cpu
