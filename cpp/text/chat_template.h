// SPDX-License-Identifier: Apache-2.0
//
// Chat templates: messages -> prompt text, exactly as Jinja2 renders the template that a model
// carries. Native renderers for the known families, recognised by a fingerprint of the whole
// template, so that a template which differs in anything but its default system prompt is refused
// with UNSUPPORTED and never guessed at. Rendering any other template is Jinja2's work, in the
// Python package. Reference environment: trim_blocks and lstrip_blocks on, as in Hugging Face
// transformers.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

namespace lmn::text {

struct ChatMessage {
  std::string_view role;  // "system", "user", "assistant", ...: the template decides which it takes
  std::string_view content;
};

// Families: ChatML (with or without a default system prompt: SmolLM2, Qwen2), Qwen2.5, Llama 2,
// Llama 3, Zephyr, Phi-3 (two forms), Gemma, Mistral. INVALID_ARGUMENT: text not UTF-8, or the
// template refuses the messages (as raise_exception does), with its reason. UNSUPPORTED: another
// template; the message says the remedy.
Result<std::string> render_chat(std::string_view jinja_source,
                                std::span<const ChatMessage> messages, bool add_generation_prompt,
                                std::string_view bos_token, std::string_view eos_token);

}  // namespace lmn::text
