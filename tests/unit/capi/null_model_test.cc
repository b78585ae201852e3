// SPDX-License-Identifier: Apache-2.0
//
// The null model: its name, what clients see of it, and its runner.
#include "capi/null_model.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "capi/model_object.h"
#include "engine/null_runner.h"
#include "lmnative/lmnative.h"
#include "parallel/clock.h"
#include "testing.h"

using namespace lmn;        // NOLINT: tests
using namespace lmn::capi;  // NOLINT

namespace {

std::shared_ptr<const Model> open(const std::string& name) {
  Result<std::shared_ptr<const Model>> model = Model::open(name, {});
  ASSERT_OK(model);
  return std::move(model).value();
}

void expect_refused(const std::string& name, const std::string& word) {
  const Result<NullModel> model = parse_null_model(name);
  if (!model.ok() && model.status().code() == Code::kInvalidArgument &&
      model.status().message().find(word) != std::string_view::npos)
    return;
  testing::report_failure(__FILE__, __LINE__,
                          name + ": want INVALID_ARGUMENT with \"" + word + "\", got " +
                              (model.ok() ? "OK" : std::string(model.status().message())));
}

}  // namespace

TEST(null_model_names) {
  EXPECT_EQ(parse_null_model("null:")->name(), "null:vocab=1000,context=4096,step_ns=0,token_ns=0");
  EXPECT_EQ(parse_null_model("null:context=64")->name(),
            "null:vocab=1000,context=64,step_ns=0,token_ns=0");
  EXPECT_EQ(parse_null_model("null:token_ns=3,step_ns=2,vocab=1,context=1")->name(),
            "null:vocab=1,context=1,step_ns=2,token_ns=3");
  const std::pair<const char*, const char*> refused[] = {
      {"null:layers=2", "unknown key"},
      {"null:vocab", "key=value"},
      {"null:,vocab=5", "key=value"},
      {"null:vocab=5,", "comma"},
      {"null:vocab=5,vocab=6", "second time"},
      {"null:vocab=", "whole number"},
      {"null:vocab=x", "whole number"},
      {"null:vocab=10k", "whole number"},
      {"null:vocab=1.5", "whole number"},
      {"null:vocab= 5", "whole number"},
      {"null:vocab=0", "1 to 1000000"},
      {"null:vocab=1000001", "1 to 1000000"},
      {"null:vocab=99999999999999999999", "1 to 1000000"},
      {"null:context=0", "1 to 1048576"},
      {"null:context=-1", "1 to 1048576"},
      {"null:step_ns=-1", "0 to 1000000000"},
      {"null:token_ns=1000000001", "0 to 1000000000"},
  };
  for (const auto& [name, word] : refused) expect_refused(name, word);
  for (const auto& [name, word] : refused) EXPECT(!Model::open(name, {}).ok());
}

TEST(an_existing_file_of_that_name_is_taken_first) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::string folder = (std::filesystem::temp_directory_path() / "lmnative_null_XXXXXX").string();
  ASSERT(mkdtemp(folder.data()) != nullptr);
  std::filesystem::current_path(folder);
  std::ofstream("null:vocab=5") << "no GGUF file";
  const Result<std::shared_ptr<const Model>> model = Model::open("null:vocab=5", {});
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
  ASSERT(!model.ok());
  EXPECT(model.status().code() == Code::kCorrupt);
}

TEST(a_null_model_looks_like_a_file) {
  lmn_model* model = nullptr;
  ASSERT(lmn_model_open("null:vocab=300,context=77", nullptr, &model, nullptr) == LMN_OK);
  lmn_model_info info{};
  info.struct_size = sizeof info;
  ASSERT(lmn_model_info_get(model, &info, nullptr) == LMN_OK);
  EXPECT_EQ(std::string(info.path), "null:vocab=300,context=77,step_ns=0,token_ns=0");
  EXPECT_EQ(std::string(info.architecture), "null");
  EXPECT_EQ(info.vocab_size, 300u);
  EXPECT_EQ(info.context_length, 77u);
  EXPECT_EQ(info.layer_count + info.tensor_count + info.file_bytes + info.file_count, 0u);
  EXPECT_EQ(info.metadata_count, 8u);
  lmn_value value{};
  value.struct_size = sizeof value;
  ASSERT(lmn_model_metadata_find(model, "tokenizer.ggml.tokens", &value, nullptr) == LMN_OK);
  EXPECT_EQ(value.array_count, 300u);
  lmn_value token{};
  token.struct_size = sizeof token;
  ASSERT(lmn_model_metadata_element_get(model, info.metadata_count - 1, 299, &token, nullptr) ==
         LMN_OK);
  EXPECT_EQ(std::string(token.text, token.text_bytes), "<|299|>");
  DLManagedTensorVersioned* tensor = nullptr;
  EXPECT_EQ(lmn_model_tensor_export(model, "token_embd.weight", &tensor, nullptr), LMN_NOT_FOUND);
  lmn_model_destroy(model);
}

TEST(tokens_of_a_null_model_are_bytes) {
  const std::shared_ptr<const Model> model = open("null:vocab=258");
  const Result<std::shared_ptr<const text::Tokenizer>> tokenizer = model->tokenizer();
  ASSERT_OK(tokenizer);
  EXPECT_EQ((*tokenizer)->vocab_size(), 258);
  for (int32_t byte = 0; byte < 256; ++byte) {
    const std::string_view bytes = (*tokenizer)->token_bytes(byte);
    ASSERT(bytes.size() == 1 && static_cast<unsigned char>(bytes[0]) == byte);
    EXPECT(!(*tokenizer)->is_end_of_generation(byte));
  }
  EXPECT_EQ((*tokenizer)->token_bytes(257), "<|257|>");
  const std::string text = "Größe, \xF0\x9F\xA6\x99 <|256|>\n";
  const Result<std::vector<int32_t>> ids = (*tokenizer)->encode(text, {});
  ASSERT_OK(ids);
  ASSERT(ids->size() == text.size());
  for (size_t i = 0; i < text.size(); ++i)
    EXPECT_EQ((*ids)[i], static_cast<unsigned char>(text[i]));
}

TEST(a_small_null_model_has_no_tokenizer) {
  const std::shared_ptr<const Model> model = open("null:vocab=255");
  EXPECT(!model->tokenizer().ok());
  EXPECT_EQ(model->summary().vocab_size, 255u);
}

TEST(null_runner_has_one_row_of_logits) {
  engine::NullRunnerOptions options;
  options.limits = {
      .tokens = 5, .sequences = 3, .outputs = 4, .table_stride = 2, .vocab_size = 1000};
  options.likeliest_token = 97;
  Result<std::unique_ptr<engine::StepRunner>> made = engine::make_null_runner(options);
  ASSERT_OK(made);
  engine::StepRunner& runner = **made;
  EXPECT_EQ(runner.kv_shape().layers, 0);
  // The arrays overlap nowhere.
  const engine::StepInputs inputs = runner.inputs();
  std::set<const int32_t*> places;
  size_t wanted = 0;
  const std::pair<int32_t*, int> arrays[] = {{inputs.token_ids, 5},      {inputs.positions, 5},
                                             {inputs.sequence_index, 5}, {inputs.kv_slots, 5},
                                             {inputs.block_tables, 6},   {inputs.output_rows, 4}};
  for (const auto& [array, size] : arrays) {
    for (int i = 0; i < size; ++i) {
      array[i] = i;
      places.insert(array + i);
      ++wanted;
    }
  }
  EXPECT_EQ(places.size(), wanted);
  EXPECT_EQ(runner.inputs().output_rows, inputs.output_rows);
  auto team = parallel::ThreadTeam::create({.threads = 1});
  ASSERT_OK(team);
  const Result<const float*> logits = runner.run({5, 3, 4}, **team);
  ASSERT_OK(logits);
  for (int row = 0; row < 4; ++row) {
    for (int id = 0; id < 1000; ++id) {
      const float value = (*logits)[row * 1000 + id];
      EXPECT_EQ(value, (*logits)[id]);
      if (id == 97)
        EXPECT_EQ(value, 4.0f);
      else
        EXPECT(value >= -4 && value < 4);
    }
  }
  // Spread over the range: the mean of 1000 values even in [-4, 4) is 0 to within 4 deviations.
  double sum = 0;
  for (int id = 0; id < 1000; ++id) sum += (*logits)[id];
  EXPECT(std::abs(sum / 1000) < 4 * 8 / std::sqrt(12.0 * 1000));
}

TEST(null_runner_spins_as_long_as_it_is_asked) {
  engine::NullRunnerOptions options;
  options.limits = {.tokens = 8, .sequences = 8, .outputs = 8, .table_stride = 1, .vocab_size = 10};
  options.step_ns = 2'000'000;
  options.token_ns = 1'000'000;
  Result<std::unique_ptr<engine::StepRunner>> runner = engine::make_null_runner(options);
  ASSERT_OK(runner);
  auto team = parallel::ThreadTeam::create({.threads = 1});
  ASSERT_OK(team);
  const int64_t start = parallel::now_ns();
  ASSERT_OK((*runner)->run({3, 3, 3}, **team));
  EXPECT(parallel::now_ns() - start >= 5'000'000);
}
