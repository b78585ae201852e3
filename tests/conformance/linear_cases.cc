// SPDX-License-Identifier: Apache-2.0
//
// Cases of the operators that read packed matrices.
#include <algorithm>
#include <cstring>
#include <memory>

#include "conformance.h"
#include "ops/dequantize.h"
#include "ops/reference.h"
#include "ops/validate.h"

namespace conformance {

using namespace lmn;
using lmn::ops::KernelTable;
using lmn::ops::Op;

namespace {

const std::vector<DType> kWeightTypes = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                                         DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

struct LinearShape {
  std::vector<std::pair<DType, int64_t>> pieces;  // type and output channels
  int64_t columns = 0;
  int64_t rows = 0;
  DType input = DType::kF32;
  bool interleaved = false;
  bool bias = false;
  bool residual = false;
  bool in_place = false;  // the residual is y itself
  bool largest = false;   // all integers, of weights and activations, are the largest there are
};

struct LinearData {
  LinearShape shape;
  std::vector<std::vector<std::byte>> weights;
  std::vector<TensorView> pieces;
  std::vector<float> x, bias, residual;
  Bytes input;  // x as the kernel takes it: quantised by the reference for everybody
  int64_t n = 0, outputs = 0;
  PackedOnce packed;
};

std::string describe(const LinearShape& s) {
  std::string out;
  for (const auto& [type, n] : s.pieces) {
    if (!out.empty()) out += "+";
    out += std::string(info(type).name) + "[" + std::to_string(n) + "]";
  }
  out += " k=" + std::to_string(s.columns) + " rows=" + std::to_string(s.rows);
  out += " " + std::string(info(s.input).name);
  if (s.interleaved) out += " gated";
  if (s.bias) out += " bias";
  if (s.residual) out += s.in_place ? " residual in place" : " residual";
  if (s.largest) out += " largest";
  return out;
}

// All bits set, but for the half-precision scales of a block.
void fill_integers(DType type, std::vector<std::byte>* weights) {
  const size_t block = info(type).block_bytes;
  const bool has_min =
      type == DType::kQ4_1 || type == DType::kQ5_1 || type == DType::kQ4_K || type == DType::kQ5_K;
  const size_t begin = type == DType::kQ6_K ? 0 : has_min ? 4 : 2;
  const size_t end = type == DType::kQ6_K ? block - 2 : block;
  for (size_t at = 0; at < weights->size(); at += block)
    std::fill(weights->begin() + static_cast<ptrdiff_t>(at + begin),
              weights->begin() + static_cast<ptrdiff_t>(at + end), std::byte{0xFF});
}

std::shared_ptr<LinearData> make_linear(const LinearShape& s) {
  auto d = std::make_shared<LinearData>();
  d->shape = s;
  Random random(static_cast<uint64_t>(s.columns * 131 + s.rows * 7 + s.pieces[0].second));
  for (const auto& [type, n] : s.pieces) {
    d->weights.push_back(random.weights(type, n, s.columns));
    d->n += n;
  }
  for (size_t i = 0; i < s.pieces.size(); ++i) {
    d->pieces.push_back(
        {s.pieces[i].first, Shape{s.pieces[i].second, s.columns}, d->weights[i].data()});
  }
  d->outputs = s.interleaved ? d->n / 2 : d->n;
  d->x = random.floats(s.rows * s.columns);
  if (s.largest) {
    for (size_t i = 0; i < d->pieces.size(); ++i) fill_integers(s.pieces[i].first, &d->weights[i]);
    for (size_t i = 0; i < d->x.size(); ++i)  // rows of one sign each
      d->x[i] = i / static_cast<size_t>(s.columns) % 2 == 0 ? 1.0f : -1.0f;
  }
  if (s.input != DType::kF32) {
    d->input = Bytes(static_cast<size_t>(s.rows * row_bytes(s.input, s.columns)));
    const ops::QuantizeArgs q{s.rows, d->x.data(), {d->input.data(), 0}, s.columns, s.input};
    run_parts(ops::reference_kernels(), Op::kQuantize, &q, 1);
  }
  d->bias = random.floats(d->n);
  d->residual = random.floats(s.rows * d->outputs);
  return d;
}

std::vector<float> run_linear(LinearData& d, const KernelTable& table, Range range, int parts) {
  const LinearShape& s = d.shape;
  const ops::PackedMatrix matrix = d.packed.get(table, {d.pieces, s.input, s.interleaved}, parts);
  const int64_t row = row_bytes(s.input, s.columns);
  const std::byte* all = s.input == DType::kF32 ? reinterpret_cast<const std::byte*>(d.x.data())
                                                : std::as_const(d.input).data();
  Bytes input(static_cast<size_t>(range.count * row));
  std::copy_n(all + range.begin * row, range.count * row, input.data());
  std::vector<float> y(static_cast<size_t>(range.count * d.outputs), -1.0f);
  const float* residual = d.residual.data() + range.begin * d.outputs;
  if (s.in_place) std::copy_n(residual, y.size(), y.data());
  ops::LinearArgs a{};
  a.rows = range.count;
  a.x = {input.data(), 0};
  a.weight = &matrix;
  a.bias = s.bias ? d.bias.data() : nullptr;
  a.residual = !s.residual ? nullptr : s.in_place ? y.data() : residual;
  a.y = y.data();
  if (range.count > 0 && !ops::validate(a).ok()) return {};
  run_parts(table, Op::kLinear, &a, parts, {table.scratch_bytes(0, 0, s.columns)});
  if (!table.fuses_quantize || d.outputs % 32 != 0 || s.in_place) return y;
  // Together with Quantize, the bytes that it gives alone.
  for (const DType type : {DType::kQA8, DType::kQA16}) {
    Bytes both(static_cast<size_t>(range.count * row_bytes(type, d.outputs)));
    Bytes apart(both.size());
    a.y_quantized = both.data();
    a.y_quantized_type = type;
    run_parts(table, Op::kLinear, &a, parts, {table.scratch_bytes(0, 0, s.columns)});
    const ops::QuantizeArgs q{range.count, y.data(), {apart.data(), 0}, d.outputs, type};
    run_parts(table, Op::kQuantize, &q, parts);
    if (std::memcmp(both.data(), apart.data(), both.size()) != 0) return {};
  }
  return y;
}

void add_linear(std::vector<Case>* cases, const LinearShape& s) {
  const auto data = make_linear(s);
  Case c;
  c.name = describe(s);
  c.rows = s.rows;
  c.tolerance = 2e-5;
  c.run = [data](const KernelTable& table, Range range, int parts) {
    return run_linear(*data, table, range, parts);
  };
  c.offered = [data](const KernelTable& table) {
    return table.plan_pack({data->pieces, data->shape.input, data->shape.interleaved}).ok();
  };
  cases->push_back(std::move(c));
}

// What weights of a type can be asked to read.
std::vector<DType> input_types(DType weight) {
  if (!is_block_quantized(weight)) return {DType::kF32};
  return {DType::kQA8, DType::kQA16};
}

}  // namespace

std::vector<Case> cases_of_Linear() {
  std::vector<Case> cases;
  for (DType type : kWeightTypes) {
    const int64_t block = info(type).block_elements;
    for (DType input : input_types(type)) {
      for (int64_t rows : kRowCounts) add_linear(&cases, {{{type, 24}}, block * 3, rows, input});
      add_linear(&cases, {{{type, 35}}, block == 1 ? 37 : block, 40, input, false, true, true});
      add_linear(&cases, {{{type, 1}}, block * 2, 3, input, false, true, false});
      add_linear(&cases, {{{type, 40}, {type, 40}}, block * 2, 9, input, true, false, false});
      add_linear(&cases, {{{type, 96}, {type, 96}}, block * 2, 3, input, true, true, false});
      add_linear(&cases, {{{type, 21}, {type, 21}}, block * 2, 5, input, true, true, true});
      add_linear(&cases, {{{type, 21}, {type, 21}}, block * 2, 38, input, true, true, true});
      // More panels than are expanded at a time, and a last one without a second.
      if (is_block_quantized(type)) add_linear(&cases, {{{type, 260}}, 512, 33, input});
      add_linear(&cases, {{{type, 48}},
                          block == 1 ? 576 : std::max<int64_t>(512, block),
                          2,
                          input,
                          false,
                          false,
                          true,
                          true});
      add_linear(&cases,
                 {{{type, 136}, {type, 8}, {type, 24}}, block * 2, 11, input, false, true, false});
      if (block == 1) continue;
      // More rows than share an unpacked block on tiles, and blocks that are no whole number of
      // eights.
      const int64_t columns = block == 32 ? 11 * block : block;
      add_linear(&cases, {{{type, 40}}, columns, 150, input, false, true, true, true});
      add_linear(&cases, {{{type, 19}, {type, 19}}, columns, 24, input, true, true, true});
    }
  }
  // Sums that are as large as they become, and rows wider than what is prepared for one.
  for (DType type : kWeightTypes) {
    if (!is_block_quantized(type)) continue;
    const int64_t block = info(type).block_elements;
    for (DType input : input_types(type)) {
      LinearShape s{{{type, 24}}, block * 2, 3, input};
      s.largest = true;
      add_linear(&cases, s);
    }
    add_linear(&cases, {{{type, 17}}, 16384 + 256, 2, DType::kQA16});
  }
  // Pieces of different types in one matrix, as qkv of a mixed file has.
  add_linear(&cases,
             {{{DType::kQ4_1, 64}, {DType::kQ8_0, 20}, {DType::kQ5_0, 32}}, 128, 6, DType::kQA16});
  add_linear(&cases,
             {{{DType::kQ4_K, 64}, {DType::kQ4_K, 16}, {DType::kQ6_K, 16}}, 512, 5, DType::kQA16});
  add_linear(&cases, {{{DType::kF16, 40}, {DType::kF32, 20}}, 96, 7});
  return cases;
}

std::vector<Case> cases_of_Embedding() {
  std::vector<Case> cases;
  for (DType type : kWeightTypes) {
    for (DType input : input_types(type)) {
      for (int64_t rows : {0, 1, 5, 17}) {
        const int64_t vocab = 45, columns = int64_t{info(type).block_elements} * 2;
        Random random(static_cast<uint64_t>(rows) + 3);
        const auto weights =
            std::make_shared<std::vector<std::byte>>(random.weights(type, vocab, columns));
        const auto packed = std::make_shared<PackedOnce>();
        std::vector<int32_t> ids;
        for (int64_t t = 0; t < rows; ++t)
          ids.push_back(t == 0 ? 44 : static_cast<int32_t>(random.next() % 45));
        Case c;
        c.name = std::string(info(type).name) + " " + std::string(info(input).name) +
                 " rows=" + std::to_string(rows);
        c.rows = rows;
        c.tolerance = 1e-6;
        c.run = [=](const KernelTable& table, Range range, int parts) {
          const TensorView piece{type, Shape{vocab, columns}, weights->data()};
          const ops::PackedMatrix matrix =
              packed->get(table, {std::span(&piece, 1), input, false}, parts);
          std::vector<float> y(static_cast<size_t>(range.count * columns));
          const ops::EmbeddingArgs a{range.count, &matrix, ids.data() + range.begin, y.data(),
                                     columns};
          run_parts(table, Op::kEmbedding, &a, parts);
          return y;
        };
        c.offered = [=](const KernelTable& table) {
          const TensorView piece{type, Shape{vocab, columns}, weights->data()};
          return table.plan_pack({std::span(&piece, 1), input, false}).ok();
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

}  // namespace conformance
