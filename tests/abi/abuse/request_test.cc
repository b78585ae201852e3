// SPDX-License-Identifier: Apache-2.0
//
// Requests: polling, waiting, cancelling, deadlines, what chunks carry, and what the counters say.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "abuse.h"

using namespace abuse;  // NOLINT: tests

namespace {

lmn_memory_entry memory_of(const lmn_engine* engine, const std::string& owner) {
  lmn_memory_entry entries[32];
  size_t count = 0;
  CHECK_CALL(lmn_engine_memory_get(engine, entries, 32, &count, err));
  for (size_t i = 0; i < count; ++i) {
    if (entries[i].owner == owner) return entries[i];
  }
  return {};
}

// Stops a call when as many tokens are done as it says; keeps what the calls said.
struct StopAt {
  uint64_t tokens;
  uint64_t done = 0;
  uint64_t total = 0;
  int calls = 0;
  std::string what;

  static int32_t call(void* user, const char* what, uint64_t done, uint64_t total) {
    auto* self = static_cast<StopAt*>(user);
    self->calls += 1;
    self->what = what;
    self->done = done;
    self->total = total;
    return done >= self->tokens ? 1 : 0;
  }
};

}  // namespace

TEST(poll_wait_next_and_after_the_end) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get(), 1);
  const Request blocker = submit(engine.get(), "Once upon a time", 1500);
  const Request request = submit(engine.get(), "The capital of France is", 4);
  auto chunk = sized<lmn_chunk>();
  // It waits behind the blocker: nothing yet.
  EXPECT_FAILURE(LMN_TIMEOUT, "", lmn_request_next(request.get(), 0, &chunk, err));
  EXPECT_FAILURE(LMN_TIMEOUT, "", lmn_request_next(request.get(), 1'000'000, &chunk, err));
  EXPECT_FAILURE(LMN_TIMEOUT, "", lmn_request_wait(request.get(), 0, err));
  CHECK_CALL(lmn_request_cancel(blocker.get(), err));
  CHECK_CALL(lmn_request_wait(request.get(), -1, err));
  CHECK_CALL(lmn_request_wait(request.get(), 0, err));
  const Answer answer = drain(request.get());
  EXPECT_EQ(answer.ids.size(), 4u);
  EXPECT_EQ(answer.finish_reason, uint32_t(LMN_FINISH_LENGTH));
  for (int i = 0; i < 2; ++i) {
    EXPECT_FAILURE(LMN_CLOSED, "last chunk", lmn_request_next(request.get(), -1, &chunk, err));
  }
  CHECK_CALL(lmn_request_cancel(request.get(), err));  // no-op
  auto stats = sized<lmn_request_stats>();
  CHECK_CALL(lmn_request_stats_get(request.get(), &stats, err));
  EXPECT_EQ(stats.finish_reason, uint32_t(LMN_FINISH_LENGTH));
  EXPECT_EQ(stats.prompt_tokens, 5u);
  EXPECT_EQ(stats.generated_tokens, 4u);
  EXPECT(stats.queue_ns > 0 && stats.prefill_ns > 0 && stats.decode_ns > 0);
  EXPECT(stats.queue_ns < 600ull * kSecond && stats.decode_ns < 600ull * kSecond);
}

TEST(cancel_keeps_what_was_produced) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  const Request request = submit(engine.get(), "Once upon a time", 2000);
  auto chunk = sized<lmn_chunk>();
  CHECK_CALL(lmn_request_next(request.get(), -1, &chunk, err));
  EXPECT(chunk.token_count > 0);
  CHECK_CALL(lmn_request_cancel(request.get(), err));
  CHECK_CALL(lmn_request_cancel(request.get(), err));  // twice is once
  const Answer rest = drain(request.get());
  EXPECT_EQ(rest.finish_reason, uint32_t(LMN_FINISH_CANCELLED));
  // Everything it held came back.
  const lmn_engine_stats stats = stats_of(engine.get());
  EXPECT_EQ(stats.cancelled, 1u);
  EXPECT_EQ(stats.running, 0u);
  EXPECT_EQ(stats.kv_pages_used, 0u);
}

TEST(deadline_ends_a_request_with_its_own_reason) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  auto options = sized<lmn_request_options>();
  options.prompt = "Once upon a time";
  options.prompt_bytes = std::strlen(options.prompt);
  options.flags = LMN_REQUEST_IGNORE_EOS;
  options.deadline_ns = 50'000'000;
  lmn_request* raw = nullptr;
  CHECK_CALL(lmn_engine_submit(engine.get(), &options, &raw, err));
  const Request request(raw);
  CHECK_CALL(lmn_request_wait(request.get(), 60 * kSecond, err));
  EXPECT_EQ(drain(request.get()).finish_reason, uint32_t(LMN_FINISH_DEADLINE));
}

// Answers at reading speed: the same tokens, no sooner than their times, and a cancel that does not
// wait for the next one.
TEST(token_interval_paces_an_answer) {
  const Engine engine = create_engine(open_model().get());
  auto options = sized<lmn_request_options>();
  options.prompt = "My favourite colour is";
  options.prompt_bytes = std::strlen(options.prompt);
  options.flags = LMN_REQUEST_IGNORE_EOS;
  options.max_tokens = 5;
  Answer answers[2];
  for (Answer& answer : answers) {
    lmn_request* raw = nullptr;
    const auto begin = std::chrono::steady_clock::now();
    CHECK_CALL(lmn_engine_submit(engine.get(), &options, &raw, err));
    const Request request(raw);
    answer = drain(request.get());
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT(took >= 4 * std::chrono::nanoseconds(options.token_interval_ns));
    options.token_interval_ns = 50'000'000;
  }
  EXPECT(answers[0].ids == answers[1].ids);
  options.token_interval_ns = UINT64_MAX;
  lmn_request* raw = nullptr;
  CHECK_CALL(lmn_engine_submit(engine.get(), &options, &raw, err));
  const Request request(raw);
  auto chunk = sized<lmn_chunk>();
  CHECK_CALL(lmn_request_next(request.get(), -1, &chunk, err));
  CHECK_CALL(lmn_request_cancel(request.get(), err));
  CHECK_CALL(lmn_request_wait(request.get(), -1, err));
  EXPECT_EQ(drain(request.get()).finish_reason, uint32_t(LMN_FINISH_CANCELLED));
}

TEST(tag_seed_and_priority) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  Answer answers[2];
  for (Answer& answer : answers) {
    auto options = sized<lmn_request_options>();
    options.prompt = "My favourite colour is";
    options.prompt_bytes = std::strlen(options.prompt);
    options.max_tokens = 12;
    options.temperature = 1.5f;
    options.flags = LMN_REQUEST_SEED;
    options.seed = 0;  // a seed like any other
    options.tag = 0xFEEDFACEull;
    options.priority = -2;
    lmn_request* raw = nullptr;
    CHECK_CALL(lmn_engine_submit(engine.get(), &options, &raw, err));
    const Request request(raw);
    answer = drain(request.get());
    auto stats = sized<lmn_request_stats>();
    CHECK_CALL(lmn_request_stats_get(request.get(), &stats, err));
    EXPECT_EQ(stats.tag, 0xFEEDFACEull);
    EXPECT_EQ(stats.seed, 0u);
  }
  EXPECT(answers[0].ids == answers[1].ids);
  EXPECT_EQ(answers[0].text, answers[1].text);
}

TEST(logprobs_and_logits_of_a_chunk_agree) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  auto options = sized<lmn_request_options>();
  options.prompt = "The capital of France is";
  options.prompt_bytes = std::strlen(options.prompt);
  options.max_tokens = 3;
  options.flags = LMN_REQUEST_LOGITS | LMN_REQUEST_IGNORE_EOS;
  options.top_logprobs = 5;  // implies LMN_REQUEST_LOGPROBS
  lmn_request* raw = nullptr;
  CHECK_CALL(lmn_engine_submit(engine.get(), &options, &raw, err));
  const Request request(raw);
  CHECK_CALL(lmn_request_wait(request.get(), -1, err));
  auto chunk = sized<lmn_chunk>();
  CHECK_CALL(lmn_request_next(request.get(), 0, &chunk, err));
  ASSERT(chunk.token_count == 3 && chunk.top_logprob_count == 5);
  ASSERT(chunk.logits != nullptr && chunk.logprobs != nullptr && chunk.top_ids != nullptr);
  for (size_t i = 0; i < 3; ++i) {
    const float* row = chunk.logits + i * 49152;
    const auto best = static_cast<int32_t>(std::max_element(row, row + 49152) - row);
    EXPECT_EQ(chunk.token_ids[i], best);  // greedy
    EXPECT_EQ(chunk.top_ids[i * 5], best);
    double sum = 0;
    for (int j = 0; j < 49152; ++j) sum += std::exp(static_cast<double>(row[j]) - row[best]);
    EXPECT_NEAR(chunk.logprobs[i], -std::log(sum), 1e-4);
    for (size_t k = 1; k < 5; ++k) {
      const size_t at = i * 5 + k;
      EXPECT(chunk.top_logprobs[at] <= chunk.top_logprobs[at - 1]);
      EXPECT_NEAR(chunk.top_logprobs[at] - chunk.top_logprobs[at - 1],
                  row[chunk.top_ids[at]] - row[chunk.top_ids[at - 1]], 1e-4);
    }
  }
}

TEST(logits_with_a_cache_smaller_than_the_context) {
  const Model model = open_model();
  auto options = sized<lmn_engine_options>();
  options.context_tokens = 256;
  options.kv_tokens = 64;
  lmn_engine* raw = nullptr;
  CHECK_CALL(lmn_engine_create(model.get(), &options, &raw, err));
  const Engine engine(raw);
  const int32_t ids[] = {1, 2, 3, 4};
  auto ask = sized<lmn_request_options>();
  ask.prompt_ids = ids;
  ask.prompt_id_count = 4;
  ask.flags = LMN_REQUEST_LOGITS | LMN_REQUEST_IGNORE_EOS;
  lmn_request* request = nullptr;  // max_tokens 0: as many as there is room for
  CHECK_CALL(lmn_engine_submit(engine.get(), &ask, &request, err));
  const Request held(request);
  EXPECT_EQ(drain(request).ids.size(), size_t{60});
  ask.max_tokens = 61;  // more than there is room for
  lmn_request* refused = nullptr;
  EXPECT_FAILURE(LMN_OUT_OF_MEMORY, "kv_tokens",
                 lmn_engine_submit(engine.get(), &ask, &refused, err));
}

TEST(an_engine_that_no_memory_can_hold_is_refused_at_once) {
  // 30 million tokens are 0.6 TiB here, which the system would lend until somebody writes there.
  const Model model = open_model();
  auto options = sized<lmn_engine_options>();
  options.kv_tokens = 30'000'000;
  lmn_engine* engine = nullptr;
  for (const char* word : {"kv_tokens", "are available", "30000000 tokens", "max_sequences"}) {
    EXPECT_FAILURE(LMN_OUT_OF_MEMORY, word, lmn_engine_create(model.get(), &options, &engine, err));
  }
}

TEST(generating_is_scoring) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  const Tokenizer tokenizer = create_tokenizer(model.get());
  int32_t ids[64];
  size_t count = 0;
  CHECK_CALL(lmn_tokenizer_encode(tokenizer.get(), "The capital of France is", 24, nullptr, ids, 64,
                                  &count, err));
  auto options = sized<lmn_request_options>();
  options.prompt_ids = ids;
  options.prompt_id_count = count;
  options.max_tokens = 8;
  options.flags = LMN_REQUEST_LOGITS | LMN_REQUEST_IGNORE_EOS;
  lmn_request* raw = nullptr;
  CHECK_CALL(lmn_engine_submit(engine.get(), &options, &raw, err));
  const Request request(raw);
  CHECK_CALL(lmn_request_wait(request.get(), -1, err));
  auto chunk = sized<lmn_chunk>();
  CHECK_CALL(lmn_request_next(request.get(), 0, &chunk, err));
  ASSERT(chunk.token_count == 8);
  std::vector<int32_t> all(ids, ids + count);
  all.insert(all.end(), chunk.token_ids, chunk.token_ids + 7);
  int64_t size = static_cast<int64_t>(all.size());
  DLManagedTensorVersioned lent{};
  lent.version = {1, 0};
  lent.dl_tensor.device = {kDLCPU, 0};
  lent.dl_tensor.ndim = 1;
  lent.dl_tensor.dtype = {kDLInt, 32, 1};
  lent.dl_tensor.shape = &size;
  lent.dl_tensor.data = all.data();
  for (const uint32_t chunk_tokens : {0u, 1u, 3u}) {
    auto score = sized<lmn_score_options>();
    score.chunk_tokens = chunk_tokens;
    DLManagedTensorVersioned* logits = nullptr;
    CHECK_CALL(lmn_engine_score(engine.get(), &lent, &score, &logits, err));
    const Tensor tensor(logits);
    const float* rows = static_cast<const float*>(tensor->dl_tensor.data) + (count - 1) * 49152;
    EXPECT_EQ(std::memcmp(rows, chunk.logits, 8 * 49152 * sizeof(float)), 0);  // bit for bit
  }
}

TEST(a_score_is_stopped_by_its_progress) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  std::vector<int32_t> ids(1500, 504);
  int64_t size = static_cast<int64_t>(ids.size());
  DLManagedTensorVersioned lent{};
  lent.version = {1, 0};
  lent.dl_tensor.device = {kDLCPU, 0};
  lent.dl_tensor.ndim = 1;
  lent.dl_tensor.dtype = {kDLInt, 32, 1};
  lent.dl_tensor.shape = &size;
  lent.dl_tensor.data = ids.data();
  const uint64_t requests_before = memory_of(engine.get(), "requests").current;
  StopAt stop{.tokens = 0, .what = {}};
  auto options = sized<lmn_score_options>();
  options.progress = &StopAt::call;
  options.progress_user = &stop;
  DLManagedTensorVersioned* logits = nullptr;
  EXPECT_FAILURE(LMN_CANCELLED, "progress",
                 lmn_engine_score(engine.get(), &lent, &options, &logits, err));
  EXPECT(logits == nullptr);
  EXPECT_EQ(stop.calls, 1);
  EXPECT_EQ(stop.what, std::string("scoring"));
  EXPECT_EQ(stop.total, 1500u);
  const lmn_engine_stats stats = stats_of(engine.get());
  EXPECT_EQ(stats.cancelled, 1u);
  EXPECT_EQ(stats.running + stats.waiting, 0u);
  EXPECT(stats.prompt_tokens < 1500);
  // The engine thread may hold what little is left of a request until it has finished the step.
  EXPECT(
      eventually([&] { return memory_of(engine.get(), "requests").current == requests_before; }));
  EXPECT(memory_of(engine.get(), "requests").peak >= 1500ull * 49152 * sizeof(float));
  // Whoever lets it go on sees the end.
  StopAt watch{.tokens = UINT64_MAX, .what = {}};
  options.progress_user = &watch;
  size = 20;
  CHECK_CALL(lmn_engine_score(engine.get(), &lent, &options, &logits, err));
  const Tensor tensor(logits);
  EXPECT(watch.calls > 0 && watch.done == 20 && watch.total == 20);
}

TEST(logits_of_a_request_are_booked) {
  const Model model = open_model();
  Engine engine = create_engine(model.get());
  const uint64_t before = memory_of(engine.get(), "requests").current;
  auto options = sized<lmn_request_options>();
  options.prompt = "x";
  options.prompt_bytes = 1;
  options.max_tokens = 4;
  options.flags = LMN_REQUEST_LOGITS | LMN_REQUEST_IGNORE_EOS;
  lmn_request* raw = nullptr;
  CHECK_CALL(lmn_engine_submit(engine.get(), &options, &raw, err));
  Request request(raw);
  drain(request.get());
  EXPECT(memory_of(engine.get(), "requests").current >= before + 4 * 49152 * sizeof(float));
  request.reset();
  // The engine thread may hold what little is left of a request until it has finished the step.
  EXPECT(eventually([&] { return memory_of(engine.get(), "requests").current == before; }));
  CHECK_CALL(lmn_engine_submit(engine.get(), &options, &raw, err));
  request.reset(raw);
  engine.reset();  // the request still holds its part of the ledger
}

TEST(a_copied_file_has_an_owner_of_its_own) {
  auto options = sized<lmn_model_options>();
  options.read_mode = LMN_READ_COPY;
  lmn_model* raw = nullptr;
  CHECK_CALL(lmn_model_open(model_path().c_str(), &options, &raw, err));
  const Model model(raw);
  const Engine engine = create_engine(model.get());
  auto info = sized<lmn_model_info>();
  CHECK_CALL(lmn_model_info_get(model.get(), &info, err));
  EXPECT_EQ(memory_of(engine.get(), "file_copy").current, info.file_bytes);
  EXPECT_EQ(memory_of(engine.get(), "mapped").current, 0u);
}

TEST(queue_full_is_said_at_once) {
  const Model model = open_model();
  auto options = sized<lmn_engine_options>();
  options.threads = 1;
  options.context_tokens = 2048;
  options.queue_capacity = 2;
  options.max_sequences = 1;
  lmn_engine* raw = nullptr;
  CHECK_CALL(lmn_engine_create(model.get(), &options, &raw, err));
  const Engine engine(raw);
  EXPECT_EQ(stats_of(engine.get()).queue_capacity, 2u);
  std::vector<Request> requests;
  auto request_options = sized<lmn_request_options>();
  request_options.prompt = "Once upon a time";
  request_options.prompt_bytes = std::strlen(request_options.prompt);
  request_options.max_tokens = 1500;
  request_options.flags = LMN_REQUEST_IGNORE_EOS;
  lmn_status status = LMN_OK;
  for (int i = 0; i < 8 && status == LMN_OK; ++i) {
    lmn_request* request = nullptr;
    status = lmn_engine_submit(engine.get(), &request_options, &request, nullptr);
    if (request != nullptr) requests.emplace_back(request);
  }
  EXPECT_EQ(status, LMN_QUEUE_FULL);
  EXPECT(requests.size() >= 2 &&
         requests.size() <= 4);  // two may wait while one runs and one is on its way
  EXPECT_EQ(stats_of(engine.get()).rejected, 1u);
}

TEST(a_full_queue_says_which_bound_and_its_figures) {
  const auto refused = [](const lmn_engine* engine, const lmn_request_options& options,
                          const char* words) {
    lmn_request* request = nullptr;
    EXPECT_FAILURE(LMN_QUEUE_FULL, words,
                   lmn_engine_submit(const_cast<lmn_engine*>(engine), &options, &request, err));
    EXPECT(request == nullptr);
    return stats_of(engine);
  };
  const auto one_at_a_time = [](lmn_engine_options* o) { o->max_sequences = 1; };
  // Each engine computes a request that takes seconds, and has room for one that waits.
  const auto occupy = [](lmn_engine* engine) {
    Request running = submit(engine, "a", 4000);
    EXPECT(eventually([&] { return stats_of(engine).running == 1; }));
    return running;
  };
  {
    const Engine engine = create_null_engine("null:step_ns=1000000", [&](lmn_engine_options* o) {
      one_at_a_time(o);
      o->queue_capacity = 1;
    });
    const Request running = occupy(engine.get());
    const Request waiting = submit(engine.get(), "a", 5);
    const lmn_engine_stats stats =
        refused(engine.get(), options_of("a", 5), "1 requests are waiting and the queue holds 1");
    EXPECT_EQ(stats.rejected_queue, 1u);
    EXPECT_EQ(stats.rejected, 1u);
    EXPECT_EQ(stats.waiting, 1u);
    EXPECT_EQ(stats.queue_tokens, 1u);
  }
  {
    const Engine engine = create_null_engine("null:step_ns=1000000", [&](lmn_engine_options* o) {
      one_at_a_time(o);
      o->queue_tokens = 10;
    });
    const Request running = occupy(engine.get());
    const Request waiting = submit(engine.get(), "1234567", 5);
    const lmn_engine_stats stats = refused(engine.get(), options_of("1234", 5),
                                           "7 prompt tokens are waiting, this prompt has 4");
    EXPECT_EQ(stats.rejected_tokens, 1u);
    EXPECT_EQ(stats.queue_tokens, 7u);
    const Request fits = submit(engine.get(), "123", 5);
  }
  {
    const Engine engine = create_null_engine(
        "null:step_ns=1000000", [](lmn_engine_options* o) { o->queue_bytes = 100'000; });
    const Request small = submit(engine.get(), "a", 1000);
    lmn_request_options logprobs = options_of("a", 500);
    logprobs.top_logprobs = 20;
    lmn_engine_stats stats = refused(engine.get(), logprobs, "this one takes");
    EXPECT_EQ(stats.rejected_bytes, 1u);
    logprobs.max_tokens = 3000;  // too large by itself: no use in trying again
    lmn_request* request = nullptr;
    EXPECT_FAILURE(LMN_OUT_OF_MEMORY, "raise queue_bytes",
                   lmn_engine_submit(engine.get(), &logprobs, &request, err));
    stats = stats_of(engine.get());
    EXPECT_EQ(stats.rejected_bytes, 2u);
    EXPECT(stats.queue_bytes > 4000 && stats.queue_bytes <= 100'000);
  }
}

TEST(reasons_of_other_refusals) {
  const Engine engine =
      create_null_engine("null:", [](lmn_engine_options* o) { o->kv_tokens = 64; });
  lmn_request* request = nullptr;
  lmn_request_options options = options_of("a", 100);
  EXPECT_FAILURE(LMN_OUT_OF_MEMORY, "kv_tokens",
                 lmn_engine_submit(engine.get(), &options, &request, err));
  options = options_of("a", 10);
  options.priority = 3;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "priority",
                 lmn_engine_submit(engine.get(), &options, &request, err));
  const lmn_engine_stats stats = stats_of(engine.get());
  EXPECT_EQ(stats.rejected_memory, 1u);
  EXPECT_EQ(stats.rejected_invalid, 1u);
  EXPECT_EQ(stats.rejected, 2u);
}

TEST(samples_are_requests_with_the_next_seeds) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  lmn_request_options options = options_of("My favourite colour is", 6);
  options.temperature = 1.2f;
  options.flags |= LMN_REQUEST_SEED | LMN_REQUEST_LOGITS | LMN_REQUEST_LOGPROBS;
  options.seed = 11;
  options.n = 4;
  const Request request = submit(engine.get(), options);
  CHECK_CALL(lmn_request_wait(request.get(), -1, err));
  auto stats = sized<lmn_request_stats>();
  CHECK_CALL(lmn_request_stats_get(request.get(), &stats, err));
  EXPECT_EQ(stats.generated_tokens, 24u);
  EXPECT_EQ(stats.finish_reason, uint32_t(LMN_FINISH_LENGTH));
  options.n = 1;
  uint32_t seen = 0;
  for (int i = 0; i < 4; ++i) {
    auto chunk = sized<lmn_chunk>();
    CHECK_CALL(lmn_request_next(request.get(), 0, &chunk, err));
    ASSERT(chunk.token_count == 6 && chunk.sample < 4 && chunk.logits != nullptr);
    EXPECT_EQ(chunk.finish_reason, uint32_t(LMN_FINISH_LENGTH));
    seen |= 1u << chunk.sample;
    options.seed = 11 + chunk.sample;
    const Request alone = submit(engine.get(), options);
    CHECK_CALL(lmn_request_wait(alone.get(), -1, err));
    auto want = sized<lmn_chunk>();
    CHECK_CALL(lmn_request_next(alone.get(), 0, &want, err));
    ASSERT(want.token_count == 6);
    EXPECT_EQ(std::memcmp(chunk.token_ids, want.token_ids, 6 * sizeof(int32_t)), 0);
    EXPECT_EQ(std::memcmp(chunk.logprobs, want.logprobs, 6 * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(chunk.logits, want.logits, 6 * 49152 * sizeof(float)), 0);
    EXPECT_EQ(std::string(chunk.text, chunk.text_bytes), std::string(want.text, want.text_bytes));
  }
  EXPECT_EQ(seen, 15u);
  auto chunk = sized<lmn_chunk>();
  EXPECT_FAILURE(LMN_CLOSED, "last chunk", lmn_request_next(request.get(), 0, &chunk, err));
}

TEST(a_prompt_that_was_there_before_is_cached) {
  const std::string prompt(200, 'p');
  for (const uint32_t prefix_cache : {LMN_DEFAULT, LMN_NO}) {
    const Engine engine =
        create_null_engine("null:", [&](lmn_engine_options* o) { o->prefix_cache = prefix_cache; });
    uint64_t cached[2];
    for (uint64_t& tokens : cached) {
      const Request request = submit(engine.get(), prompt, 4);
      drain(request.get());
      auto stats = sized<lmn_request_stats>();
      CHECK_CALL(lmn_request_stats_get(request.get(), &stats, err));
      tokens = stats.cached_tokens;
    }
    const lmn_engine_stats stats = stats_of(engine.get());
    const uint64_t want = prefix_cache == LMN_NO ? 0 : 192;  // whole pages of 32
    EXPECT_EQ(cached[0], 0u);
    EXPECT_EQ(cached[1], want);
    EXPECT_EQ(stats.prefix_hit_tokens, want);
    EXPECT_EQ(stats.prefix_lookup_tokens, 400u);
    EXPECT_EQ(stats.kv_pages_cached > 0, prefix_cache != LMN_NO);
  }
}

TEST(histograms_and_trace) {
  const Engine engine = create_null_engine("null:step_ns=50000",
                                           [](lmn_engine_options* o) { o->trace_events = 4096; });
  for (int i = 0; i < 3; ++i) drain(submit(engine.get(), "abc", 10).get());
  expect_idle(engine.get());
  size_t count = 0;
  EXPECT_EQ(lmn_engine_histogram_get(engine.get(), nullptr, 0, &count, nullptr),
            LMN_BUFFER_TOO_SMALL);
  std::vector<lmn_histogram> histograms(count);
  EXPECT(eventually([&] {  // the last step is recorded after its tokens were delivered
    CHECK_CALL(lmn_engine_histogram_get(engine.get(), histograms.data(), count, &count, err));
    return histograms[0].count == 30;
  }));
  EXPECT_FAILURE(LMN_BUFFER_TOO_SMALL, "needed",
                 lmn_engine_histogram_get(engine.get(), histograms.data(), 1, &count, err));
  EXPECT_EQ(count, histograms.size());
  CHECK_CALL(lmn_engine_histogram_get(engine.get(), histograms.data(), count, &count, err));
  std::string names;
  for (const lmn_histogram& h : histograms) {
    const std::string name = h.name;
    names += name + " ";
    uint64_t sum = 0;
    for (const uint64_t bucket : h.buckets) sum += bucket;
    EXPECT_EQ(sum, h.count);
    EXPECT(h.p50_ns <= h.p90_ns && h.p90_ns <= h.p99_ns && h.p99_ns <= h.max_ns);
    const bool of_request = name == "queue" || name == "first_token";
    EXPECT_EQ(h.count, of_request ? 3u : name == "inter_token" ? 27u : 30u);
    if (name == "run") EXPECT(h.sum_ns >= 30 * 50'000 && h.p50_ns >= 40'000);
  }
  EXPECT_EQ(names, "step schedule prepare run sample deliver queue first_token inter_token ");

  std::vector<lmn_trace_event> events(1000);
  uint64_t lost = 99;
  CHECK_CALL(lmn_engine_trace_get(engine.get(), events.data(), 7, &count, &lost, err));
  EXPECT_EQ(count, 7u);
  CHECK_CALL(lmn_engine_trace_get(engine.get(), events.data() + 7, 993, &count, &lost, err));
  events.resize(7 + count);
  EXPECT_EQ(lost, 0u);
  size_t runs = 0, spans_of_requests = 0;
  for (const lmn_trace_event& event : events) {
    EXPECT(event.begin_ns <= event.end_ns && event.name != nullptr);
    runs += std::string(event.name) == "run";
    spans_of_requests += event.request != 0;
  }
  EXPECT_EQ(runs, 30u);
  EXPECT_EQ(spans_of_requests, 9u);  // queue, prefill and decode of each
  CHECK_CALL(lmn_engine_trace_get(engine.get(), events.data(), 10, &count, &lost, err));
  EXPECT_EQ(count, 0u);
  const Engine without = create_null_engine();
  EXPECT_FAILURE(LMN_UNSUPPORTED, "trace_events",
                 lmn_engine_trace_get(without.get(), events.data(), 10, &count, &lost, err));
}

TEST(profiles_of_decode_and_prefill_steps) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get(), 0, LMN_ENGINE_PROFILE);
  const Answer answer = drain(submit(engine.get(), "The capital of France is", 4).get());
  EXPECT_EQ(answer.ids.size(), 4u);
  size_t count = 0;
  EXPECT_EQ(lmn_engine_profile_get(engine.get(), nullptr, 0, &count, nullptr),
            LMN_BUFFER_TOO_SMALL);
  std::vector<lmn_profile_entry> entries(count);
  EXPECT(eventually([&] {  // the last step is recorded after its tokens were delivered
    CHECK_CALL(lmn_engine_profile_get(engine.get(), entries.data(), count, &count, err));
    return entries[count / 2 - 1].calls == 3;
  }));
  uint64_t bytes[2] = {}, operations[2] = {}, stages_ns[2] = {}, run_ns[2] = {}, engine_parts = 0;
  for (size_t i = 0; i < count; ++i) {
    const lmn_profile_entry& entry = entries[i];
    const uint32_t kind = i < count / 2 ? LMN_STEP_DECODE : LMN_STEP_PREFILL;
    ASSERT(entry.step_kind == kind);
    EXPECT_EQ(std::string(entry.name), entries[i % (count / 2)].name);
    EXPECT_EQ(entry.calls, kind == LMN_STEP_DECODE ? 3u : 1u);
    bytes[kind] += entry.bytes;
    operations[kind] += entry.operations;
    if (std::string(entry.op) != "engine") {
      stages_ns[kind] += entry.run_ns + entry.wait_ns;
      continue;
    }
    ++engine_parts;
    if (std::string(entry.name) == "run") run_ns[kind] = entry.run_ns;
  }
  EXPECT_EQ(engine_parts, 10u);
  lmn_memory_entry memory[32];
  uint64_t weights = 0;
  CHECK_CALL(lmn_engine_memory_get(engine.get(), memory, 32, &count, err));
  for (size_t i = 0; i < count; ++i) {
    if (std::string(memory[i].owner) == "packed_weights") weights = memory[i].current;
  }
  // A step reads all weights, which a row multiplies at least once for each two of their bytes.
  EXPECT(weights > 0 && bytes[LMN_STEP_DECODE] >= 3 * weights * 99 / 100);
  EXPECT(bytes[LMN_STEP_PREFILL] >= weights * 99 / 100);
  EXPECT(operations[LMN_STEP_DECODE] >= 3 * weights);
  EXPECT(operations[LMN_STEP_PREFILL] > operations[LMN_STEP_DECODE]);  // 5 rows against 3
  for (const uint32_t kind : {LMN_STEP_DECODE, LMN_STEP_PREFILL})
    EXPECT(stages_ns[kind] > 0 && stages_ns[kind] <= run_ns[kind]);
  const Engine without = create_engine(model.get());
  EXPECT_FAILURE(LMN_UNSUPPORTED, "LMN_ENGINE_PROFILE",
                 lmn_engine_profile_get(without.get(), nullptr, 0, &count, err));
}

TEST(memory_and_stats_of_an_engine) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  const Request request = submit(engine.get(), "The capital of France is", 4);
  drain(request.get());
  size_t count = 0;
  EXPECT_EQ(lmn_engine_memory_get(engine.get(), nullptr, 0, &count, nullptr), LMN_BUFFER_TOO_SMALL);
  std::vector<lmn_memory_entry> entries(count);
  CHECK_CALL(lmn_engine_memory_get(engine.get(), entries.data(), count, &count, err));
  uint64_t sum = 0;
  for (const lmn_memory_entry& entry : entries) {
    EXPECT(entry.peak >= entry.current);
    if (std::string(entry.owner) != "total") sum += entry.current;
  }
  const auto of = [&](const char* owner) {
    for (const lmn_memory_entry& entry : entries) {
      if (std::string(entry.owner) == owner) return entry.current;
    }
    return uint64_t{0};
  };
  EXPECT_EQ(std::string(entries.back().owner), "total");
  EXPECT_EQ(sum, entries.back().current);
  auto info = sized<lmn_model_info>();
  CHECK_CALL(lmn_model_info_get(model.get(), &info, err));
  EXPECT_EQ(of("mapped"), info.file_bytes);
  EXPECT(of("packed_weights") > info.file_bytes / 2 && of("packed_weights") < 2 * info.file_bytes);
  EXPECT_EQ(of("kv"), 2048ull * 30 * 2 * 3 * 64 *
                          2);  // tokens, layers, k and v, heads, head_dim, bytes of f16
  EXPECT(of("arena") > 0 && of("tokenizer") > 0);
  const lmn_engine_stats stats = stats_of(engine.get());
  EXPECT_EQ(stats.threads, 2u);
  EXPECT_EQ(stats.context_tokens, 2048u);
  EXPECT_EQ(stats.kv_pages * stats.kv_page_tokens, 2048u);
  EXPECT_EQ(stats.submitted, 1u);
  EXPECT_EQ(stats.finished, 1u);
  EXPECT_EQ(stats.prompt_tokens, 5u);
  EXPECT_EQ(stats.generated_tokens, 4u);
  EXPECT_EQ(stats.failed + stats.cancelled + stats.rejected, 0u);
  EXPECT(stats.steps >= 4 && stats.load_ns > 0);
}
