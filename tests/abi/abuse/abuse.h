// SPDX-License-Identifier: Apache-2.0
//
// What the abuse tests share: calls that record their error, and the handles of one model. The
// tests see the library as a client does: through include/ only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmnative/lmnative.h"
#include "testing.h"

namespace abuse {

// One call and what came of it. `call` gets the lmn_error ** to pass on.
struct Outcome {
  lmn_status status = LMN_OK;
  std::string message;     // of the error object; "" without one
  bool has_error = false;  // an error object came
};
inline Outcome outcome_of(const std::function<lmn_status(lmn_error**)>& call) {
  // A pointer that is not NULL at first: the call must clear it.
  lmn_error* err = reinterpret_cast<lmn_error*>(uintptr_t{1});
  Outcome out;
  out.status = call(&err);
  out.has_error = err != nullptr;
  if (err == nullptr) return out;
  out.message = lmn_error_message(err);
  EXPECT_EQ(lmn_error_status(err), out.status);
  lmn_error_destroy(err);
  return out;
}

// The call must fail with `status`, and its message must hold `word`.
inline void expect_failure(lmn_status status, const std::string& word, const char* file, int line,
                           const std::function<lmn_status(lmn_error**)>& call) {
  const Outcome got = outcome_of(call);
  if (got.status == status && got.has_error && got.message.find(word) != std::string::npos) return;
  ::testing::report_failure(file, line,
                            std::string("got ") + lmn_status_name(got.status) + ": " + got.message +
                                "; want " + lmn_status_name(status) + " with \"" + word + "\"");
}

template <typename T>
T sized() {
  T out{};
  out.struct_size = sizeof(T);
  return out;
}

template <auto destroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};

constexpr int64_t kSecond = 1'000'000'000;  // ns

using Model = std::unique_ptr<lmn_model, Destroy<lmn_model_destroy>>;
using Tokenizer = std::unique_ptr<lmn_tokenizer, Destroy<lmn_tokenizer_destroy>>;
using Decoder = std::unique_ptr<lmn_decoder, Destroy<lmn_decoder_destroy>>;
using Engine = std::unique_ptr<lmn_engine, Destroy<lmn_engine_destroy>>;
using Request = std::unique_ptr<lmn_request, Destroy<lmn_request_destroy>>;
using Tensor = std::unique_ptr<DLManagedTensorVersioned, Destroy<lmn_tensor_destroy>>;

std::string model_path();  // skips the test where there is no model
Model open_model();
Tokenizer create_tokenizer(const lmn_model* model);
Decoder create_decoder(const lmn_tokenizer* tokenizer);
Engine create_engine(const lmn_model* model, uint32_t max_sequences = 0, uint32_t flags = 0);
// An engine of a null model, which the engine keeps alive; `change` sets further options.
Engine create_null_engine(
    const std::string& name = "null:",
    const std::function<void(lmn_engine_options*)>& change = [](lmn_engine_options*) {});
// Until `done()`, a minute at most.
bool eventually(const std::function<bool()>& done);

lmn_engine_stats stats_of(const lmn_engine* engine);
// Nothing runs and waits any more, and every page is back; waits for the engine's last step.
void expect_idle(const lmn_engine* engine);
// Greedy, ignoring end-of-generation tokens; points to `prompt`.
lmn_request_options options_of(std::string_view prompt, uint32_t max_tokens);
Request submit(lmn_engine* engine, const lmn_request_options& options);
Request submit(lmn_engine* engine, const std::string& prompt, uint32_t max_tokens,
               uint32_t flags = 0);

struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  uint32_t finish_reason = LMN_FINISH_NONE;
  lmn_status status = LMN_OK;  // of the call that ended it
};
Answer drain(lmn_request* request);

}  // namespace abuse

#define CHECK_CALL(call)                                                                      \
  do {                                                                                        \
    const ::abuse::Outcome got_ = ::abuse::outcome_of([&](lmn_error** err) { return call; }); \
    if (got_.status != LMN_OK || got_.has_error) {                                            \
      ::testing::report_failure(__FILE__, __LINE__, std::string(#call ": ") + got_.message);  \
      ::testing::stop_test();                                                                 \
    }                                                                                         \
  } while (0)
// EXPECT_FAILURE(LMN_NOT_FOUND, "no such file", lmn_model_open(…, err));
#define EXPECT_FAILURE(status, word, ...)                   \
  ::abuse::expect_failure(status, word, __FILE__, __LINE__, \
                          [&](lmn_error** err) { return __VA_ARGS__; })
// The same with no place for an error: the status alone.
#define EXPECT_NULL_ARGUMENT(argument, ...)                                               \
  do {                                                                                    \
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "argument '" argument "' is NULL", __VA_ARGS__); \
    lmn_error** err = nullptr;                                                            \
    EXPECT_EQ(__VA_ARGS__, LMN_INVALID_ARGUMENT);                                         \
  } while (0)
