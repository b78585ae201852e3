// SPDX-License-Identifier: Apache-2.0
//
// Generation: a completion or chat on its way: from the request's fields to an engine's requests,
// and from their news to the answer, whole or as a stream of events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/connection.h"
#include "server/generation_request.h"
#include "server/models.h"
#include "server/slots.h"

namespace lmn::server {

class Generation final : public Work, private NewsReceiver {
 public:
  Generation(Connection& connection, std::shared_ptr<ServedEngine> model,
             GenerationRequest request);
  ~Generation() override;

  // Renders, tokenises and submits, parts of it on the helper thread where they take long. ApiError
  // when that is refused.
  void start();

  void abandon() override { drop_all(); }
  void resume() override;
  void give_up(ApiError why) override;
  const void* model() const override { return model_.get(); }

 private:
  // One request of the engine: a prompt and its n samples.
  struct Part {
    RequestHandle handle;
    uint64_t tag = 0;
    bool has_tag = false;
    bool has_news = false;  // that was not taken, as the client is slow
    uint32_t samples_left = 0;
  };
  // One answer: sample i of prompt p is choice p * n + i.
  struct Choice {
    std::string text;                             // of an answer that is given as a whole
    std::string tokens, logprobs, tops, offsets;  // lists in JSON, without their brackets
    uint64_t characters = 0;                      // so far
    const char* finish = nullptr;
    bool begun = false;  // an event was sent
  };

  void start_chat();
  void set_chat_prompt(std::string prompt);
  void encode_and_submit();
  void submit();
  lmn_request_options options_of(const PromptInput& input,
                                 const std::vector<lmn_string>& stop) const;
  void on_news(uint32_t part) override;
  void take_news(uint32_t part);
  void take_chunk(uint32_t part, const lmn_chunk& chunk);
  void note_first_token(const Part& part);
  void append_logprobs(const lmn_chunk& chunk, Choice* choice);
  void begin_stream();
  void send_event(uint32_t index, std::string_view body, const char* finish, Choice* choice);
  void send_text(uint32_t index, std::string_view text, Choice* choice);
  void end_part(uint32_t part);
  void finish();
  void fail(const ApiError& error);
  void drop_all();

  std::string logprobs_json(Choice* choice) const;  // and empties the lists
  std::string usage_json() const;
  std::string head() const;  // of the answer's object, up to its "choices"

  IoThread& thread_;
  Connection& connection_;  // until abandon()
  const std::shared_ptr<ServedEngine> model_;
  GenerationRequest request_;
  std::vector<Part> parts_;
  std::vector<Choice> choices_;
  size_t parts_left_ = 0;
  bool done_ = false;
  bool first_token_noted_ = false;
  uint64_t prompt_tokens_ = 0, cached_tokens_ = 0, completion_tokens_ = 0;
  int64_t created_s_ = 0;
  std::string head_;
  std::string event_;  // kept for its memory
};

}  // namespace lmn::server
