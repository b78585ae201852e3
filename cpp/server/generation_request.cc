// SPDX-License-Identifier: Apache-2.0
#include "server/generation_request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "server/utf8.h"

namespace lmn::server {
namespace {

constexpr int64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxI32 = std::numeric_limits<int32_t>::max();
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxBiases = 1024;
constexpr size_t kMaxPrompts = 2048;
constexpr size_t kMaxAnswers = 2048;
constexpr int64_t kMaxSamples = 64;
constexpr int64_t kMaxTopLogprobs = 20;

std::string element(std::string_view name, size_t index) {
  return std::string(name) + "[" + std::to_string(index) + "]";
}

std::vector<std::string> read_stop(const Fields& fields) {
  const json::value* const value = fields.find("stop");
  if (value == nullptr) return {};
  std::vector<std::string> out;
  if (value->is_string()) {
    out.emplace_back(view(value->get_string()));
  } else if (value->is_array()) {
    const json::array& array = value->get_array();
    if (array.size() > kMaxStops) {
      throw bad_field("stop", "has " + std::to_string(array.size()) + " texts; " +
                                  std::to_string(kMaxStops) + " at most");
    }
    for (size_t i = 0; i < array.size(); ++i) {
      if (!array[i].is_string()) {
        throw bad_field(element("stop", i),
                        std::string("is ") + kind_name(array[i]) + "; it must be a string",
                        "invalid_type");
      }
      out.emplace_back(view(array[i].get_string()));
    }
  } else {
    throw bad_field("stop",
                    std::string("is ") + kind_name(*value) + "; it must be a string or an array",
                    "invalid_type");
  }
  for (const std::string& text : out) {
    if (text.empty()) throw bad_field("stop", "has an empty text, which would stop everything");
  }
  return out;
}

// A decimal number without sign and leading zeros.
template <typename T>
std::optional<T> decimal(std::string_view text) {
  T value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool plain =
      !text.empty() && text[0] >= '0' && text[0] <= '9' && (text.size() == 1 || text[0] != '0');
  if (failure != std::errc() || end != text.data() + text.size() || !plain) return std::nullopt;
  return value;
}

std::vector<lmn_token_bias> read_logit_bias(const Fields& fields) {
  const json::object* const object = fields.object("logit_bias");
  if (object == nullptr) return {};
  if (object->size() > kMaxBiases) {
    throw bad_field("logit_bias", "has " + std::to_string(object->size()) + " entries; " +
                                      std::to_string(kMaxBiases) + " at most");
  }
  std::vector<lmn_token_bias> out;
  const Fields entries(*object, "logit_bias.");
  for (const auto& entry : *object) {
    const std::optional<int32_t> id = decimal<int32_t>(entry.key());
    if (!id) {
      throw bad_field("logit_bias", "has the key " + json_quoted(cut(entry.key(), 80)) +
                                        ", which is no token id: a decimal number");
    }
    const std::optional<double> bias = entries.number(entry.key(), -100, 100);
    // As OpenAI has it, -100 forbids a token.
    constexpr float kForbid = -std::numeric_limits<float>::infinity();
    if (bias) out.push_back({*id, *bias <= -100 ? kForbid : static_cast<float>(*bias)});
  }
  return out;
}

void read_sampling(const Fields& fields, GenerationRequest* out) {
  const auto number = [&](std::string_view name, double least, double most, float* field) {
    if (const auto value = fields.number(name, least, most)) *field = static_cast<float>(*value);
  };
  number("temperature", 0, 100, &out->temperature);
  // 0, the likeliest token alone, is to the engine a field that was left out.
  if (const auto top_p = fields.number("top_p", 0, 1))
    out->top_p = std::max(static_cast<float>(*top_p), std::numeric_limits<float>::min());
  number("min_p", 0, 1, &out->min_p);
  number("presence_penalty", -2, 2, &out->presence_penalty);
  number("frequency_penalty", -2, 2, &out->frequency_penalty);
  number("repetition_penalty", 0.01, 100, &out->repetition_penalty);
  out->top_k =
      static_cast<int32_t>(std::max<int64_t>(fields.integer("top_k", -1, kMaxI32).value_or(0), 0));
  out->n = static_cast<uint32_t>(fields.integer("n", 1, kMaxSamples).value_or(1));
  if (const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max()))
    out->seed = static_cast<uint64_t>(*seed);
  out->stop = read_stop(fields);
  out->logit_bias = read_logit_bias(fields);
  out->ignore_eos = fields.boolean("ignore_eos").value_or(false);
  out->stream = fields.boolean("stream").value_or(false);
  (void)fields.text("user");
  if (const json::object* const options = fields.object("stream_options")) {
    if (!out->stream) throw bad_field("stream_options", "goes with \"stream\": true only");
    out->include_usage =
        Fields(*options, "stream_options.").boolean("include_usage").value_or(false);
  }
}

void refuse_missing(std::string_view name) {
  throw ApiError(400, "'" + std::string(name) + "' is missing", std::string(name),
                 "missing_required_parameter");
}

// The text of a message's content, whose parts are lines.
std::string read_content(const Fields& message, bool may_lack) {
  const json::value* const value = message.find("content");
  const std::string param = message.param("content");
  if (value == nullptr) {
    if (!may_lack) refuse_missing(param);
    return {};
  }
  if (value->is_string()) return std::string(view(value->get_string()));
  if (!value->is_array()) {
    throw bad_field(
        param,
        std::string("is ") + kind_name(*value) + "; it must be a string or an array of parts",
        "invalid_type");
  }
  const json::array& parts = value->get_array();
  if (parts.empty()) throw bad_field(param, "has no parts");
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string at = element(param, i);
    if (!parts[i].is_object()) {
      throw bad_field(at, std::string("is ") + kind_name(parts[i]) + "; it must be an object",
                      "invalid_type");
    }
    const Fields part(parts[i].get_object(), at + ".");
    const auto type = part.text("type");
    if (!type) refuse_missing(at + ".type");
    if (*type != "text") {
      throw bad_field(at + ".type", "is " + json_quoted(*type) + "; this model takes \"text\" only",
                      "unsupported_value");
    }
    const auto text = part.text("text");
    if (!text) refuse_missing(at + ".text");
    if (i > 0) out += '\n';
    out += *text;
  }
  return out;
}

void read_messages(const Fields& fields, GenerationRequest* out) {
  const json::array* const messages = fields.array("messages");
  if (messages == nullptr) refuse_missing("messages");
  if (messages->empty()) throw bad_field("messages", "is empty; at least one message is needed");
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string at = element("messages", i);
    if (!(*messages)[i].is_object()) {
      throw bad_field(at, std::string("is ") + kind_name((*messages)[i]) + "; it must be an object",
                      "invalid_type");
    }
    const Fields message((*messages)[i].get_object(), at + ".");
    const auto role = message.text("role");
    if (!role) refuse_missing(at + ".role");
    constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
    if (std::find(std::begin(kRoles), std::end(kRoles), *role) == std::end(kRoles)) {
      throw bad_field(at + ".role", "is " + json_quoted(*role) +
                                        "; it must be system, developer, user, assistant or tool");
    }
    (void)message.text("name");
    (void)message.text("tool_call_id");
    if (const json::array* const calls = message.array("tool_calls");
        calls != nullptr && !calls->empty())
      out->beyond_native = at + ".tool_calls";
    if (*role == "tool") out->beyond_native = at + ".role";
    std::string content = read_content(message, *role == "assistant");
    out->turns.push_back(
        {std::string(*role == "developer" ? "system" : *role), std::move(content)});
  }
}

void read_tools(const Fields& fields, GenerationRequest* out) {
  if (const json::array* const tools = fields.array("tools")) {
    for (size_t i = 0; i < tools->size(); ++i) {
      if (!(*tools)[i].is_object()) {
        throw bad_field(element("tools", i),
                        std::string("is ") + kind_name((*tools)[i]) + "; it must be an object",
                        "invalid_type");
      }
    }
    if (!tools->empty()) out->beyond_native = "tools";
  }
  if (const json::value* const choice = fields.find("tool_choice")) {
    const bool free = choice->is_string() && (view(choice->get_string()) == "none" ||
                                              view(choice->get_string()) == "auto");
    if (!free) {
      throw bad_field("tool_choice", "must be \"none\" or \"auto\": calls cannot be forced",
                      "unsupported_value");
    }
  }
  if (const json::object* const variables = fields.object("chat_template_kwargs");
      variables != nullptr && !variables->empty())
    out->beyond_native = "chat_template_kwargs";
}

void read_response_format(const Fields& fields) {
  const json::object* const format = fields.object("response_format");
  if (format == nullptr) return;
  const auto type = Fields(*format, "response_format.").text("type");
  if (!type) refuse_missing("response_format.type");
  if (*type != "text") {
    throw bad_field("response_format",
                    "is of type " + json_quoted(*type) +
                        "; this version has no structured output, so it must be \"text\"",
                    "unsupported_value");
  }
}

// The header field as a whole number of [least, most], or `otherwise` where there is none.
int64_t header_number(const HttpParser& request, const char* name, int64_t least, int64_t most,
                      int64_t otherwise) {
  if (!request.has_header(name)) return otherwise;
  const std::string_view text = request.header(name);
  const bool negative = text.starts_with('-');
  const std::optional<int64_t> digits = decimal<int64_t>(text.substr(negative ? 1 : 0));
  const int64_t value = negative ? -digits.value_or(0) : digits.value_or(0);
  if (!digits || value < least || value > most) {
    throw ApiError(400,
                   std::string(name) + " must be a whole number of " + std::to_string(least) +
                       " to " + std::to_string(most),
                   name, "invalid_value");
  }
  return value;
}

}  // namespace

std::vector<int32_t> read_token_ids(const json::array& array, const std::string& param) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const std::optional<int64_t> id = whole_number(array[i]);
    if (!id || *id < 0 || *id > kMaxI32) {
      throw bad_field(
          element(param, i),
          "is " + std::string(cut(json::serialize(array[i]), 80)) + "; it must be a token id",
          array[i].is_number() ? "invalid_value" : "invalid_type");
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

std::optional<std::string> read_model(const Fields& fields) {
  const auto name = fields.text("model");
  return name ? std::optional<std::string>(*name) : std::nullopt;
}

std::vector<PromptInput> read_prompts(const Fields& fields, std::string_view name) {
  const json::value* const value = fields.find(name);
  if (value == nullptr) refuse_missing(name);
  const auto wrong_type = [&](const std::string& param, const json::value& found) {
    throw bad_field(
        param,
        std::string("is ") + kind_name(found) +
            "; it must be a text, a list of texts, token ids, or a list of lists of them",
        "invalid_type");
  };
  std::vector<PromptInput> out;
  if (value->is_string()) {
    out.push_back({std::string(view(value->get_string())), {}, false});
  } else if (!value->is_array()) {
    wrong_type(std::string(name), *value);
  } else {
    const json::array& array = value->get_array();
    if (!array.empty() && array[0].is_number()) {
      out.push_back({{}, read_token_ids(array, std::string(name)), true});
      return out;
    }
    if (array.size() > kMaxPrompts) {
      throw bad_field(name, "has " + std::to_string(array.size()) + " elements; " +
                                std::to_string(kMaxPrompts) + " at most");
    }
    for (size_t i = 0; i < array.size(); ++i) {
      const json::value& item = array[i];
      const std::string param = element(name, i);
      if (item.kind() != array[0].kind() || !(item.is_string() || item.is_array()))
        wrong_type(param, item);
      if (item.is_string()) {
        out.push_back({std::string(view(item.get_string())), {}, false});
      } else {
        out.push_back({{}, read_token_ids(item.get_array(), param), true});
      }
    }
  }
  if (out.empty()) throw bad_field(name, "is empty");
  for (const PromptInput& input : out) {
    if (input.is_ids ? input.ids.empty() : input.text.empty())
      throw bad_field(name, "has an empty element");
  }
  return out;
}

GenerationRequest read_chat_request(const Fields& fields) {
  GenerationRequest out;
  out.chat = true;
  out.model = read_model(fields);
  out.parse_special = true;
  read_messages(fields, &out);
  read_sampling(fields, &out);
  read_tools(fields, &out);
  read_response_format(fields);
  const auto older = fields.integer("max_tokens", 1, kMaxU32);
  const auto newer = fields.integer("max_completion_tokens", 1, kMaxU32);
  out.max_tokens = static_cast<uint32_t>(newer.value_or(older.value_or(0)));
  out.logprobs = fields.boolean("logprobs").value_or(false);
  if (const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs)) {
    if (!out.logprobs) throw bad_field("top_logprobs", "goes with \"logprobs\": true only");
    out.top_logprobs = static_cast<uint32_t>(*top);
  }
  return out;
}

GenerationRequest read_completion_request(const Fields& fields) {
  GenerationRequest out;
  out.model = read_model(fields);
  out.prompts = read_prompts(fields, "prompt");
  read_sampling(fields, &out);
  out.max_tokens = static_cast<uint32_t>(fields.integer("max_tokens", 1, kMaxU32).value_or(16));
  if (const auto top = fields.integer("logprobs", 0, kMaxTopLogprobs)) {
    out.logprobs = true;
    out.top_logprobs = static_cast<uint32_t>(*top);
  }
  if (out.prompts.size() * out.n > kMaxAnswers) {
    throw bad_field("n", "times the number of prompts is " +
                             std::to_string(out.prompts.size() * out.n) + "; a request gets " +
                             std::to_string(kMaxAnswers) + " answers at most");
  }
  out.echo = fields.boolean("echo").value_or(false);
  if (out.echo && out.logprobs) {
    throw bad_field("echo", "does not go together with logprobs in this version",
                    "unsupported_value");
  }
  if (const auto best = fields.integer("best_of", 1, kMaxSamples); best && *best != out.n)
    throw bad_field("best_of", "must be what n is", "unsupported_value");
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty()) {
    throw bad_field("suffix", "is not supported: this model only continues texts",
                    "unsupported_parameter");
  }
  return out;
}

void read_header_fields(const HttpParser& request, GenerationRequest* out) {
  constexpr int64_t kMs = 1'000'000;
  out->priority = static_cast<int32_t>(header_number(request, "X-Priority", -2, 2, 0));
  out->deadline_ns =
      static_cast<uint64_t>(header_number(request, "X-Deadline-Ms", 1, kMaxU32, 0) * kMs);
  out->token_interval_ns =
      static_cast<uint64_t>(header_number(request, "X-Token-Interval-Ms", 0, 60'000, 0) * kMs);
  if (request.has_header("X-Tenant")) {
    const std::string_view tenant = request.header("X-Tenant");
    if (tenant.empty() || tenant.size() > 256)
      throw ApiError(400, "X-Tenant has 1 to 256 characters", "X-Tenant", "invalid_value");
    uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
    for (const char c : tenant) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    out->tenant = hash == 0 ? 1 : hash;
  }
}

}  // namespace lmn::server
