// SPDX-License-Identifier: Apache-2.0
//
// What cuda/core uses of the driver's API, for tests without a toolkit.
#pragma once

struct CUctx_st;
using CUcontext = CUctx_st*;
using CUdevice = int;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_INVALID_CONTEXT = 201 };
