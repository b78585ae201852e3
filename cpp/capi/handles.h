// SPDX-License-Identifier: Apache-2.0
//
// What the opaque handles of the ABI hold: a share in an object of an inner room. A handle owns
// nothing that another handle needs alone, so any order of destruction is safe. Engine and request
// handles are private to engine.cc and request.cc, save for what submit needs of both
// (engine_handle.h).
#pragma once

#include <memory>
#include <string>

#include "capi/model_object.h"
#include "lmnative/model.h"
#include "lmnative/tokenizer.h"

struct lmn_model {
  std::shared_ptr<const lmn::capi::Model> object;
};

struct lmn_tokenizer {
  std::shared_ptr<const lmn::capi::Model> model;
  std::shared_ptr<const lmn::text::Tokenizer> object;
  std::string model_name;  // NUL-terminated copies for lmn_tokenizer_info
  std::string pre;
};
