// SPDX-License-Identifier: Apache-2.0
//
// Memory that is refused, at every single allocation of a call in turn: the call says
// LMN_OUT_OF_MEMORY or copes, changes nothing, leaks nothing (AddressSanitizer), and works when it
// is made again.
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <new>

#include "lmnative/lmnative.h"
#include "testing.h"

namespace {

// How many more allocations of this thread succeed; negative: all.
thread_local int64_t allowed = -1;
thread_local int64_t made = 0;

void* allocate(size_t bytes, size_t alignment) {
  ++made;
  if (allowed == 0) throw std::bad_alloc();
  if (allowed > 0) --allowed;
  void* data = alignment <= alignof(std::max_align_t)
                   ? std::malloc(bytes)
                   : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes == 0 ? 1 : bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { std::free(data); }

namespace {

// Runs `call` with its 0th, 1st, … allocation refused, until it makes none that could be; at most
// `most` of them, evenly spread. `call` releases what it made.
void refuse_each(const char* what, int most, const std::function<lmn_status()>& call) {
  allowed = -1;
  made = 0;
  EXPECT_EQ(call(), LMN_OK);
  const int64_t total = made;
  const int64_t step = total <= most ? 1 : total / most;
  int64_t refused = 0;
  for (int64_t at = 0; at < total; at += step) {
    allowed = at;
    const lmn_status status = call();
    allowed = -1;
    refused += status == LMN_OUT_OF_MEMORY;
    if (status != LMN_OK && status != LMN_OUT_OF_MEMORY) {
      testing::report_failure(__FILE__, __LINE__,
                              std::string(what) + ": allocation " + std::to_string(at) + " of " +
                                  std::to_string(total) + " refused gives " +
                                  lmn_status_name(status));
    }
  }
  if (total > 0 && refused == 0)
    testing::report_failure(__FILE__, __LINE__, std::string(what) + ": nothing was refused");
  EXPECT_EQ(call(), LMN_OK);
}

lmn_model* open_model() {
  const std::string path = testing::default_model_path();
  if (path.empty()) testing::skip("no default model");
  lmn_model* model = nullptr;
  ASSERT(lmn_model_open(path.c_str(), nullptr, &model, nullptr) == LMN_OK);
  return model;
}

}  // namespace

TEST(refused_memory_in_tensors) {
  const int64_t shape[] = {3, 4};
  refuse_each("lmn_tensor_create", 100, [&] {
    DLManagedTensorVersioned* tensor = nullptr;
    lmn_error* err = nullptr;
    const lmn_status status = lmn_tensor_create(kDLFloat, 32, 2, shape, &tensor, &err);
    EXPECT((tensor != nullptr) == (status == LMN_OK) && (err == nullptr) == (status == LMN_OK));
    lmn_tensor_destroy(tensor);
    lmn_error_destroy(err);
    return status;
  });
}

TEST(refused_memory_in_models) {
  lmn_model* opened = open_model();
  const std::string path = testing::default_model_path();
  refuse_each("lmn_model_open", 300, [&] {
    lmn_model* model = nullptr;
    const lmn_status status = lmn_model_open(path.c_str(), nullptr, &model, nullptr);
    EXPECT((model != nullptr) == (status == LMN_OK));
    lmn_model_destroy(model);
    return status;
  });
  refuse_each("lmn_model_tensor_export", 100, [&] {
    DLManagedTensorVersioned* tensor = nullptr;
    const lmn_status status =
        lmn_model_tensor_export(opened, "output_norm.weight", &tensor, nullptr);
    lmn_tensor_destroy(tensor);
    return status;
  });
  lmn_model_destroy(opened);
}

TEST(refused_memory_in_tokenizers) {
  // The tokenizer is kept once it was built: a model for each try.
  const std::string path = testing::default_model_path();
  if (path.empty()) testing::skip("no default model");
  refuse_each("lmn_tokenizer_create", 60, [&] {
    const int64_t here = allowed;
    allowed = -1;
    lmn_model* model = open_model();
    made = 0;
    allowed = here;
    lmn_tokenizer* tokenizer = nullptr;
    const lmn_status status = lmn_tokenizer_create(model, &tokenizer, nullptr);
    allowed = -1;
    EXPECT((tokenizer != nullptr) == (status == LMN_OK));
    lmn_tokenizer_destroy(tokenizer);
    tokenizer = nullptr;
    EXPECT_EQ(lmn_tokenizer_create(model, &tokenizer, nullptr),
              LMN_OK);  // a failure is not remembered
    lmn_tokenizer_destroy(tokenizer);
    lmn_model_destroy(model);
    return status;
  });
}

TEST(refused_memory_in_text) {
  lmn_model* model = open_model();
  lmn_tokenizer* tokenizer = nullptr;
  ASSERT(lmn_tokenizer_create(model, &tokenizer, nullptr) == LMN_OK);
  int32_t ids[64];
  size_t count = 0;
  refuse_each("lmn_tokenizer_encode", 200, [&] {
    return lmn_tokenizer_encode(tokenizer, "Hello, wonderful world! 12345", 29, nullptr, ids, 64,
                                &count, nullptr);
  });
  char text[512];
  size_t bytes = 0;
  refuse_each("lmn_tokenizer_decode", 200, [&] {
    return lmn_tokenizer_decode(tokenizer, ids, count, nullptr, text, sizeof text, &bytes, nullptr);
  });
  const lmn_chat_message messages[] = {{"user", "Hi", 2}};
  refuse_each("lmn_tokenizer_chat_render", 300, [&] {
    return lmn_tokenizer_chat_render(tokenizer, messages, 1, nullptr, text, sizeof text, &bytes,
                                     nullptr);
  });
  refuse_each("lmn_decoder", 100, [&] {
    lmn_decoder* decoder = nullptr;
    lmn_status status = lmn_decoder_create(tokenizer, nullptr, &decoder, nullptr);
    const char* piece = nullptr;
    if (status == LMN_OK) status = lmn_decoder_decode(decoder, ids[0], &piece, &bytes, nullptr);
    lmn_decoder_destroy(decoder);
    return status;
  });
  lmn_tokenizer_destroy(tokenizer);
  lmn_model_destroy(model);
}

TEST(refused_memory_in_engines) {
  lmn_model* model = open_model();
  lmn_engine_options options{};
  options.struct_size = sizeof options;
  options.threads = 1;
  options.context_tokens = 64;
  options.prefill_chunk_tokens = 16;
  refuse_each("lmn_engine_create", 25, [&] {
    lmn_engine* engine = nullptr;
    const lmn_status status = lmn_engine_create(model, &options, &engine, nullptr);
    EXPECT((engine != nullptr) == (status == LMN_OK));
    lmn_engine_destroy(engine);
    return status;
  });
  lmn_engine* engine = nullptr;
  ASSERT(lmn_engine_create(model, &options, &engine, nullptr) == LMN_OK);
  refuse_each("lmn_engine_submit", 300, [&] {
    lmn_request_options given{};
    given.struct_size = sizeof given;
    given.prompt = "Hello";
    given.prompt_bytes = 5;
    given.max_tokens = 1;
    given.flags = LMN_REQUEST_LOGPROBS | LMN_REQUEST_LOGITS;
    given.top_logprobs = 2;
    lmn_request* request = nullptr;
    lmn_status status = lmn_engine_submit(engine, &given, &request, nullptr);
    lmn_chunk chunk{};
    chunk.struct_size = sizeof chunk;
    if (status == LMN_OK) {
      do status = lmn_request_next(request, -1, &chunk, nullptr);
      while (status == LMN_OK && chunk.finish_reason == LMN_FINISH_NONE);
    }
    lmn_request_destroy(request);
    return status;
  });
  lmn_engine_destroy(engine);
  lmn_model_destroy(model);
}

TEST(refused_memory_in_requests_of_many_kinds) {
  lmn_model* model = nullptr;
  ASSERT(lmn_model_open("null:", nullptr, &model, nullptr) == LMN_OK);
  lmn_engine_options options{};
  options.struct_size = sizeof options;
  options.threads = 1;
  refuse_each("lmn_engine_create of a null model", 60, [&] {
    lmn_engine* engine = nullptr;
    const lmn_status status = lmn_engine_create(model, &options, &engine, nullptr);
    EXPECT((engine != nullptr) == (status == LMN_OK));
    lmn_engine_destroy(engine);
    return status;
  });
  lmn_engine* engine = nullptr;
  ASSERT(lmn_engine_create(model, &options, &engine, nullptr) == LMN_OK);
  for (const bool called_back : {true, false}) {
    refuse_each("lmn_engine_submit with samples", 300, [&] {
      lmn_request_options given{};
      given.struct_size = sizeof given;
      given.prompt = "Hello";
      given.prompt_bytes = 5;
      given.max_tokens = 3;
      given.n = 3;
      given.flags = LMN_REQUEST_LOGITS;
      if (called_back)
        given.callback = [](void*, lmn_request*) {};
      else
        given.flags |= LMN_REQUEST_NOTIFY;
      lmn_request* request = nullptr;
      lmn_status status = lmn_engine_submit(engine, &given, &request, nullptr);
      EXPECT((request != nullptr) == (status == LMN_OK));
      if (status == LMN_OK) status = lmn_request_wait(request, -1, nullptr);
      lmn_request_destroy(request);
      return status;
    });
  }
  size_t count = 0;
  refuse_each("lmn_engine_histogram_get", 100, [&] {
    lmn_histogram histograms[16];
    return lmn_engine_histogram_get(engine, histograms, 16, &count, nullptr);
  });
  uint64_t tags[4];
  do EXPECT_EQ(lmn_engine_drain(engine, tags, 4, &count, nullptr), LMN_OK);
  while (count > 0);
  lmn_engine_destroy(engine);
  lmn_model_destroy(model);
}
