// SPDX-License-Identifier: Apache-2.0
//
// Products and attention of the CUDA device against the CPU's, and that the bits of a row do not
// depend on how many others there are.
#include "tensor_case.h"

namespace {

using namespace simt_tests;
using ops::Ints;

TEST(matrices_of_all_shapes) {
  const auto product = [&](const Shape& x, const Shape& w) {
    DeviceCase("MatMul")
        .in<float>(x, some_numbers(x.elements(), 1))
        .in<float>(w, some_numbers(w.elements(), 2))
        .within(1e-5, 1e-4)
        .check();
  };
  product({3, 5}, {5, 4});
  product({70, 40}, {40, 66});
  product({2, 1100}, {1100, 5});  // several chunks
  product({5}, {5});
  product({5}, {2, 5, 3});
  product({2, 3, 5}, {5});
  product({2, 3, 5}, {5, 4});  // one matrix for all
  product({2, 3, 5}, {2, 5, 4});
  product({2, 1, 3, 5}, {3, 5, 4});
  product({1, 3, 5}, {2, 5, 4});
  product({0, 5}, {5, 4});
  product({3, 0}, {0, 4});
  for (const DType type : {DType::kF16, DType::kBF16}) {
    DeviceCase("MatMul")
        .in<float>({20, 33}, some_numbers(660, 1), type)
        .in<float>({33, 9}, some_numbers(297, 2), type)
        .within(1e-3, 2e-2)
        .check();
  }
  for (const int64_t a : {0, 1}) {
    for (const int64_t b : {0, 1}) {
      DeviceCase("com.microsoft.FusedMatMul", {{"alpha", 0.5f}, {"transA", a}, {"transB", b}})
          .in<float>(a != 0 ? Shape{2, 30, 20} : Shape{2, 20, 30}, some_numbers(1200, 1))
          .in<float>(b != 0 ? Shape{2, 10, 30} : Shape{2, 30, 10}, some_numbers(600, 2))
          .within(1e-5, 1e-5)
          .check();
      for (const Shape& c : {Shape{20, 10}, Shape{10}, Shape{20, 1}, Shape{}}) {
        DeviceCase("Gemm", {{"alpha", 0.5f}, {"beta", 2.0f}, {"transA", a}, {"transB", b}})
            .in<float>(a != 0 ? Shape{30, 20} : Shape{20, 30}, some_numbers(600, 1))
            .in<float>(b != 0 ? Shape{10, 30} : Shape{30, 10}, some_numbers(300, 2))
            .in<float>(c, some_numbers(c.elements(), 3))
            .within(1e-5, 1e-5)
            .check();
      }
    }
  }
  DeviceCase("com.microsoft.FusedGemm", {{"activation", "LeakyRelu"}, {"activation_alpha", 0.1f}})
      .in<float>({4, 8}, some_numbers(32, 1))
      .in<float>({8, 6}, some_numbers(48, 2))
      .in<float>({6}, some_numbers(6, 3))
      .check();
}

TEST(linears_take_bias_activation_and_residual_along) {
  for (const char* activation : {"", "Relu", "Gelu", "GeluTanh", "Silu", "Tanh", "Sigmoid"}) {
    for (const int64_t transposed : {0, 1}) {
      DeviceCase("lmnative.Linear", {{"activation", activation}, {"transposed", transposed}})
          .in<float>({2, 5, 24}, some_numbers(240, 1))
          .in<float>(transposed != 0 ? Shape{12, 24} : Shape{24, 12}, some_numbers(288, 2))
          .in<float>({12}, some_numbers(12, 3))
          .in<float>({2, 5, 12}, some_numbers(120, 4))
          .within(1e-5, 1e-5)
          .check();
    }
  }
  for (const Shape& residual : {Shape{5, 12}, Shape{1, 5, 12}, Shape{12}}) {
    DeviceCase("lmnative.Linear")
        .in<float>({2, 5, 24}, some_numbers(240, 1))
        .in<float>({24, 12}, some_numbers(288, 2))
        .absent()
        .in<float>(residual, some_numbers(residual.elements(), 4))
        .within(1e-5, 1e-5)
        .check();
  }
  DeviceCase row_by_row("lmnative.Linear");
  row_by_row.in<float>({2, 5, 24}, some_numbers(240, 1))
      .in<float>({24, 12}, some_numbers(288, 2))
      .absent()
      .in<float>({2, 1, 12}, some_numbers(24, 4));
  EXPECT(row_by_row.refusal().find("residual broadcasts") != std::string::npos);
}

// By matrix instructions, weights dense either way, and what is no whole tile.
TEST(products_of_halves) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const int64_t transposed : {0, 1}) {
      const auto product = [&](int64_t batch, int64_t rows, int64_t inner, int64_t columns) {
        const Shape w = transposed != 0 ? Shape{columns, inner} : Shape{inner, columns};
        DeviceCase("com.microsoft.FusedMatMul", {{"transB", transposed}})
            .in<float>({batch, rows, inner}, some_numbers(batch * rows * inner, 1), type)
            .in<float>(w, some_numbers(inner * columns, 2), type)
            .within(1e-3, 2e-2)
            .check();
      };
      product(1, 1, 8, 8);
      product(1, 19, 72, 72);
      product(2, 5, 40, 136);
      product(1, 3, 600, 16);  // two chunks
    }
    DeviceCase("MatMul")
        .in<float>({3, 5, 16}, some_numbers(240, 1), type)
        .in<float>({3, 16, 24}, some_numbers(1152, 2), type)
        .within(1e-3, 1e-2)
        .check();
  }
}

// Row 0 among so many, on devices of several sizes: of 33 tiles of columns and `inner` terms.
struct RowsOn {
  int64_t rows;
  int32_t multiprocessors = 132;
};
void expect_same_row(DType type, int64_t inner, const std::vector<RowsOn>& all) {
  constexpr int64_t kColumns = 33 * 64;
  const std::vector<float> w = some_numbers(inner * kColumns, 2);
  std::vector<std::byte> first;
  for (const auto& [rows, multiprocessors] : all) {
    DeviceCase c("MatMul");
    c.in<float>({rows, inner}, some_numbers(rows * inner, 1), type)
        .in<float>({inner, kColumns}, w, type)
        .multiprocessors(multiprocessors);
    c.run_on_device();
    const std::byte* y = c.result().data;
    const size_t bytes = kColumns * info(type).block_bytes;
    if (first.empty()) first.assign(y, y + bytes);
    EXPECT(std::memcmp(first.data(), y, bytes) == 0);
  }
}

// 1 row: a block makes one chunk of 16 rows of outputs; 17: a block makes all chunks; 193: tiles
// have 64 rows, as on 20 multiprocessors for 1 row; on 60, a block makes all chunks of 1 row.
TEST(bits_of_a_row_do_not_depend_on_the_others) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
#if !defined(__SANITIZE_ADDRESS__)  // under which these take a minute
    expect_same_row(type, 520, {{1}, {17}, {1, 20}, {1, 60}});
#endif
    expect_same_row(type, 16, {{1}, {17}, {193}, {1, 20}});
  }
}

TEST(attention_of_heads_wherever_they_lie) {
  const auto attention = [&](const Shape& q, const Shape& k, const Shape& v, const Shape& mask,
                             ops::Attributes attributes, DType type = DType::kF32) {
    DeviceCase c("lmnative.Attention", std::move(attributes));
    c.in<float>(q, some_numbers(q.elements(), 1, 2), type)
        .in<float>(k, some_numbers(k.elements(), 2, 2), type)
        .in<float>(v, some_numbers(v.elements(), 3, 2), type)
        .within(1e-4, 1e-5);
    if (mask.rank > 0) {
      std::vector<float> values = some_numbers(mask.elements(), 4);
      for (size_t i = 0; i < values.size(); ++i) values[i] = values[i] > 0.3f ? -1e9f : values[i];
      c.in<float>(mask, values, type);
    }
    c.check();
  };
  attention({2, 3, 5, 16}, {2, 3, 7, 16}, {2, 3, 7, 16}, {},
            {{"scale", 0.25f}, {"k_perm", Ints{0, 1, 2, 3}}});
  attention({1, 2, 40, 24}, {1, 2, 70, 24}, {1, 2, 70, 40}, {1, 1, 40, 70}, {{"scale", 0.2f}});
  attention({1, 2, 3, 128}, {1, 2, 33, 128}, {1, 2, 33, 128}, {1, 1, 1, 33}, {{"scale", 0.1f}});
  // [batch, rows, heads, columns], as a transformer's projections leave them.
  attention({2, 5, 3, 16}, {2, 7, 3, 16}, {2, 7, 3, 16}, {2, 1, 1, 7},
            {{"scale", 0.25f},
             {"q_perm", Ints{0, 2, 1, 3}},
             {"k_perm", Ints{0, 2, 1, 3}},
             {"v_perm", Ints{0, 2, 1, 3}},
             {"y_perm", Ints{0, 2, 1, 3}}});
}

TEST(attention_rows_do_not_depend_on_the_others) {
  const std::vector<float> q = some_numbers(40 * 16, 1), k = some_numbers(70 * 16, 2);
  std::vector<float> first;
  for (const int64_t rows : {1, 40}) {
    DeviceCase c("lmnative.Attention", {{"scale", 0.25f}});
    c.in<float>({1, 1, rows, 16}, {q.begin(), q.begin() + rows * 16})
        .in<float>({1, 1, 70, 16}, k)
        .in<float>({1, 1, 70, 16}, some_numbers(70 * 16, 3))
        .check();
    const float* y = c.result().as<float>();
    if (first.empty()) first.assign(y, y + 16);
    EXPECT(std::memcmp(first.data(), y, sizeof(float) * 16) == 0);
  }
  DeviceCase wide("lmnative.Attention");
  wide.in<float>({1, 1, 1, 256}, some_numbers(256, 1))
      .in<float>({1, 1, 2, 256}, some_numbers(512, 1))
      .in<float>({1, 1, 2, 16}, some_numbers(32, 1));
  EXPECT(wide.refusal().find("heads of more than 128") != std::string::npos);
}

}  // namespace
