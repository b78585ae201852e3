// SPDX-License-Identifier: Apache-2.0
//
// What a test tells fake_cublas_lt.cc, and what that has seen. Plain data: it crosses a dlopen.
#pragma once

#include <cstddef>
#include <cstdint>

struct FakeCublasLt {
  // Answers.
  size_t version = 130000;
  int create_status = 0, heuristic_status = 0, matmul_status = 0;
  int candidates = 3;             // the first splits, the second reduces, the third does neither
  size_t workspace_bytes = 4096;  // that the third needs
  // Seen.
  int handles = 0, descriptors = 0;  // that exist
  int heuristics = 0, matmuls = 0;
  uint64_t preferences[16] = {};  // by attribute
  int algorithm = -1;             // of the last product
  void* stream = nullptr;
  void* workspace = nullptr;
  size_t given_bytes = 0;
  int compute_type = 0, scale_type = 0;
};
