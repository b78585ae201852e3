// SPDX-License-Identifier: Apache-2.0
//
// The Llama family once more, as its papers write it: loops over vectors of double, one sequence,
// keys and values of all positions kept in a list. It shares nothing with the library but the bytes
// of the model.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "models/tiny_model.h"

namespace plan_test {

using Vector = std::vector<double>;

class NaiveLlama {
 public:
  explicit NaiveLlama(const models_test::TinyModel& model) : model_(model), spec_(model.spec) {}

  // Logits of every token.
  std::vector<Vector> run(const std::vector<int32_t>& tokens) {
    std::vector<std::vector<Vector>> keys(spec_.layers), values(spec_.layers);
    std::vector<Vector> out;
    for (size_t position = 0; position < tokens.size(); ++position) {
      Vector x = row("token_embd.weight", tokens[position]);
      for (uint32_t l = 0; l < spec_.layers; ++l) {
        const std::string block = "blk." + std::to_string(l) + ".";
        add(&x,
            attention(block, norm(block + "attn_norm.weight", x), position, &keys[l], &values[l]));
        const Vector h = norm(block + "ffn_norm.weight", x);
        Vector gate = linear(block + "ffn_gate", h);
        const Vector up = linear(block + "ffn_up", h);
        for (size_t i = 0; i < gate.size(); ++i)
          gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        add(&x, linear(block + "ffn_down", gate));
      }
      const Vector h = norm("output_norm.weight", x);
      Vector logits(spec_.vocab);
      const std::string head = spec_.tied ? "token_embd.weight" : "output.weight";
      for (uint32_t v = 0; v < spec_.vocab; ++v) {
        const Vector w = row(head, static_cast<int32_t>(v));
        for (size_t i = 0; i < h.size(); ++i) logits[v] += w[i] * h[i];
      }
      out.push_back(std::move(logits));
    }
    return out;
  }

 private:
  const std::vector<float>& weight(const std::string& name) const {
    return model_.weights.at(name);
  }

  Vector row(const std::string& name, int32_t r) const {
    const std::vector<float>& w = weight(name);
    return Vector(w.begin() + static_cast<ptrdiff_t>(r) * spec_.embedding,
                  w.begin() + static_cast<ptrdiff_t>(r + 1) * spec_.embedding);
  }
  static void add(Vector* x, const Vector& y) {
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] += y[i];
  }
  Vector norm(const std::string& name, const Vector& x) const {
    double mean = 0;
    for (double v : x) mean += v * v / static_cast<double>(x.size());
    Vector y(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] / std::sqrt(mean + spec_.eps) * weight(name)[i];
    return y;
  }
  Vector linear(const std::string& name, const Vector& x) const {
    const std::vector<float>& w = weight(name + ".weight");
    Vector y(w.size() / x.size());
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t i = 0; i < x.size(); ++i) y[r] += w[r * x.size() + i] * x[i];
    }
    if (model_.weights.count(name + ".bias") != 0) {
      for (size_t r = 0; r < y.size(); ++r) y[r] += weight(name + ".bias")[r];
    }
    return y;
  }

  void rotate(Vector* x, size_t position) const {
    const size_t head_dim = spec_.head_dim(), rotated = spec_.rotated();
    for (size_t h = 0; h < x->size(); h += head_dim) {
      for (size_t i = 0; i < rotated / 2; ++i) {
        double angle = static_cast<double>(position) *
                       std::pow(static_cast<double>(spec_.rope_base),
                                -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
        if (spec_.rope_factors) angle /= weight("rope_freqs.weight")[i];
        const bool halves = spec_.architecture == "qwen2";
        double& a = (*x)[h + (halves ? i : 2 * i)];
        double& b = (*x)[h + (halves ? i + rotated / 2 : 2 * i + 1)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
    }
  }

  Vector attention(const std::string& block, const Vector& h, size_t position,
                   std::vector<Vector>* keys, std::vector<Vector>* values) const {
    Vector q = linear(block + "attn_q", h), k = linear(block + "attn_k", h);
    rotate(&q, position);
    rotate(&k, position);
    keys->push_back(k);
    values->push_back(linear(block + "attn_v", h));
    const size_t head_dim = spec_.head_dim(), group = spec_.heads / spec_.kv_heads;
    Vector mixed(q.size());
    for (size_t head = 0; head < spec_.heads; ++head) {
      const size_t qo = head * head_dim, ko = head / group * head_dim;
      Vector scores;
      double total = 0;
      for (const Vector& key : *keys) {
        double score = 0;
        for (size_t d = 0; d < head_dim; ++d) score += q[qo + d] * key[ko + d];
        scores.push_back(std::exp(score / std::sqrt(static_cast<double>(head_dim))));
        total += scores.back();
      }
      for (size_t t = 0; t < scores.size(); ++t) {
        for (size_t d = 0; d < head_dim; ++d)
          mixed[qo + d] += scores[t] / total * (*values)[t][ko + d];
      }
    }
    return linear(block + "attn_output", mixed);
  }

  const models_test::TinyModel& model_;
  const models_test::TinySpec& spec_;
};

}  // namespace plan_test
