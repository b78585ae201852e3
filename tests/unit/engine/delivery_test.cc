// SPDX-License-Identifier: Apache-2.0
//
// Text as it reaches the client: decoding, end tokens, stop strings that straddle tokens.
#include "engine/delivery.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "engine/request_core.h"
#include "engine/text_buffer.h"
#include "fake_model.h"
#include "testing.h"
#include "tiny_tokenizer.h"

namespace lmn::engine {
namespace {

class Stream {
 public:
  explicit Stream(RequestOptions options, int32_t max_tokens = 100) {
    RequestCore::Fixed fixed;
    fixed.prompt_tokens = 1;
    fixed.max_tokens = max_tokens;
    fixed.vocab_size = kFakeVocab;
    fixed.tokenizer = tokenizer_.get();
    fixed.decode = options.text || !options.stop.empty();
    const std::vector<std::string_view> stops(options.stop.begin(), options.stop.end());
    auto matcher = text::StopMatcher::create(stops);
    ASSERT_OK(matcher);
    fixed.stops = std::move(matcher).value();
    fixed.signals = std::make_shared<EngineSignals>();
    fixed.signals->ledger = std::make_shared<memory::Ledger>();
    options.prompt = {1};
    fixed.options = std::move(options);
    core_ = std::make_unique<RequestCore>(std::move(fixed));
    core_->allocate();
  }
  // Delivers the token; returns the text that becomes visible.
  std::string push(int32_t token) {
    verdict_ = deliver(core_->sequence(0), token, 0);
    return news();
  }
  std::string push(char letter) { return push(6 + (letter - 'a')); }
  std::string end(FinishReason reason) {
    verdict_ = flush_text(core_->sequence(0), {reason, -1, {}});
    return news();
  }
  const Verdict& verdict() const { return verdict_; }
  const TinyVocabulary& vocabulary() const { return vocabulary_; }
  std::vector<int32_t> tokens() const { return tokens_; }

 private:
  std::string news() {
    core_->sequence(0).publish();
    Chunk chunk;
    const Status status = core_->next(0, &chunk);
    if (!status.ok()) return "";
    tokens_.insert(tokens_.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    return std::string(chunk.text);
  }

  TinyVocabulary vocabulary_;
  std::unique_ptr<text::Tokenizer> tokenizer_ = tiny_tokenizer(vocabulary_);
  std::unique_ptr<RequestCore> core_;
  Verdict verdict_;
  std::vector<int32_t> tokens_;
};

// Clients that read one sequence while it grows: each token goes to one of them, in order.
TEST(readers_of_one_sequence_share_its_tokens) {
  constexpr int32_t kTokens = 1'000'000;  // at most: as many as two seconds have room for
  RequestCore::Fixed fixed;
  fixed.max_tokens = kTokens;
  fixed.vocab_size = kFakeVocab;
  fixed.signals = std::make_shared<EngineSignals>();
  fixed.signals->ledger = std::make_shared<memory::Ledger>();
  RequestCore core(std::move(fixed));
  core.allocate();
  Sequence& sequence = core.sequence(0);
  std::vector<uint8_t> taken(kTokens);  // by index, which is the token
  std::atomic<int> ends{0}, disordered{0}, read{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&] {
      Status failure;
      int32_t next = 0;
      for (;;) {
        Chunk chunk;
        const Sequence::Taken news = sequence.take(&chunk, &failure);
        if (news == Sequence::Taken::kDone) return;
        if (chunk.token_ids.size() > size_t{kTokens}) {
          disordered.fetch_add(1);
          continue;
        }
        for (const int32_t token : chunk.token_ids) {
          if (token < next) disordered.fetch_add(1);
          next = token + 1;
          ++taken[static_cast<size_t>(token)];
          read.store(token, std::memory_order_relaxed);
        }
        if (chunk.finish_reason != FinishReason::kNone) ends.fetch_add(1);
      }
    });
  }
  int32_t written = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (written < kTokens && (written % 1000 != 0 || std::chrono::steady_clock::now() < end)) {
    const int32_t token = written++;
    sequence.append_token(token, 0);
    sequence.publish();
    // Not until somebody has seen it: readers, not the writer, set the pace.
    while (read.load(std::memory_order_relaxed) < token) parallel::cpu_pause();
  }
  sequence.end(RequestState::kFinished, FinishReason::kLength, -1, {});
  for (std::thread& reader : readers) reader.join();
  EXPECT(written > 0);
  EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), written);
  EXPECT_EQ(std::count(taken.begin(), taken.end(), 0), kTokens - written);
  EXPECT_EQ(disordered.load(), 0);
  EXPECT_EQ(ends.load(), 1);
}

TEST(text_comes_with_its_tokens) {
  Stream stream({});
  EXPECT_EQ(stream.push('h'), "h");
  EXPECT_EQ(stream.push('i'), "i");
  EXPECT_EQ(stream.push(33), " b");
  EXPECT(stream.verdict().reason == FinishReason::kNone);
  EXPECT((stream.tokens() == std::vector<int32_t>{13, 14, 33}));
}

TEST(no_half_characters) {
  Stream stream({});
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(3), "");
  EXPECT_EQ(stream.push(4), "");
  EXPECT_EQ(stream.push(5), "\xE2\x82\xAC");
  EXPECT_EQ(stream.push(3), "");
  EXPECT_EQ(stream.end(FinishReason::kLength), "\xEF\xBF\xBD");  // what never came becomes U+FFFD
}

TEST(end_tokens_are_delivered_as_ids_and_not_as_text) {
  Stream stream({});
  stream.push('a');
  EXPECT_EQ(stream.push(2), "");
  EXPECT(stream.verdict().reason == FinishReason::kEos);
  EXPECT((stream.tokens() == std::vector<int32_t>{6, 2}));

  RequestOptions options;
  options.ignore_eos = true;
  options.skip_special = false;
  Stream going_on(options);
  EXPECT_EQ(going_on.push(2), "</s>");
  EXPECT(going_on.verdict().reason == FinishReason::kNone);

  options = {};
  options.stop_token_ids = {10, 8};
  Stream stops(options);
  EXPECT_EQ(stops.push('b'), "b");
  EXPECT_EQ(stops.push(8), "");
  EXPECT(stops.verdict().reason == FinishReason::kStopToken);
  EXPECT_EQ(stops.verdict().stop_index, 1);
}

TEST(stop_strings_straddle_tokens_and_are_cut_out) {
  RequestOptions options;
  options.stop = {"xyz", "bc"};
  Stream stream(options);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push('x'), "");  // may become xyz
  EXPECT_EQ(stream.push('y'), "");
  EXPECT_EQ(stream.push('a'), "xya");  // did not
  EXPECT_EQ(stream.push('b'), "");
  EXPECT_EQ(stream.push('c'), "");
  EXPECT(stream.verdict().reason == FinishReason::kStopString);
  EXPECT_EQ(stream.verdict().stop_index, 1);
  EXPECT_EQ(stream.tokens().size(), size_t{6});
}

TEST(held_back_text_is_given_at_the_end) {
  RequestOptions options;
  options.stop = {"xyz"};
  Stream stream(options, 3);
  stream.push('a');
  EXPECT_EQ(stream.push('x'), "");
  EXPECT_EQ(stream.push('y'), "xy");  // max_tokens: nothing more can come
  EXPECT(stream.verdict().reason == FinishReason::kLength);

  Stream ended(options);
  EXPECT_EQ(ended.push('x'), "");
  EXPECT_EQ(ended.push(2), "x");
  EXPECT(ended.verdict().reason == FinishReason::kEos);

  // A stop string that only the last flush completes.
  options.stop = {"a\xEF\xBF\xBD"};
  Stream late(options);
  late.push('a');
  late.push(3);
  EXPECT_EQ(late.end(FinishReason::kLength), "");
  EXPECT(late.verdict().reason == FinishReason::kStopString);
}

TEST(stop_strings_work_without_text) {
  RequestOptions options;
  options.stop = {"bc"};
  options.text = false;
  Stream stream(options);
  EXPECT_EQ(stream.push('b'), "");
  EXPECT_EQ(stream.push('c'), "");
  EXPECT(stream.verdict().reason == FinishReason::kStopString);
}

TEST(through_the_engine) {
  const TinyVocabulary vocabulary;
  const auto tokenizer = tiny_tokenizer(vocabulary);
  FakeSetup setup;
  setup.tokenizer = tokenizer.get();
  FakeEngine engine(setup);
  int eos = 0, stopped = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const auto prompt = some_prompt(i, 4);
    const auto ids = reference_greedy(prompt, 60);
    // Whole text by the tokenizer in one piece.
    std::vector<int32_t> until_eos(ids.begin(), std::find(ids.begin(), ids.end(), vocabulary.eos));
    text::DecodeOptions how;
    how.strip_leading_space = false;
    std::string want = *tokenizer->decode(until_eos, how);
    RequestOptions options = greedy(prompt, 60);
    options.ignore_eos = false;
    if (i % 2 == 1 && want.size() > 20) options.stop = {want.substr(want.size() / 2, 3)};
    if (!options.stop.empty()) want.resize(want.find(options.stop[0]));
    const bool has_stop = !options.stop.empty();
    if (has_stop && want.find("\xEF\xBF") != std::string::npos) continue;  // cut inside a character
    auto request = submit(*engine.engine, std::move(options));
    if (!request.ok()) continue;  // a stop string that starts inside a character
    const Answer answer = collect(**request);
    EXPECT_EQ(answer.text, want);
    if (has_stop) {
      EXPECT(answer.reason == FinishReason::kStopString);
      ++stopped;
    } else {
      EXPECT(answer.reason == (until_eos.size() < 60 ? FinishReason::kEos : FinishReason::kLength));
      eos += answer.reason == FinishReason::kEos ? 1 : 0;
    }
  }
  EXPECT(eos > 5 && stopped > 5);
}

TEST(text_buffer_keeps_every_byte_across_segments) {
  TextBuffer buffer;
  ASSERT(buffer.reserve(8));
  std::string all;
  std::vector<std::string_view> early;
  for (int i = 0; i < 500; ++i) {
    const std::string piece(static_cast<size_t>(i % 23), static_cast<char>('a' + i % 26));
    ASSERT(buffer.append(piece));
    all += piece;
    if (i == 3) early.push_back(buffer.view(0, buffer.size()));
  }
  std::string joined;
  while (joined.size() < buffer.size())
    joined += buffer.view(static_cast<uint32_t>(joined.size()), buffer.size());
  EXPECT_EQ(joined, all);
  EXPECT_EQ(std::string(early[0]), all.substr(0, early[0].size()));  // never moved
  EXPECT(buffer.view(buffer.size(), buffer.size()).empty());
}

}  // namespace
}  // namespace lmn::engine
