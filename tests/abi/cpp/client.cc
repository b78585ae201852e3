// SPDX-License-Identifier: Apache-2.0
//
// The script of tests/abi in C++20, over lmnative.hpp. Usage: client MODEL ONNX_MODEL
#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "lmnative/lmnative.hpp"

namespace {

std::string json(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += (out.empty() ? "" : ",") + std::to_string(id);
  return "[" + out + "]";
}

std::string json(std::integral auto number) { return std::to_string(number); }

void inspect(const lmnative::Model& model) {
  const lmn_model_info info = model.info();
  std::printf(
      "{\"step\":\"model\",\"architecture\":%s,\"name\":%s,\"tensors\":%s,\"metadata\":%s,"
      "\"parameters\":%s,\"vocab\":%u,"
      "\"context\":%u,\"embedding\":%u,\"layers\":%u,\"heads\":%u,\"kv_heads\":%u,\"head_dim\":%u}"
      "\n",
      json(std::string_view(info.architecture)).c_str(), json(std::string_view(info.name)).c_str(),
      json(info.tensor_count).c_str(), json(info.metadata_count).c_str(),
      json(info.parameter_count).c_str(), info.vocab_size, info.context_length,
      info.embedding_length, info.layer_count, info.head_count, info.head_count_kv, info.head_dim);
  const lmn_value pre = model.find_metadata("tokenizer.ggml.pre").value();
  std::printf("{\"step\":\"metadata\",\"kind\":%u,\"text\":%s}\n", pre.kind,
              json(lmnative::text_of(pre)).c_str());
  const lmn_tensor_info tensor = model.tensor(0);
  std::printf("{\"step\":\"tensor\",\"name\":%s,\"type\":\"%s\",\"shape\":[%s,%s],\"bytes\":%s}\n",
              json(lmnative::name_of(tensor)).c_str(), tensor.type, json(tensor.shape[0]).c_str(),
              json(tensor.shape[1]).c_str(), json(tensor.bytes).c_str());
}

void tokenize(const lmnative::Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.encode("Größe 🦙 \"quoted\"\n");
  std::string pieces;
  lmnative::Decoder decoder(tokenizer);
  for (const int32_t id : ids) pieces += (pieces.empty() ? "" : ",") + json(decoder.decode(id));
  std::printf("{\"step\":\"tokenize\",\"ids\":%s,\"decoded\":%s,\"pieces\":[%s]}\n",
              json(ids).c_str(), json(tokenizer.decode(ids)).c_str(), pieces.c_str());
}

void chat(const lmnative::Tokenizer& tokenizer) {
  const lmnative::ChatMessage messages[] = {{"system", "Be brief."}, {"user", "Hi 👋"}};
  std::printf("{\"step\":\"chat\",\"text\":%s}\n", json(tokenizer.chat_render(messages)).c_str());
}

void stream(lmnative::Engine& engine) {
  std::string text;
  const lmnative::Answer answer = engine.generate(
      "The capital of France is", {.max_tokens = 16, .ignore_eos = true}, [&](const auto& chunk) {
        text += chunk.text;
        return true;
      });
  std::printf(
      "{\"step\":\"stream\",\"ids\":%s,\"text\":%s,\"finish\":%u,\"prompt_tokens\":%s,\"generated_"
      "tokens\":%s}\n",
      json(answer.token_ids).c_str(), json(text).c_str(), answer.finish_reason,
      json(answer.stats.prompt_tokens).c_str(), json(answer.stats.generated_tokens).c_str());
}

void cancel(lmnative::Engine& engine) {
  lmnative::Request request =
      engine.submit("Once upon a time", {.max_tokens = 4000, .ignore_eos = true});
  request.cancel();
  const uint32_t finish_reason = request.collect().finish_reason;
  lmn_chunk chunk{};
  chunk.struct_size = sizeof chunk;
  const lmn_status after = lmn_request_next(request.get(), 0, &chunk, nullptr);
  std::printf("{\"step\":\"cancel\",\"finish\":%u,\"after\":\"%s\"}\n", finish_reason,
              lmn_status_name(after));
}

void provoke(const char* what, const std::function<void()>& call) {
  try {
    call();
    std::printf("{\"step\":\"error\",\"what\":\"%s\",\"status\":\"none\"}\n", what);
  } catch (const lmnative::Error& e) {
    std::printf(
        "{\"step\":\"error\",\"what\":\"%s\",\"status\":\"%s\",\"message\":%s,\"same\":true}\n",
        what, lmn_status_name(e.status()), json(std::string_view(e.what())).c_str());
  }
}

void provoke_errors(lmnative::Engine& engine, const lmnative::Tokenizer& tokenizer) {
  provoke("missing file", [] { lmnative::Model("/nonexistent/model.gguf"); });
  provoke("NaN temperature", [&] { engine.submit("x", {.temperature = NAN}); });
  provoke("token id out of range", [&] { engine.submit(std::vector<int32_t>{1, 999999}); });
  provoke("option from the future", [&] {
    struct {
      lmn_request_options known;
      uint64_t added_later;
    } future{};
    future.known.struct_size = sizeof future;
    future.known.prompt = "x";
    future.known.prompt_bytes = 1;
    future.added_later = 7;
    lmn_request* request = nullptr;
    lmnative::detail::invoke([&](lmn_error** err) {
      return lmn_engine_submit(engine.get(), &future.known, &request, err);
    });
  });
  provoke("decode of a bad id", [&] { (void)tokenizer.decode(std::vector<int32_t>{-1}); });
}

void score(lmnative::Engine& engine) {
  const std::array<int32_t, 4> ids = {504, 3575, 282, 4649};
  const lmnative::Tensor logits = engine.score(ids);
  const auto columns = static_cast<size_t>(logits.shape()[1]);
  std::vector<int32_t> top;
  for (size_t row = 0; row < ids.size(); ++row) {
    const std::span<const float> values = logits.values<float>().subspan(row * columns, columns);
    top.push_back(
        static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin()));
  }
  std::printf("{\"step\":\"score\",\"shape\":[%s,%s],\"top\":%s}\n",
              json(logits.shape()[0]).c_str(), json(logits.shape()[1]).c_str(), json(top).c_str());
}

lmnative::Request submit_stream(lmnative::Engine& engine, uint64_t index, uint32_t max_tokens) {
  static const char* const prompts[] = {"One", "Two, three", "The sea is", "Once upon a time"};
  return engine.submit(prompts[index % 4], {.max_tokens = max_tokens,
                                            .temperature = 0.8f,
                                            .seed = index % 4,
                                            .ignore_eos = true,
                                            .tag = index,
                                            .notify = true});
}

// Many requests at once: one wait on the engine's descriptor for all, then those that have news.
void streams(lmnative::Engine& engine, const char* name, uint32_t max_tokens) {
  constexpr size_t kStreams = 64;
  std::vector<lmnative::Answer> alone;
  for (uint64_t i = 0; i < 4; ++i) alone.push_back(submit_stream(engine, i, max_tokens).collect());
  std::vector<lmnative::Request> requests;
  for (uint64_t i = 0; i < kStreams; ++i) requests.push_back(submit_stream(engine, i, max_tokens));
  std::vector<lmnative::Answer> got(kStreams);
  for (size_t open = kStreams; open > 0;) {
    pollfd news{engine.descriptor(), POLLIN, 0};
    if (poll(&news, 1, 60'000) != 1) throw std::runtime_error("no news");
    std::array<uint64_t, 16> buffer;
    for (const uint64_t tag : engine.drain(buffer)) {
      while (const auto chunk = requests[tag].next(std::chrono::nanoseconds(0))) {
        lmnative::Answer& to = got[tag];
        to.token_ids.insert(to.token_ids.end(), chunk->token_ids.begin(), chunk->token_ids.end());
        to.text += chunk->text;
        open -= chunk->finish_reason != LMN_FINISH_NONE;
      }
    }
  }
  size_t tokens = 0;
  bool equal = true;
  for (size_t i = 0; i < kStreams; ++i) {
    tokens += got[i].token_ids.size();
    equal = equal && got[i].token_ids == alone[i % 4].token_ids && got[i].text == alone[i % 4].text;
  }
  std::string ids;
  for (const lmnative::Answer& answer : alone)
    ids += (ids.empty() ? "" : ",") + json(answer.token_ids);
  std::printf(
      "{\"step\":\"streams\",\"model\":\"%s\",\"streams\":%zu,\"tokens\":%zu,\"equal\":%s,"
      "\"alone\":[%s]}\n",
      name, kStreams, tokens, equal ? "true" : "false", ids.c_str());
}

std::string row(std::span<const float> values) {
  char text[100];
  std::snprintf(text, sizeof text, "[%.1f,%.1f,%.1f]", static_cast<double>(values[0]),
                static_cast<double>(values[1]), static_cast<double>(values[2]));
  return text;
}

// An ONNX model, C = ReLU(A·B + bias), run with new values, and with bound ones.
void onnx(const char* path) {
  auto session = std::make_unique<lmnative::Session>(path, lmnative::SessionOptions{.threads = 1});
  const lmn_port_info port = session->input(0);
  lmnative::Tensor a(kDLFloat, 32, {1, 4}), c(kDLFloat, 32, {1, 3});
  const std::span<float> in = a.values<float>(), out = c.values<float>();
  const lmnative::SessionValue input(std::move(a)), output(std::move(c));
  std::fill(in.begin(), in.end(), 2.0f);
  const lmnative::Tensor result = session->run(input)[0].tensor();
  std::printf(
      "{\"step\":\"session\",\"input\":\"%s\",\"type\":\"%s\",\"rows\":\"%s\",\"columns\":%s,"
      "\"run\":%s",
      port.name, port.dtype, port.symbols[0], json(port.shape[1]).c_str(),
      row(result.values<const float>()).c_str());
  lmnative::Binding binding = session->bind({&input, 1}, {&output, 1});
  session.reset();
  std::fill(in.begin(), in.end(), 3.0f);
  binding.run();
  std::printf(",\"bound\":%s}\n", row(out).c_str());
}

// C = LeakyReLU(A * b + bias), written down operator by operator.
void graph() {
  lmnative::Tensor a(kDLFloat, 32, {1, 3}), b(kDLFloat, 32, {1, 3}), bias(kDLFloat, 32, {1, 3});
  std::ranges::fill(a.values<float>(), 2.0f);
  std::ranges::fill(bias.values<float>(), -4.0f);
  for (size_t i = 0; i < 3; ++i) b.values<float>()[i] = static_cast<float>(i + 1);
  lmnative::Graph g;
  const auto x = g.input("A", "f32", {"rows", 3});
  const auto y = x * g.constant(lmnative::SessionValue(std::move(b))) +
                 g.constant(lmnative::SessionValue(std::move(bias)));
  const auto c = g.op("LeakyRelu", {y}, {{"alpha", 0.5f}});
  g.output("C", c);
  const lmn_port_info port = c.info();
  std::printf("{\"step\":\"graph\",\"type\":\"%s\",\"rows\":\"%s\"", port.dtype, port.symbols[0]);
  try {
    g.op("Nothing", {x});
  } catch (const lmnative::Error& error) {
    std::printf(",\"unknown\":\"%s\"", lmn_status_name(error.status()));
  }
  const lmnative::Tensor result =
      g.session({.threads = 1}).run(lmnative::SessionValue(std::move(a)))[0].tensor();
  std::printf(",\"run\":%s}\n", row(result.values<const float>()).c_str());
}

// Parents before children: every handle keeps what it needs.
void destroy(std::unique_ptr<lmnative::Model> model, std::unique_ptr<lmnative::Tokenizer> tokenizer,
             std::unique_ptr<lmnative::Engine> engine) {
  const lmnative::Tensor norm = model->export_tensor("output_norm.weight");
  lmnative::Decoder decoder(*tokenizer);
  lmnative::Request request =
      engine->submit("Once upon a time", {.max_tokens = 4000, .ignore_eos = true});
  model.reset();
  engine.reset();
  tokenizer.reset();
  // Not collect(): it asks for stats, which a request answers too, but the other clients do not.
  uint32_t finish_reason = LMN_FINISH_NONE;
  while (const auto chunk = request.next()) finish_reason = chunk->finish_reason;
  std::printf("{\"step\":\"destroy\",\"finish\":%u,\"piece\":%s,\"read_only\":%s,\"first\":%.6f}\n",
              finish_reason, json(decoder.decode(504)).c_str(), norm.read_only() ? "true" : "false",
              static_cast<double>(norm.values<const float>()[0]));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    std::printf("{\"step\":\"version\",\"version\":%s,\"abi\":%u}\n",
                json(lmnative::version()).c_str(), lmn_abi_version());
    auto model = std::make_unique<lmnative::Model>(argv[1]);
    inspect(*model);
    auto tokenizer = std::make_unique<lmnative::Tokenizer>(*model);
    tokenize(*tokenizer);
    chat(*tokenizer);
    auto engine = std::make_unique<lmnative::Engine>(
        *model, lmnative::EngineOptions{.threads = 2, .context_tokens = 4096});
    stream(*engine);
    cancel(*engine);
    provoke_errors(*engine, *tokenizer);
    score(*engine);
    streams(*engine, "default", 8);
    lmnative::Engine null(lmnative::Model("null:vocab=512,context=256"),
                          {.threads = 1, .kv_tokens = 8192});
    streams(null, "null", 32);
    onnx(argv[2]);
    graph();
    destroy(std::move(model), std::move(tokenizer), std::move(engine));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
