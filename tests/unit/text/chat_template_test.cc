// SPDX-License-Identifier: Apache-2.0
//
// Chat templates against Jinja2: the known families, and two templates of our own that go through
// whitespace control and expressions (chat_templates/*.jinja, rendered by make_expectations.py).
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

lmn::Result<std::string> render(std::string_view source,
                                const std::vector<ChatMessage>& messages = {}) {
  return render_chat(source, messages, false, "<s>", "</s>");
}

TEST(templates_render_as_jinja2_renders_them) {
  const json::Value templates = json::parse(kChatExpectations);
  EXPECT(templates.size() >= 12);
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

TEST(what_a_template_raises_is_the_callers_error) {
  const auto got = render("{{ raise_exception('Roles must ' + 'alternate') }}");
  EXPECT(got.status().code() == lmn::Code::kInvalidArgument);
  EXPECT(got.status().message().find("Roles must alternate") != std::string_view::npos);
}

TEST(what_is_not_known_is_refused_with_the_remedy) {
  for (const std::string_view source : {"{% macro f() %}{% endmacro %}",
                                        "{{ messages | tojson }}",
                                        "{{ strftime_now('%Y') }}",
                                        "{{ {'a': 1} }}",
                                        "{{ messages }}",
                                        "{% for a, b in messages %}{% endfor %}x",
                                        "{{ 1.5 }}",
                                        "{{ 'a' is sameas 'b' }}",
                                        "{% include 'x' %}",
                                        "{{ messages[0].items() }}",
                                        "{{ 'a' * 3 }}",
                                        "{{ 'é' | upper }}",
                                        "{{ 'abc'[0] }}",
                                        "{% if true %}",
                                        "{{ 'abc }}",
                                        "{{ }}",
                                        "{% endif %}",
                                        "{{ (1 }}",
                                        "{% raw %}x{% endraw %}",
                                        "{{ \"\\d\" }}",
                                        "{{ 1 < 2 < 3 }}",
                                        "{# no end",
                                        "{{ range(3) }}",
                                        "{% set x %}y{% endset %}"}) {
    const auto got = render(source, {{"user", "x"}});
    EXPECT_EQ(show_text(source) + std::to_string(static_cast<int>(got.status().code())),
              show_text(source) + std::to_string(static_cast<int>(lmn::Code::kUnsupported)));
    EXPECT(got.status().message().find("Jinja2") != std::string_view::npos);
  }
}

TEST(branches_not_taken_may_use_what_is_not_known) {
  const auto got = render(
      "{% if tools %}{{ tools | tojson(indent=2) }}{{ strftime_now('%d') }}{% else %}plain{% endif "
      "%}");
  ASSERT_OK(got);
  EXPECT_EQ(*got, "plain");
}

TEST(bad_text_is_named) {
  const auto got = render("x", {{"user", "fine"}, {"user", "bad \xFF"}});
  EXPECT(got.status().code() == lmn::Code::kInvalidArgument);
  EXPECT(got.status().message().find("content of message 1") != std::string_view::npos);
  EXPECT(got.status().message().find("offset 4") != std::string_view::npos);
  EXPECT(!render("\xC3{{ 1 }}").ok());
}

std::string repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(hostile_templates_end_with_an_error) {
  const std::vector<ChatMessage> many(3000, {"user", "x"});
  const std::string deep_parentheses =
      "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}";
  const std::string deep_blocks = repeat("{% if true %}", 20000) + repeat("{% endif %}", 20000);
  const std::string long_sum = "{{ 1" + repeat(" + 1", 100000) + " }}";
  const std::string minuses = "{{ " + repeat("-", 100000) + "1 }}";
  const std::string nots = "{{ " + repeat("not ", 100000) + "1 }}";
  for (const std::string& source : {deep_parentheses, deep_blocks, long_sum, minuses, nots}) {
    EXPECT(render(source).status().code() == lmn::Code::kUnsupported);
  }
  // 3000 ^ 3 iterations, and a string that doubles 3000 times
  const std::string loops =
      "{% for a in messages %}{% for b in messages %}{% for c in messages %}{% endfor %}{% endfor "
      "%}{% endfor %}";
  const std::string doubling =
      "{% set ns = namespace(s='xx') %}{% for a in messages %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}";
  for (const std::string& source : {loops, doubling}) {
    EXPECT(render(source, many).status().code() == lmn::Code::kInvalidArgument);
  }
}

}  // namespace
