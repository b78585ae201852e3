// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "text/unicode/char_class.h"
#include "text/unicode/utf8.h"

namespace lmn::text {
namespace {

constexpr std::string_view kSystemBegin = "<|im_start|>system\n";
constexpr std::string_view kTurnEnd = "<|im_end|>";

// A template as its family writes it: "\\n" as a newline, one newline at the end dropped, and the
// default system prompt (between kSystemBegin and kTurnEnd) taken out. FNV-1a of the source is the
// fingerprint it is recognised by.
struct Skeleton {
  std::string source;
  std::string default_system;
};

Skeleton skeleton_of(std::string_view jinja_source) {
  Skeleton out;
  std::string& s = out.source;
  for (size_t i = 0; i < jinja_source.size(); ++i) {
    const bool newline = jinja_source.substr(i, 2) == "\\n";
    s += newline ? '\n' : jinja_source[i];
    i += newline ? 1 : 0;
  }
  if (!s.empty() && s.back() == '\n') s.pop_back();
  for (size_t at = s.find(kSystemBegin); at != s.npos; at = s.find(kSystemBegin, at + 1)) {
    const size_t begin = at + kSystemBegin.size();
    const size_t end = s.find(kTurnEnd, begin);
    if (end == s.npos) break;
    const std::string_view between = std::string_view(s).substr(begin, end - begin);
    if (between.find_first_of("'\"\\{}") != between.npos) continue;  // code, not a prompt
    out.default_system = between;
    s.erase(begin, end - begin);
    break;
  }
  return out;
}

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

struct Conversation {
  std::span<const ChatMessage> messages;
  bool add_generation_prompt;
  std::string_view bos, eos;
  std::string_view default_system;
};

using Renderer = Result<std::string> (*)(const Conversation& chat);

void append(std::string& out, std::initializer_list<std::string_view> pieces) {
  for (const std::string_view piece : pieces) out += piece;
}

Status refused(const char* why) {
  return error(Code::kInvalidArgument, "the chat template refuses these messages: %s", why);
}
constexpr char kAlternate[] = "roles must alternate user, assistant, user, …, beginning with user";
constexpr char kEmpty[] = "there are none";

// Whether message i of a conversation that must alternate has the wrong role.
bool breaks_alternation(const ChatMessage& message, size_t i) {
  return (message.role == "user") != (i % 2 == 0);
}

// Python's str.strip(): the White_Space property and the four information separators.
bool is_python_space(char32_t c) {
  return classify(c) == CharClass::kSpace || (c >= 0x1C && c <= 0x1F);
}
std::string_view strip(std::string_view text) {
  size_t begin = text.size(), end = 0;
  for (size_t i = 0; i < text.size();) {
    int size = 0;
    if (!is_python_space(read_utf8(text.data() + i, size))) {
      begin = std::min(begin, i);
      end = i + static_cast<size_t>(size);
    }
    i += static_cast<size_t>(size);
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

void append_chatml_turn(std::string& out, std::string_view role, std::string_view content) {
  append(out, {"<|im_start|>", role, "\n", content, "<|im_end|>\n"});
}

Result<std::string> render_chatml(const Conversation& chat) {
  std::string out;
  for (const ChatMessage& message : chat.messages)
    append_chatml_turn(out, message.role, message.content);
  if (chat.add_generation_prompt) out += "<|im_start|>assistant\n";
  return out;
}

Result<std::string> render_chatml_with_default(const Conversation& chat) {
  std::string out;
  if (!chat.messages.empty() && chat.messages[0].role != "system") {
    append_chatml_turn(out, "system", chat.default_system);
  }
  LMN_ASSIGN_OR_RETURN(const std::string turns, render_chatml(chat));
  return out + turns;
}

Result<std::string> render_qwen25(const Conversation& chat) {
  if (chat.messages.empty()) return refused(kEmpty);
  std::string out;
  const bool has_system = chat.messages[0].role == "system";
  append_chatml_turn(out, "system", has_system ? chat.messages[0].content : chat.default_system);
  const size_t count = chat.messages.size();
  for (size_t i = has_system ? 1 : 0; i < count; ++i) {
    const auto& [role, content] = chat.messages[i];
    if (role == "user" || role == "system" || role == "assistant") {
      append_chatml_turn(out, role, content);
    } else if (role == "tool") {  // neighbouring results share one user turn
      if (i == 0 || chat.messages[i - 1].role != "tool") out += "<|im_start|>user";
      append(out, {"\n<tool_response>\n", content, "\n</tool_response>"});
      if (i + 1 == count || chat.messages[i + 1].role != "tool") out += "<|im_end|>\n";
    }
  }
  if (chat.add_generation_prompt) out += "<|im_start|>assistant\n";
  return out;
}

Result<std::string> render_llama2(const Conversation& chat) {
  if (chat.messages.empty()) return refused(kEmpty);
  const bool has_system = chat.messages[0].role == "system";
  const auto turns = chat.messages.subspan(has_system ? 1 : 0);
  std::string out;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (breaks_alternation(turns[i], i)) return refused(kAlternate);
    std::string content;
    if (i == 0 && has_system)
      append(content, {"<<SYS>>\n", chat.messages[0].content, "\n<</SYS>>\n\n"});
    content += turns[i].content;
    if (turns[i].role == "user") {
      append(out, {chat.bos, "[INST] ", strip(content), " [/INST]"});
    } else if (turns[i].role == "assistant") {
      append(out, {" ", strip(content), " ", chat.eos});
    }
  }
  return out;
}

Result<std::string> render_llama3(const Conversation& chat) {
  std::string out;
  if (!chat.messages.empty()) out += chat.bos;
  for (const auto& [role, content] : chat.messages) {
    append(out,
           {"<|start_header_id|>", role, "<|end_header_id|>\n\n", strip(content), "<|eot_id|>"});
  }
  if (chat.add_generation_prompt) out += "<|start_header_id|>assistant<|end_header_id|>\n\n";
  return out;
}

Result<std::string> render_zephyr(const Conversation& chat) {
  std::string out;
  for (const auto& [role, content] : chat.messages) {
    if (role == "user" || role == "system" || role == "assistant") {
      append(out, {"<|", role, "|>\n", content, chat.eos, "\n"});
    }
  }
  if (!chat.messages.empty() && chat.add_generation_prompt) out += "<|assistant|>\n";
  return out;
}

Result<std::string> render_phi3(const Conversation& chat) {
  std::string out(chat.bos);
  for (const auto& [role, content] : chat.messages) {
    if (role == "user") append(out, {"<|user|>\n", content, "<|end|>\n<|assistant|>\n"});
    if (role == "assistant") append(out, {content, "<|end|>\n"});
  }
  return out;
}

Result<std::string> render_phi3_with_system(const Conversation& chat) {
  std::string out;
  for (const auto& [role, content] : chat.messages) {
    if (role == "user" || role == "system" || role == "assistant") {
      append(out, {"<|", role, "|>\n", content, "<|end|>\n"});
    }
  }
  out += chat.add_generation_prompt ? "<|assistant|>\n" : chat.eos;
  return out;
}

Result<std::string> render_gemma(const Conversation& chat) {
  if (chat.messages.empty()) return refused(kEmpty);
  if (chat.messages[0].role == "system") return refused("it has no system role");
  std::string out(chat.bos);
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const auto& [role, content] = chat.messages[i];
    if (breaks_alternation(chat.messages[i], i)) return refused(kAlternate);
    append(out, {"<start_of_turn>", role == "assistant" ? "model" : role, "\n", strip(content),
                 "<end_of_turn>\n"});
  }
  if (chat.add_generation_prompt) out += "<start_of_turn>model\n";
  return out;
}

Result<std::string> render_mistral(const Conversation& chat) {
  std::string out(chat.bos);
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const auto& [role, content] = chat.messages[i];
    if (breaks_alternation(chat.messages[i], i)) return refused(kAlternate);
    if (role == "user") {
      append(out, {"[INST] ", content, " [/INST]"});
    } else if (role == "assistant") {
      append(out, {content, chat.eos, " "});
    } else {
      return refused("only the roles user and assistant are known");
    }
  }
  return out;
}

struct Family {
  uint64_t fingerprint;
  Renderer render;
};
// tests/unit/text/chat_templates holds the template behind each number.
constexpr Family kFamilies[] = {
    {0x88BF4138D5C826F0u, render_chatml},               // chatml
    {0x5C10EE65212D93B3u, render_gemma},                // gemma
    {0x4D1512049817743Du, render_llama2},               // llama2
    {0x0E60067A5537498Eu, render_llama3},               // llama3
    {0xC730ACC029CE6EE0u, render_mistral},              // mistral
    {0x4EBAE769B67B72F1u, render_phi3},                 // phi3
    {0xECEBDB26677C663Du, render_phi3_with_system},     // phi3_system
    {0x0FBFB5C24E90177Fu, render_chatml_with_default},  // qwen2, smollm2
    {0xEA0FF09E84C12929u, render_qwen25},               // qwen2.5
    {0xCD8B49000DB02C2Cu, render_zephyr},               // zephyr
};

}  // namespace

Result<std::string> render_chat(std::string_view jinja_source,
                                std::span<const ChatMessage> messages, bool add_generation_prompt,
                                std::string_view bos_token, std::string_view eos_token) {
  for (size_t i = 0; i < messages.size(); ++i) {
    LMN_RETURN_IF_ERROR(check_utf8(messages[i].role, "role of message " + std::to_string(i)));
    LMN_RETURN_IF_ERROR(check_utf8(messages[i].content, "content of message " + std::to_string(i)));
  }
  const Skeleton skeleton = skeleton_of(jinja_source);
  const uint64_t fingerprint = fnv1a(skeleton.source);
  for (const Family& family : kFamilies) {
    if (family.fingerprint != fingerprint) continue;
    return family.render(
        {messages, add_generation_prompt, bos_token, eos_token, skeleton.default_system});
  }
  return error(Code::kUnsupported,
               "the model's chat template is none of the built-in families (fingerprint %016llx): "
               "render it with Jinja2, as the Python package does, and pass the text as a prompt "
               "with special tokens parsed",
               static_cast<unsigned long long>(fingerprint));
}

}  // namespace lmn::text
