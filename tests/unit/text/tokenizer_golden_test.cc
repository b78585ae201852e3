// SPDX-License-Identifier: Apache-2.0
//
// The default model's tokenizer against the golden file: ids that an independent implementation
// (Hugging Face tokenizers) gave for 50 strings, with and without special tokens.
#include <string>

#include "json.h"
#include "testing.h"
#include "text/model_tokenizer.h"
#include "text/show.h"

namespace {

TEST(golden_strings_have_the_reference_ids) {
  const std::string path = testing::golden_path();
  if (path.empty()) testing::skip("the golden file is absent");
  const json::Value golden = json::read_file(path);
  const auto tokenizer = ModelVocabulary::open().tokenizer();
  EXPECT_EQ(golden["tokenizer"].size(), size_t{50});
  for (const json::Value& item : golden["tokenizer"].items()) {
    const std::string& text = item["text"].str();
    const auto with = tokenizer->encode(text, {.parse_special = true});
    const auto without = tokenizer->encode(text);
    ASSERT_OK(with);
    ASSERT_OK(without);
    EXPECT_EQ(show_ids(*with), show_ids(item["ids"].ints()));
    EXPECT_EQ(show_ids(*without), show_ids(item["ids_no_special"].ints()));
    const auto back = tokenizer->decode(*with, {.skip_special = false});
    ASSERT_OK(back);
    EXPECT_EQ(*back, text);
  }
  for (const json::Value& item : golden["prompts"].items()) {
    const auto ids = tokenizer->encode(item["text"].str(), {.parse_special = true});
    ASSERT_OK(ids);
    EXPECT_EQ(show_ids(*ids), show_ids(item["ids"].ints()));
  }
}

}  // namespace
