// SPDX-License-Identifier: Apache-2.0
#include "server/generation.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "server/clock.h"
#include "server/reply.h"
#include "server/routes.h"
#include "server/tokens.h"
#include "server/utf8.h"

namespace lmn::server {
namespace {

// Longer texts are tokenised on the helper thread: this much takes below a millisecond.
constexpr size_t kLongPromptBytes = 64 << 10;

// What OpenAI writes for the logarithm of 0.
constexpr float kNever = -9999;

void append_logprob(std::string* out, float value) { append_number(out, std::max(value, kNever)); }

const char* finish_name(uint32_t reason) { return reason == LMN_FINISH_STOP ? "stop" : "length"; }

// What the log says.
const char* log_name(uint32_t reason) {
  switch (reason) {
    case LMN_FINISH_STOP:
      return "stop";
    case LMN_FINISH_LENGTH:
      return "length";
    case LMN_FINISH_DEADLINE:
      return "deadline";
    default:
      return "cancelled";
  }
}

std::string_view token_bytes(const ServedEngine& engine, int32_t id) {
  auto info = sized<lmn_token_info>();
  if (engine.tokenizer == nullptr ||
      lmn_tokenizer_token_get(engine.tokenizer.get(), id, &info, nullptr) != LMN_OK)
    return {};
  return {info.bytes, static_cast<size_t>(info.byte_count)};
}

// "token": "…", "logprob": -0.5, "bytes": [1, 2]
void append_token(std::string* out, std::string_view bytes, float logprob) {
  *out += R"({"token":)";
  append_quoted(out, lossy(bytes));
  *out += R"(,"logprob":)";
  append_logprob(out, logprob);
  *out += R"(,"bytes":[)";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) *out += ',';
    append_number(out, int64_t{static_cast<unsigned char>(bytes[i])});
  }
  *out += ']';
}

void append_comma(std::string* list) {
  if (!list->empty()) *list += ',';
}

uint64_t count_characters(std::string_view utf8) {
  return static_cast<uint64_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// The turns as the prompt that the model expects. UNSUPPORTED: not by the library.
Failure render_natively(const ServedEngine& engine, const std::vector<ChatTurn>& turns,
                        std::string* prompt) {
  if (engine.tokenizer == nullptr) return engine.no_tokenizer;
  std::vector<lmn_chat_message> messages;
  size_t guess = 256;
  for (const ChatTurn& turn : turns) {
    messages.push_back({turn.role.c_str(), turn.content.data(), turn.content.size()});
    guess += turn.content.size() + 64;
  }
  return filled(prompt, guess, [&](char* out, size_t capacity, size_t* count, lmn_error** err) {
    return lmn_tokenizer_chat_render(engine.tokenizer.get(), messages.data(), messages.size(),
                                     nullptr, out, capacity, count, err);
  });
}

}  // namespace

Generation::Generation(Connection& connection, std::shared_ptr<ServedEngine> model,
                       GenerationRequest request)
    : thread_(connection.thread()),
      connection_(connection),
      model_(std::move(model)),
      request_(std::move(request)),
      created_s_(static_cast<int64_t>(std::time(nullptr))) {}

Generation::~Generation() { drop_all(); }

void Generation::drop_all() {
  done_ = true;
  for (Part& part : parts_) {
    if (std::exchange(part.has_tag, false)) thread_.slots().release(part.tag);
    part.handle.reset();  // cancels what runs
  }
}

// From the client's words to requests -------------------------------------------------------------

void Generation::start() {
  if (request_.chat) {
    start_chat();
  } else {
    encode_and_submit();
  }
}

void Generation::set_chat_prompt(std::string prompt) {
  // A template that writes the BOS token itself must not get a second one.
  request_.no_bos = !model_->bos.empty() && prompt.starts_with(model_->bos);
  request_.prompts.push_back({std::move(prompt), {}, false});
}

void Generation::start_chat() {
  const Config& config = thread_.server().config();
  Failure failure{LMN_UNSUPPORTED,
                  "'" + request_.beyond_native +
                      "' is more than the built-in chat templates know; run the server with a chat "
                      "renderer, as the Python package does"};
  if (request_.beyond_native.empty()) {
    std::string prompt;
    failure = render_natively(*model_, request_.turns, &prompt);
    if (!failure.failed()) {
      set_chat_prompt(std::move(prompt));
      encode_and_submit();
      return;
    }
  }
  const bool not_ours = failure.status == LMN_UNSUPPORTED || failure.status == LMN_NOT_FOUND;
  if (!not_ours || config.chat == nullptr || model_->tokenizer == nullptr) {
    ApiError error = api_error(failure);
    if (error.status == 404) error.status = 400;  // the model has no template
    error.param = request_.beyond_native.empty() ? "messages" : request_.beyond_native;
    throw error;
  }
  struct Rendered {
    lmn_status status = LMN_INTERNAL;
    lmn_reply reply;
  };
  run_on_helper(
      connection_,
      [model = model_, text = connection_.request().body(), chat = config.chat,
       user = config.chat_user] {
        Rendered out;
        out.status = chat(user, model->model.get(), text.data(), text.size(), &out.reply);
        return out;
      },
      [](Connection& still, Rendered rendered) {
        if (rendered.status != LMN_OK) {
          const bool blames_client = rendered.status == LMN_INVALID_ARGUMENT;
          throw ApiError(
              blames_client ? 400 : 500,
              rendered.reply.text.empty() ? "the chat template failed" : lossy(rendered.reply.text),
              blames_client ? "messages" : "", blames_client ? "invalid_value" : "internal_error");
        }
        auto& self = static_cast<Generation&>(*still.work());
        self.set_chat_prompt(std::move(rendered.reply.text));
        self.encode_and_submit();
      });
}

// Submits, after tokenising on the helper thread what would take long here.
void Generation::encode_and_submit() {
  size_t bytes = 0;
  for (const PromptInput& input : request_.prompts) bytes += input.text.size();
  if (bytes <= kLongTextBytes || model_->tokenizer == nullptr) return submit();
  struct Encoded {
    std::vector<std::vector<int32_t>> ids;
    Failure failure;
  };
  run_on_helper(
      connection_,
      [model = model_, prompts = request_.prompts, special = request_.parse_special,
       bos = request_.no_bos ? LMN_NO : LMN_DEFAULT] {
        Encoded out;
        for (const PromptInput& input : prompts) {
          out.ids.push_back(input.ids);
          if (input.is_ids) continue;
          out.failure = encode(model->tokenizer.get(), input.text, special,
                               static_cast<uint32_t>(bos), &out.ids.back());
          if (out.failure.failed()) break;
        }
        return out;
      },
      [](Connection& still, Encoded encoded) {
        if (encoded.failure.failed()) throw api_error(encoded.failure);
        auto& self = static_cast<Generation&>(*still.work());
        for (size_t i = 0; i < encoded.ids.size(); ++i) {
          PromptInput& input = self.request_.prompts[i];
          input.ids = std::move(encoded.ids[i]);
          input.is_ids = true;  // its text stays, for an echo
        }
        self.submit();
      });
}

lmn_request_options Generation::options_of(const PromptInput& input,
                                           const std::vector<lmn_string>& stop) const {
  auto out = sized<lmn_request_options>();
  out.flags = LMN_REQUEST_NOTIFY;
  if (request_.parse_special) out.flags |= LMN_REQUEST_PARSE_SPECIAL;
  if (request_.ignore_eos) out.flags |= LMN_REQUEST_IGNORE_EOS;
  if (request_.logprobs) out.flags |= LMN_REQUEST_LOGPROBS;
  if (request_.seed) out.flags |= LMN_REQUEST_SEED;
  out.seed = request_.seed.value_or(0);
  if (input.is_ids) {
    out.prompt_ids = input.ids.data();
    out.prompt_id_count = input.ids.size();
  } else {
    out.prompt = input.text.c_str();
    out.prompt_bytes = input.text.size();
  }
  out.add_bos = request_.no_bos ? LMN_NO : LMN_DEFAULT;
  out.max_tokens = request_.max_tokens;
  out.temperature = request_.temperature;
  out.top_k = request_.top_k;
  out.top_p = request_.top_p;
  out.min_p = request_.min_p;
  out.repetition_penalty = request_.repetition_penalty;
  out.presence_penalty = request_.presence_penalty;
  out.frequency_penalty = request_.frequency_penalty;
  out.top_logprobs = request_.top_logprobs;
  out.priority = request_.priority;
  out.logit_bias = request_.logit_bias.data();
  out.logit_bias_count = request_.logit_bias.size();
  out.stop = stop.data();
  out.stop_count = stop.size();
  out.deadline_ns = request_.deadline_ns;
  out.tenant = request_.tenant;
  out.token_interval_ns = request_.token_interval_ns;
  out.n = request_.n;
  return out;
}

void Generation::submit() {
  std::vector<lmn_string> stop;
  for (const std::string& text : request_.stop) stop.push_back({text.data(), text.size()});
  const size_t count = request_.prompts.size();
  parts_.resize(count);
  choices_.resize(count * request_.n);
  parts_left_ = count;
  for (size_t i = 0; i < count; ++i) {
    const PromptInput& input = request_.prompts[i];
    if (!input.is_ids && model_->tokenizer == nullptr) throw api_error(model_->no_tokenizer);
    Part& part = parts_[i];
    lmn_request_options options = options_of(input, stop);
    part.tag = options.tag = thread_.slots().take(this, static_cast<uint32_t>(i));
    part.has_tag = true;
    part.samples_left = request_.n;
    lmn_request* handle = nullptr;
    const Failure failure = attempt([&](lmn_error** err) {
      return lmn_engine_submit(model_->engine.get(), &options, &handle, err);
    });
    if (failure.failed()) {
      drop_all();
      ApiError error = api_error(failure);
      const bool is_prompt = error.param == "prompt" || error.code == "context_length_exceeded";
      if (is_prompt) error.param = request_.chat ? "messages" : "prompt";
      throw error;
    }
    part.handle.reset(handle);
  }
  if (request_.echo) {
    for (size_t i = 0; i < count; ++i) {
      std::string& text = request_.prompts[i].text;
      if (text.empty() && model_->tokenizer != nullptr)
        (void)decode(model_->tokenizer.get(), request_.prompts[i].ids, &text);
    }
  } else {
    request_.prompts.clear();
    request_.prompts.shrink_to_fit();
  }
  request_.turns = {};
  request_.logit_bias = {};
}

// From news to the answer -------------------------------------------------------------------------

void Generation::on_news(uint32_t part) {
  if (done_) return;
  const std::shared_ptr<Connection> self = connection_.shared_from_this();
  answer_with(connection_, [&] {
    if (connection_.streaming() && connection_.congested()) {
      parts_[part].has_news = true;  // until resume()
      return;
    }
    take_news(part);
  });
}

void Generation::resume() {
  for (uint32_t i = 0; i < parts_.size() && !done_; ++i) {
    if (std::exchange(parts_[i].has_news, false)) on_news(i);
  }
}

void Generation::give_up(ApiError why) {
  if (!done_) fail(why);
}

void Generation::fail(const ApiError& error) {
  drop_all();
  connection_.refuse(error);
}

void Generation::take_news(uint32_t index) {
  Part& part = parts_[index];
  auto chunk = sized<lmn_chunk>();
  while (part.samples_left > 0) {
    const Failure failure = attempt(
        [&](lmn_error** err) { return lmn_request_next(part.handle.get(), 0, &chunk, err); });
    if (failure.status == LMN_TIMEOUT) break;
    if (failure.failed()) return fail(api_error(failure));
    if (chunk.finish_reason == LMN_FINISH_CANCELLED) {
      return fail(ApiError(503, "the engine was closed", {}, "stopping"));
    }
    take_chunk(index, chunk);
    if (done_) return;
  }
  if (part.samples_left == 0) end_part(index);
  if (done_) return;
  if (parts_left_ == 0) return finish();
  if (connection_.streaming()) connection_.flush();
}

void Generation::note_first_token(const Part& part) {
  first_token_noted_ = true;
  auto stats = sized<lmn_request_stats>();
  if (lmn_request_stats_get(part.handle.get(), &stats, nullptr) != LMN_OK) return;
  Record& record = connection_.record();
  record.queue_ns = static_cast<int64_t>(stats.queue_ns);
  record.engine_ns = static_cast<int64_t>(stats.queue_ns + stats.prefill_ns);
  record.first_token_ns = now_ns() - record.begin_ns;
}

void Generation::take_chunk(uint32_t part_index, const lmn_chunk& chunk) {
  Part& part = parts_[part_index];
  if (!first_token_noted_) note_first_token(part);
  const uint32_t index = part_index * request_.n + chunk.sample;
  Choice& choice = choices_[index];
  const std::string_view text(chunk.text, static_cast<size_t>(chunk.text_bytes));
  if (request_.logprobs) append_logprobs(chunk, &choice);
  if (request_.stream) {
    if (!connection_.streaming()) begin_stream();
    if (!choice.begun && request_.echo)
      send_text(index, request_.prompts[part_index].text, &choice);
    if (!text.empty() || !choice.tokens.empty()) send_text(index, text, &choice);
  } else {
    if (!choice.begun && request_.echo) choice.text = request_.prompts[part_index].text;
    choice.begun = true;
    choice.text += text;
  }
  if (chunk.finish_reason == LMN_FINISH_NONE) return;
  --part.samples_left;
  choice.finish = finish_name(chunk.finish_reason);
  connection_.record().finish = log_name(chunk.finish_reason);
  if (request_.stream) send_event(index, request_.chat ? "{}" : R"("")", choice.finish, &choice);
}

void Generation::append_logprobs(const lmn_chunk& chunk, Choice* choice) {
  for (uint64_t i = 0; i < chunk.token_count && chunk.logprobs != nullptr; ++i) {
    const std::string_view bytes = token_bytes(*model_, chunk.token_ids[i]);
    append_comma(&choice->tokens);
    const uint32_t tops = std::min(chunk.top_logprob_count, request_.top_logprobs);
    const int32_t* const top_ids = chunk.top_ids + i * chunk.top_logprob_count;
    const float* const top_logprobs = chunk.top_logprobs + i * chunk.top_logprob_count;
    if (request_.chat) {
      append_token(&choice->tokens, bytes, chunk.logprobs[i]);
      choice->tokens += R"(,"top_logprobs":[)";
      for (uint32_t k = 0; k < tops; ++k) {
        if (k > 0) choice->tokens += ',';
        append_token(&choice->tokens, token_bytes(*model_, top_ids[k]), top_logprobs[k]);
        choice->tokens += '}';
      }
      choice->tokens += "]}";
      continue;
    }
    append_quoted(&choice->tokens, lossy(bytes));
    append_comma(&choice->logprobs);
    append_logprob(&choice->logprobs, chunk.logprobs[i]);
    append_comma(&choice->offsets);
    append_number(&choice->offsets, choice->characters);
    choice->characters += count_characters(bytes);
    append_comma(&choice->tops);
    choice->tops += '{';
    std::vector<std::string_view> seen;  // tokens of the same bytes are one key: the likeliest
    for (uint32_t k = 0; k < tops; ++k) {
      const std::string_view top = token_bytes(*model_, top_ids[k]);
      if (std::find(seen.begin(), seen.end(), top) != seen.end()) continue;
      if (!seen.empty()) choice->tops += ',';
      seen.push_back(top);
      append_quoted(&choice->tops, lossy(top));
      choice->tops += ':';
      append_logprob(&choice->tops, top_logprobs[k]);
    }
    choice->tops += '}';
  }
}

std::string Generation::logprobs_json(Choice* choice) const {
  if (!request_.logprobs) return "null";
  std::string out;
  if (request_.chat) {
    out = R"({"content":[)" + choice->tokens + "]}";
  } else {
    out = R"({"tokens":[)" + choice->tokens + R"(],"token_logprobs":[)" + choice->logprobs +
          R"(],"top_logprobs":)" +
          (request_.top_logprobs == 0 ? "null" : "[" + choice->tops + "]") + R"(,"text_offset":[)" +
          choice->offsets + "]}";
  }
  choice->tokens.clear();
  choice->logprobs.clear();
  choice->tops.clear();
  choice->offsets.clear();
  return out;
}

std::string Generation::head() const {
  const bool chat = request_.chat;
  std::string out = chat ? R"({"id":"chatcmpl-)" : R"({"id":"cmpl-)";
  out += random_hex(thread_.random(), 24);
  out += chat ? (request_.stream ? R"(","object":"chat.completion.chunk","created":)"
                                 : R"(","object":"chat.completion","created":)")
              : R"(","object":"text_completion","created":)";
  append_number(&out, created_s_);
  out += R"(,"model":)" + model_->quoted_name + R"(,"system_fingerprint":"lmnative-)" +
         lmn_version() + R"(","choices":[)";
  return out;
}

void Generation::begin_stream() {
  connection_.begin_stream("text/event-stream; charset=utf-8");
  head_ = "data: " + head();
}

// `body` is the delta of a chat, the text of a completion, as JSON.
void Generation::send_event(uint32_t index, std::string_view body, const char* finish,
                            Choice* choice) {
  event_ = head_;
  event_ += R"({"index":)";
  append_number(&event_, int64_t{index});
  event_ += request_.chat ? R"(,"delta":)" : R"(,"text":)";
  event_ += body;
  event_ += R"(,"logprobs":)";
  event_ += finish != nullptr ? "null" : logprobs_json(choice);
  event_ += R"(,"finish_reason":)";
  if (finish == nullptr) {
    event_ += "null";
  } else {
    event_ += '"';
    event_ += finish;
    event_ += '"';
  }
  event_ += request_.include_usage ? "}],\"usage\":null}\n\n" : "}]}\n\n";
  connection_.stream(event_);
}

void Generation::send_text(uint32_t index, std::string_view text, Choice* choice) {
  std::string body;
  if (request_.chat) {
    body = choice->begun ? R"({"content":)" : R"({"role":"assistant","content":)";
    append_quoted(&body, text);
    body += '}';
  } else {
    append_quoted(&body, text);
  }
  choice->begun = true;
  send_event(index, body, nullptr, choice);
}

// The engine has done with a prompt: its figures, and its memory back.
void Generation::end_part(uint32_t index) {
  Part& part = parts_[index];
  if (part.handle == nullptr) return;
  auto stats = sized<lmn_request_stats>();
  if (lmn_request_stats_get(part.handle.get(), &stats, nullptr) == LMN_OK) {
    prompt_tokens_ += stats.prompt_tokens;
    cached_tokens_ += stats.cached_tokens;
    completion_tokens_ += stats.generated_tokens;
    if (!request_.stream) {  // the first byte comes after the last token
      Record& record = connection_.record();
      record.engine_ns =
          std::max(record.engine_ns,
                   static_cast<int64_t>(stats.queue_ns + stats.prefill_ns + stats.decode_ns));
    }
  }
  thread_.slots().release(part.tag);
  part.has_tag = false;
  part.handle.reset();
  --parts_left_;
}

std::string Generation::usage_json() const {
  std::string out = R"({"prompt_tokens":)";
  append_number(&out, prompt_tokens_);
  out += R"(,"completion_tokens":)";
  append_number(&out, completion_tokens_);
  out += R"(,"total_tokens":)";
  append_number(&out, prompt_tokens_ + completion_tokens_);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  append_number(&out, cached_tokens_);
  out += "}}";
  return out;
}

void Generation::finish() {
  done_ = true;
  Record& record = connection_.record();
  record.prompt_tokens = static_cast<int64_t>(prompt_tokens_);
  record.cached_tokens = static_cast<int64_t>(cached_tokens_);
  record.completion_tokens = static_cast<int64_t>(completion_tokens_);
  if (request_.stream) {
    if (request_.include_usage) {
      event_ = head_;
      event_ += R"(],"usage":)" + usage_json() + "}\n\n";
      connection_.stream(event_);
    }
    connection_.stream("data: [DONE]\n\n");
    connection_.end_stream();
    return;
  }
  std::string out = head();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    if (i > 0) out += ',';
    out += R"({"index":)";
    append_number(&out, uint64_t{i});
    out += request_.chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"text":)";
    append_quoted(&out, choice.text);
    out += request_.chat ? R"(,"refusal":null},"logprobs":)" : R"(,"logprobs":)";
    out += logprobs_json(&choice);
    out += R"(,"finish_reason":")";
    out += choice.finish;
    out += R"("})";
  }
  out += R"(],"usage":)" + usage_json() + "}";
  connection_.respond(200, kJson, out);
}

// The endpoints -----------------------------------------------------------------------------------

namespace {

void generate(Server& server, Connection& connection,
              GenerationRequest (*read)(const Fields& fields)) {
  read_body(connection, read, [&server](Connection& still, GenerationRequest request) {
    read_header_fields(still.request(), &request);
    std::shared_ptr<ServedEngine> engine = engine_for(server, request.model);
    still.record().model = engine->name;
    auto work = std::make_unique<Generation>(still, std::move(engine), std::move(request));
    Generation& generation = *work;
    still.set_work(std::move(work));
    generation.start();
  });
}

}  // namespace

void post_chat_completions(Server& server, Connection& connection) {
  generate(server, connection, read_chat_request);
}

void post_completions(Server& server, Connection& connection) {
  generate(server, connection, read_completion_request);
}

}  // namespace lmn::server
