// SPDX-License-Identifier: Apache-2.0
//
// NULL for every pointer argument, wrong struct sizes, reserved fields and flags, buffers that are
// too small.
#include <cmath>
#include <cstring>
#include <limits>

#include "abuse.h"

using namespace abuse;  // NOLINT: tests

TEST(null_is_a_no_op_for_every_destroy) {
  lmn_error_destroy(nullptr);
  lmn_tensor_destroy(nullptr);
  lmn_model_destroy(nullptr);
  lmn_tokenizer_destroy(nullptr);
  lmn_decoder_destroy(nullptr);
  lmn_engine_destroy(nullptr);
  lmn_request_destroy(nullptr);
  EXPECT_EQ(lmn_error_status(nullptr), LMN_OK);
  EXPECT_EQ(std::string(lmn_error_message(nullptr)), "");
}

TEST(status_names) {
  EXPECT_EQ(std::string(lmn_status_name(LMN_OK)), "LMN_OK");
  EXPECT_EQ(std::string(lmn_status_name(LMN_INTERNAL)), "LMN_INTERNAL");
  EXPECT_EQ(std::string(lmn_status_name(-1)), "LMN_UNKNOWN");
  EXPECT_EQ(std::string(lmn_status_name(13)), "LMN_UNKNOWN");
}

TEST(null_arguments_without_a_handle) {
  lmn_model* model = nullptr;
  EXPECT_NULL_ARGUMENT("path", lmn_model_open(nullptr, nullptr, &model, err));
  EXPECT_NULL_ARGUMENT("model", lmn_model_open("x", nullptr, nullptr, err));
  EXPECT_NULL_ARGUMENT("info", lmn_build_info_get(nullptr, err));
  const int64_t shape[] = {1};
  DLManagedTensorVersioned* tensor = nullptr;
  EXPECT_NULL_ARGUMENT("shape", lmn_tensor_create(kDLInt, 32, 1, nullptr, &tensor, err));
  EXPECT_NULL_ARGUMENT("tensor", lmn_tensor_create(kDLInt, 32, 1, shape, nullptr, err));
  EXPECT(model == nullptr && tensor == nullptr);
}

TEST(null_handles) {
  auto info = sized<lmn_model_info>();
  auto value = sized<lmn_value>();
  auto tensor_info = sized<lmn_tensor_info>();
  auto tokenizer_info = sized<lmn_tokenizer_info>();
  auto token_info = sized<lmn_token_info>();
  auto chunk = sized<lmn_chunk>();
  auto request_stats = sized<lmn_request_stats>();
  auto engine_stats = sized<lmn_engine_stats>();
  auto request_options = sized<lmn_request_options>();
  DLManagedTensorVersioned* tensor = nullptr;
  lmn_tokenizer* tokenizer = nullptr;
  lmn_decoder* decoder = nullptr;
  lmn_engine* engine = nullptr;
  lmn_request* request = nullptr;
  const char* text = nullptr;
  size_t count = 0;
  int32_t descriptor = 0;
  uint64_t number = 0;
  EXPECT_NULL_ARGUMENT("model", lmn_model_info_get(nullptr, &info, err));
  EXPECT_NULL_ARGUMENT("model", lmn_model_metadata_get(nullptr, 0, &value, err));
  EXPECT_NULL_ARGUMENT("model", lmn_model_metadata_find(nullptr, "x", &value, err));
  EXPECT_NULL_ARGUMENT("model", lmn_model_metadata_element_get(nullptr, 0, 0, &value, err));
  EXPECT_NULL_ARGUMENT("model", lmn_model_tensor_get(nullptr, 0, &tensor_info, err));
  EXPECT_NULL_ARGUMENT("model", lmn_model_tensor_export(nullptr, "x", &tensor, err));
  EXPECT_NULL_ARGUMENT("model", lmn_tokenizer_create(nullptr, &tokenizer, err));
  EXPECT_NULL_ARGUMENT("model", lmn_engine_create(nullptr, nullptr, &engine, err));
  EXPECT_NULL_ARGUMENT("tokenizer", lmn_tokenizer_info_get(nullptr, &tokenizer_info, err));
  EXPECT_NULL_ARGUMENT("tokenizer", lmn_tokenizer_token_get(nullptr, 0, &token_info, err));
  EXPECT_NULL_ARGUMENT("tokenizer",
                       lmn_tokenizer_encode(nullptr, "x", 1, nullptr, nullptr, 0, &count, err));
  EXPECT_NULL_ARGUMENT("tokenizer",
                       lmn_tokenizer_decode(nullptr, nullptr, 0, nullptr, nullptr, 0, &count, err));
  EXPECT_NULL_ARGUMENT("tokenizer", lmn_tokenizer_chat_render(nullptr, nullptr, 0, nullptr, nullptr,
                                                              0, &count, err));
  EXPECT_NULL_ARGUMENT("tokenizer", lmn_decoder_create(nullptr, nullptr, &decoder, err));
  EXPECT_NULL_ARGUMENT("decoder", lmn_decoder_decode(nullptr, 0, &text, &count, err));
  EXPECT_NULL_ARGUMENT("decoder", lmn_decoder_flush(nullptr, &text, &count, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_submit(nullptr, &request_options, &request, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_score(nullptr, nullptr, nullptr, &tensor, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_stats_get(nullptr, &engine_stats, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_memory_get(nullptr, nullptr, 0, &count, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_descriptor_get(nullptr, &descriptor, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_drain(nullptr, &number, 1, &count, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_histogram_get(nullptr, nullptr, 0, &count, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_profile_get(nullptr, nullptr, 0, &count, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_trace_get(nullptr, nullptr, 0, &count, &number, err));
  EXPECT_NULL_ARGUMENT("request", lmn_request_next(nullptr, 0, &chunk, err));
  EXPECT_NULL_ARGUMENT("request", lmn_request_wait(nullptr, 0, err));
  EXPECT_NULL_ARGUMENT("request", lmn_request_cancel(nullptr, err));
  EXPECT_NULL_ARGUMENT("request", lmn_request_stats_get(nullptr, &request_stats, err));
  EXPECT(tensor == nullptr && tokenizer == nullptr && decoder == nullptr && engine == nullptr &&
         request == nullptr);
}

TEST(null_outputs_with_a_handle) {
  const Model model = open_model();
  const Tokenizer tokenizer = create_tokenizer(model.get());
  const Decoder decoder = create_decoder(tokenizer.get());
  const Engine engine = create_engine(model.get());
  const Request request = submit(engine.get(), "a", 1);
  auto value = sized<lmn_value>();
  auto options = sized<lmn_request_options>();
  DLManagedTensorVersioned* tensor = nullptr;
  lmn_request* other = nullptr;
  const char* text = nullptr;
  size_t count = 0;
  uint64_t number = 0;
  int32_t id = 1;
  EXPECT_NULL_ARGUMENT("info", lmn_model_info_get(model.get(), nullptr, err));
  EXPECT_NULL_ARGUMENT("value", lmn_model_metadata_get(model.get(), 0, nullptr, err));
  EXPECT_NULL_ARGUMENT("key", lmn_model_metadata_find(model.get(), nullptr, &value, err));
  EXPECT_NULL_ARGUMENT("value", lmn_model_metadata_find(model.get(), "x", nullptr, err));
  EXPECT_NULL_ARGUMENT("value", lmn_model_metadata_element_get(model.get(), 0, 0, nullptr, err));
  EXPECT_NULL_ARGUMENT("info", lmn_model_tensor_get(model.get(), 0, nullptr, err));
  EXPECT_NULL_ARGUMENT("name", lmn_model_tensor_export(model.get(), nullptr, &tensor, err));
  EXPECT_NULL_ARGUMENT("tensor",
                       lmn_model_tensor_export(model.get(), "token_embd.weight", nullptr, err));
  EXPECT_NULL_ARGUMENT("tokenizer", lmn_tokenizer_create(model.get(), nullptr, err));
  EXPECT_NULL_ARGUMENT("info", lmn_tokenizer_info_get(tokenizer.get(), nullptr, err));
  EXPECT_NULL_ARGUMENT("info", lmn_tokenizer_token_get(tokenizer.get(), 0, nullptr, err));
  EXPECT_NULL_ARGUMENT(
      "count", lmn_tokenizer_encode(tokenizer.get(), "x", 1, nullptr, &id, 1, nullptr, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "'ids'",
                 lmn_tokenizer_encode(tokenizer.get(), "x", 1, nullptr, nullptr, 1, &count, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "'text'",
                 lmn_tokenizer_encode(tokenizer.get(), nullptr, 1, nullptr, &id, 1, &count, err));
  EXPECT_NULL_ARGUMENT(
      "ids", lmn_tokenizer_decode(tokenizer.get(), nullptr, 1, nullptr, nullptr, 0, &count, err));
  EXPECT_NULL_ARGUMENT("text_bytes", lmn_tokenizer_decode(tokenizer.get(), &id, 1, nullptr, nullptr,
                                                          0, nullptr, err));
  EXPECT_NULL_ARGUMENT("messages", lmn_tokenizer_chat_render(tokenizer.get(), nullptr, 1, nullptr,
                                                             nullptr, 0, &count, err));
  const lmn_chat_message no_role = {nullptr, "x", 1}, no_content = {"user", nullptr, 1};
  EXPECT_FAILURE(
      LMN_INVALID_ARGUMENT, "role",
      lmn_tokenizer_chat_render(tokenizer.get(), &no_role, 1, nullptr, nullptr, 0, &count, err));
  EXPECT_FAILURE(
      LMN_INVALID_ARGUMENT, "content",
      lmn_tokenizer_chat_render(tokenizer.get(), &no_content, 1, nullptr, nullptr, 0, &count, err));
  EXPECT_NULL_ARGUMENT("decoder", lmn_decoder_create(tokenizer.get(), nullptr, nullptr, err));
  EXPECT_NULL_ARGUMENT("text", lmn_decoder_decode(decoder.get(), 1, nullptr, &count, err));
  EXPECT_NULL_ARGUMENT("text_bytes", lmn_decoder_decode(decoder.get(), 1, &text, nullptr, err));
  EXPECT_NULL_ARGUMENT("text", lmn_decoder_flush(decoder.get(), nullptr, &count, err));
  EXPECT_NULL_ARGUMENT("engine", lmn_engine_create(model.get(), nullptr, nullptr, err));
  EXPECT_NULL_ARGUMENT("options", lmn_engine_submit(engine.get(), nullptr, &other, err));
  EXPECT_NULL_ARGUMENT("request", lmn_engine_submit(engine.get(), &options, nullptr, err));
  EXPECT_NULL_ARGUMENT("ids", lmn_engine_score(engine.get(), nullptr, nullptr, &tensor, err));
  EXPECT_NULL_ARGUMENT("stats", lmn_engine_stats_get(engine.get(), nullptr, err));
  EXPECT_NULL_ARGUMENT("count", lmn_engine_memory_get(engine.get(), nullptr, 0, nullptr, err));
  EXPECT_NULL_ARGUMENT("descriptor", lmn_engine_descriptor_get(engine.get(), nullptr, err));
  EXPECT_NULL_ARGUMENT("count", lmn_engine_drain(engine.get(), &number, 1, nullptr, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "'tags'",
                 lmn_engine_drain(engine.get(), nullptr, 1, &count, err));
  EXPECT_NULL_ARGUMENT("count", lmn_engine_histogram_get(engine.get(), nullptr, 0, nullptr, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "'histograms'",
                 lmn_engine_histogram_get(engine.get(), nullptr, 1, &count, err));
  EXPECT_NULL_ARGUMENT("count", lmn_engine_profile_get(engine.get(), nullptr, 0, nullptr, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "'entries'",
                 lmn_engine_profile_get(engine.get(), nullptr, 1, &count, err));
  EXPECT_NULL_ARGUMENT("count",
                       lmn_engine_trace_get(engine.get(), nullptr, 0, nullptr, &number, err));
  EXPECT_NULL_ARGUMENT("lost",
                       lmn_engine_trace_get(engine.get(), nullptr, 0, &count, nullptr, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "'events'",
                 lmn_engine_trace_get(engine.get(), nullptr, 1, &count, &number, err));
  EXPECT_NULL_ARGUMENT("chunk", lmn_request_next(request.get(), 0, nullptr, err));
  EXPECT_NULL_ARGUMENT("stats", lmn_request_stats_get(request.get(), nullptr, err));
}

TEST(struct_sizes) {
  const Model model = open_model();
  for (const uint32_t size : {0u, 4u, 7u, 12u, 4104u, 0xFFFFFFFFu}) {
    lmn_model_options options{};
    options.struct_size = size;
    lmn_model* other = nullptr;
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "lmn_model_options.struct_size",
                   lmn_model_open("x", &options, &other, err));
    lmn_model_info info{};
    info.struct_size = size;
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "lmn_model_info.struct_size",
                   lmn_model_info_get(model.get(), &info, err));
  }
}

TEST(an_older_client_gets_no_byte_more_than_it_asked_for) {
  const Model model = open_model();
  lmn_model_info info;
  std::memset(&info, 0xA5, sizeof info);
  info.struct_size = 16;  // up to and with `path`
  CHECK_CALL(lmn_model_info_get(model.get(), &info, err));
  EXPECT_EQ(info.struct_size, 16u);
  EXPECT(info.format_version == 2 || info.format_version == 3);
  EXPECT_EQ(std::string(info.path), model_path());
  const auto* bytes = reinterpret_cast<const unsigned char*>(&info);
  for (size_t i = 16; i < sizeof info; ++i) EXPECT_EQ(int(bytes[i]), 0xA5);
}

TEST(a_newer_client_gets_zeros_where_this_library_knows_nothing) {
  const Model model = open_model();
  struct Newer {
    lmn_model_info known;
    uint64_t added_later[2];
  } info;
  std::memset(&info, 0xA5, sizeof info);
  info.known.struct_size = sizeof info;
  CHECK_CALL(lmn_model_info_get(model.get(), &info.known, err));
  EXPECT_EQ(info.known.vocab_size, 49152u);
  EXPECT_EQ(info.added_later[0], 0u);
  EXPECT_EQ(info.added_later[1], 0u);
}

TEST(options_from_the_past_and_the_future) {
  const Model model = open_model();
  const Tokenizer tokenizer = create_tokenizer(model.get());
  size_t count = 0;
  lmn_encode_options older{};
  older.struct_size = 8;  // without add_bos and add_eos, which are then defaults
  older.add_bos = 99;
  EXPECT_EQ(lmn_tokenizer_encode(tokenizer.get(), "a", 1, &older, nullptr, 0, &count, nullptr),
            LMN_BUFFER_TOO_SMALL);
  EXPECT_EQ(count, 1u);
  struct Newer {
    lmn_encode_options known;
    uint64_t added_later;
  } newer{};
  newer.known.struct_size = sizeof newer;
  EXPECT_EQ(
      lmn_tokenizer_encode(tokenizer.get(), "a", 1, &newer.known, nullptr, 0, &count, nullptr),
      LMN_BUFFER_TOO_SMALL);
  newer.added_later = 1;
  EXPECT_FAILURE(
      LMN_UNSUPPORTED, "newer than lmnative",
      lmn_tokenizer_encode(tokenizer.get(), "a", 1, &newer.known, nullptr, 0, &count, err));
}

TEST(unknown_flags_and_values) {
  const Model model = open_model();
  const Tokenizer tokenizer = create_tokenizer(model.get());
  auto engine_options = sized<lmn_engine_options>();
  lmn_engine* engine = nullptr;
  engine_options.flags = 1u << 31;
  EXPECT_FAILURE(LMN_UNSUPPORTED, "flags",
                 lmn_engine_create(model.get(), &engine_options, &engine, err));
  auto model_options = sized<lmn_model_options>();
  model_options.read_mode = 3;
  lmn_model* other = nullptr;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "read_mode",
                 lmn_model_open(model_path().c_str(), &model_options, &other, err));
  auto encode = sized<lmn_encode_options>();
  size_t count = 0;
  encode.parse_special = 2;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "parse_special",
                 lmn_tokenizer_encode(tokenizer.get(), "a", 1, &encode, nullptr, 0, &count, err));
  encode.parse_special = 0;
  encode.add_eos = 3;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "add_eos",
                 lmn_tokenizer_encode(tokenizer.get(), "a", 1, &encode, nullptr, 0, &count, err));
}

TEST(engine_options_out_of_range) {
  const Model model = open_model();
  const std::pair<void (*)(lmn_engine_options*), const char*> cases[] = {
      {[](lmn_engine_options* o) { o->threads = -1; }, "threads"},
      {[](lmn_engine_options* o) { o->threads = 1025; }, "threads"},
      {[](lmn_engine_options* o) { o->context_tokens = 8193; }, "context_tokens"},
      {[](lmn_engine_options* o) { o->context_tokens = 0xFFFFFFFFu; }, "context_tokens"},
      {[](lmn_engine_options* o) { o->kv_tokens = 0xFFFFFFFFu; }, "kv_tokens"},
      {[](lmn_engine_options* o) { o->prefill_chunk_tokens = 4097; }, "prefill_chunk_tokens"},
      {[](lmn_engine_options* o) { o->queue_capacity = 0xFFFFFFFFu; }, "queue_capacity"},
      {[](lmn_engine_options* o) { o->max_sequences = 16385; },
       "max_sequences is 16385; it is 0 to 16384"},
      {[](lmn_engine_options* o) { o->prefix_cache = 3; }, "prefix_cache"},
      {[](lmn_engine_options* o) { o->queue_tokens = UINT64_MAX; }, "queue_tokens"},
      {[](lmn_engine_options* o) { o->queue_bytes = UINT64_MAX; }, "queue_bytes"},
      {[](lmn_engine_options* o) { o->inter_token_target_ns = UINT64_MAX; },
       "inter_token_target_ns"},
      {[](lmn_engine_options* o) { o->trace_events = (1u << 24) + 1; }, "trace_events"},
      {[](lmn_engine_options* o) { o->kv_type = 4; }, "kv_type is 4"},
      {[](lmn_engine_options* o) { o->activation_bits = 4; }, "activation_bits"},
      {[](lmn_engine_options* o) { o->device = "gpu"; }, "device is \"gpu\""},
      {[](lmn_engine_options* o) { o->device = "cuda:-1"; }, "device is \"cuda:-1\""},
      {[](lmn_engine_options* o) { o->device = "cuda:1x"; }, "device is \"cuda:1x\""},
  };
  for (const auto& [change, word] : cases) {
    auto options = sized<lmn_engine_options>();
    change(&options);
    lmn_engine* engine = nullptr;
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, word,
                   lmn_engine_create(model.get(), &options, &engine, err));
    EXPECT(engine == nullptr);
  }
}

TEST(request_options_out_of_range) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  static const lmn_string empty_stop = {"x", 0}, null_stop = {nullptr, 1},
                          latin1_stop = {"\xE9", 1};
  static const lmn_token_bias bad_bias = {49152, 1}, nan_bias = {1, kNan};
  static const int32_t bad_stop_id = 49152, bad_id = -1, one_id = 1;
  static const std::vector<int32_t> long_prompt(5000, 1);
  const std::pair<void (*)(lmn_request_options*), const char*> cases[] = {
      {[](lmn_request_options* o) { o->temperature = kNan; }, "temperature"},
      {[](lmn_request_options* o) { o->temperature = -1; }, "temperature"},
      {[](lmn_request_options* o) { o->temperature = kInf; }, "temperature"},
      {[](lmn_request_options* o) { o->top_k = -1; }, "top_k"},
      {[](lmn_request_options* o) { o->top_p = kNan; }, "top_p"},
      {[](lmn_request_options* o) { o->top_p = -0.5f; }, "top_p"},
      {[](lmn_request_options* o) { o->top_p = 1.5f; }, "top_p"},
      {[](lmn_request_options* o) { o->min_p = kNan; }, "min_p"},
      {[](lmn_request_options* o) { o->min_p = 2; }, "min_p"},
      {[](lmn_request_options* o) { o->repetition_penalty = -1; }, "repetition_penalty"},
      {[](lmn_request_options* o) { o->repetition_penalty = kInf; }, "repetition_penalty"},
      {[](lmn_request_options* o) { o->presence_penalty = 101; }, "presence_penalty"},
      {[](lmn_request_options* o) { o->frequency_penalty = kNan; }, "frequency_penalty"},
      {[](lmn_request_options* o) { o->seed = 1; }, "LMN_REQUEST_SEED"},
      {[](lmn_request_options* o) { o->top_logprobs = 65; }, "top_logprobs"},
      {[](lmn_request_options* o) { o->priority = 3; }, "priority"},
      {[](lmn_request_options* o) { o->n = 65; }, "n is 65; it is 1 to 64"},
      {[](lmn_request_options* o) { o->add_bos = 3; }, "add_bos"},
      {[](lmn_request_options* o) { o->stop_count = 1; }, "stop"},
      {[](lmn_request_options* o) { o->stop = &empty_stop, o->stop_count = 1; }, "stop[0]"},
      {[](lmn_request_options* o) { o->stop = &null_stop, o->stop_count = 1; }, "stop[0]"},
      {[](lmn_request_options* o) { o->stop = &latin1_stop, o->stop_count = 1; }, "stop"},
      {[](lmn_request_options* o) { o->stop_token_id_count = 1; }, "stop_token_ids"},
      {[](lmn_request_options* o) { o->stop_token_ids = &bad_stop_id, o->stop_token_id_count = 1; },
       "49152"},
      {[](lmn_request_options* o) { o->logit_bias_count = 1; }, "logit_bias"},
      {[](lmn_request_options* o) { o->logit_bias = &bad_bias, o->logit_bias_count = 1; }, "49152"},
      {[](lmn_request_options* o) { o->logit_bias = &nan_bias, o->logit_bias_count = 1; },
       "logit_bias"},
      {[](lmn_request_options* o) { o->prompt_ids = &one_id, o->prompt_id_count = 1; },
       "both are set"},
      {[](lmn_request_options* o) { o->prompt = nullptr; }, "both are NULL"},
      {[](lmn_request_options* o) {
         o->prompt = nullptr, o->prompt_ids = &bad_id, o->prompt_id_count = 1;
       },
       "-1"},
      {[](lmn_request_options* o) {
         o->prompt = nullptr, o->prompt_ids = &one_id, o->prompt_id_count = 0;
       },
       "prompt"},
      {[](lmn_request_options* o) { o->prompt = "a\xFFz", o->prompt_bytes = 3; }, "byte"},
      {[](lmn_request_options* o) { o->prompt_bytes = 0; }, "prompt"},
      {[](lmn_request_options* o) {
         o->prompt = nullptr, o->prompt_ids = long_prompt.data(),
         o->prompt_id_count = long_prompt.size();
       },
       "5000"},
  };
  for (const auto& [change, word] : cases) {
    auto options = sized<lmn_request_options>();
    options.prompt = "x";
    options.prompt_bytes = 1;
    change(&options);
    lmn_request* request = nullptr;
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, word,
                   lmn_engine_submit(engine.get(), &options, &request, err));
    EXPECT(request == nullptr);
  }
  auto options = sized<lmn_request_options>();
  options.prompt = "x";
  options.prompt_bytes = 1;
  options.flags = 1u << 30;
  lmn_request* request = nullptr;
  EXPECT_FAILURE(LMN_UNSUPPORTED, "flags",
                 lmn_engine_submit(engine.get(), &options, &request, err));
  options.flags = 0;
  options.reserved = 1;
  EXPECT_FAILURE(LMN_UNSUPPORTED, "reserved",
                 lmn_engine_submit(engine.get(), &options, &request, err));
}

TEST(tensors_out_of_range) {
  DLManagedTensorVersioned* tensor = nullptr;
  const int64_t shape[] = {2, 3}, negative[] = {2, -1}, huge[] = {1LL << 40, 1LL << 40};
  const std::pair<int32_t, int32_t> dtypes[] = {
      {kDLInt, 12},          {kDLFloat, 8}, {kDLBfloat, 32}, {kDLComplex, 64},
      {kDLOpaqueHandle, 64}, {kDLBool, 1},  {kDLInt, -8},    {kDLInt, 264}};
  for (const auto& dtype : dtypes) {
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "dtype",
                   lmn_tensor_create(dtype.first, dtype.second, 2, shape, &tensor, err));
  }
  for (const int ndim : {0, -1, 9}) {
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "ndim",
                   lmn_tensor_create(kDLInt, 8, ndim, shape, &tensor, err));
  }
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "shape[1] is -1",
                 lmn_tensor_create(kDLInt, 8, 2, negative, &tensor, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "64 bits",
                 lmn_tensor_create(kDLInt, 8, 2, huge, &tensor, err));
  const int64_t large[] = {1LL << 50};
  EXPECT_FAILURE(LMN_OUT_OF_MEMORY, "", lmn_tensor_create(kDLInt, 64, 1, large, &tensor, err));
  EXPECT(tensor == nullptr);
}

TEST(score_looks_at_the_tensor_it_is_lent) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  DLManagedTensorVersioned* logits = nullptr;
  const int64_t shape[] = {4};
  DLManagedTensorVersioned* raw = nullptr;
  CHECK_CALL(lmn_tensor_create(kDLInt, 64, 1, shape, &raw, err));
  const Tensor ids(raw);
  const auto expect = [&](lmn_status status, const char* word,
                          void (*change)(DLManagedTensorVersioned*)) {
    DLManagedTensorVersioned copy = *ids;
    change(&copy);
    EXPECT_FAILURE(status, word, lmn_engine_score(engine.get(), &copy, nullptr, &logits, err));
  };
  using T = DLManagedTensorVersioned*;
  expect(LMN_UNSUPPORTED, "DLPack 2", [](T t) { t->version.major = 2; });
  expect(LMN_INVALID_ARGUMENT, "device", [](T t) { t->dl_tensor.device.device_type = kDLCUDA; });
  expect(LMN_INVALID_ARGUMENT, "dtype", [](T t) { t->dl_tensor.dtype.bits = 16; });
  expect(LMN_INVALID_ARGUMENT, "dtype", [](T t) { t->dl_tensor.dtype.code = kDLFloat; });
  expect(LMN_INVALID_ARGUMENT, "dimensions", [](T t) { t->dl_tensor.ndim = 2; });
  expect(LMN_INVALID_ARGUMENT, "ids", [](T t) { t->dl_tensor.data = nullptr; });
  static int64_t none = 0;
  expect(LMN_INVALID_ARGUMENT, "prompt", [](T t) { t->dl_tensor.shape = &none; });
  static_cast<int64_t*>(ids->dl_tensor.data)[2] = int64_t{1} << 40;
  expect(LMN_INVALID_ARGUMENT, "index 2", [](T) {});
  static_cast<int64_t*>(ids->dl_tensor.data)[2] = 49152;
  expect(LMN_INVALID_ARGUMENT, "49152", [](T) {});
  EXPECT(logits == nullptr);
}

TEST(a_strided_tensor_is_read_with_its_strides) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  const int32_t plain[] = {504, 3575, 282, 4649};
  int64_t spread[9] = {-1, 4649, -1, 282, -1, 3575, -1, 504, -1};
  int64_t size = 4, stride = -2;
  DLManagedTensorVersioned ids{};
  ids.version = {1, 0};
  ids.dl_tensor.device = {kDLCPU, 0};
  ids.dl_tensor.ndim = 1;
  ids.dl_tensor.shape = &size;
  ids.dl_tensor.dtype = {kDLInt, 32, 1};
  ids.dl_tensor.data = const_cast<int32_t*>(plain);
  DLManagedTensorVersioned *first = nullptr, *second = nullptr;
  CHECK_CALL(lmn_engine_score(engine.get(), &ids, nullptr, &first, err));
  const Tensor want(first);
  ids.dl_tensor.dtype.bits = 64;
  ids.dl_tensor.data = spread;
  ids.dl_tensor.byte_offset = 7 * sizeof(int64_t);
  ids.dl_tensor.strides = &stride;
  CHECK_CALL(lmn_engine_score(engine.get(), &ids, nullptr, &second, err));
  const Tensor got(second);
  EXPECT_EQ(std::memcmp(want->dl_tensor.data, got->dl_tensor.data, 4 * 49152 * sizeof(float)), 0);
}

TEST(buffers_that_are_too_small) {
  const Model model = open_model();
  const Tokenizer tokenizer = create_tokenizer(model.get());
  const Engine engine = create_engine(model.get());
  size_t count = 99;
  // Asking for the size is no error, and brings no error object.
  const Outcome size = outcome_of([&](lmn_error** err) {
    return lmn_tokenizer_encode(tokenizer.get(), "Hello world", 11, nullptr, nullptr, 0, &count,
                                err);
  });
  EXPECT_EQ(size.status, LMN_BUFFER_TOO_SMALL);
  EXPECT(!size.has_error);
  EXPECT_EQ(count, 2u);
  int32_t ids[3] = {-7, -7, -7};
  EXPECT_FAILURE(
      LMN_BUFFER_TOO_SMALL, "2 are needed",
      lmn_tokenizer_encode(tokenizer.get(), "Hello world", 11, nullptr, ids, 1, &count, err));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(ids[0], -7);  // nothing was written
  CHECK_CALL(
      lmn_tokenizer_encode(tokenizer.get(), "Hello world", 11, nullptr, ids, 2, &count, err));
  EXPECT_EQ(ids[2], -7);
  EXPECT_EQ(count, 2u);
  CHECK_CALL(lmn_tokenizer_encode(tokenizer.get(), nullptr, 0, nullptr, nullptr, 0, &count, err));
  EXPECT_EQ(count, 0u);
  char text[12];
  std::memset(text, '#', sizeof text);
  EXPECT_FAILURE(LMN_BUFFER_TOO_SMALL, "11 are needed",
                 lmn_tokenizer_decode(tokenizer.get(), ids, 2, nullptr, text, 10, &count, err));
  EXPECT_EQ(text[0], '#');
  CHECK_CALL(lmn_tokenizer_decode(tokenizer.get(), ids, 2, nullptr, text, 11, &count, err));
  EXPECT_EQ(std::string(text, 12), "Hello world#");
  lmn_memory_entry entry{};
  EXPECT_FAILURE(LMN_BUFFER_TOO_SMALL, "are needed",
                 lmn_engine_memory_get(engine.get(), &entry, 1, &count, err));
  EXPECT(count > 1);
}
