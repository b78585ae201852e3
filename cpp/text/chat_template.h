// SPDX-License-Identifier: Apache-2.0
//
// Chat templates: messages -> prompt text, as Jinja2 renders the template that a model carries. The
// template itself is interpreted, in the small part of Jinja that the known families use (ChatML
// with SmolLM2 and Qwen2, Llama 2 and 3, Zephyr, Phi-3, Gemma, Mistral); whatever lies outside that
// part is refused with UNSUPPORTED and never guessed at. Environment: trim_blocks and lstrip_blocks
// on, as in Hugging Face transformers. No clock, no I/O, bounded work.
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

// The template sees: messages, add_generation_prompt, bos_token, eos_token; everything else is
// undefined. INVALID_ARGUMENT: text not UTF-8, or the template itself refuses the messages
// (raise_exception), with its words. UNSUPPORTED: the template uses something this interpreter does
// not know; the message names it and the remedy.
Result<std::string> render_chat(std::string_view jinja_source,
                                std::span<const ChatMessage> messages, bool add_generation_prompt,
                                std::string_view bos_token, std::string_view eos_token);

}  // namespace lmn::text
