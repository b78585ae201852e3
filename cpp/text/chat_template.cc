// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <string>
#include <utility>

#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/unicode/utf8.h"

namespace lmn::text {

Result<std::string> render_chat(std::string_view jinja_source,
                                std::span<const ChatMessage> messages, bool add_generation_prompt,
                                std::string_view bos_token, std::string_view eos_token) {
  for (size_t i = 0; i < messages.size(); ++i) {
    LMN_RETURN_IF_ERROR(check_utf8(messages[i].role, "role of message " + std::to_string(i)));
    LMN_RETURN_IF_ERROR(check_utf8(messages[i].content, "content of message " + std::to_string(i)));
  }
  LMN_ASSIGN_OR_RETURN(const TemplateTree tree, parse_template(jinja_source));
  TemplateEvaluator evaluator(tree, messages);
  evaluator.define("add_generation_prompt", TemplateValue::boolean(add_generation_prompt));
  evaluator.define("bos_token", TemplateValue::string(std::string(bos_token)));
  evaluator.define("eos_token", TemplateValue::string(std::string(eos_token)));
  return evaluator.run();
}

}  // namespace lmn::text
