// SPDX-License-Identifier: Apache-2.0
#include "ops/validate.h"

#include <cinttypes>

#include "core/check.h"
#include "ops/dequantize.h"

namespace lmn::ops {
namespace {

Status invalid(const char* op, const char* what) {
  return error(Code::kInvalidArgument, "%s: %s", op, what);
}

// Collects the first thing that is wrong with one operator's arguments.
class Front {
 public:
  explicit Front(const char* op) : op_(op) {}

  Front& require(bool condition, const char* what) {
    if (!condition && status_.ok()) status_ = invalid(op_, what);
    return *this;
  }
  Front& pointer(const void* p, const char* name) {
    if (p == nullptr && status_.ok()) {
      status_ = error(Code::kInvalidArgument, "%s: %s is a null pointer", op_, name);
    }
    return *this;
  }
  Front& at_least(int64_t value, int64_t least, const char* name) {
    if (value < least && status_.ok()) {
      status_ = error(Code::kInvalidArgument, "%s: %s is %" PRId64 ", it must be at least %" PRId64,
                      op_, name, value, least);
    }
    return *this;
  }
  Front& multiple(int64_t value, int64_t of, const char* name) {
    if (value % of != 0 && status_.ok()) {
      status_ =
          error(Code::kInvalidArgument, "%s: %s is %" PRId64 ", it must be a multiple of %" PRId64,
                op_, name, value, of);
    }
    return *this;
  }
  Front& rows(int64_t value) { return at_least(value, 0, "rows"); }
  Front& local(const WorkerLocal& p, const char* name) {
    return pointer(p.base, name)
        .at_least(p.worker_stride, 0, "worker_stride")
        .multiple(p.worker_stride, 4, "worker_stride");
  }
  Front& activation_type(DType type) {
    return require(type == DType::kQA8 || type == DType::kQA16, "y_type must be qa8 or qa16");
  }
  Front& rotation(const float* cos_sin, int64_t rot_dim, int64_t head_dim, RopeStyle style) {
    return pointer(cos_sin, "cos_sin")
        .at_least(rot_dim, 2, "rot_dim")
        .multiple(rot_dim, 2, "rot_dim")
        .require(rot_dim <= head_dim, "rot_dim is larger than head_dim")
        .require(style == RopeStyle::kInterleaved || style == RopeStyle::kHalves,
                 "unknown rope style");
  }
  Front& matrix(const PackedMatrix* m, const char* name) {
    if (m == nullptr || m->data == nullptr) return pointer(nullptr, name);
    int64_t rows = 0;
    for (const PackedSegment& s : m->segments) {
      require(s.row_begin == rows && s.rows > 0,
              "segments do not cover the rows of the packed matrix in order");
      require(s.offset >= 0 && s.offset % 64 == 0 && s.bytes > 0 && s.offset + s.bytes <= m->bytes,
              "a segment lies outside the packed matrix");
      rows += s.rows;
    }
    return require(rows == m->rows && rows > 0, "segments do not cover the packed matrix")
        .at_least(m->columns, 1, "columns")
        .require(!m->interleaved || m->rows % 2 == 0,
                 "an interleaved matrix has an odd number of rows");
  }
  Front& kv(const KvLayer* kv) {
    if (kv == nullptr) return pointer(nullptr, "kv");
    pointer(kv->k, "kv->k").pointer(kv->v, "kv->v");
    at_least(kv->kv_heads, 1, "kv_heads").at_least(kv->head_dim, 1, "head_dim");
    at_least(kv->page_tokens, 16, "page_tokens").multiple(kv->page_tokens, 16, "page_tokens");
    return require(
               kv->dtype == DType::kF16 || kv->dtype == DType::kF32 || kv->dtype == DType::kQ8_0,
               "a KV cache is f16, f32 or q8_0")
        .require(kv->dtype != DType::kQ8_0 || kv->head_dim % 32 == 0,
                 "head_dim is not a multiple of 32, as a KV cache in q8_0 needs");
  }
  Status done() { return std::move(status_); }

 private:
  const char* op_;
  Status status_;
};

}  // namespace

Status validate(const EmbeddingArgs& a) {
  return Front("embedding")
      .rows(a.rows)
      .matrix(a.table, "table")
      .pointer(a.ids, "ids")
      .pointer(a.y, "y")
      .require(a.table == nullptr || a.columns == a.table->columns,
               "columns differ from the table's")
      .require(a.table == nullptr || !a.table->interleaved, "an interleaved matrix is no table")
      .done();
}

Status validate(const RmsNormArgs& a) {
  return Front("rms_norm")
      .rows(a.rows)
      .at_least(a.columns, 1, "columns")
      .pointer(a.x, "x")
      .pointer(a.weight, "weight")
      .pointer(a.y, "y")
      .require(a.eps >= 0, "eps is negative or not a number")
      .done();
}

Status validate(const QuantizeArgs& a) {
  return Front("quantize")
      .rows(a.rows)
      .at_least(a.columns, 32, "columns")
      .multiple(a.columns, 32, "columns")
      .pointer(a.x, "x")
      .local(a.y, "y")
      .activation_type(a.y_type)
      .done();
}

Status validate(const RmsNormQuantizeArgs& a) {
  return Front("rms_norm_quantize")
      .rows(a.rows)
      .at_least(a.columns, 32, "columns")
      .multiple(a.columns, 32, "columns")
      .pointer(a.x, "x")
      .pointer(a.weight, "weight")
      .local(a.y, "y")
      .activation_type(a.y_type)
      .require(a.eps >= 0, "eps is negative or not a number")
      .done();
}

Status validate(const LinearArgs& a) {
  return Front("linear")
      .rows(a.rows)
      .local(a.x, "x")
      .matrix(a.weight, "weight")
      .pointer(a.y, "y")
      .require(a.weight == nullptr || a.weight->input_type == DType::kF32 ||
                   a.weight->input_type == DType::kQA8 || a.weight->input_type == DType::kQA16,
               "the weight's input type must be f32, qa8 or qa16")
      .done();
}

Status validate(const RopeTableArgs& a) {
  return Front("rope_table")
      .rows(a.rows)
      .pointer(a.positions, "positions")
      .pointer(a.inv_freq, "inv_freq")
      .pointer(a.cos_sin, "cos_sin")
      .at_least(a.rot_dim, 2, "rot_dim")
      .multiple(a.rot_dim, 2, "rot_dim")
      .done();
}

Status validate(const RopeArgs& a) {
  return Front("rope")
      .rows(a.rows)
      .pointer(a.x, "x")
      .at_least(a.heads, 1, "heads")
      .at_least(a.head_dim, 2, "head_dim")
      .rotation(a.cos_sin, a.rot_dim, a.head_dim, a.style)
      .require(a.x_stride >= a.heads * a.head_dim, "x_stride is shorter than a row")
      .done();
}

Status validate(const KvWriteArgs& a) {
  const int64_t row = a.kv == nullptr ? 0 : int64_t{a.kv->kv_heads} * a.kv->head_dim;
  return Front("kv_write")
      .rows(a.rows)
      .kv(a.kv)
      .pointer(a.k, "k")
      .pointer(a.v, "v")
      .pointer(a.slots, "slots")
      .require(a.k_stride >= row && a.v_stride >= row, "a stride is shorter than a row")
      .done();
}

Status validate(const RopeKvWriteArgs& a) {
  return Front("rope_kv_write")
      .rows(a.rows)
      .kv(a.kv)
      .pointer(a.qkv, "qkv")
      .pointer(a.slots, "slots")
      .at_least(a.heads, 1, "heads")
      .rotation(a.cos_sin, a.rot_dim, a.kv == nullptr ? 0 : a.kv->head_dim, a.style)
      .done();
}

Status validate(const AttentionArgs& a) {
  Front front("paged_attention");
  front.rows(a.rows)
      .kv(a.kv)
      .pointer(a.q, "q")
      .pointer(a.positions, "positions")
      .pointer(a.sequence_index, "sequence_index")
      .pointer(a.block_tables, "block_tables")
      .pointer(a.y, "y")
      .at_least(a.heads, 1, "heads")
      .at_least(a.table_stride, 1, "table_stride");
  if (a.kv != nullptr && a.kv->kv_heads > 0) {
    front.multiple(a.heads, a.kv->kv_heads, "heads (query heads per KV head)")
        .require(a.q_stride >= a.heads * a.kv->head_dim, "q_stride is shorter than a row");
  }
  LMN_RETURN_IF_ERROR(front.done());
  if (a.kv->head_dim % 8 != 0 || a.kv->head_dim > kMaxHeadDim) {
    return error(
        Code::kUnsupported,
        "attention: head_dim is %d; heads of a multiple of 8 up to %d elements are supported",
        a.kv->head_dim, static_cast<int>(kMaxHeadDim));
  }
  return {};
}

Status validate(const SiluMulArgs& a) {
  return Front("silu_mul")
      .rows(a.rows)
      .at_least(a.columns, 1, "columns")
      .pointer(a.gate, "gate")
      .pointer(a.up, "up")
      .pointer(a.y, "y")
      .require(a.gate_stride >= a.columns && a.up_stride >= a.columns,
               "a stride is shorter than a row")
      .done();
}

Status validate(const AddArgs& a) {
  return Front("residual_add")
      .rows(a.rows)
      .at_least(a.columns, 1, "columns")
      .pointer(a.a, "a")
      .pointer(a.b, "b")
      .pointer(a.y, "y")
      .done();
}

Status validate(const GatherRowsArgs& a) {
  return Front("gather_rows")
      .rows(a.rows)
      .at_least(a.columns, 1, "columns")
      .pointer(a.x, "x")
      .pointer(a.indices, "indices")
      .pointer(a.y, "y")
      .done();
}

Status validate_weight_type(DType weight, int64_t columns) {
  const DTypeInfo& type = info(weight);
  if (!can_dequantize(weight)) {
    return error(Code::kUnsupported,
                 "weights of type %.*s are not supported; f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, "
                 "q5_1, q4_k, q5_k and q6_k "
                 "are: convert the model to one of them",
                 static_cast<int>(type.name.size()), type.name.data());
  }
  if (columns < 1 || columns % type.block_elements != 0) {
    return error(Code::kInvalidArgument,
                 "a weight of type %.*s has %" PRId64 " columns, not a positive multiple of %u",
                 static_cast<int>(type.name.size()), type.name.data(), columns,
                 type.block_elements);
  }
  return {};
}

Status validate(const PackRequest& request) {
  const auto bad = [](const char* what) { return error(Code::kInvalidArgument, "pack: %s", what); };
  if (request.pieces.empty()) return bad("there is nothing to pack");
  if (request.input_type != DType::kF32 && request.input_type != DType::kQA8 &&
      request.input_type != DType::kQA16) {
    return bad("the input type must be f32, qa8 or qa16");
  }
  for (const TensorView& piece : request.pieces) {
    if (piece.shape.rank != 2 || piece.shape[0] < 1)
      return bad("a weight must have two dimensions, neither of them zero");
    if (piece.shape[1] != request.pieces[0].shape[1])
      return bad("the pieces have different numbers of columns");
    if (piece.data == nullptr) return bad("a piece has no data");
    LMN_RETURN_IF_ERROR(validate_weight_type(piece.dtype, piece.shape[1]));
    if (is_block_quantized(piece.dtype) == (request.input_type == DType::kF32)) {
      return bad(
          "float weights take f32 activations and quantised weights take qa8 or qa16: the pieces "
          "cannot be merged");
    }
  }
  if (request.interleaved) {
    if (request.pieces.size() != 2 || !(request.pieces[0].shape == request.pieces[1].shape) ||
        request.pieces[0].dtype != request.pieces[1].dtype) {
      return bad("only two pieces of equal shape and type can be interleaved");
    }
  }
  return {};
}

Status validate(Op op, const void* args) {
  LMN_CHECK(args != nullptr);
  switch (op) {
#define LMN_OP(e, name, Args, text) \
  case Op::k##e:                    \
    return validate(*static_cast<const Args*>(args));
#include "ops/ops.def"
#undef LMN_OP
  }
  return error(Code::kInvalidArgument, "unknown operator %d", static_cast<int>(op));
}

}  // namespace lmn::ops
