// SPDX-License-Identifier: Apache-2.0
//
// A libcublasLt.so that computes on the host, for cublas_lt_test.cc. It is written after NVIDIA's
// reference, with numbers of its own: matrices are stored column by column, attributes have the
// sizes that are documented, and what is not is refused. With LMN_FAKE_INCOMPLETE it lacks a
// function.
#include "fake_cublas_lt.h"

#include <cstring>

#include "core/float16.h"

namespace {

constexpr int kOk = 0, kNotInitialized = 1, kInvalidValue = 7;

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batches = 1;
  int64_t batch_stride = 0;
};
struct Desc {
  int32_t transpose_a = 0, transpose_b = 0;
};
struct Preference {};
struct Algo {
  uint64_t data[8];
};
struct Found {
  Algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

FakeCublasLt fake;

template <typename T>
int make(void** out, T value) {
  ++fake.descriptors;
  *out = new T(value);
  return kOk;
}
template <typename T>
int destroy(void* it) {
  --fake.descriptors;
  delete static_cast<T*>(it);
  return kOk;
}
template <typename T>
int set(T* to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return kInvalidValue;
  std::memcpy(to, value, bytes);
  return kOk;
}

[[maybe_unused]] float element(const Layout& m, const void* data, int64_t batch, uint64_t row,
                               uint64_t column) {
  const auto at =
      static_cast<size_t>(batch * m.batch_stride + static_cast<int64_t>(column) * m.leading) + row;
  const uint16_t bits = static_cast<const uint16_t*>(data)[at];
  return m.type == 14 ? lmn::bf16_to_f32(bits) : lmn::f16_to_f32(bits);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

FakeCublasLt* fake_cublas_lt() { return &fake; }

size_t cublasLtGetVersion() { return fake.version; }
int cublasLtCreate(void** handle) {
  if (fake.create_status != 0) return fake.create_status;
  ++fake.handles;
  *handle = &fake;
  return kOk;
}
int cublasLtDestroy(void* handle) {
  --fake.handles;
  return handle == &fake ? kOk : kNotInitialized;
}
int cublasLtMatmulDescCreate(void** desc, int compute_type, int scale_type) {
  fake.compute_type = compute_type;
  fake.scale_type = scale_type;
  return make(desc, Desc{});
}
int cublasLtMatmulDescDestroy(void* desc) { return destroy<Desc>(desc); }
int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, size_t bytes) {
  if (attribute == 3) return set(&static_cast<Desc*>(desc)->transpose_a, value, bytes);
  if (attribute == 4) return set(&static_cast<Desc*>(desc)->transpose_b, value, bytes);
  return kInvalidValue;
}
int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                               int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return kInvalidValue;
  return make(layout, Layout{type, rows, columns, leading});
}
int cublasLtMatrixLayoutDestroy(void* layout) { return destroy<Layout>(layout); }
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  if (attribute == 5) return set(&static_cast<Layout*>(layout)->batches, value, bytes);
  if (attribute == 6) return set(&static_cast<Layout*>(layout)->batch_stride, value, bytes);
  return kInvalidValue;
}
int cublasLtMatmulPreferenceCreate(void** preference) { return make(preference, Preference{}); }
int cublasLtMatmulPreferenceDestroy(void* preference) { return destroy<Preference>(preference); }
int cublasLtMatmulPreferenceSetAttribute(void*, int attribute, const void* value, size_t bytes) {
  if (attribute < 0 || attribute > 15 || bytes != (attribute == 1 ? 8u : 4u)) return kInvalidValue;
  fake.preferences[attribute] = 0;
  std::memcpy(&fake.preferences[attribute], value, bytes);
  return kOk;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int wanted,
                                   void* results, int* count) {
  ++fake.heuristics;
  *count = fake.candidates < wanted ? fake.candidates : wanted;
  for (int i = 0; i < *count; ++i) {
    Found found{};
    found.algo.data[0] = static_cast<uint64_t>(i);
    found.workspace = fake.workspace_bytes;
    std::memcpy(static_cast<std::byte*>(results) + sizeof(Found) * static_cast<size_t>(i), &found,
                sizeof(found));
  }
  return fake.heuristic_status;
}
int cublasLtMatmulAlgoConfigGetAttribute(const Algo* algo, int attribute, void* value, size_t bytes,
                                         size_t* written) {
  if (bytes != 4 || (attribute != 2 && attribute != 3)) return kInvalidValue;
  const int32_t splits = algo->data[0] == 0 ? 4 : 1;
  const uint32_t reduction = algo->data[0] == 1 ? 2 : 0;
  std::memcpy(value, attribute == 2 ? static_cast<const void*>(&splits) : &reduction, bytes);
  *written = bytes;
  return kOk;
}

#if !defined(LMN_FAKE_INCOMPLETE)
// D = alpha op(A) op(B) + beta C, of D [m, n], A [m, k] and B [k, n] once they are transposed.
int cublasLtMatmul(void* handle, void* desc, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void*, void*, void* d,
                   void* d_layout, const Algo* algo, void* workspace, size_t workspace_bytes,
                   void* stream) {
  ++fake.matmuls;
  fake.algorithm = static_cast<int>(algo->data[0]);
  fake.stream = stream;
  fake.workspace = workspace;
  fake.given_bytes = workspace_bytes;
  if (fake.matmul_status != 0) return fake.matmul_status;
  const Desc& op = *static_cast<Desc*>(desc);
  const Layout &la = *static_cast<Layout*>(a_layout), &lb = *static_cast<Layout*>(b_layout),
               &ld = *static_cast<Layout*>(d_layout);
  const uint64_t m = op.transpose_a == 0 ? la.rows : la.columns;
  const uint64_t k = op.transpose_a == 0 ? la.columns : la.rows;
  const uint64_t n = op.transpose_b == 0 ? lb.columns : lb.rows;
  const uint64_t k_of_b = op.transpose_b == 0 ? lb.rows : lb.columns;
  if (handle != &fake || k != k_of_b || ld.rows != m || ld.columns != n || ld.type != 0 ||
      la.type != lb.type || (la.type != 2 && la.type != 14) || la.batches != lb.batches ||
      la.batches != ld.batches || *static_cast<const float*>(beta) != 0)
    return kInvalidValue;
  for (int64_t batch = 0; batch < ld.batches; ++batch) {
    for (uint64_t row = 0; row < m; ++row) {
      for (uint64_t column = 0; column < n; ++column) {
        float sum = 0;
        for (uint64_t i = 0; i < k; ++i) {
          const float x =
              op.transpose_a == 0 ? element(la, a, batch, row, i) : element(la, a, batch, i, row);
          const float y = op.transpose_b == 0 ? element(lb, b, batch, i, column)
                                              : element(lb, b, batch, column, i);
          sum += x * y;
        }
        static_cast<float*>(d)[static_cast<size_t>(batch * ld.batch_stride +
                                                   static_cast<int64_t>(column) * ld.leading) +
                               row] = *static_cast<const float*>(alpha) * sum;
      }
    }
  }
  return kOk;
}
#endif

}  // extern "C"
#pragma GCC visibility pop
