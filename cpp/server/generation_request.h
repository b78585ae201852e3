// SPDX-License-Identifier: Apache-2.0
//
// What a client asks of an engine: the bodies of /v1/chat/completions and /v1/completions, and the
// header fields that go with them, checked and with their defaults (see openapi.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_parser.h"
#include "server/json.h"

namespace lmn::server {

struct ChatTurn {
  std::string role;
  std::string content;
};

// Text or token ids.
struct PromptInput {
  std::string text;
  std::vector<int32_t> ids;
  bool is_ids = false;
};

struct GenerationRequest {
  std::optional<std::string> model;  // as named
  bool chat = false;
  // Chat: the turns, and, where more is in the messages than the library's own renderers know, the
  // name of it.
  std::vector<ChatTurn> turns;
  std::string beyond_native;
  std::vector<PromptInput> prompts;  // one, of a chat

  bool parse_special = false;
  bool no_bos = false;  // the prompt begins with it
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  bool ignore_eos = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;
  uint32_t max_tokens = 0;  // 0: as many as the context holds
  uint32_t n = 1;
  float temperature = 1;
  float top_p = 1;
  float min_p = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  int32_t top_k = 0;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<lmn_token_bias> logit_bias;
  int32_t priority = 0;
  uint64_t deadline_ns = 0;
  uint64_t tenant = 0;
  uint64_t token_interval_ns = 0;
};

GenerationRequest read_chat_request(const Fields& fields);
GenerationRequest read_completion_request(const Fields& fields);
// X-Priority, X-Deadline-Ms, X-Tenant, X-Token-Interval-Ms.
void read_header_fields(const HttpParser& request, GenerationRequest* out);

// The name in "model", if any.
std::optional<std::string> read_model(const Fields& fields);

// A text, several, token ids, or several lists of them: of completions and embeddings.
std::vector<PromptInput> read_prompts(const Fields& fields, std::string_view name);
// Token ids, 0 or more; `param` names the array in errors.
std::vector<int32_t> read_token_ids(const json::array& array, const std::string& param);

}  // namespace lmn::server
