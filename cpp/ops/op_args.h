// SPDX-License-Identifier: Apache-2.0
//
// Argument structs of the operators: plain data, the contract between plans and kernels of every
// device.
//
// - `rows` comes first everywhere: it is what changes from step to step (a plan patches it; all
// else is fixed when the
//   plan is built). rows == 0 is legal and does nothing.
// - All matrices are row-major. `*_stride` is in elements from one row to the next.
// - Pointers do not overlap unless the comment says "in place".
// - WorkerLocal pointers: where a small activation is computed by every worker for itself (so that
// no barrier is needed),
//   each worker has its own copy at base + worker.index * worker_stride bytes. worker_stride 0
//   means one shared copy.
// - Rows are independent: no kernel may let the value of one row depend on `rows` or on the split
// (DESIGN section 7).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace lmn::ops {

struct PackedMatrix;  // ops/packed_matrix.h; only pointed at here, so that this header stays plain
                      // data

struct WorkerLocal {
  std::byte* base = nullptr;
  int64_t worker_stride = 0;  // bytes
};

// One layer of the paged KV cache. A page holds page_tokens tokens of every KV head. Keys are
// stored transposed, so that the lanes of a vector are neighbouring tokens and no sum runs across
// lanes:
//   k: [pages, kv_heads, head_dim, page_tokens]   v: [pages, kv_heads, page_tokens, head_dim]
// dtype is kF16, kF32 or kQ8_0, whose head_dim is a multiple of 32: there, what k and v have of a
// page and KV head is signed bytes in the same order, then float16 scales [head_dim / 32,
// page_tokens], one for 32 dimensions of a token. A scale is the block's largest magnitude / 127,
// rounded to float16, and its bytes are the nearest multiples of that, at most 127 of them; a block
// with a NaN or an infinity gets a scale that makes it NaN.
// page_tokens is a multiple of 16. A slot is page * page_tokens + offset within the page.
struct KvLayer {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  DType dtype = DType::kF16;
  int32_t page_tokens = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
};

enum class RopeStyle : int32_t {
  kInterleaved = 0,  // pairs (2i, 2i+1): GGUF "llama" (weights permuted by the converter)
  kHalves = 1,       // pairs (i, i + rot_dim/2): GPT-NeoX, Qwen2
};

struct EmbeddingArgs {
  int64_t rows;
  const PackedMatrix* table;  // [vocab, columns]
  const int32_t* ids;         // [rows], each in [0, vocab): checked where requests enter
  float* y;                   // [rows, columns]
  int64_t columns;
};

struct RmsNormArgs {
  int64_t rows;
  const float* x;       // [rows, columns]
  const float* weight;  // [columns]
  float* y;             // [rows, columns], may be x
  int64_t columns;
  float eps;
};

// A block whose largest magnitude is under this counts as zero (ops/quantized_rows.h).
inline constexpr float kQuantizeTiny = 1e-30f;

struct QuantizeArgs {
  int64_t rows;
  const float* x;   // [rows, columns]
  WorkerLocal y;    // y_type [rows, columns]
  int64_t columns;  // a multiple of 32
  DType y_type;     // kQA8 or kQA16
};

struct RmsNormQuantizeArgs {
  int64_t rows;
  const float* x;       // [rows, columns]
  const float* weight;  // [columns]
  WorkerLocal y;        // y_type [rows, columns]
  int64_t columns;      // a multiple of 32
  float eps;
  DType y_type;  // kQA8 or kQA16
};

struct LinearArgs {
  int64_t rows;
  WorkerLocal x;               // weight->input_type [rows, weight->columns]
  const PackedMatrix* weight;  // [n, columns]
  const float* bias;           // [n] or null
  const float* residual;       // [rows, y columns] or null; may be y (in place)
  float* y;  // [rows, n], or [rows, n / 2] where weight->interleaved: y = silu(first half) * second
             // half
  // Null, or where quantize(y) goes as well, rows of columns that are a multiple of 32, on devices
  // that do both at once (KernelTable::fuses_quantize).
  std::byte* y_quantized = nullptr;
  DType y_quantized_type = DType::kF32;
};

struct RopeTableArgs {
  int64_t rows;
  const int32_t* positions;  // [rows]
  const float* inv_freq;     // [rot_dim / 2], scaling variants already applied
  float*
      cos_sin;  // [rows, rot_dim]: rot_dim/2 cosines, then rot_dim/2 sines, each times `magnitude`
  int64_t rot_dim;
  float magnitude;  // YaRN's attention factor; 1 otherwise
};

struct RopeArgs {
  int64_t rows;
  float* x;  // [rows, heads, head_dim], in place; columns from rot_dim on are left alone
  const float* cos_sin;  // [rows, rot_dim]
  int64_t x_stride;
  int64_t heads, head_dim, rot_dim;
  RopeStyle style;
};

struct KvWriteArgs {
  int64_t rows;
  const float* k;  // [rows, kv_heads, head_dim]
  const float* v;  // [rows, kv_heads, head_dim]
  int64_t k_stride, v_stride;
  const int32_t* slots;  // [rows]
  const KvLayer* kv;
};

struct RopeKvWriteArgs {
  int64_t rows;
  float* qkv;  // [rows, (heads + 2 kv_heads) * head_dim]; q is rotated in place, k and v go to the
               // cache
  const float* cos_sin;  // [rows, rot_dim]
  const int32_t* slots;  // [rows]
  const KvLayer* kv;
  int64_t heads, rot_dim;
  RopeStyle style;
};

// Token t attends to positions 0 .. positions[t] of its sequence, whose pages are
// block_tables[sequence_index[t] * table_stride + position / page_tokens]. The tokens of one
// sequence are consecutive rows with ascending positions.
struct AttentionArgs {
  int64_t rows;
  const float* q;  // [rows, heads, head_dim]
  int64_t q_stride;
  const KvLayer* kv;
  const int32_t* positions;       // [rows]
  const int32_t* sequence_index;  // [rows]
  const int32_t* block_tables;    // [sequences, table_stride]
  int64_t table_stride;
  float* y;  // [rows, heads * head_dim]
  int64_t heads;
  float scale;
  std::byte* y_quantized = nullptr;  // as in LinearArgs
  DType y_quantized_type = DType::kF32;
};

struct SiluMulArgs {
  int64_t rows;
  const float* gate;  // [rows, columns]
  const float* up;    // [rows, columns]
  int64_t gate_stride, up_stride;
  float* y;  // [rows, columns]
  int64_t columns;
};

struct AddArgs {
  int64_t rows;
  const float* a;  // [rows, columns]
  const float* b;  // [rows, columns]
  float* y;        // [rows, columns], may be a or b
  int64_t columns;
};

struct GatherRowsArgs {
  int64_t rows;
  const float* x;          // [any, columns]
  const int32_t* indices;  // [rows]
  float* y;                // [rows, columns]
  int64_t columns;
};

}  // namespace lmn::ops
