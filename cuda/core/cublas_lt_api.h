// SPDX-License-Identifier: Apache-2.0
//
// What is used of the binary interface of cuBLASLt, versions 12 and 13, as its reference documents
// it: handles and descriptors are pointers, enumerators are ints.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmn::cuda::cublas_lt {

inline constexpr size_t kOldestVersion = 120000, kUnknownVersion = 140000;  // major * 10000 + …

inline constexpr int kSuccess = 0;                                   // cublasStatus_t
inline constexpr int kTranspose = 1;                                 // cublasOperation_t; 0: not
inline constexpr int kFloat32 = 0, kFloat16 = 2, kBFloat16 = 14;     // cudaDataType
inline constexpr int kComputeFloat32 = 68;                           // cublasComputeType_t
inline constexpr int kDescTransposeA = 3;                            // i32
inline constexpr int kLayoutBatchCount = 5, kLayoutBatchStride = 6;  // i32, i64
inline constexpr int kPreferenceWorkspace = 1;                       // u64, bytes
inline constexpr int kPreferenceReductions = 3;                      // u32, of bits; 0: none
inline constexpr int kPreferenceAlignmentA = 5, kPreferenceAlignmentB = 6;  // u32, bytes
inline constexpr int kConfigSplits = 2, kConfigReduction = 3;               // i32, u32

struct Algorithm {  // cublasLtMatmulAlgo_t
  uint64_t data[8];
};
struct Candidate {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Candidate) == 96);

// F(name without "cublasLt", what it returns, parameters)
#define LMN_CUBLAS_LT_FUNCTIONS(F)                                                                 \
  F(GetVersion, size_t, ())                                                                        \
  F(Create, int, (void** handle))                                                                  \
  F(Destroy, int, (void* handle))                                                                  \
  F(MatmulDescCreate, int, (void** desc, int compute_type, int scale_type))                        \
  F(MatmulDescDestroy, int, (void* desc))                                                          \
  F(MatmulDescSetAttribute, int, (void* desc, int attribute, const void* value, size_t bytes))     \
  F(MatrixLayoutCreate, int,                                                                       \
    (void** layout, int type, uint64_t rows, uint64_t columns, int64_t column_stride))             \
  F(MatrixLayoutDestroy, int, (void* layout))                                                      \
  F(MatrixLayoutSetAttribute, int, (void* layout, int attribute, const void* value, size_t bytes)) \
  F(MatmulPreferenceCreate, int, (void** preference))                                              \
  F(MatmulPreferenceDestroy, int, (void* preference))                                              \
  F(MatmulPreferenceSetAttribute, int,                                                             \
    (void* preference, int attribute, const void* value, size_t bytes))                            \
  F(MatmulAlgoGetHeuristic, int,                                                                   \
    (void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,   \
     Candidate* candidates, int* found))                                                           \
  F(MatmulAlgoConfigGetAttribute, int,                                                             \
    (const Algorithm* algorithm, int attribute, void* value, size_t bytes, size_t* written))       \
  F(Matmul, int,                                                                                   \
    (void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,    \
     void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,     \
     const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream))

struct Api {
#define LMN_CUBLAS_LT_POINTER(name, Returned, parameters) Returned(*name) parameters = nullptr;
  LMN_CUBLAS_LT_FUNCTIONS(LMN_CUBLAS_LT_POINTER)
#undef LMN_CUBLAS_LT_POINTER
};

}  // namespace lmn::cuda::cublas_lt
