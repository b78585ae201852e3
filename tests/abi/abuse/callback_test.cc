// SPDX-License-Identifier: Apache-2.0
//
// Callbacks: on whose thread, when, what is legal inside, and what ends them.
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "abuse.h"

using namespace abuse;  // NOLINT: tests

namespace {

// Long enough to be caught in the middle, and short enough to be waited for: 4000 tokens at 1 ms.
constexpr char kSlowModel[] = "null:step_ns=1000000";

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Takes what there is; adds to `ids`; the finish reason, if the end is among it.
uint32_t take(lmn_request* request, std::vector<int32_t>* ids) {
  uint32_t finish_reason = LMN_FINISH_NONE;
  auto chunk = sized<lmn_chunk>();
  while (lmn_request_next(request, 0, &chunk, nullptr) == LMN_OK) {
    ids->insert(ids->end(), chunk.token_ids, chunk.token_ids + chunk.token_count);
    finish_reason = chunk.finish_reason;
  }
  return finish_reason;
}

// A request whose callback takes all of it.
struct Reader {
  std::vector<int32_t> ids;
  std::thread::id thread;
  std::atomic<int> inside{0}, calls{0};
  std::atomic<uint32_t> finish_reason{LMN_FINISH_NONE};
  bool overlapped = false;

  static void call(void* user, lmn_request* request) {
    auto* self = static_cast<Reader*>(user);
    self->overlapped |= self->inside.fetch_add(1) != 0;
    self->thread = std::this_thread::get_id();
    ++self->calls;
    const uint32_t finish_reason = take(request, &self->ids);
    self->inside.fetch_sub(1);
    if (finish_reason != LMN_FINISH_NONE) self->finish_reason = finish_reason;  // the last access
  }
  Request submit(lmn_engine* engine, uint32_t max_tokens, uint64_t seed = 0) {
    lmn_request_options options = options_of("callback", max_tokens);
    options.flags |= LMN_REQUEST_SEED;
    options.seed = seed;
    options.temperature = 1;
    options.callback = call;
    options.callback_user = this;
    return abuse::submit(engine, options);
  }
};

}  // namespace

TEST(callbacks_get_everything_one_at_a_time) {
  const Engine engine = create_null_engine();
  std::vector<Reader> readers(100);
  std::vector<Request> requests;
  for (size_t i = 0; i < readers.size(); ++i)
    requests.push_back(readers[i].submit(engine.get(), static_cast<uint32_t>(1 + i), i));
  for (size_t i = 0; i < readers.size(); ++i) {
    Reader& reader = readers[i];
    EXPECT(eventually([&] { return reader.finish_reason != LMN_FINISH_NONE; }));
    EXPECT_EQ(reader.finish_reason.load(), uint32_t(LMN_FINISH_LENGTH));
    EXPECT_EQ(reader.ids.size(), i + 1);
    EXPECT(!reader.overlapped);
    EXPECT(reader.thread != std::this_thread::get_id());
    EXPECT(reader.calls >= 1 && reader.calls <= static_cast<int>(i) + 2);
    lmn_request_options options = options_of("callback", static_cast<uint32_t>(1 + i));
    options.flags |= LMN_REQUEST_SEED;
    options.seed = i;
    options.temperature = 1;
    if (i % 10 == 0) EXPECT(drain(submit(engine.get(), options).get()).ids == reader.ids);
  }
  requests.clear();
  expect_idle(engine.get());
}

TEST(the_handle_is_there_before_the_first_callback) {
  const Engine engine = create_null_engine();
  struct Shared {
    lmn_request* request = nullptr;  // what submit writes
    std::atomic<int> same{0}, calls{0};
  };
  for (int i = 0; i < 300; ++i) {
    Shared shared;
    lmn_request_options options = options_of("a", 1);
    options.callback_user = &shared;
    options.callback = [](void* user, lmn_request* request) {
      auto* self = static_cast<Shared*>(user);
      self->same += request == self->request;
      lmn_request_destroy(request);
      ++self->calls;
    };
    CHECK_CALL(lmn_engine_submit(engine.get(), &options, &shared.request, err));
    EXPECT(eventually([&] { return shared.calls > 0; }));
    EXPECT_EQ(shared.calls.load(), 1);
    EXPECT_EQ(shared.same.load(), 1);
  }
  expect_idle(engine.get());
}

TEST(destroy_in_the_callback) {
  const Engine engine = create_null_engine("null:step_ns=20000");
  static std::atomic<int> destroyed, calls_after;
  destroyed = 0, calls_after = 0;
  struct Once {
    bool done = false;
  };
  std::vector<Once> once(200);
  for (size_t i = 0; i < once.size(); ++i) {
    // In the middle of an answer, with the logits that the engine writes to.
    lmn_request_options options = options_of("a", 50);
    if (i % 2 == 0) options.flags |= LMN_REQUEST_LOGITS;
    options.callback_user = &once[i];
    options.callback = [](void* user, lmn_request* request) {
      auto* self = static_cast<Once*>(user);
      calls_after += self->done;
      self->done = true;
      std::vector<int32_t> ids;
      take(request, &ids);
      lmn_request_destroy(request);
      ++destroyed;
    };
    lmn_request* request = nullptr;  // the callback's
    CHECK_CALL(lmn_engine_submit(engine.get(), &options, &request, err));
  }
  EXPECT(eventually([&] { return destroyed == 200; }));
  expect_idle(engine.get());
  EXPECT_EQ(calls_after.load(), 0);
  const lmn_engine_stats stats = stats_of(engine.get());
  EXPECT_EQ(stats.cancelled + stats.finished, 200u);
}

TEST(submit_and_cancel_in_the_callback) {
  const Engine engine = create_null_engine();
  struct Chain {
    lmn_engine* engine;
    std::atomic<int> links{0}, failures{0};
    std::vector<int32_t> ids;

    void submit() {
      lmn_request_options options = options_of("a", 3);
      options.callback = call;
      options.callback_user = this;
      lmn_request* request = nullptr;
      failures += lmn_engine_submit(engine, &options, &request, nullptr) != LMN_OK;
    }
    static void call(void* user, lmn_request* request) {
      auto* self = static_cast<Chain*>(user);
      if (take(request, &self->ids) == LMN_FINISH_NONE) return;
      lmn_request_destroy(request);
      if (self->links < 50) self->submit();
      ++self->links;
    }
  } chain{engine.get(), {}, {}, {}};
  chain.submit();
  EXPECT(eventually([&] { return chain.links == 51; }));
  EXPECT_EQ(chain.failures.load(), 0);
  EXPECT_EQ(chain.ids.size(), 3u * 51);

  struct Canceller {
    std::atomic<uint32_t> finish_reason{LMN_FINISH_NONE};
    std::vector<int32_t> ids;
    static void call(void* user, lmn_request* request) {
      auto* self = static_cast<Canceller*>(user);
      const uint32_t finish_reason = take(request, &self->ids);
      lmn_request_cancel(request, nullptr);
      if (finish_reason != LMN_FINISH_NONE) self->finish_reason = finish_reason;
    }
  } canceller;
  const Engine slow = create_null_engine(kSlowModel);
  lmn_request_options options = options_of("a", 4000);
  options.callback = Canceller::call;
  options.callback_user = &canceller;
  const Request request = submit(slow.get(), options);
  EXPECT(eventually([&] { return canceller.finish_reason != LMN_FINISH_NONE; }));
  EXPECT_EQ(canceller.finish_reason.load(), uint32_t(LMN_FINISH_CANCELLED));
  EXPECT(canceller.ids.size() < 4000);
}

TEST(a_callback_that_throws_is_ignored) {
  const Engine engine = create_null_engine();
  struct Thrower {
    std::atomic<int> calls{0};
    std::atomic<bool> ended{false};
  } thrower;
  lmn_request_options options = options_of("a", 20);
  options.callback_user = &thrower;
  options.callback = [](void* user, lmn_request* request) {
    auto* self = static_cast<Thrower*>(user);
    ++self->calls;
    std::vector<int32_t> ids;
    if (take(request, &ids) != LMN_FINISH_NONE) self->ended = true;
    throw std::runtime_error("from a callback");
  };
  const Request request = submit(engine.get(), options);
  EXPECT(eventually([&] { return thrower.ended.load(); }));
  CHECK_CALL(lmn_request_wait(request.get(), 60 * kSecond, err));
  EXPECT(drain(submit(engine.get(), "a", 3).get()).ids.size() == 3);
}

TEST(destroy_waits_for_a_running_callback) {
  const Engine engine = create_null_engine();
  for (int i = 0; i < 5; ++i) {
    struct Slow {
      std::atomic<int> entered{0}, left{0};
      std::atomic<lmn_status> status{LMN_OK};
    } slow;
    lmn_request_options options = options_of("a", 5);
    options.callback_user = &slow;
    options.callback = [](void* user, lmn_request* request) {
      auto* self = static_cast<Slow*>(user);
      ++self->entered;
      sleep_ms(30);
      auto stats = sized<lmn_request_stats>();  // the handle is whole while destroy waits
      self->status = lmn_request_stats_get(request, &stats, nullptr);
      std::vector<int32_t> ids;
      take(request, &ids);
      ++self->left;
    };
    Request request = submit(engine.get(), options);
    EXPECT(eventually([&] { return slow.entered > 0; }));
    request.reset();
    EXPECT_EQ(slow.left.load(), slow.entered.load());
    EXPECT_EQ(slow.status.load(), LMN_OK);
    const int calls = slow.entered;
    sleep_ms(2);
    EXPECT_EQ(slow.entered.load(), calls);
  }
}

TEST(a_slow_callback_delays_no_other_request) {
  const Engine engine = create_null_engine();
  static std::atomic<int> blocked;
  static std::atomic<bool> release;
  blocked = 0, release = false;
  std::vector<Request> slow;
  for (int i = 0; i < 8; ++i) {
    lmn_request_options options = options_of("a", 5);
    options.callback = [](void*, lmn_request* request) {
      ++blocked;
      while (!release) sleep_ms(1);
      std::vector<int32_t> ids;
      take(request, &ids);
    };
    slow.push_back(submit(engine.get(), options));
  }
  EXPECT(eventually([&] { return blocked == 8; }));
  Reader reader;
  const Request request = reader.submit(engine.get(), 30);
  EXPECT(eventually([&] { return reader.finish_reason != LMN_FINISH_NONE; }));
  EXPECT_EQ(reader.ids.size(), 30u);
  release = true;
}

TEST(destroy_of_the_engine_while_callbacks_run) {
  for (int round = 0; round < 3; ++round) {
    Engine engine = create_null_engine(kSlowModel);
    struct Sleeper {
      std::atomic<int> calls{0};
      std::atomic<uint32_t> finish_reason{LMN_FINISH_NONE};
      std::vector<int32_t> ids;
      static void call(void* user, lmn_request* request) {
        auto* self = static_cast<Sleeper*>(user);
        ++self->calls;
        sleep_ms(5);
        const uint32_t finish_reason = take(request, &self->ids);
        if (finish_reason != LMN_FINISH_NONE) self->finish_reason = finish_reason;
      }
    };
    std::vector<Sleeper> sleepers(10);
    std::vector<Request> requests;
    for (Sleeper& sleeper : sleepers) {
      lmn_request_options options = options_of("a", 4000);
      options.callback = Sleeper::call;
      options.callback_user = &sleeper;
      requests.push_back(submit(engine.get(), options));
    }
    EXPECT(eventually([&] { return sleepers[0].calls > 1; }));
    engine.reset();
    // Every request has heard of its end, and no call comes any more.
    int calls = 0;
    for (const Sleeper& sleeper : sleepers) {
      EXPECT_EQ(sleeper.finish_reason.load(), uint32_t(LMN_FINISH_CANCELLED));
      calls += sleeper.calls;
    }
    sleep_ms(20);
    for (const Sleeper& sleeper : sleepers) calls -= sleeper.calls;
    EXPECT_EQ(calls, 0);
  }
}

TEST(a_deadline_is_called_back) {
  const Engine engine = create_null_engine(kSlowModel);
  Reader reader;
  lmn_request_options options = options_of("a", 4000);
  options.deadline_ns = 30'000'000;
  options.callback = Reader::call;
  options.callback_user = &reader;
  const Request request = submit(engine.get(), options);
  EXPECT(eventually([&] { return reader.finish_reason != LMN_FINISH_NONE; }));
  EXPECT_EQ(reader.finish_reason.load(), uint32_t(LMN_FINISH_DEADLINE));
  EXPECT(reader.ids.size() < 4000);
}
