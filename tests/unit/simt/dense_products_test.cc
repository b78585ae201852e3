// SPDX-License-Identifier: Apache-2.0
//
// Which products a device's library gets, and what becomes of its sums. The library is a loop here.
#include "ops/dense_products.h"

#include "executor.h"
#include "fake_gpu.h"
#include "program_case.h"

namespace {

using namespace simt_tests;
using ops::DenseProduct;

class LoopProducts final : public ops::DenseProducts {
 public:
  // What plan() and launch() answer.
  bool refuses = false;
  Status broken;
  int32_t failure = 0;
  // What they were asked for.
  mutable std::vector<DenseProduct> planned;
  mutable int launched = 0;

  Result<std::shared_ptr<const ops::PlannedProduct>> plan(const DenseProduct& p) const override {
    using Product = std::shared_ptr<const ops::PlannedProduct>;
    planned.push_back(p);
    LMN_RETURN_IF_ERROR(broken);
    return refuses ? Product() : Product(std::make_shared<Loop>(p, *this));
  }

 private:
  static constexpr size_t kWorkspace = 1000;

  class Loop final : public ops::PlannedProduct {
   public:
    Loop(const DenseProduct& p, const LoopProducts& owner) : p_(p), owner_(owner) {}
    size_t workspace_bytes() const override { return kWorkspace; }
    void launch(const void* x, const void* w, float* y, std::byte* workspace,
                ops::LaunchQueue& queue) const override {
      if (queue.failure != 0) return;
      ++owner_.launched;
      queue.failure = owner_.failure;
      if (queue.failure != 0) return;
      auto work = [this, x, w, y, workspace] {
        compute(static_cast<const uint16_t*>(x), static_cast<const uint16_t*>(w), y);
        std::memset(workspace, 0xEE, kWorkspace);
      };
      queue.failure = static_cast<LaunchStream*>(queue.stream)->launch(work);
    }

   private:
    void compute(const uint16_t* x, const uint16_t* w, float* y) const {
      const auto to_float = p_.type == DType::kBF16 ? bf16_to_f32 : f16_to_f32;
      std::vector<float> line(static_cast<size_t>(p_.columns));
      for (int64_t b = 0; b < p_.batches; ++b) {
        std::vector<float> factor;  // [inner, columns]
        for (int64_t k = 0; k < p_.inner; ++k) {
          for (int64_t c = 0; c < p_.columns; ++c) {
            const int64_t at = p_.transposed ? c * p_.w_row + k : k * p_.w_row + c;
            factor.push_back(to_float(w[b * p_.w_batch + at]));
          }
        }
        for (int64_t r = 0; r < p_.rows; ++r) {
          std::fill(line.begin(), line.end(), 0.0f);
          for (int64_t k = 0; k < p_.inner; ++k) {
            const float v = to_float(x[b * p_.x_batch + r * p_.x_row + k]);
            const float* of = factor.data() + k * p_.columns;
            for (size_t c = 0; c < line.size(); ++c) line[c] += v * of[c];
          }
          std::copy(line.begin(), line.end(), y + (b * p_.rows + r) * p_.columns);
        }
      }
    }

    const DenseProduct p_;
    const LoopProducts& owner_;
  };
};

// Two rows of tiles by 66 columns of them: 132.
constexpr int64_t kRows = 65, kInner = 768, kColumns = 65 * 64 + 8;

std::vector<float> inputs_of(const Shape& shape, uint32_t seed, float size = 1.0f) {
  return some_numbers(shape.elements(), seed, size);
}

TEST(sums_of_the_library_get_the_epilogue) {
  for (const int64_t transposed : {0, 1}) {
    const DType type = transposed != 0 ? DType::kF16 : DType::kBF16;
    const Shape x{kRows, kInner};
    const Shape w = transposed != 0 ? Shape{kColumns, kInner} : Shape{kInner, kColumns};
    const Shape c = transposed != 0 ? Shape{kColumns} : Shape{kRows, 1};
    LoopProducts products;
    DeviceCase("com.microsoft.FusedGemm",
               {{"activation", "Gelu"}, {"alpha", 0.5f}, {"beta", 2.0f}, {"transB", transposed}})
        .in<float>(x, inputs_of(x, 1), type)
        .in<float>(w, inputs_of(w, 2, 0.1f), type)
        .in<float>(c, inputs_of(c, 3), type)
        .with(&products)
        .within(1e-3, 2e-3)
        .check();
    ASSERT(products.planned.size() == 1 && products.launched == 1);
    const DenseProduct& p = products.planned[0];
    EXPECT(p.type == type && p.transposed == (transposed != 0));
    EXPECT(p.rows == kRows && p.inner == kInner && p.columns == kColumns && p.batches == 1);
    EXPECT(p.x_row == kInner && p.w_row == w.last());
  }
}

TEST(batches_of_the_library) {
  constexpr int64_t kBatches = 33, kFewColumns = 72;  // four tiles a batch
  for (const bool one_left : {false, true}) {
    const Shape x = one_left ? Shape{kRows, kInner} : Shape{kBatches, kRows, kInner};
    const Shape w{kBatches, kInner, kFewColumns};
    LoopProducts products;
    DeviceCase("MatMul")
        .in<float>(x, inputs_of(x, 1), DType::kBF16)
        .in<float>(w, inputs_of(w, 2, 0.1f), DType::kBF16)
        .with(&products)
        .within(1e-3, 2e-3)
        .check();
    ASSERT(products.planned.size() == 1 && products.launched == 1);
    const DenseProduct& p = products.planned[0];
    EXPECT(p.batches == kBatches && p.w_batch == kInner * kFewColumns);
    EXPECT_EQ(p.x_batch, one_left ? 0 : kRows * kInner);
  }
}

// Each lacks one thing of what the others have.
TEST(products_that_the_library_does_not_get) {
  const auto is_given = [](const Shape& x, const Shape& w, DType type) {
    LoopProducts products;
    const auto zeros = [](const Shape& shape) {
      return std::vector<float>(static_cast<size_t>(shape.elements()));
    };
    DeviceCase c("MatMul");
    c.in<float>(x, zeros(x), type).in<float>(w, zeros(w), type).with(&products);
    const bool by_library = c.bound().by_library;
    EXPECT_EQ(by_library, !products.planned.empty());
    return by_library;
  };
  const DType half = DType::kF16;
  EXPECT(is_given({64, 768}, {768, 132 * 64}, half));
  EXPECT(!is_given({63, 768}, {768, 132 * 64}, half));      // rows
  EXPECT(!is_given({64, 760}, {760, 132 * 64}, half));      // terms
  EXPECT(!is_given({64, 768}, {768, 131 * 64}, half));      // tiles
  EXPECT(!is_given({64, 768}, {768, 132 * 64 - 4}, half));  // no whole units of 16 bytes
  EXPECT(!is_given({64, 768}, {768, 132 * 64}, DType::kF32));
  EXPECT(is_given({66, 64, 768}, {66, 768, 128}, half));
  EXPECT(!is_given({66, 1, 64, 768}, {1, 2, 768, 64}, half));  // two strides of batches
}

TEST(a_library_that_refuses_leaves_the_product_to_the_kernel) {
  LoopProducts products;
  const auto bound = [&](const ops::DenseProducts* with) {
    DeviceCase c("MatMul");
    c.in<float>({kRows, kInner}, inputs_of({kRows, kInner}, 1), DType::kF16)
        .in<float>({kInner, kColumns}, inputs_of({kInner, kColumns}, 2), DType::kF16)
        .with(with);
    return c.bound();
  };
  EXPECT(bound(&products).by_library);
  products.refuses = true;
  const ops::TensorKernel refused = bound(&products), without = bound(nullptr);
  EXPECT_EQ(products.planned.size(), size_t{2});
  EXPECT(!refused.by_library && refused.scratch_bytes == without.scratch_bytes);
}

// The CUDA device with other products.
class WithProducts final : public Device {
 public:
  explicit WithProducts(const ops::DenseProducts& products) : products_(products) {}

  std::string name() const override { return (*gpu_).name(); }
  std::string target() const override { return (*gpu_).target(); }
  bool is_host() const override { return (*gpu_).is_host(); }
  int32_t multiprocessors() const override { return (*gpu_).multiprocessors(); }
  Result<std::byte*> allocate(size_t bytes) override { return (*gpu_).allocate(bytes); }
  Result<std::byte*> allocate_uninitialized(size_t bytes) override {
    return (*gpu_).allocate_uninitialized(bytes);
  }
  void release(std::byte* data, size_t bytes) override { (*gpu_).release(data, bytes); }
  Status copy_from_host(std::byte* device, const void* host, size_t bytes) override {
    return (*gpu_).copy_from_host(device, host, bytes);
  }
  Status copy_to_host(void* host, const std::byte* device, size_t bytes) override {
    return (*gpu_).copy_to_host(host, device, bytes);
  }
  Status copy(std::byte* to, const std::byte* from, size_t bytes) override {
    return (*gpu_).copy(to, from, bytes);
  }
  Result<std::unique_ptr<Stream>> create_stream() override { return (*gpu_).create_stream(); }
  Result<std::byte*> allocate_pinned(size_t bytes) override {
    return (*gpu_).allocate_pinned(bytes);
  }
  void release_pinned(std::byte* data, size_t bytes) override {
    (*gpu_).release_pinned(data, bytes);
  }
  Status reserve(size_t bytes) override { return (*gpu_).reserve(bytes); }
  Result<DeviceMemory> memory() const override { return (*gpu_).memory(); }
  const ops::KernelTable& kernels() const override { return (*gpu_).kernels(); }
  const ops::DenseProducts* dense_products() const override { return &products_; }

 private:
  const fake_cuda::FakeGpu gpu_;
  const ops::DenseProducts& products_;
};

struct OneProduct {
  LoopProducts products;
  graph::Graph graph;
  std::unique_ptr<Both> both;

  OneProduct(const graph::Dim& rows, const graph::Dim& columns, int64_t most_bytes = 0) {
    const auto x = graph.add_input("x", graph::tensor(DType::kF16, {rows, kInner}));
    const auto w = graph.add_input("w", graph::tensor(DType::kF16, {kInner, columns}));
    graph.add_output(node(&graph, graph::Op::kMatMul, {x, w}), "y");
    plan::ProgramOptions options;
    options.max_arena_bytes = most_bytes;
    both = std::make_unique<Both>(graph, options, std::make_shared<WithProducts>(products));
  }
  static std::vector<ops::RuntimeValue> inputs() {
    return {value(DType::kF16, {kRows, kInner}, inputs_of({kRows, kInner}, 1)),
            value(DType::kF16, {kInner, kColumns}, inputs_of({kInner, kColumns}, 2, 0.1f))};
  }
};

TEST(only_sizes_that_the_graph_fixes_are_for_the_library) {
  const OneProduct fixed(kRows, kColumns);
  for (int round = 1; round <= 2; ++round) {
    fixed.both->check(OneProduct::inputs(), 1e-2);
    EXPECT_EQ(fixed.products.planned.size(), size_t{1});
    EXPECT_EQ(fixed.products.launched, round);
    EXPECT_EQ(fixed.both->on_device->place_counts().library, 1);
  }
  // Bound and not run, for want of memory: the kernel takes long here.
  for (const OneProduct& free : {OneProduct("n", kColumns, 1), OneProduct(kRows, "m", 1)}) {
    std::vector<ops::RuntimeValue> out(1);
    const Status status = free.both->on_device->run(OneProduct::inputs(), out, {});
    EXPECT(status.code() == Code::kOutOfMemory);
    EXPECT(free.products.planned.empty());
    free.both->expect_places(1, 0);
    EXPECT_EQ(free.both->on_device->place_counts().library, 0);
  }
  const OneProduct bounded(kRows, kColumns, 1);
  std::vector<ops::RuntimeValue> out(1);
  const Status status = bounded.both->on_device->run(OneProduct::inputs(), out, {});
  EXPECT(status.code() == Code::kOutOfMemory);
  EXPECT_EQ(bounded.products.planned.size(), size_t{1});
}

TEST(what_goes_wrong_with_the_library_is_the_error_of_a_run) {
  OneProduct fixed(kRows, kColumns);
  std::vector<ops::RuntimeValue> out(1);
  fixed.products.broken = error(Code::kInvalidArgument, "LMN_CUBLAS_LT_LIBRARY: no");
  const Status broken = fixed.both->on_device->run(OneProduct::inputs(), out, {});
  EXPECT(broken.code() == Code::kInvalidArgument);
  EXPECT_EQ(std::string(broken.message()), "LMN_CUBLAS_LT_LIBRARY: no");
  fixed.products.broken = {};
  fixed.products.failure = -13;
  EXPECT_EQ(std::string(fixed.both->on_device->run(OneProduct::inputs(), out, {}).message()),
            "device cuda:1: starting a product: cuBLASLt gives status 13");
  fixed.products.failure = 0;
  fixed.both->check(OneProduct::inputs(), 1e-2);
}

}  // namespace
