// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/tensor/half_products.cuh"
#include "cuda/kernels/tensor/products.cuh"
#include "cuda/kernels/tensor/tensor_kernels.h"
#include "cuda/kernels/tensor/walk.h"
#include "ops/dense_products.h"
#include "ops/infer/activation.h"

namespace lmn::cuda::tensor {
namespace {

// A factor of a product: its matrices and their strides, in elements.
struct Factor {
  int64_t rows = 1, columns = 1, row = 0, column = 0;
  Shape batch;
};

// A vector is one row on the left, one column on the right.
Factor make_factor(const Shape& shape, bool is_left, bool transposed) {
  Factor f;
  if (shape.rank == 1) {
    (is_left ? f.columns : f.rows) = shape[0];
    (is_left ? f.column : f.row) = 1;
    return f;
  }
  f.rows = shape[shape.rank - 2];
  f.columns = shape.last();
  f.row = f.columns;
  f.column = 1;
  if (transposed) {
    std::swap(f.rows, f.columns);
    std::swap(f.row, f.column);
  }
  for (int d = 0; d + 2 < shape.rank; ++d) f.batch[f.batch.rank++] = shape[d];
  return f;
}

// What operands are for a product, by their numbers; -1: none.
struct ProductOperands {
  int c = -1, residual = -1;
};

constexpr int64_t kFewRows = 16, kManyRows = 64;

// Whether matrix instructions take the operands as they lie: in units of 16 bytes.
bool suits_half_product(const ProductParams& p) {
  if (p.x_type != p.w_type || (p.x_type != DType::kF16 && p.x_type != DType::kBF16)) return false;
  const auto whole = [](uint32_t elements) { return elements % kUnit == 0; };
  bool suits = p.x_inner == 1 && whole(p.inner) && whole(p.x_row) && p.inner > 0;
  suits &= (p.w_column == 1 && whole(p.w_inner) && whole(p.columns)) ||
           (p.w_inner == 1 && whole(p.w_column));
  for (int d = 0; d < p.batch_rank; ++d) suits &= whole(p.x_batch[d]) && whole(p.w_batch[d]);
  return suits;
}

// From so many terms on, what the library writes in float32 and add_chunks reads again (8 bytes of
// an output) takes less time than its product: an H200 reads 4.8 bytes while it makes 395 products,
// so that 8 bytes cost as much as 658 of them. In whole units of 256.
constexpr int64_t kLibraryInner = 768;
// What those sums may take of the scratch memory.
constexpr int64_t kMostLibrarySums = int64_t{256} << 20;

// The product by the device's library, or null: our kernels do it. There is no library for products
// whose shapes differ from run to run (DESIGN section 7). With fewer rows than a tile has, reading
// w takes the time, and splits along the inner dimension do that as fast; with fewer tiles than
// keep a GPU busy, the launch does.
Result<std::shared_ptr<const ops::PlannedProduct>> plan_by_library(const ops::TensorNode& node,
                                                                   const ProductParams& p,
                                                                   int64_t sums_bytes) {
  const ops::DenseProducts* library = node.dense_products();
  if (library == nullptr || p.rows < kManyRows || p.inner < kLibraryInner || p.batch_rank > 1 ||
      sums_bytes > kMostLibrarySums)
    return std::shared_ptr<const ops::PlannedProduct>();
  ops::DenseProduct product;
  product.type = p.x_type;
  product.batches = p.batches;
  product.rows = p.rows;
  product.inner = p.inner;
  product.columns = p.columns;
  product.x_row = p.x_row;
  product.transposed = p.w_column != 1;
  product.w_row = product.transposed ? p.w_column : p.w_inner;
  if (p.batch_rank == 1) {
    product.x_batch = p.x_batch[0];
    product.w_batch = p.w_batch[0];
  }
  return library->plan(product);
}

template <int kRows>
void launch_product(const ProductParams& p, bool by_matrices, ops::LaunchQueue& queue) {
  const int64_t chunks = p.partial == nullptr ? 1 : simt::div_up(p.inner, kChunk);
  const int64_t tiles = simt::div_up(p.columns, kProductColumns) * simt::div_up(p.rows, kRows);
  if (by_matrices) {
    static_assert(kHalfShared<kRows> <= kMostSharedBytes);
    const simt::LaunchShape shape{blocks(tiles * chunks * p.batches), 1, 1, kHalfThreads,
                                  kHalfShared<kRows>};
    if (p.x_type == DType::kBF16) {
      simt::launch<half_product<true, kRows>>(queue, shape, p);
    } else {
      simt::launch<half_product<false, kRows>>(queue, shape, p);
    }
    return;
  }
  constexpr uint32_t kShared = sizeof(float) * kProductDepth * (kRows + 4 + kProductColumns + 4);
  simt::launch<product<kRows>>(
      queue, {blocks(tiles * chunks * p.batches), 1, 1, kProductThreads, kShared}, p);
}

Status bind_product(const Binding& b, const Factor& x, const Factor& w, Epilogue epilogue,
                    const ProductOperands& operands) {
  const ops::TensorNode& node = b.node;
  ProductParams params{};
  Walk batch;
  const int rank = std::max(x.batch.rank, w.batch.rank);
  const auto batch_stride = [&](const Factor& f, int d) {
    return broadcast_stride(f.batch, rank, d) * f.rows * f.columns;
  };
  for (int d = 0; d < rank; ++d) {
    const auto size = [&](const Factor& f) {
      const int at = d - (rank - f.batch.rank);
      return at < 0 ? 1 : f.batch[at];
    };
    batch.add(size(x) == 1 ? size(w) : size(x), {batch_stride(x, d), batch_stride(w, d)});
  }
  int64_t rows = x.rows, batches = batch.elements();
  const auto& dimensions = batch.dimensions();
  // One matrix for all: their rows are those of one product.
  const bool folds = dimensions.size() == 1 && dimensions[0].strides[1] == 0 &&
                     dimensions[0].strides[0] == x.row * x.rows;
  if (folds) {
    rows *= batches;
    batches = 1;
  } else {
    for (const Dimension& d : dimensions) {
      params.batch_sizes[params.batch_rank] = static_cast<uint32_t>(d.size);
      params.x_batch[params.batch_rank] = static_cast<uint32_t>(d.strides[0]);
      params.w_batch[params.batch_rank++] = static_cast<uint32_t>(d.strides[1]);
    }
  }
  params.x_type = node.dtype(0);
  params.w_type = node.dtype(1);
  params.batches = static_cast<uint32_t>(batches);
  params.rows = static_cast<uint32_t>(rows);
  params.inner = static_cast<uint32_t>(x.columns);
  params.columns = static_cast<uint32_t>(w.columns);
  params.x_row = static_cast<uint32_t>(x.row);
  params.x_inner = static_cast<uint32_t>(x.column);
  params.w_inner = static_cast<uint32_t>(w.row);
  params.w_column = static_cast<uint32_t>(w.column);
  epilogue.y_type = b.outputs[0].dtype;
  params.epilogue = epilogue;

  const int64_t outputs = batches * rows * w.columns, across = simt::div_up(w.columns, 64);
  const auto block_count = [&](int64_t tile) {
    return batches * across * simt::div_up(rows, tile);
  };
  const int64_t busy = b.target.multiprocessors;  // blocks that keep the device busy
  const bool few = block_count(kManyRows) < busy;
  const int64_t chunks = simt::div_up(x.columns, kChunk);
  const bool by_matrices = suits_half_product(params);
  const bool splits = chunks > 1 && block_count(few ? kFewRows : kManyRows) < busy / 2;
  const auto sums_bytes = (outputs * int64_t{sizeof(float)} + 255) / 256 * 256;
  std::shared_ptr<const ops::PlannedProduct> library;
  if (by_matrices && !few) {
    LMN_ASSIGN_OR_RETURN(library, plan_by_library(node, params, sums_bytes));
  }
  b.kernel.by_library = library != nullptr;
  b.kernel.cost = 1 + static_cast<double>(outputs * x.columns) / 1000;  // nanoseconds, roughly
  if (splits) b.kernel.scratch_bytes = static_cast<size_t>(chunks * outputs) * sizeof(float);
  if (library != nullptr)
    b.kernel.scratch_bytes = static_cast<size_t>(sums_bytes) + library->workspace_bytes();
  b.kernel.set([=](const ops::Operands& io, const ops::Worker& worker) {
    ProductParams p = params;
    p.x = io.input<std::byte>(0);
    p.w = io.input<std::byte>(1);
    p.partial = splits ? reinterpret_cast<float*>(worker.scratch) : nullptr;
    Epilogue& e = p.epilogue;
    e.c = operands.c < 0 ? nullptr : io.input<std::byte>(operands.c);
    e.residual = operands.residual < 0 ? nullptr : io.input<std::byte>(operands.residual);
    e.y = io.output<std::byte>(0);
    if (library != nullptr) {
      p.partial = reinterpret_cast<float*>(worker.scratch);
      library->launch(p.x, p.w, p.partial, worker.scratch + sums_bytes, *worker.queue);
      p.inner = kChunk;  // add_chunks finds one chunk
    } else if (few) {
      launch_product<kFewRows>(p, by_matrices, *worker.queue);
    } else {
      launch_product<kManyRows>(p, by_matrices, *worker.queue);
    }
    if (splits || library != nullptr) {
      simt::launch<add_chunks>(
          *worker.queue, {blocks(simt::div_up(outputs, kProductThreads)), 1, 1, kProductThreads},
          p);
    }
  });
  return {};
}

Epilogue plain_epilogue(float alpha) {
  Epilogue e{};
  e.alpha = alpha;
  e.beta = 1;
  e.activation = ElementOp::kIdentity;
  return e;
}

Status set_activation(const ops::TensorNode& node, const ops::Activation& activation, Epilogue* e) {
  using Kind = ops::ActivationKind;
  e->numbers[0] = activation.alpha;
  e->numbers[1] = activation.beta;
  switch (activation.kind) {
    case Kind::kNone:
      return {};
    case Kind::kRelu:
      return e->activation = ElementOp::kRelu, Status();
    case Kind::kTanh:
      return e->activation = ElementOp::kTanh, Status();
    case Kind::kSigmoid:
      return e->activation = ElementOp::kSigmoid, Status();
    case Kind::kLeakyRelu:
      return e->activation = ElementOp::kLeakyRelu, Status();
    case Kind::kHardSigmoid:
      return e->activation = ElementOp::kHardSigmoid, Status();
    case Kind::kSilu:
      return e->activation = ElementOp::kSwish, Status();
    case Kind::kGelu:
      return e->activation = ElementOp::kGelu, Status();
    default:
      return node.unsupported("its activation has no kernel on a GPU");
  }
}

}  // namespace

Status bind_matmul(const Binding& b) {
  LMN_RETURN_IF_ERROR(check_floats(b.node));
  if (b.node.integer("transBatchA", 0) != 0 || b.node.integer("transBatchB", 0) != 0)
    return b.node.unsupported("transposed batches have no kernel on a GPU");
  return bind_product(b, make_factor(b.node.shape(0), true, b.node.integer("transA", 0) != 0),
                      make_factor(b.node.shape(1), false, b.node.integer("transB", 0) != 0),
                      plain_epilogue(b.node.number("alpha", 1.0f)), {});
}

Status bind_gemm(const Binding& b) {
  const ops::TensorNode& node = b.node;
  LMN_RETURN_IF_ERROR(check_floats(node));
  Epilogue e = plain_epilogue(node.number("alpha", 1.0f));
  e.beta = node.number("beta", 1.0f);
  ProductOperands operands;
  if (node.has(2) && e.beta != 0.0f) {
    const Shape& c = node.shape(2);
    operands.c = 2;
    e.c_type = node.dtype(2);
    if (c.last() != 1) e.c_column = 1;
    if (c.rank > 1 && c[c.rank - 2] != 1) e.c_row = static_cast<uint32_t>(c.last());
  }
  if (node.op() == ops::TensorOp::kFusedGemm) {
    ops::Activation activation;
    LMN_RETURN_IF_ERROR(ops::read_activation(node, &activation));
    LMN_RETURN_IF_ERROR(set_activation(node, activation, &e));
  }
  return bind_product(b, make_factor(node.shape(0), true, node.integer("transA", 0) != 0),
                      make_factor(node.shape(1), false, node.integer("transB", 0) != 0), e,
                      operands);
}

Status bind_fused_linear(const Binding& b) {
  const ops::TensorNode& node = b.node;
  LMN_RETURN_IF_ERROR(check_floats(node));
  static constexpr struct {
    std::string_view name;
    ElementOp op;
  } kActivations[] = {
      {"", ElementOp::kIdentity},         {"Relu", ElementOp::kRelu},  {"Gelu", ElementOp::kGelu},
      {"GeluTanh", ElementOp::kGeluTanh}, {"Silu", ElementOp::kSwish}, {"Tanh", ElementOp::kTanh},
      {"Sigmoid", ElementOp::kSigmoid},
  };
  Epilogue e = plain_epilogue(1.0f);
  const std::string_view wanted = node.text("activation", "");
  bool found = false;
  for (const auto& activation : kActivations) {
    if (activation.name != wanted) continue;
    e.activation = activation.op;
    found = true;
  }
  if (!found) return node.unsupported("activation %s", std::string(wanted).c_str());
  ProductOperands operands;
  if (node.has(2)) {
    operands.c = 2;
    e.c_type = node.dtype(2);
    e.c_column = node.shape(2).elements() == 1 ? 0 : 1;
  }
  const Factor w = make_factor(node.shape(1), false, node.integer("transposed", 0) != 0);
  if (node.has(3)) {
    Shape product = node.shape(0);
    product[product.rank - 1] = w.columns;
    const Shape &out = b.outputs[0].shape, &residual = node.shape(3);
    bool repeats = product == out;  // the residual does, whole, or is there once
    int d = 1;
    while (d <= residual.rank && residual[residual.rank - d] == out[out.rank - d]) ++d;
    for (; d <= residual.rank; ++d) repeats &= residual[residual.rank - d] == 1;
    if (!repeats) return node.unsupported("its residual broadcasts row by row");
    operands.residual = 3;
    e.residual_type = node.dtype(3);
    e.residual_rows = static_cast<uint32_t>(std::max<int64_t>(residual.rows(), 1));
  }
  return bind_product(b, make_factor(node.shape(0), true, false), w, e, operands);
}

}  // namespace lmn::cuda::tensor
