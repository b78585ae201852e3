// SPDX-License-Identifier: Apache-2.0
//
// The Llama family: pre-norm decoder with RMS norm, rotary embedding, grouped-query attention over
// a paged KV cache and a gated SiLU feed-forward (Touvron et al. 2023, arXiv:2302.13971).
// Registered in model.cc.
#pragma once

#include "models/model.h"
#include "models/model_file.h"

namespace lmn::models {

// Pairs of a rotation are neighbours: the converter has permuted q and k so ("llama", which Mistral
// files are too).
Result<LanguageModel> build_llama(ModelFile file);
// Pairs are the halves of a head, as in the original checkpoint ("qwen2"; it has biases on q, k and
// v).
Result<LanguageModel> build_qwen2(ModelFile file);

}  // namespace lmn::models
