// SPDX-License-Identifier: Apache-2.0
//
// Cases of the operators that work on rows of floats: norms, quantisation, elementwise, gather.
#include <cmath>
#include <cstring>
#include <memory>

#include "conformance.h"
#include "ops/quantized_rows.h"

namespace conformance {

using namespace lmn;
using lmn::ops::KernelTable;
using lmn::ops::Op;

namespace {

using Floats = std::shared_ptr<const std::vector<float>>;

Floats make(uint64_t seed, int64_t count) {
  return std::make_shared<const std::vector<float>>(Random(seed).floats(count));
}

std::string shape(int64_t rows, int64_t columns) {
  return "rows=" + std::to_string(rows) + " columns=" + std::to_string(columns);
}

// A quantised row as floats: integers, scales and sums, so that equality of these is equality of
// the rows.
std::vector<float> unpacked(const Bytes& bytes, DType type, int64_t rows, int64_t columns) {
  std::vector<float> out;
  for (int64_t t = 0; t < rows; ++t) {
    const auto row = ops::quantized_row(bytes.data(), type, columns, t);
    for (int64_t i = 0; i < columns; ++i) {
      int16_t q = static_cast<int8_t>(row.q[i]);
      if (type == DType::kQA16) std::memcpy(&q, row.q + 2 * i, sizeof q);
      out.push_back(q);
    }
    for (int64_t i = 0; i < columns / 32 * 2; ++i) {
      float value;
      std::memcpy(&value, row.scales + 4 * i, sizeof value);
      out.push_back(value);
    }
  }
  return out;
}

// The same as the values that the row stands for, for comparison within a tolerance.
std::vector<float> dequantized(const Bytes& bytes, DType type, int64_t rows, int64_t columns) {
  const std::vector<float> raw = unpacked(bytes, type, rows, columns);
  std::vector<float> out;
  const size_t width = static_cast<size_t>(columns + columns / 32 * 2);
  for (size_t t = 0; t < static_cast<size_t>(rows); ++t) {
    for (size_t i = 0; i < static_cast<size_t>(columns); ++i) {
      out.push_back(raw[t * width + i] * raw[t * width + static_cast<size_t>(columns) + i / 32]);
    }
  }
  return out;
}

}  // namespace

std::vector<Case> cases_of_RmsNorm() {
  std::vector<Case> cases;
  for (int64_t rows : kRowCounts) {
    for (int64_t columns : {1, 5, 8, 31, 64, 576, 1000}) {
      for (bool in_place : {false, true}) {
        const Floats x = make(1, rows * columns), weight = make(2, columns);
        Case c{shape(rows, columns) + (in_place ? " in place" : ""), rows, 2e-6, nullptr};
        c.run = [=](const KernelTable& table, Range range, int parts) {
          std::vector<float> y(static_cast<size_t>(range.count * columns));
          const float* from = x->data() + range.begin * columns;
          if (in_place) std::copy_n(from, y.size(), y.data());
          const ops::RmsNormArgs a{
              range.count, in_place ? y.data() : from, weight->data(), y.data(), columns, 1e-5f};
          run_parts(table, Op::kRmsNorm, &a, parts);
          return y;
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

std::vector<Case> cases_of_Quantize() {
  std::vector<Case> cases;
  for (DType type : {DType::kQA8, DType::kQA16}) {
    for (int64_t rows : kRowCounts) {
      for (int64_t columns : {32, 96, 576}) {
        auto values = std::make_shared<std::vector<float>>(*make(3, rows * columns));
        for (int64_t i = 0; i < 32 && i < rows * columns; ++i)
          (*values)[static_cast<size_t>(i)] = 0;  // a zero block
        if (rows > 4) {
          (*values)[static_cast<size_t>(2 * columns + 3)] = NAN;
          (*values)[static_cast<size_t>(3 * columns + 4)] = INFINITY;
          for (int64_t i = 0; i < 32; ++i) (*values)[static_cast<size_t>(4 * columns + i)] = 1e-38f;
        }
        Case c{std::string(info(type).name) + " " + shape(rows, columns), rows, 0.0, nullptr};
        c.run = [=](const KernelTable& table, Range range, int parts) {
          Bytes y(static_cast<size_t>(range.count * row_bytes(type, columns)));
          const ops::QuantizeArgs a{
              range.count, values->data() + range.begin * columns, {y.data(), 0}, columns, type};
          run_parts(table, Op::kQuantize, &a, parts);
          std::vector<float> out = unpacked(y, type, range.count, columns);
          for (float& v : out) {
            if (std::isnan(v)) v = NAN;  // one NaN for all: their bits are not part of the contract
          }
          return out;
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

std::vector<Case> cases_of_RmsNormQuantize() {
  std::vector<Case> cases;
  for (DType type : {DType::kQA8, DType::kQA16}) {
    for (int64_t rows : kRowCounts) {
      for (int64_t columns : {32, 96, 576}) {
        const Floats x = make(5, rows * columns), weight = make(6, columns);
        // Half a step of the largest block, where a value near a tie rounds the other way.
        Case c{std::string(info(type).name) + " " + shape(rows, columns), rows,
               type == DType::kQA8 ? 1.01 / 127 : 1e-4, nullptr};
        c.run = [=](const KernelTable& table, Range range, int parts) {
          Bytes y(static_cast<size_t>(range.count * row_bytes(type, columns)));
          const float* from = x->data() + range.begin * columns;
          const ops::RmsNormQuantizeArgs a{
              range.count, from, weight->data(), {y.data(), 0}, columns, 1e-5f, type};
          run_parts(table, Op::kRmsNormQuantize, &a, parts);
          // The unfused pair must give the same bytes: a difference is returned as NaN, which
          // nothing equals.
          std::vector<float> normed(static_cast<size_t>(range.count * columns));
          Bytes pair(y.size());
          const ops::RmsNormArgs n{range.count,   from,    weight->data(),
                                   normed.data(), columns, 1e-5f};
          const ops::QuantizeArgs q{range.count, normed.data(), {pair.data(), 0}, columns, type};
          run_parts(table, Op::kRmsNorm, &n, 1);
          run_parts(table, Op::kQuantize, &q, 1);
          std::vector<float> out = dequantized(y, type, range.count, columns);
          if (std::memcmp(pair.data(), y.data(), y.size()) != 0) out.assign(out.size(), NAN);
          return out;
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

std::vector<Case> cases_of_SiluMul() {
  std::vector<Case> cases;
  for (int64_t rows : kRowCounts) {
    for (int64_t columns : {1, 7, 64, 300, 1536}) {
      const int64_t stride = 2 * columns + 3;
      auto x = std::make_shared<std::vector<float>>(*make(7, rows * stride));
      for (size_t i = 0; i < x->size(); i += 5) (*x)[i] *= 20;
      Case c{shape(rows, columns), rows, 1e-6, nullptr};
      c.run = [=](const KernelTable& table, Range range, int parts) {
        std::vector<float> y(static_cast<size_t>(range.count * columns));
        const float* gate = x->data() + range.begin * stride;
        const ops::SiluMulArgs a{range.count, gate,     gate + columns, stride,
                                 stride,      y.data(), columns};
        run_parts(table, Op::kSiluMul, &a, parts);
        return y;
      };
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

std::vector<Case> cases_of_ResidualAdd() {
  std::vector<Case> cases;
  for (int64_t rows : kRowCounts) {
    for (int64_t columns : {1, 9, 64, 576}) {
      for (bool in_place : {false, true}) {
        const Floats x = make(8, rows * columns), z = make(9, rows * columns);
        Case c{shape(rows, columns) + (in_place ? " in place" : ""), rows, 0.0, nullptr};
        c.run = [=](const KernelTable& table, Range range, int parts) {
          std::vector<float> y(static_cast<size_t>(range.count * columns));
          const float* first = x->data() + range.begin * columns;
          if (in_place) std::copy_n(first, y.size(), y.data());
          const ops::AddArgs a{range.count, in_place ? y.data() : first,
                               z->data() + range.begin * columns, y.data(), columns};
          run_parts(table, Op::kResidualAdd, &a, parts);
          return y;
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

std::vector<Case> cases_of_GatherRows() {
  std::vector<Case> cases;
  for (int64_t rows : kRowCounts) {
    for (int64_t columns : {1, 33, 576}) {
      const int64_t source_rows = 20;
      const Floats x = make(10, source_rows * columns);
      std::vector<int32_t> indices;
      Random random(11);
      for (int64_t t = 0; t < rows; ++t)
        indices.push_back(static_cast<int32_t>(random.next() % source_rows));
      Case c{shape(rows, columns), rows, 0.0, nullptr};
      c.run = [=](const KernelTable& table, Range range, int parts) {
        std::vector<float> y(static_cast<size_t>(range.count * columns));
        const ops::GatherRowsArgs a{range.count, x->data(), indices.data() + range.begin, y.data(),
                                    columns};
        run_parts(table, Op::kGatherRows, &a, parts);
        return y;
      };
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace conformance
