// SPDX-License-Identifier: Apache-2.0
//
// Chat templates against Jinja2: the known families (chat_templates/*.jinja, rendered by
// make_expectations.py).
#include "text/chat_template.h"

#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "testing.h"
#include "text/chat_expectations.inc"
#include "text/model_tokenizer.h"
#include "text/show.h"

namespace {

using namespace lmn::text;

constexpr std::string_view kChatml =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

lmn::Result<std::string> render(std::string_view source, const std::vector<ChatMessage>& messages) {
  return render_chat(source, messages, false, "<s>", "</s>");
}

TEST(templates_render_as_jinja2_renders_them) {
  const json::Value templates = json::parse(kChatExpectations);
  EXPECT(templates.size() >= 11);
  for (const json::Value& item : templates.items()) {
    int rendered = 0;
    for (const json::Value& call : item["cases"].items()) {
      std::vector<ChatMessage> messages;
      for (const json::Value& message : call[0].items()) {
        messages.push_back({message["role"].str(), message["content"].str()});
      }
      const auto got =
          render_chat(item["source"].str(), messages, call[1].boolean(), "<s>", "</s>");
      if (call[2].is_null()) {  // the template or Jinja2 refuses these messages
        EXPECT(got.status().code() == lmn::Code::kInvalidArgument);
      } else {
        ASSERT_OK(got);
        EXPECT_EQ(item["name"].str() + ": " + show_text(*got),
                  item["name"].str() + ": " + show_text(call[2].str()));
        ++rendered;
      }
    }
    EXPECT(rendered > 0);
  }
}

TEST(the_default_models_template_gives_its_prompt) {
  const ModelVocabulary model = ModelVocabulary::open();
  const auto got = render_chat(model.data.chat_template, std::vector<ChatMessage>{{"user", "Hi"}},
                               true, "<|im_start|>", "<|im_end|>");
  ASSERT_OK(got);
  EXPECT_EQ(*got,
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(newlines_may_be_escaped_and_the_default_prompt_may_differ) {
  // kChatml has real newlines inside its strings, chatml.jinja has "\\n".
  EXPECT_EQ(*render(kChatml, {{"user", "Hi"}}), "<|im_start|>user\nHi<|im_end|>\n");
  const std::string pirate =
      "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
      "'<|im_start|>system\\nTalk like a pirate.<|im_end|>\\n' }}{% endif %}{{'<|im_start|>' + "
      "message['role'] + "
      "'\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt "
      "%}{{ "
      "'<|im_start|>assistant\\n' }}{% endif %}";
  const auto got = render(pirate, {{"user", "Hi"}});
  ASSERT_OK(got);
  EXPECT_EQ(*got,
            "<|im_start|>system\nTalk like a pirate.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
}

TEST(any_other_template_is_refused_with_the_remedy) {
  std::string changed(kChatml);
  changed.replace(changed.find("endfor"), 6, "endfoR");
  for (const std::string_view source :
       {std::string_view(changed), std::string_view(""), std::string_view("{{ messages }}"),
        kChatml.substr(0, kChatml.size() - 1)}) {
    const auto got = render(source, {{"user", "x"}});
    EXPECT(got.status().code() == lmn::Code::kUnsupported);
    EXPECT(got.status().message().find("Jinja2") != std::string_view::npos);
  }
}

TEST(bad_text_is_named) {
  const auto got = render(kChatml, {{"user", "fine"}, {"user", "bad \xFF"}});
  EXPECT(got.status().code() == lmn::Code::kInvalidArgument);
  EXPECT(got.status().message().find("content of message 1") != std::string_view::npos);
  EXPECT(got.status().message().find("offset 4") != std::string_view::npos);
}

}  // namespace
