// SPDX-License-Identifier: Apache-2.0
//
// Owners of what the C ABI hands out, and its calls with their failure as a value.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lmnative/server.h"
#include "lmnative/version.h"

namespace lmn::server {

template <auto kDestroy>
struct Destroyer {
  template <typename T>
  void operator()(T* handle) const {
    kDestroy(handle);
  }
};
using ModelHandle = std::unique_ptr<lmn_model, Destroyer<lmn_model_destroy>>;
using TokenizerHandle = std::unique_ptr<lmn_tokenizer, Destroyer<lmn_tokenizer_destroy>>;
using EngineHandle = std::unique_ptr<lmn_engine, Destroyer<lmn_engine_destroy>>;
using RequestHandle = std::unique_ptr<lmn_request, Destroyer<lmn_request_destroy>>;
using SessionHandle = std::unique_ptr<lmn_session, Destroyer<lmn_session_destroy>>;
using SessionValueHandle = std::unique_ptr<lmn_session_value, Destroyer<lmn_session_value_destroy>>;
using TensorHandle = std::unique_ptr<DLManagedTensorVersioned, Destroyer<lmn_tensor_destroy>>;

struct Failure {
  lmn_status status = LMN_OK;
  std::string message;

  bool failed() const { return status != LMN_OK; }
};

// call(lmn_error** err) -> lmn_status.
template <typename Call>
Failure attempt(Call&& call) {
  lmn_error* error = nullptr;
  const lmn_status status = call(&error);
  if (status == LMN_OK) return {};
  Failure failure{status, lmn_error_message(error)};
  lmn_error_destroy(error);
  return failure;
}

// A struct of the ABI with its size set and all else zero.
template <typename T>
T sized() {
  T value{};
  value.struct_size = sizeof(T);
  return value;
}

}  // namespace lmn::server
