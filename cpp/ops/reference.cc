// SPDX-License-Identifier: Apache-2.0
#include "ops/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/float16.h"
#include "ops/dequantize.h"
#include "ops/quantized_rows.h"
#include "ops/validate.h"

namespace lmn::ops {
namespace {

float load_float(const std::byte* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
void store_float(std::byte* p, float value) { std::memcpy(p, &value, sizeof value); }

double silu(double x) { return x / (1.0 + std::exp(-x)); }

// Row r of a packed matrix of ours: float32 rows, segment after segment.
const float* matrix_row(const PackedMatrix& m, int64_t row) {
  for (const PackedSegment& s : m.segments) {
    if (row < s.row_begin + s.rows) {
      return reinterpret_cast<const float*>(m.data + s.offset) + (row - s.row_begin) * m.columns;
    }
  }
  LMN_CHECK(false);
  return nullptr;
}

// One element of an activation row of any input type.
double activation(const std::byte* rows, DType type, int64_t columns, int64_t row, int64_t i) {
  if (type == DType::kF32) return load_float(rows + (row * columns + i) * 4);
  const QuantizedRow<const std::byte> x = quantized_row(rows, type, columns, row);
  const double scale = load_float(x.scales + i / 32 * 4);
  if (type == DType::kQA8) return scale * static_cast<int8_t>(x.q[i]);
  int16_t q;
  std::memcpy(&q, x.q + i * 2, sizeof q);
  return scale * q;
}

void reference(const EmbeddingArgs& a, const Worker&) {
  for (int64_t t = 0; t < a.rows; ++t) {
    std::memcpy(a.y + t * a.columns, matrix_row(*a.table, a.ids[t]),
                static_cast<size_t>(a.columns) * sizeof(float));
  }
}

void rms_norm_row(const float* x, const float* weight, int64_t columns, float eps, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < columns; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(columns) + eps);
  for (int64_t i = 0; i < columns; ++i) y[i] = static_cast<float>(x[i] * scale * weight[i]);
}

void reference(const RmsNormArgs& a, const Worker&) {
  for (int64_t t = 0; t < a.rows; ++t) {
    rms_norm_row(a.x + t * a.columns, a.weight, a.columns, a.eps, a.y + t * a.columns);
  }
}

// `x(i)` gives element i of block: the block is quantised as ops/quantized_rows.h says.
template <typename Element>
void quantize_block(Element x, DType type, int64_t block, const QuantizedRow<std::byte>& y) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < 32; ++i) {
    finite = finite && std::isfinite(x(i));
    largest = std::max(largest, std::fabs(x(i)));
  }
  const float limit = type == DType::kQA16 ? 32767.0f : 127.0f;
  const bool zero = !finite || largest < kQuantizeTiny;
  const float scale = !finite ? NAN : zero ? 0.0f : largest / limit;
  int64_t sum = 0;
  for (int64_t i = 0; i < 32; ++i) {
    const int16_t q =
        zero ? int16_t{0} : static_cast<int16_t>(std::nearbyintf(x(i) * (limit / largest)));
    sum += q;
    if (type == DType::kQA16) {
      std::memcpy(y.q + (block * 32 + i) * 2, &q, sizeof q);
    } else {
      y.q[block * 32 + i] = static_cast<std::byte>(static_cast<int8_t>(q));
    }
  }
  store_float(y.scales + block * 4, scale);
  store_float(y.sums + block * 4, scale * static_cast<float>(sum));
}

void reference(const QuantizeArgs& a, const Worker& worker) {
  std::byte* rows = a.y.base + worker.index * a.y.worker_stride;
  for (int64_t t = 0; t < a.rows; ++t) {
    const QuantizedRow<std::byte> y = quantized_row(rows, a.y_type, a.columns, t);
    for (int64_t b = 0; b < a.columns / 32; ++b) {
      const float* x = a.x + t * a.columns + b * 32;
      quantize_block([x](int64_t i) { return x[i]; }, a.y_type, b, y);
    }
  }
}

void reference(const RmsNormQuantizeArgs& a, const Worker& worker) {
  std::byte* rows = a.y.base + worker.index * a.y.worker_stride;
  for (int64_t t = 0; t < a.rows; ++t) {
    const float* x = a.x + t * a.columns;
    const QuantizedRow<std::byte> y = quantized_row(rows, a.y_type, a.columns, t);
    double sum = 0;
    for (int64_t i = 0; i < a.columns; ++i) sum += static_cast<double>(x[i]) * x[i];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(a.columns) + a.eps);
    for (int64_t b = 0; b < a.columns / 32; ++b) {
      const auto element = [&](int64_t i) {
        return static_cast<float>(x[b * 32 + i] * scale * a.weight[b * 32 + i]);
      };
      quantize_block(element, a.y_type, b, y);
    }
  }
}

void reference(const LinearArgs& a, const Worker& worker) {
  const PackedMatrix& w = *a.weight;
  const std::byte* x = a.x.base + worker.index * a.x.worker_stride;
  const int64_t outputs = w.interleaved ? w.rows / 2 : w.rows;
  const auto product = [&](int64_t t, int64_t channel) {
    const float* row = matrix_row(w, channel);
    double sum = 0;
    for (int64_t i = 0; i < w.columns; ++i)
      sum += activation(x, w.input_type, w.columns, t, i) * row[i];
    return a.bias == nullptr ? sum : sum + a.bias[channel];
  };
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t n = 0; n < outputs; ++n) {
      double value = product(t, n);
      if (w.interleaved) value = silu(value) * product(t, n + outputs);
      if (a.residual != nullptr) value += a.residual[t * outputs + n];
      a.y[t * outputs + n] = static_cast<float>(value);
    }
  }
}

void reference(const RopeTableArgs& a, const Worker&) {
  const int64_t half = a.rot_dim / 2;
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(a.positions[t]) * a.inv_freq[i];
      a.cos_sin[t * a.rot_dim + i] = static_cast<float>(std::cos(angle) * a.magnitude);
      a.cos_sin[t * a.rot_dim + half + i] = static_cast<float>(std::sin(angle) * a.magnitude);
    }
  }
}

void rotate_head(float* x, const float* cos_sin, int64_t rot_dim, RopeStyle style) {
  const int64_t half = rot_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    float* first = style == RopeStyle::kHalves ? x + i : x + 2 * i;
    float* second = style == RopeStyle::kHalves ? x + i + half : x + 2 * i + 1;
    const double c = cos_sin[i], s = cos_sin[half + i], x0 = *first, x1 = *second;
    *first = static_cast<float>(x0 * c - x1 * s);
    *second = static_cast<float>(x0 * s + x1 * c);
  }
}

void reference(const RopeArgs& a, const Worker&) {
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t h = 0; h < a.heads; ++h) {
      rotate_head(a.x + t * a.x_stride + h * a.head_dim, a.cos_sin + t * a.rot_dim, a.rot_dim,
                  a.style);
    }
  }
}

float load_half(const std::byte* p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return f16_to_f32(half);
}
void store_half(std::byte* p, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(p, &half, sizeof half);
}

// A KV head of a slot in the key or the value pages.
struct KvVector {
  DType dtype;
  std::byte* data;      // of dimension 0
  int64_t step;         // elements from one dimension to the next
  std::byte* scales;    // kQ8_0: of dimensions 0 to 31
  int64_t scales_step;  // bytes from one block to the next

  KvVector(const KvLayer& kv, bool key, int64_t slot, int64_t head) : dtype(kv.dtype) {
    const int64_t page = slot / kv.page_tokens, token = slot % kv.page_tokens;
    const int64_t elements = int64_t{kv.page_tokens} * kv.head_dim;
    std::byte* base =
        (key ? kv.k : kv.v) + (page * kv.kv_heads + head) * row_bytes(kv.dtype, elements);
    data = base + (key ? token : token * kv.head_dim) * bytes();
    step = key ? kv.page_tokens : 1;
    scales = base + elements + token * 2;
    scales_step = int64_t{kv.page_tokens} * 2;
  }
  int64_t bytes() const { return dtype == DType::kF32 ? 4 : dtype == DType::kF16 ? 2 : 1; }
  std::byte* at(int64_t d) const { return data + d * step * bytes(); }

  double load(int64_t d) const {
    if (dtype == DType::kF32) return load_float(at(d));
    if (dtype == DType::kF16) return load_half(at(d));
    return double{load_half(scales + d / 32 * scales_step)} * static_cast<int8_t>(*at(d));
  }
  void store(const float* x, int64_t head_dim) const {
    for (int64_t d = 0; d < head_dim; ++d) {
      if (dtype == DType::kF32) store_float(at(d), x[d]);
      if (dtype == DType::kF16) store_half(at(d), x[d]);
      if (dtype == DType::kQ8_0 && d % 32 == 0) store_block(x + d, d);
    }
  }

 private:
  void store_block(const float* x, int64_t begin) const {
    float largest = 0;
    for (int64_t i = 0; i < 32; ++i) {
      largest = std::isnan(x[i]) ? x[i] : std::max(std::fabs(x[i]), largest);
      if (std::isnan(largest)) break;
    }
    std::byte* at_scale = scales + begin / 32 * scales_step;
    store_half(at_scale, largest / 127.0f);
    const float scale = load_half(at_scale);
    for (int64_t i = 0; i < 32; ++i) {
      float n = 0;
      if (scale > 0 && std::isfinite(scale)) n = std::nearbyintf(x[i] * (1.0f / scale));
      *at(begin + i) = static_cast<std::byte>(static_cast<int8_t>(std::clamp(n, -127.0f, 127.0f)));
    }
  }
};

void write_slot(const KvLayer& kv, int64_t slot, const float* k, const float* v) {
  for (int64_t h = 0; h < kv.kv_heads; ++h) {
    KvVector(kv, true, slot, h).store(k + h * kv.head_dim, kv.head_dim);
    KvVector(kv, false, slot, h).store(v + h * kv.head_dim, kv.head_dim);
  }
}

void reference(const KvWriteArgs& a, const Worker&) {
  for (int64_t t = 0; t < a.rows; ++t) {
    write_slot(*a.kv, a.slots[t], a.k + t * a.k_stride, a.v + t * a.v_stride);
  }
}

void reference(const RopeKvWriteArgs& a, const Worker&) {
  const int64_t d = a.kv->head_dim, kv_heads = a.kv->kv_heads;
  for (int64_t t = 0; t < a.rows; ++t) {
    float* row = a.qkv + t * (a.heads + 2 * kv_heads) * d;
    for (int64_t h = 0; h < a.heads + kv_heads; ++h) {
      rotate_head(row + h * d, a.cos_sin + t * a.rot_dim, a.rot_dim, a.style);
    }
    write_slot(*a.kv, a.slots[t], row + a.heads * d, row + (a.heads + kv_heads) * d);
  }
}

void reference(const AttentionArgs& a, const Worker&) {
  const KvLayer& kv = *a.kv;
  const int64_t head_dim = kv.head_dim, group = a.heads / kv.kv_heads;
  double out[kMaxHeadDim];
  for (int64_t t = 0; t < a.rows; ++t) {
    const int32_t* blocks = a.block_tables + a.sequence_index[t] * a.table_stride;
    const auto slot_of = [&](int64_t position) {
      return int64_t{blocks[position / kv.page_tokens]} * kv.page_tokens +
             position % kv.page_tokens;
    };
    for (int64_t h = 0; h < a.heads; ++h) {
      const float* q = a.q + t * a.q_stride + h * head_dim;
      const auto score = [&](int64_t position) {
        const KvVector key(kv, true, slot_of(position), h / group);
        double sum = 0;
        for (int64_t d = 0; d < head_dim; ++d) sum += q[d] * key.load(d);
        return sum * a.scale;
      };
      double largest = -INFINITY, total = 0;
      for (int64_t p = 0; p <= a.positions[t]; ++p) largest = std::max(largest, score(p));
      std::fill_n(out, head_dim, 0.0);
      for (int64_t p = 0; p <= a.positions[t]; ++p) {
        const double weight = std::exp(score(p) - largest);
        total += weight;
        const KvVector value(kv, false, slot_of(p), h / group);
        for (int64_t d = 0; d < head_dim; ++d) out[d] += weight * value.load(d);
      }
      float* y = a.y + (t * a.heads + h) * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) y[d] = static_cast<float>(out[d] / total);
    }
  }
}

void reference(const SiluMulArgs& a, const Worker&) {
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t i = 0; i < a.columns; ++i) {
      a.y[t * a.columns + i] =
          static_cast<float>(silu(a.gate[t * a.gate_stride + i]) * a.up[t * a.up_stride + i]);
    }
  }
}

void reference(const AddArgs& a, const Worker&) {
  for (int64_t i = 0; i < a.rows * a.columns; ++i) a.y[i] = a.a[i] + a.b[i];
}

void reference(const GatherRowsArgs& a, const Worker&) {
  for (int64_t t = 0; t < a.rows; ++t) {
    const float* x = a.x + a.indices[t] * a.columns;
    std::memcpy(a.y + t * a.columns, x, static_cast<size_t>(a.columns) * sizeof(float));
  }
}

// The first part does everything.
template <typename Args>
void run(const void* args, const Worker& worker) {
  if (worker.part == 0) reference(*static_cast<const Args*>(args), worker);
}

size_t scratch_bytes(int64_t, int64_t, int64_t) { return 0; }
size_t shared_bytes(int64_t, int64_t, int) { return 0; }

Result<DType> linear_input_type(DType weight, int64_t columns, bool precise) {
  LMN_RETURN_IF_ERROR(validate_weight_type(weight, columns));
  if (!is_block_quantized(weight)) return DType::kF32;
  return precise ? DType::kQA16 : DType::kQA8;
}

Result<PackedMatrix> plan_pack(const PackRequest& request) {
  LMN_RETURN_IF_ERROR(validate(request));
  PackedMatrix m;
  m.columns = request.pieces[0].shape[1];
  m.input_type = request.input_type;
  m.interleaved = request.interleaved;
  for (const TensorView& piece : request.pieces) {
    const int64_t bytes = piece.shape[0] * m.columns * static_cast<int64_t>(sizeof(float));
    m.segments.push_back({piece.dtype, m.rows, piece.shape[0], m.bytes, bytes});
    m.rows += piece.shape[0];
    m.bytes += (bytes + 63) / 64 * 64;
  }
  return m;
}

void pack(const PackRequest& request, const PackedMatrix& matrix, std::byte* data,
          const Worker& worker) {
  if (worker.part != 0) return;
  for (size_t i = 0; i < matrix.segments.size(); ++i) {
    float* y = reinterpret_cast<float*>(data + matrix.segments[i].offset);
    dequantize(matrix.segments[i].source, request.pieces[i].data,
               matrix.segments[i].rows * matrix.columns, y);
  }
}

constexpr KernelTable make_table() {
  KernelTable table;
#define LMN_OP(e, name, Args, text) table.run[static_cast<int>(Op::k##e)] = run<Args>;
#include "ops/ops.def"
#undef LMN_OP
  table.scratch_bytes = scratch_bytes;
  table.shared_bytes = shared_bytes;
  table.linear_input_type = linear_input_type;
  table.plan_pack = plan_pack;
  table.pack = pack;
  return table;
}

constexpr KernelTable kReference = make_table();

}  // namespace

const KernelTable& reference_kernels() { return kReference; }

}  // namespace lmn::ops
