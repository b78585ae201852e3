// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "cpu/kernels/isa.h"
#include "cpu/panel_layout.h"
#include "cpu/tensor/tensor_kernels.h"
#include "ops/quantized_rows.h"
#include "ops/validate.h"

namespace lmn::cpu {
namespace {

using ops::PackedMatrix;
using ops::PackedSegment;
using ops::PackRequest;
using ops::Worker;

bool is_float(DType type) { return weight_kind(type).scales == ScaleKind::kNone; }
int64_t lanes_of(const IsaKernels& isa, DType type) {
  return is_float(type) ? isa.float_lanes : isa.quant_lanes;
}
int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Bytes of one row of what a Linear reads.
int64_t input_row_bytes(const PackedMatrix& m) { return row_bytes(m.input_type, m.columns); }

// The share of `count` units that begins where `share` of `total` cost does; unit costs are equal
// within the segment, and `before` is the cost of earlier segments. A unit belongs to the part in
// whose share its middle lies.
int64_t first_unit(int64_t before, int64_t unit_cost, int64_t count, int64_t bound) {
  if (bound <= before) return 0;
  return std::min(count, (2 * (bound - before) + unit_cost - 1) / (2 * unit_cost));
}

// From so many rows on, the cost of a panel is its arithmetic, which is the same for every type;
// below, it is its bytes.
constexpr int64_t kComputeBoundRows = 6;

// An interleaved matrix is one segment whose panels alternate between the two halves; a unit of
// work is then a pair.
template <const IsaKernels& kIsa>
void linear(const void* args, const Worker& worker) {
  const auto& a = *static_cast<const ops::LinearArgs*>(args);
  const PackedMatrix& m = *a.weight;
  if (a.rows <= 0) return;
  const int64_t unit = m.interleaved ? 2 : 1;
  const auto units_of = [&](const PackedSegment& s) {
    return divide_up(s.rows / unit, lanes_of(kIsa, s.source));
  };
  const auto unit_cost = [&](const PackedSegment& s) {
    const int64_t lanes = lanes_of(kIsa, s.source);
    return unit * (a.rows >= kComputeBoundRows ? lanes : panel_bytes(s.source, m.columns, lanes));
  };
  int64_t total = 0;
  for (const PackedSegment& s : m.segments) total += units_of(s) * unit_cost(s);
  const int64_t share_begin = total * worker.part / worker.parts;
  const int64_t share_end = total * (worker.part + 1) / worker.parts;

  LinearTask t{};
  t.input_type = m.input_type;
  t.columns = m.columns;
  t.gated = m.interleaved;
  t.rows = a.rows;
  t.x = a.x.base + worker.index * a.x.worker_stride;
  t.x_row_bytes = input_row_bytes(m);
  t.y_stride = m.rows / unit;
  t.scratch = worker.scratch;
  int64_t before = 0;
  for (const PackedSegment& s : m.segments) {
    const int64_t cost = unit_cost(s), units = units_of(s);
    t.source = s.source;
    t.panels = m.data + s.offset;
    t.panel_begin = unit * first_unit(before, cost, units, share_begin);
    t.panel_end = unit * first_unit(before, cost, units, share_end);
    t.channels = s.rows / unit;
    t.bias = a.bias == nullptr ? nullptr : a.bias + s.row_begin;
    t.bias_up = a.bias == nullptr || !m.interleaved ? nullptr : a.bias + t.channels;
    t.residual = a.residual == nullptr ? nullptr : a.residual + s.row_begin;
    t.y = a.y + s.row_begin;
    if (t.panel_begin < t.panel_end) kIsa.linear(t);
    before += units * cost;
  }
}

template <const IsaKernels& kIsa>
void embedding(const void* args, const Worker& worker) {
  const auto& a = *static_cast<const ops::EmbeddingArgs*>(args);
  const PackedMatrix& m = *a.table;
  const int64_t begin = a.rows * worker.part / worker.parts,
                end = a.rows * (worker.part + 1) / worker.parts;
  for (int64_t t = begin; t < end; ++t) {
    const int64_t id = a.ids[t];
    for (const PackedSegment& s : m.segments) {
      if (id < s.row_begin || id >= s.row_begin + s.rows) continue;
      const int64_t lanes = lanes_of(kIsa, s.source), row = id - s.row_begin;
      const std::byte* panel =
          m.data + s.offset + row / lanes * panel_bytes(s.source, m.columns, lanes);
      kIsa.unpack({s.source, m.input_type, m.columns, panel, row % lanes, a.y + t * a.columns});
    }
  }
}

// Angles in double, as exact as libm; once per step, so not worth vectors.
void rope_table(const void* args, const Worker& worker) {
  const auto& a = *static_cast<const ops::RopeTableArgs*>(args);
  const int64_t half = a.rot_dim / 2;
  const int64_t begin = a.rows * worker.part / worker.parts,
                end = a.rows * (worker.part + 1) / worker.parts;
  for (int64_t t = begin; t < end; ++t) {
    float* y = a.cos_sin + t * a.rot_dim;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(a.positions[t]) * static_cast<double>(a.inv_freq[i]);
      y[i] = static_cast<float>(std::cos(angle) * a.magnitude);
      y[half + i] = static_cast<float>(std::sin(angle) * a.magnitude);
    }
  }
}

void gather_rows(const void* args, const Worker& worker) {
  const auto& a = *static_cast<const ops::GatherRowsArgs*>(args);
  const int64_t begin = a.rows * worker.part / worker.parts,
                end = a.rows * (worker.part + 1) / worker.parts;
  for (int64_t t = begin; t < end; ++t) {
    std::memcpy(a.y + t * a.columns, a.x + a.indices[t] * a.columns,
                static_cast<size_t>(a.columns) * sizeof(float));
  }
}

template <const IsaKernels& kIsa>
Result<DType> linear_input_type(DType weight, int64_t columns, bool precise) {
  LMN_RETURN_IF_ERROR(ops::validate_weight_type(weight, columns));
  const WeightKind kind = weight_kind(weight);
  if (is_float(weight)) return DType::kF32;
  // Where bytes cannot be multiplied into 32 bits, weights of more bits multiply 16-bit activations
  // as fast as 8-bit ones. 6-bit weights have no layout for bytes: with two scales in a block of 32
  // columns, their zero would want two sums of the activations, which have one.
  const bool bytes_gain = kind.bits <= kIsa.byte_bits && kind.bits != 6;
  return precise || !bytes_gain ? DType::kQA16 : DType::kQA8;
}

template <const IsaKernels& kIsa>
Result<PackedMatrix> plan_pack(const PackRequest& request) {
  LMN_RETURN_IF_ERROR(ops::validate(request));
  PackedMatrix m;
  m.columns = request.pieces[0].shape[1];
  m.input_type = request.input_type;
  m.interleaved = request.interleaved;
  for (const TensorView& piece : request.pieces) {
    LMN_ASSIGN_OR_RETURN(const DType least, linear_input_type<kIsa>(piece.dtype, m.columns, false));
    if (least == DType::kQA16 && request.input_type == DType::kQA8) {
      const std::string_view type = info(piece.dtype).name;
      return error(Code::kUnsupported,
                   "pack: weights of type %.*s take qa16 activations on this CPU, not qa8",
                   static_cast<int>(type.size()), type.data());
    }
    if (m.interleaved && m.rows > 0) {  // the second piece shares the segment of the first
      m.segments[0].rows *= 2;
      m.segments[0].bytes *= 2;
      m.rows *= 2;
      m.bytes *= 2;
      continue;
    }
    const int64_t lanes = lanes_of(kIsa, piece.dtype), rows = piece.shape[0];
    const int64_t bytes = divide_up(rows, lanes) * panel_bytes(piece.dtype, m.columns, lanes);
    m.segments.push_back({piece.dtype, m.rows, rows, m.bytes, bytes});
    m.rows += rows;
    m.bytes += bytes;
  }
  return m;
}

template <const IsaKernels& kIsa>
void pack(const PackRequest& request, const PackedMatrix& m, std::byte* data,
          const Worker& worker) {
  const int64_t share_begin = m.bytes * worker.part / worker.parts;
  const int64_t share_end = m.bytes * (worker.part + 1) / worker.parts;
  for (size_t i = 0; i < request.pieces.size(); ++i) {
    const TensorView& piece = request.pieces[i];
    const PackedSegment& s = m.segments[m.interleaved ? 0 : i];
    const int64_t lanes = lanes_of(kIsa, piece.dtype), file_row = row_bytes(piece.dtype, m.columns);
    const int64_t bytes = panel_bytes(piece.dtype, m.columns, lanes);
    const int64_t begin = s.offset + (m.interleaved ? static_cast<int64_t>(i) * bytes : 0);
    const int64_t step = m.interleaved ? 2 * bytes : bytes;
    // The first panel at or past a packed byte.
    const auto panel_at = [&](int64_t byte) {
      return byte <= begin
                 ? 0
                 : std::min(divide_up(byte - begin, step), divide_up(piece.shape[0], lanes));
    };
    for (int64_t panel = panel_at(share_begin); panel < panel_at(share_end); ++panel) {
      const int64_t first = panel * lanes;
      kIsa.pack({piece.dtype, m.input_type, m.columns, piece.data + first * file_row,
                 std::min(lanes, piece.shape[0] - first), data + begin + panel * step});
    }
  }
}

template <const IsaKernels& kIsa>
size_t scratch_bytes(int64_t head_dim, int64_t heads_per_kv_head, int64_t columns) {
  const size_t most = std::max(kIsa.attention_scratch_bytes(head_dim, heads_per_kv_head),
                               kIsa.linear_scratch_bytes(columns));
  return (most + 63) / 64 * 64;
}

template <const IsaKernels& kIsa>
size_t shared_bytes(int64_t head_dim, int64_t heads_per_kv_head, int workers) {
  return kIsa.attention_shared_bytes(head_dim, heads_per_kv_head, workers);
}

template <const IsaKernels& kIsa>
Status prepare_tensor_op(const ops::TensorNode& node, std::shared_ptr<const void>* prepared) {
  return prepare({node, *prepared, kIsa});
}

template <const IsaKernels& kIsa>
Status bind_tensor_op(const ops::TensorNode& node, std::span<const ops::TensorType> outputs,
                      const ops::KernelTarget&, ops::TensorKernel* kernel) {
  return bind({node, outputs, *kernel, kIsa});
}

template <const IsaKernels& kIsa>
const ops::KernelTable& table() {
  static const ops::KernelTable kTable = [] {
    ops::KernelTable t;
    const auto set = [&t](ops::Op op, ops::KernelFn fn) { t.run[static_cast<int>(op)] = fn; };
    set(ops::Op::kEmbedding, embedding<kIsa>);
    set(ops::Op::kRmsNorm, kIsa.rms_norm);
    set(ops::Op::kLinear, linear<kIsa>);
    set(ops::Op::kRopeTable, rope_table);
    set(ops::Op::kRope, kIsa.rope);
    set(ops::Op::kKvWrite, kIsa.kv_write);
    set(ops::Op::kPagedAttention, kIsa.attention);
    set(ops::Op::kSiluMul, kIsa.silu_mul);
    set(ops::Op::kResidualAdd, kIsa.add);
    set(ops::Op::kGatherRows, gather_rows);
    set(ops::Op::kQuantize, kIsa.quantize);
    set(ops::Op::kRmsNormQuantize, kIsa.rms_norm_quantize);
    set(ops::Op::kRopeKvWrite, kIsa.rope_kv_write);
    t.scratch_bytes = scratch_bytes<kIsa>;
    t.shared_bytes = shared_bytes<kIsa>;
    t.linear_input_type = linear_input_type<kIsa>;
    t.plan_pack = plan_pack<kIsa>;
    t.pack = pack<kIsa>;
    t.tensor = {prepare_tensor_op<kIsa>, bind_tensor_op<kIsa>, evaluate_tensor_op};
    return t;
  }();
  return kTable;
}

// `base`, but for the linear kernels of a set on top of it.
template <const IsaKernels& kIsa>
const ops::KernelTable& table_on(const ops::KernelTable& base) {
  static const ops::KernelTable kTable = [&base] {
    ops::KernelTable t = base;
    t.run[static_cast<int>(ops::Op::kLinear)] = linear<kIsa>;
    return t;
  }();
  return kTable;
}

}  // namespace

const ops::KernelTable& scalar_table() { return table<scalar::kKernels>(); }
#if defined(__x86_64__)
const ops::KernelTable& avx2_table() { return table<avx2::kKernels>(); }
const ops::KernelTable& avx512_table() { return table<avx512::kKernels>(); }
const ops::KernelTable& amx_table() { return table_on<amx::kKernels>(avx512_table()); }
#elif defined(__aarch64__)
const ops::KernelTable& neon_table() { return table<neon::kKernels>(); }
const ops::KernelTable& neon_dotprod_table() { return table<neon_dotprod::kKernels>(); }
const ops::KernelTable& neon_i8mm_table() { return table<neon_i8mm::kKernels>(); }
#endif
#if defined(LMN_EMULATED_TARGETS)
const ops::KernelTable& scalar_tiles_table() {
  return table_on<scalar_tiles::kKernels>(scalar_table());
}
#if defined(__x86_64__)
const ops::KernelTable& amx_emulated_table() {
  return table_on<amx_emulated::kKernels>(avx512_table());
}
#endif
#endif

}  // namespace lmn::cpu
