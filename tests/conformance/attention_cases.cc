// SPDX-License-Identifier: Apache-2.0
//
// Cases of rotary embeddings, KV pages and attention.
#include <algorithm>
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

// KV pages of one layer.
struct Pages {
  Bytes k, v;
  ops::KvLayer layer;
};
std::shared_ptr<Pages> make_pages(DType dtype, int64_t pages, int32_t page_tokens, int32_t kv_heads,
                                  int32_t head_dim) {
  const auto bytes =
      static_cast<size_t>(row_bytes(dtype, pages * page_tokens * kv_heads * head_dim));
  auto p = std::make_shared<Pages>(Pages{Bytes(bytes), Bytes(bytes), {}});
  p->layer = {p->k.data(), p->v.data(), dtype, page_tokens, kv_heads, head_dim};
  return p;
}

// Where element d of a head of a slot lies, and in q8_0 its block's scale (the layout of
// ops::KvLayer, written out once more).
struct Place {
  std::byte* element;
  std::byte* scale;
};
Place place_of(Pages* p, bool key, int64_t slot, int64_t head, int64_t d) {
  const ops::KvLayer& kv = p->layer;
  const int64_t page = slot / kv.page_tokens, token = slot % kv.page_tokens;
  const int64_t elements = int64_t{kv.page_tokens} * kv.head_dim;
  std::byte* base =
      (key ? p->k : p->v).data() + (page * kv.kv_heads + head) * row_bytes(kv.dtype, elements);
  const int64_t size = kv.dtype == DType::kF32 ? 4 : kv.dtype == DType::kF16 ? 2 : 1;
  return {base + (key ? d * kv.page_tokens + token : token * kv.head_dim + d) * size,
          base + elements + (d / 32 * kv.page_tokens + token) * 2};
}

float half_at(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return f16_to_f32(half);
}

float kv_element(Pages* p, bool key, int64_t slot, int64_t head, int64_t d) {
  const Place at = place_of(p, key, slot, head, d);
  float value;
  switch (p->layer.dtype) {
    case DType::kF32:
      std::memcpy(&value, at.element, sizeof value);
      return value;
    case DType::kF16:
      return half_at(at.element);
    default:
      return half_at(at.scale) * static_cast<float>(static_cast<int8_t>(*at.element));
  }
}

// In q8_0 the value becomes a byte and its block's scale, which all of a block overwrite in turn.
void set_kv_element(Pages* p, bool key, int64_t slot, int64_t head, int64_t d, float value) {
  const Place at = place_of(p, key, slot, head, d);
  const uint16_t half = f32_to_f16(p->layer.dtype == DType::kF16 ? value : 0.01f * (value + 9.0f));
  const float byte = 12.0f * value;
  switch (p->layer.dtype) {
    case DType::kF32:
      std::memcpy(at.element, &value, sizeof value);
      return;
    case DType::kF16:
      std::memcpy(at.element, &half, sizeof half);
      return;
    default:
      *at.element = static_cast<std::byte>(std::isnan(byte) ? 1 : static_cast<int>(byte));
      std::memcpy(at.scale, &half, sizeof half);
  }
}

// Keys and values of the slots, row by row.
void append_slots(Pages* p, const std::vector<int32_t>& slots, Range range,
                  std::vector<std::vector<float>>* rows) {
  for (int64_t t = 0; t < range.count; ++t) {
    for (bool key : {true, false}) {
      for (int64_t h = 0; h < p->layer.kv_heads; ++h) {
        for (int64_t d = 0; d < p->layer.head_dim; ++d) {
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

// Where kernels are queued, rows of slot -1, which write nothing, fill a step up.
constexpr int64_t kFillers = 2;
std::vector<int32_t> filled_slots(const KernelTable& table, const std::vector<int32_t>& slots,
                                  Range range) {
  std::vector<int32_t> out(slots.begin() + range.begin, slots.begin() + range.begin + range.count);
  if (table.workspace_bytes != nullptr) out.resize(out.size() + kFillers, -1);
  return out;
}

// Whether pages that were zero have something in slots that are not among these.
bool others_written(Pages* p, const std::vector<int32_t>& slots) {
  const auto total = static_cast<int64_t>(p->k.size()) /
                     row_bytes(p->layer.dtype, int64_t{p->layer.kv_heads} * p->layer.head_dim);
  for (int32_t slot = 0; slot < total; ++slot) {
    if (std::find(slots.begin(), slots.end(), slot) != slots.end()) continue;
    for (int64_t i = 0; i < p->layer.kv_heads * p->layer.head_dim; ++i) {
      for (bool key : {true, false}) {
        const int64_t d = p->layer.head_dim;
        if (kv_element(p, key, slot, i / d, i % d) != 0) return true;
      }
    }
  }
  return false;
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
  for (DType dtype : {DType::kF16, DType::kF32, DType::kQ8_0}) {
    for (int64_t rows : kRowCounts) {
      for (auto [kv_heads, head_dim, page] : std::vector<std::tuple<int32_t, int32_t, int32_t>>{
               {3, 64, 32}, {1, 24, 16}, {2, 12, 48}, {2, 96, 16}}) {
        if (dtype == DType::kQ8_0 && head_dim % 32 != 0) continue;
        const int64_t width = int64_t{kv_heads} * head_dim, stride = width + 5;
        auto k = Random(13).floats((rows + kFillers) * stride),
             v = Random(14).floats((rows + kFillers) * stride);
        // A row whose scales are the smallest float16 numbers or 0, a row of zeros, and a NaN.
        for (int64_t i = 0; i < stride && rows > 4; ++i) {
          k[static_cast<size_t>(2 * stride + i)] *= i < 32 ? 1e-6f : i < 64 ? 2.3e-5f : 1e-2f;
          v[static_cast<size_t>(3 * stride + i)] = 0;
        }
        if (rows > 4) v[static_cast<size_t>(4 * stride + 7)] = NAN;
        const auto slots = scattered(rows);
        Case c{std::string(info(dtype).name) + " rows=" + std::to_string(rows) +
                   " head_dim=" + std::to_string(head_dim) + " page=" + std::to_string(page),
               rows, 0.0, nullptr};
        c.run = [=, kv_heads = kv_heads, head_dim = head_dim, page = page](const KernelTable& table,
                                                                           Range range, int parts) {
          const auto pages = make_pages(dtype, 8, page, kv_heads, head_dim);
          const auto step = filled_slots(table, slots, range);
          const ops::KvWriteArgs a{static_cast<int64_t>(step.size()),
                                   k.data() + range.begin * stride,
                                   v.data() + range.begin * stride,
                                   stride,
                                   stride,
                                   step.data(),
                                   &pages->layer};
          run_parts(table, Op::kKvWrite, &a, parts);
          if (others_written(pages.get(), step)) return std::vector<float>();
          std::vector<std::vector<float>> out(static_cast<size_t>(range.count));
          append_slots(pages.get(), slots, range, &out);
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
    for (DType dtype : {DType::kF16, DType::kF32, DType::kQ8_0}) {
      for (int64_t rows : kRowCounts) {
        for (auto [heads, kv_heads, head_dim, rot_dim] :
             std::vector<std::tuple<int64_t, int32_t, int32_t, int64_t>>{{9, 3, 64, 64},
                                                                         {4, 4, 32, 20}}) {
          const int64_t width = (heads + 2 * kv_heads) * head_dim;
          const auto x = Random(15).floats((rows + kFillers) * width);
          const auto table_rows = angles(rows + kFillers, rot_dim);
          const auto slots = scattered(rows);
          // Keys are rounded to f16, or to a step of a 127th: where reference and kernel differ in
          // the last bit of a float, they may round apart.
          Case c{style_name(style) + " " + std::string(info(dtype).name) +
                     " rows=" + std::to_string(rows) + " rot_dim=" + std::to_string(rot_dim),
                 rows,
                 dtype == DType::kF16   ? 1e-3
                 : dtype == DType::kF32 ? 1e-6
                                        : 1.0 / 127,
                 nullptr};
          c.run = [=, heads = heads, kv_heads = kv_heads, head_dim = head_dim, rot_dim = rot_dim](
                      const KernelTable& table, Range range, int parts) {
            const auto pages = make_pages(dtype, 4, 32, kv_heads, head_dim);
            const auto step = filled_slots(table, slots, range);
            const auto count = static_cast<int64_t>(step.size());
            std::vector<float> y(x.begin() + range.begin * width,
                                 x.begin() + (range.begin + count) * width);
            const ops::RopeKvWriteArgs a{
                count,       y.data(),      table_rows.data() + range.begin * rot_dim,
                step.data(), &pages->layer, heads,
                rot_dim,     style};
            run_parts(table, Op::kRopeKvWrite, &a, parts);
            if (others_written(pages.get(), step)) return std::vector<float>();
            std::vector<std::vector<float>> out(static_cast<size_t>(range.count));
            for (int64_t t = 0; t < range.count; ++t) {
              const float* q = y.data() + t * width;
              out[static_cast<size_t>(t)].assign(q, q + heads * head_dim);
            }
            append_slots(pages.get(), slots, range, &out);
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

// How many rows, from the first, are each the only one of their sequence.
int64_t leading_single_rows(const int32_t* sequence, int64_t rows) {
  int64_t n = 0;
  while (n < rows && (n + 1 == rows || sequence[n + 1] != sequence[n])) ++n;
  return n;
}

// Where kernels are queued: that rows of position -1, the last, are zeros, and, if asked, that all
// are the same bits whatever the queue says of them: memory for the partial
// results of one row at a time or of none, a longer context than there is, rows that may have
// company, and fillers that have none.
bool same_without_hints(const KernelTable& table, ops::AttentionArgs a, const WorkerMemory& given,
                        bool all, const std::vector<float>& y) {
  const int64_t width = a.heads * a.kv->head_dim;
  if (!std::all_of(y.end() - kFillers * width, y.end(), [](float v) { return v == 0; }))
    return false;
  if (!all || a.rows < 3 + kFillers) return true;
  const ops::WorkspaceRequest& w = given.workspace;
  std::vector<WorkerMemory> others(4, given);
  others[0].workspace_limit = table.workspace_bytes({1, w.heads, w.head_dim, w.context});
  others[1].workspace_limit = 0;
  others[2].workspace.context = 2 * w.context + 777;
  others[3].single_rows = given.single_rows == a.rows - kFillers ? a.rows : given.single_rows / 2;
  for (const WorkerMemory& memory : others) {
    std::vector<float> again(y.size(), NAN);
    a.y = again.data();
    run_parts(table, Op::kPagedAttention, &a, 1, memory);
    if (std::memcmp(again.data(), y.data(), y.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

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
  const auto storage = make_pages(s.dtype, pages, s.page_tokens, s.kv_heads, s.head_dim);
  Random random(16);
  const auto fill_slot = [&](int64_t slot, bool nan) {
    for (bool key : {true, false}) {
      for (int64_t h = 0; h < s.kv_heads; ++h) {
        for (int64_t d = 0; d < s.head_dim; ++d)
          set_kv_element(storage.get(), key, slot, h, d, nan ? NAN : random.uniform());
      }
    }
  };
  for (int64_t slot = 0; slot < pages * s.page_tokens; ++slot) fill_slot(slot, false);
  // What lies past the last token of a sequence must not matter, NaN or not.
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end =
        s.sequences[static_cast<size_t>(i)].first + s.sequences[static_cast<size_t>(i)].second;
    for (int64_t p = end; p < table_stride * s.page_tokens; ++p) {
      const int64_t slot =
          int64_t{blocks[static_cast<size_t>(i * table_stride + p / s.page_tokens)]} *
              s.page_tokens +
          p % s.page_tokens;
      fill_slot(slot, true);
    }
  }
  const int64_t width = s.heads * s.head_dim, stride = width + 2 * int64_t{s.kv_heads} * s.head_dim;
  const auto q = Random(17).floats((rows + kFillers) * stride);
  Case c{name, rows, 5e-6, nullptr};
  if (s.dtype != DType::kF32) c.half_tolerance = 2e-3;
  c.only_fast = kSlowed && rows * s.heads > 300;
  const int64_t work = table_stride * s.page_tokens * rows;
  c.run = [=](const KernelTable& table, Range range, int parts) {
    const bool queued = table.workspace_bytes != nullptr;
    const auto part_of = [&](const std::vector<int32_t>& all) {
      std::vector<int32_t> out(all.begin() + range.begin, all.begin() + range.begin + range.count);
      if (queued) out.resize(out.size() + kFillers, -1);  // rows that get zeros
      return out;
    };
    const auto step_positions = part_of(positions), step_index = part_of(index);
    ops::AttentionArgs a{};
    a.rows = static_cast<int64_t>(step_positions.size());
    std::vector<float> y(static_cast<size_t>(a.rows * width), NAN);
    a.q = q.data() + range.begin * stride;
    a.q_stride = stride;
    a.kv = &storage->layer;
    a.positions = step_positions.data();
    a.sequence_index = step_index.data();
    a.block_tables = blocks.data();
    a.table_stride = table_stride;
    a.y = y.data();
    a.heads = s.heads;
    a.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    if (a.rows > 0 && !ops::validate(a).ok()) return std::vector<float>();
    const int64_t group = s.heads / s.kv_heads;
    const size_t scratch = table.scratch_bytes(s.head_dim, group, 0);
    WorkerMemory memory{scratch};
    const int64_t context = table_stride * s.page_tokens;
    memory.workspace = {a.rows, s.heads, s.head_dim, context};
    memory.single_rows = leading_single_rows(a.sequence_index, range.count);
    run_parts(table, Op::kPagedAttention, &a, parts, memory);
    const bool all = range.count == rows && work < 60000;
    if (queued && !same_without_hints(table, a, memory, all, y)) return std::vector<float>();
    if (table.fuses_quantize && width % 32 == 0) {
      const DType type = range.count % 2 == 0 ? DType::kQA16 : DType::kQA8;
      // Together with Quantize, the bytes that it gives alone.
      std::vector<float> again(y.size());
      Bytes both(static_cast<size_t>(a.rows * row_bytes(type, width))), apart(both.size());
      ops::AttentionArgs with = a;
      with.y = again.data();
      with.y_quantized = both.data();
      with.y_quantized_type = type;
      run_parts(table, Op::kPagedAttention, &with, parts, memory);
      const ops::QuantizeArgs alone{a.rows, y.data(), {apart.data(), 0}, width, type};
      run_parts(table, Op::kQuantize, &alone, parts);
      if (again != y || std::memcmp(both.data(), apart.data(), both.size()) != 0)
        return again.assign(1, NAN), again;  // of a length that the check refuses
    }
    y.resize(static_cast<size_t>(range.count * width));
    // With memory in common the same bits, whoever is last, and again with what a call leaves in
    // it.
    Bytes shared(table.shared_bytes(s.head_dim, group, parts));
    for (bool backwards : {false, true}) {
      if (shared.size() == 0) break;
      std::vector<float> again(y.size());
      a.y = again.data();
      run_parts(table, Op::kPagedAttention, &a, parts, {scratch, &shared, backwards});
      if (!y.empty() && std::memcmp(again.data(), y.data(), y.size() * sizeof(float)) != 0)
        return again.assign(1, NAN), again;  // of a length that the check refuses
    }
    return y;
  };
  cases->push_back(std::move(c));
}

// Steps of both kinds of rows, and chunks that attend to several splits.
void add_mixed_steps(std::vector<Case>* cases, DType dtype) {
  add_attention(cases, {dtype, 9, 3, 64, 32, {{300, 1}, {90, 1}, {600, 1}, {250, 40}, {129, 9}}});
  add_attention(cases, {dtype, 4, 2, 128, 32, {{240, 70}}});
  add_attention(cases, {dtype, 2, 1, 256, 16, {{120, 140}}});
  add_attention(cases, {dtype, 72, 1, 64, 48, {{200, 1}, {20, 3}}});
}

}  // namespace

std::vector<Case> cases_of_PagedAttention() {
  std::vector<Case> cases;
  for (DType dtype : {DType::kF16, DType::kF32, DType::kQ8_0}) {
    add_attention(&cases, {dtype, 9, 3, 64, 32, {}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{0, 1}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{100, 1}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{0, 64}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{31, 17}, {5, 1}, {0, 8}, {63, 1}}});
    add_attention(&cases, {dtype, 3, 3, 64, 32, {{10, 70}}});
    add_attention(&cases, {dtype, 14, 2, 64, 64, {{50, 17}, {33, 1}}});
    add_attention(&cases, {dtype, 8, 2, 128, 48, {{40, 9}, {47, 1}}});
    add_attention(&cases, {dtype, 2, 1, 256, 32, {{0, 5}}});
    add_attention(&cases, {dtype, 4, 4, 96, 16, {{3, 20}, {30, 2}}});
    add_attention(&cases, {dtype, 64, 1, 32, 32, {{20, 5}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{500, 2}, {0, 3}, {200, 1}, {201, 1}, {7, 1}}});
    // Several splits of a context; cut between workers where a row is alone.
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{511, 1}, {512, 1}, {1300, 1}}});
    add_attention(&cases, {dtype, 9, 3, 64, 32, {{1020, 12}, {1530, 1}}});
    cases.back().only_fast = true;
    add_attention(&cases, {dtype, 2, 1, 32, 32, {{16382, 4}}});  // splits of 512, then of 1024
    cases.back().only_fast = kSlowed || dtype != DType::kF16;
    if (dtype != DType::kF32) add_mixed_steps(&cases, dtype);
    if (dtype == DType::kQ8_0) continue;  // heads of whole blocks
    add_attention(&cases, {dtype, 4, 4, 80, 16, {{3, 20}, {30, 2}}});
    add_attention(&cases, {dtype, 6, 2, 8, 16, {{20, 3}}});
    add_attention(&cases, {dtype, 6, 3, 24, 32, {{20, 30}}});
  }
  return cases;
}

}  // namespace conformance
