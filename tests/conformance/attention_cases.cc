// SPDX-License-Identifier: Apache-2.0
//
// Cases of rotary embeddings, KV pages and attention.
#include <cmath>
#include <cstring>
#include <memory>

#include "conformance.h"
#include "core/float16.h"
#include "ops/validate.h"

namespace conformance {

using namespace lmn;
using lmn::ops::KernelTable;
using lmn::ops::Op;
using lmn::ops::RopeStyle;

namespace {

std::string style_name(RopeStyle style) {
  return style == RopeStyle::kHalves ? "halves" : "interleaved";
}

std::vector<float> angles(int64_t rows, int64_t rot_dim) {
  std::vector<float> out(static_cast<size_t>(rows * rot_dim));
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < rot_dim / 2; ++i) {
      const double angle =
          static_cast<double>(t) *
          std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rot_dim));
      out[static_cast<size_t>(t * rot_dim + i)] = static_cast<float>(std::cos(angle));
      out[static_cast<size_t>(t * rot_dim + rot_dim / 2 + i)] = static_cast<float>(std::sin(angle));
    }
  }
  return out;
}

// KV pages of one layer; `fill` is their content in float.
struct Pages {
  Bytes k, v;
  ops::KvLayer layer;
};
std::shared_ptr<Pages> make_pages(DType dtype, int64_t pages, int32_t page_tokens, int32_t kv_heads,
                                  int32_t head_dim, const std::vector<float>& fill) {
  const int64_t count = pages * page_tokens * kv_heads * head_dim;
  const int64_t element = dtype == DType::kF16 ? 2 : 4;
  auto p = std::make_shared<Pages>(Pages{Bytes(static_cast<size_t>(count * element)),
                                         Bytes(static_cast<size_t>(count * element)),
                                         {}});
  for (int64_t i = 0; i < count && !fill.empty(); ++i) {
    for (Bytes* bytes : {&p->k, &p->v}) {
      const float value = fill[static_cast<size_t>(bytes == &p->k ? i : count + i)];
      const uint16_t half = f32_to_f16(value);
      if (dtype == DType::kF16) std::memcpy(bytes->data() + 2 * i, &half, sizeof half);
      if (dtype == DType::kF32) std::memcpy(bytes->data() + 4 * i, &value, sizeof value);
    }
  }
  p->layer = {p->k.data(), p->v.data(), dtype, page_tokens, kv_heads, head_dim};
  return p;
}

// Where element d of a head of a slot lies (the layout of ops::KvLayer, written out once more).
float kv_element(const Pages& p, bool key, int64_t slot, int64_t head, int64_t d) {
  const ops::KvLayer& kv = p.layer;
  const int64_t page = slot / kv.page_tokens, token = slot % kv.page_tokens;
  const int64_t at =
      ((page * kv.kv_heads + head) * (key ? kv.head_dim : kv.page_tokens) + (key ? d : token)) *
          (key ? kv.page_tokens : kv.head_dim) +
      (key ? token : d);
  const std::byte* base = key ? p.k.data() : p.v.data();
  if (kv.dtype == DType::kF32) {
    float value;
    std::memcpy(&value, base + 4 * at, sizeof value);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, base + 2 * at, sizeof half);
  return f16_to_f32(half);
}

// Keys and values of the slots, row by row.
void append_slots(const Pages& p, const std::vector<int32_t>& slots, Range range,
                  std::vector<std::vector<float>>* rows) {
  for (int64_t t = 0; t < range.count; ++t) {
    for (bool key : {true, false}) {
      for (int64_t h = 0; h < p.layer.kv_heads; ++h) {
        for (int64_t d = 0; d < p.layer.head_dim; ++d) {
          (*rows)[static_cast<size_t>(t)].push_back(
              kv_element(p, key, slots[static_cast<size_t>(range.begin + t)], h, d));
        }
      }
    }
  }
}

std::vector<float> joined(const std::vector<std::vector<float>>& rows) {
  std::vector<float> out;
  for (const auto& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}

// Distinct slots in an order that is not ascending.
std::vector<int32_t> scattered(int64_t rows) {
  std::vector<int32_t> slots;
  for (int64_t t = 0; t < rows; ++t) slots.push_back(static_cast<int32_t>((t * 37 + 5) % 101));
  return slots;
}

}  // namespace

std::vector<Case> cases_of_RopeTable() {
  std::vector<Case> cases;
  for (int64_t rows : kRowCounts) {
    for (int64_t rot_dim : {2, 6, 64, 128}) {
      std::vector<int32_t> positions;
      std::vector<float> inv_freq;
      for (int64_t t = 0; t < rows; ++t) positions.push_back(static_cast<int32_t>(t * t * 31));
      for (int64_t i = 0; i < rot_dim / 2; ++i)
        inv_freq.push_back(
            std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(rot_dim)));
      Case c{"rows=" + std::to_string(rows) + " rot_dim=" + std::to_string(rot_dim), rows, 1e-7,
             nullptr};
      c.run = [=](const KernelTable& table, Range range, int parts) {
        std::vector<float> y(static_cast<size_t>(range.count * rot_dim));
        const ops::RopeTableArgs a{
            range.count, positions.data() + range.begin, inv_freq.data(), y.data(), rot_dim, 1.1f};
        run_parts(table, Op::kRopeTable, &a, parts);
        return y;
      };
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

std::vector<Case> cases_of_Rope() {
  std::vector<Case> cases;
  for (RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
    for (int64_t rows : kRowCounts) {
      for (auto [heads, head_dim, rot_dim] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
               {3, 64, 64}, {2, 32, 20}, {5, 128, 64}, {1, 8, 6}}) {
        const int64_t stride = heads * head_dim + 7;
        const auto x = Random(12).floats(rows * stride);
        const auto table_rows = angles(rows, rot_dim);
        Case c{style_name(style) + " rows=" + std::to_string(rows) +
                   " head_dim=" + std::to_string(head_dim) + " rot_dim=" + std::to_string(rot_dim),
               rows, 1e-6, nullptr};
        c.run = [=, heads = heads, head_dim = head_dim, rot_dim = rot_dim](const KernelTable& table,
                                                                           Range range, int parts) {
          std::vector<float> y(x.begin() + range.begin * stride,
                               x.begin() + (range.begin + range.count) * stride);
          const ops::RopeArgs a{range.count, y.data(), table_rows.data() + range.begin * rot_dim,
                                stride,      heads,    head_dim,
                                rot_dim,     style};
          run_parts(table, Op::kRope, &a, parts);
          return y;
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

std::vector<Case> cases_of_KvWrite() {
  std::vector<Case> cases;
  for (DType dtype : {DType::kF16, DType::kF32}) {
    for (int64_t rows : kRowCounts) {
      for (auto [kv_heads, head_dim, page] : std::vector<std::tuple<int32_t, int32_t, int32_t>>{
               {3, 64, 32}, {1, 24, 16}, {2, 12, 48}}) {
        const int64_t width = int64_t{kv_heads} * head_dim, stride = width + 5;
        const auto k = Random(13).floats(rows * stride), v = Random(14).floats(rows * stride);
        const auto slots = scattered(rows);
        Case c{std::string(info(dtype).name) + " rows=" + std::to_string(rows) +
                   " head_dim=" + std::to_string(head_dim) + " page=" + std::to_string(page),
               rows, 0.0, nullptr};
        c.run = [=, kv_heads = kv_heads, head_dim = head_dim, page = page](const KernelTable& table,
                                                                           Range range, int parts) {
          const auto pages = make_pages(dtype, 8, page, kv_heads, head_dim, {});
          const ops::KvWriteArgs a{range.count,
                                   k.data() + range.begin * stride,
                                   v.data() + range.begin * stride,
                                   stride,
                                   stride,
                                   slots.data() + range.begin,
                                   &pages->layer};
          run_parts(table, Op::kKvWrite, &a, parts);
          std::vector<std::vector<float>> out(static_cast<size_t>(range.count));
          append_slots(*pages, slots, range, &out);
          return joined(out);
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

std::vector<Case> cases_of_RopeKvWrite() {
  std::vector<Case> cases;
  for (RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
    for (DType dtype : {DType::kF16, DType::kF32}) {
      for (int64_t rows : kRowCounts) {
        for (auto [heads, kv_heads, head_dim, rot_dim] :
             std::vector<std::tuple<int64_t, int32_t, int32_t, int64_t>>{{9, 3, 64, 64},
                                                                         {4, 4, 32, 20}}) {
          const int64_t width = (heads + 2 * kv_heads) * head_dim;
          const auto x = Random(15).floats(rows * width);
          const auto table_rows = angles(rows, rot_dim);
          const auto slots = scattered(rows);
          // Keys are rounded to f16: where reference and kernel differ in the last bit of a float,
          // they may round apart.
          Case c{style_name(style) + " " + std::string(info(dtype).name) +
                     " rows=" + std::to_string(rows) + " rot_dim=" + std::to_string(rot_dim),
                 rows, dtype == DType::kF16 ? 1e-3 : 1e-6, nullptr};
          c.run = [=, heads = heads, kv_heads = kv_heads, head_dim = head_dim, rot_dim = rot_dim](
                      const KernelTable& table, Range range, int parts) {
            const auto pages = make_pages(dtype, 4, 32, kv_heads, head_dim, {});
            std::vector<float> y(x.begin() + range.begin * width,
                                 x.begin() + (range.begin + range.count) * width);
            const ops::RopeKvWriteArgs a{range.count,
                                         y.data(),
                                         table_rows.data() + range.begin * rot_dim,
                                         slots.data() + range.begin,
                                         &pages->layer,
                                         heads,
                                         rot_dim,
                                         style};
            run_parts(table, Op::kRopeKvWrite, &a, parts);
            std::vector<std::vector<float>> out(static_cast<size_t>(range.count));
            for (int64_t t = 0; t < range.count; ++t) {
              const float* q = y.data() + t * width;
              out[static_cast<size_t>(t)].assign(q, q + heads * head_dim);
            }
            append_slots(*pages, slots, range, &out);
            return joined(out);
          };
          cases.push_back(std::move(c));
        }
      }
    }
  }
  return cases;
}

namespace {

struct AttentionShape {
  DType dtype;
  int64_t heads;
  int32_t kv_heads, head_dim, page_tokens;
  // Sequences of the call: tokens before this step, and rows in it.
  std::vector<std::pair<int64_t, int64_t>> sequences;
};

void add_attention(std::vector<Case>* cases, const AttentionShape& s) {
  std::vector<int32_t> positions, index;
  int64_t table_stride = 1;
  for (const auto& [before, rows] : s.sequences) {
    table_stride = std::max(table_stride, (before + rows + s.page_tokens - 1) / s.page_tokens);
  }
  std::string name = std::string(info(s.dtype).name) + " heads=" + std::to_string(s.heads) + "/" +
                     std::to_string(s.kv_heads) + " head_dim=" + std::to_string(s.head_dim) +
                     " page=" + std::to_string(s.page_tokens);
  for (size_t i = 0; i < s.sequences.size(); ++i) {
    name +=
        " " + std::to_string(s.sequences[i].first) + "+" + std::to_string(s.sequences[i].second);
    for (int64_t t = 0; t < s.sequences[i].second; ++t) {
      positions.push_back(static_cast<int32_t>(s.sequences[i].first + t));
      index.push_back(static_cast<int32_t>(i));
    }
  }
  const int64_t rows = static_cast<int64_t>(positions.size()),
                count = static_cast<int64_t>(s.sequences.size());
  const int64_t pages = count * table_stride;
  std::vector<int32_t> blocks;
  for (int64_t i = 0; i < pages; ++i) blocks.push_back(static_cast<int32_t>(pages - 1 - i));
  const int64_t elements = pages * s.page_tokens * s.kv_heads * s.head_dim;
  std::vector<float> fill = Random(16).floats(2 * elements);
  const auto storage = make_pages(s.dtype, pages, s.page_tokens, s.kv_heads, s.head_dim, fill);
  // What lies past the last token of a sequence must not matter, NaN or not.
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end =
        s.sequences[static_cast<size_t>(i)].first + s.sequences[static_cast<size_t>(i)].second;
    for (int64_t p = end; p < table_stride * s.page_tokens; ++p) {
      const int64_t slot =
          int64_t{blocks[static_cast<size_t>(i * table_stride + p / s.page_tokens)]} *
              s.page_tokens +
          p % s.page_tokens;
      const int64_t page = slot / s.page_tokens, token = slot % s.page_tokens;
      for (int64_t h = 0; h < s.kv_heads; ++h) {
        for (int64_t d = 0; d < s.head_dim; ++d) {
          const int64_t base = (page * s.kv_heads + h) * s.head_dim * s.page_tokens;
          const int64_t k_at = base + d * s.page_tokens + token,
                        v_at = base + token * s.head_dim + d;
          const uint16_t half = 0x7E00;
          const float nan = NAN;
          const int64_t size = s.dtype == DType::kF16 ? 2 : 4;
          const void* from = s.dtype == DType::kF16 ? static_cast<const void*>(&half) : &nan;
          std::memcpy(storage->k.data() + k_at * size, from, static_cast<size_t>(size));
          std::memcpy(storage->v.data() + v_at * size, from, static_cast<size_t>(size));
        }
      }
    }
  }
  const int64_t width = s.heads * s.head_dim, stride = width + 2 * int64_t{s.kv_heads} * s.head_dim;
  const auto q = Random(17).floats(rows * stride);
  Case c{name, rows, 5e-6, nullptr};
  c.run = [=](const KernelTable& table, Range range, int parts) {
    std::vector<float> y(static_cast<size_t>(range.count * width));
    ops::AttentionArgs a{};
    a.rows = range.count;
    a.q = q.data() + range.begin * stride;
    a.q_stride = stride;
    a.kv = &storage->layer;
    a.positions = positions.data() + range.begin;
    a.sequence_index = index.data() + range.begin;
    a.block_tables = blocks.data();
    a.table_stride = table_stride;
    a.y = y.data();
    a.heads = s.heads;
    a.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    if (range.count > 0 && !ops::validate(a).ok()) return std::vector<float>();
    run_parts(table, Op::kAttention, &a, parts,
              table.scratch_bytes(s.head_dim, s.heads / s.kv_heads));
    return y;
  };
  cases->push_back(std::move(c));
}

}  // namespace

std::vector<Case> cases_of_Attention() {
  std::vector<Case> cases;
  for (DType dtype : {DType::kF16, DType::kF32}) {
    add_attention(&cases, {dtype, 9, 3, 64, 32, {}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{0, 1}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{100, 1}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{0, 64}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{31, 17}, {5, 1}, {0, 8}, {63, 1}}});
    add_attention(&cases, {dtype, 3, 3, 64, 32, {{10, 70}}});
    add_attention(&cases, {dtype, 14, 2, 64, 64, {{50, 17}, {33, 1}}});
    add_attention(&cases, {dtype, 4, 4, 80, 16, {{3, 20}, {30, 2}}});
    add_attention(&cases, {dtype, 8, 2, 128, 48, {{40, 9}, {47, 1}}});
    add_attention(&cases, {dtype, 2, 1, 256, 32, {{0, 5}}});
    add_attention(&cases, {dtype, 6, 2, 8, 16, {{20, 3}}});
    add_attention(&cases, {dtype, 6, 3, 24, 32, {{20, 30}}});
    add_attention(&cases, {dtype, 64, 1, 32, 32, {{20, 5}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{500, 2}, {0, 3}, {200, 1}, {201, 1}, {7, 1}}});
  }
  return cases;
}

}  // namespace conformance
