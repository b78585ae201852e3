// SPDX-License-Identifier: Apache-2.0
//
// News of many requests through the engine's one descriptor and lmn_engine_drain.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "abuse.h"

using namespace abuse;  // NOLINT: tests

namespace {

int descriptor_of(const lmn_engine* engine) {
  int32_t descriptor = -1;
  CHECK_CALL(lmn_engine_descriptor_get(engine, &descriptor, err));
  return descriptor;
}

bool readable(int descriptor, int timeout_ms) {
  pollfd what{descriptor, POLLIN, 0};
  return poll(&what, 1, timeout_ms) == 1 && (what.revents & POLLIN) != 0;
}

Request submit_tagged(lmn_engine* engine, uint64_t tag, uint32_t max_tokens, uint32_t n = 1) {
  const std::string prompt = "tag " + std::to_string(tag % 5);
  lmn_request_options options = options_of(prompt, max_tokens);
  options.flags |= LMN_REQUEST_NOTIFY | LMN_REQUEST_SEED;
  options.temperature = 1;
  options.seed = tag;
  options.tag = tag;
  options.n = n;
  return submit(engine, options);
}

// One request as its reader sees it.
struct Stream {
  Request request;
  std::vector<int32_t> ids;
  uint32_t finish_reason = LMN_FINISH_NONE;

  void take() {
    for (;;) {
      auto chunk = sized<lmn_chunk>();
      if (lmn_request_next(request.get(), 0, &chunk, nullptr) != LMN_OK) return;
      ids.insert(ids.end(), chunk.token_ids, chunk.token_ids + chunk.token_count);
      finish_reason = chunk.finish_reason;
    }
  }
};

}  // namespace

TEST(many_requests_through_one_descriptor) {
  const Engine engine = create_null_engine();
  const int descriptor = descriptor_of(engine.get());
  EXPECT(!readable(descriptor, 0));
  std::map<uint64_t, Stream> streams;
  for (uint64_t i = 0; i < 100; ++i) {  // more than run at once
    const uint64_t tag = UINT64_MAX - i;
    streams[tag].request = submit_tagged(engine.get(), tag, static_cast<uint32_t>(1 + i % 40));
  }
  size_t open = streams.size();
  while (open > 0) {
    ASSERT(readable(descriptor, 60'000));
    uint64_t tags[16];
    size_t count = 99;
    CHECK_CALL(lmn_engine_drain(engine.get(), tags, 16, &count, err));
    ASSERT(count <= 16);
    for (size_t i = 0; i < count; ++i) {
      ASSERT(streams.count(tags[i]) == 1);
      Stream& stream = streams[tags[i]];
      if (stream.finish_reason != LMN_FINISH_NONE) continue;  // announced once more, and taken
      stream.take();
      open -= stream.finish_reason != LMN_FINISH_NONE;
    }
  }
  for (const auto& [tag, stream] : streams) {
    EXPECT_EQ(stream.ids.size(), 1 + (UINT64_MAX - tag) % 40);
    EXPECT_EQ(stream.finish_reason, uint32_t(LMN_FINISH_LENGTH));
  }
  // What each got is what it gets alone.
  for (const uint64_t tag : {UINT64_MAX - 3, UINT64_MAX - 38, UINT64_MAX - 99}) {
    const Request alone =
        submit_tagged(engine.get(), tag, static_cast<uint32_t>(streams[tag].ids.size()));
    EXPECT(drain(alone.get()).ids == streams[tag].ids);
  }
  streams.clear();
  EXPECT(eventually([&] {  // drain lets go of those that had news when they were destroyed
    uint64_t none = 0;
    size_t count = 99;
    CHECK_CALL(lmn_engine_drain(engine.get(), &none, 1, &count, err));
    EXPECT_EQ(count, 0u);
    return stats_of(engine.get()).queue_bytes == 0;
  }));
  expect_idle(engine.get());
}

TEST(a_small_buffer_keeps_the_descriptor_readable) {
  const Engine engine = create_null_engine();
  const int descriptor = descriptor_of(engine.get());
  std::vector<Request> requests;
  for (uint64_t tag = 1; tag <= 10; ++tag) requests.push_back(submit_tagged(engine.get(), tag, 3));
  for (const Request& request : requests) CHECK_CALL(lmn_request_wait(request.get(), -1, err));
  size_t count = 99;
  CHECK_CALL(lmn_engine_drain(engine.get(), nullptr, 0, &count, err));
  EXPECT_EQ(count, 0u);
  std::set<uint64_t> seen;
  for (int i = 0; i < 10; ++i) {
    EXPECT(readable(descriptor, 1000));
    uint64_t tag = 0;
    CHECK_CALL(lmn_engine_drain(engine.get(), &tag, 1, &count, err));
    ASSERT(count == 1);
    seen.insert(tag);
  }
  EXPECT_EQ(seen.size(), 10u);
  uint64_t tag = 77;
  CHECK_CALL(lmn_engine_drain(engine.get(), &tag, 1, &count, err));
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(tag, 77u);
  EXPECT(!readable(descriptor, 0));
}

TEST(what_drain_does_not_list) {
  const Engine engine = create_null_engine();
  const int descriptor = descriptor_of(engine.get());
  uint64_t tags[8];
  size_t count = 99;
  // Without LMN_REQUEST_NOTIFY; destroyed before anybody looked; twice, for one and the same news.
  drain(submit(engine.get(), "a", 5).get());
  {
    const Request destroyed = submit_tagged(engine.get(), 5, 5);
    CHECK_CALL(lmn_request_wait(destroyed.get(), -1, err));
  }
  CHECK_CALL(lmn_engine_drain(engine.get(), tags, 8, &count, err));
  EXPECT_EQ(count, 0u);
  const Request request = submit_tagged(engine.get(), 6, 5);
  CHECK_CALL(lmn_request_wait(request.get(), -1, err));
  // The end is announced a moment after wait() can see it.
  ASSERT(readable(descriptor, 1000));
  usleep(20'000);
  CHECK_CALL(lmn_engine_drain(engine.get(), tags, 8, &count, err));
  ASSERT(count == 1);
  EXPECT_EQ(tags[0], 6u);
  CHECK_CALL(lmn_engine_drain(engine.get(), tags, 8, &count, err));
  EXPECT_EQ(count, 0u);
}

TEST(samples_through_the_descriptor) {
  const Engine engine = create_null_engine();
  const int descriptor = descriptor_of(engine.get());
  const Request request = submit_tagged(engine.get(), 40, 12, 5);
  std::vector<int32_t> ids[5];
  uint32_t ended = 0;
  while (ended < 5) {
    ASSERT(readable(descriptor, 60'000));
    uint64_t tag = 0;
    size_t count = 0;
    CHECK_CALL(lmn_engine_drain(engine.get(), &tag, 1, &count, err));
    auto chunk = sized<lmn_chunk>();
    while (lmn_request_next(request.get(), 0, &chunk, nullptr) == LMN_OK) {
      ASSERT(chunk.sample < 5);
      auto& out = ids[chunk.sample];
      out.insert(out.end(), chunk.token_ids, chunk.token_ids + chunk.token_count);
      ended += chunk.finish_reason != LMN_FINISH_NONE;
    }
  }
  auto chunk = sized<lmn_chunk>();
  EXPECT_FAILURE(LMN_CLOSED, "last chunk", lmn_request_next(request.get(), 0, &chunk, err));
  for (uint64_t sample = 0; sample < 5; ++sample) {
    lmn_request_options options = options_of("tag 0", 12);
    options.temperature = 1;
    options.flags |= LMN_REQUEST_SEED;
    options.seed = 40 + sample;
    EXPECT(drain(submit(engine.get(), options).get()).ids == ids[sample]);
  }
}

TEST(drain_from_several_threads) {
  const Engine engine = create_null_engine();
  const int descriptor = descriptor_of(engine.get());
  constexpr size_t kRequests = 64;
  std::vector<Stream> streams(kRequests);
  std::vector<std::mutex> locks(kRequests);  // a request is for one thread at a time
  std::atomic<size_t> open{kRequests};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      uint64_t tags[4];
      size_t count = 0;
      while (open > 0) {
        if (!readable(descriptor, 5)) continue;
        if (lmn_engine_drain(engine.get(), tags, 4, &count, nullptr) != LMN_OK) return;
        for (size_t k = 0; k < count; ++k) {
          const std::lock_guard lock(locks[tags[k]]);
          Stream& stream = streams[tags[k]];
          if (stream.finish_reason != LMN_FINISH_NONE) continue;
          stream.take();
          open -= stream.finish_reason != LMN_FINISH_NONE;
        }
      }
    });
  }
  for (size_t i = 0; i < kRequests; ++i) {
    const std::lock_guard lock(locks[i]);
    streams[i].request = submit_tagged(engine.get(), i, 50);
  }
  for (std::thread& thread : threads) thread.join();
  for (const Stream& stream : streams) EXPECT_EQ(stream.ids.size(), 50u);
}

TEST(the_end_of_the_engine_is_news) {
  Engine engine = create_null_engine("null:step_ns=1000000");
  Stream stream{submit_tagged(engine.get(), 3, 4000), {}};
  ASSERT(readable(descriptor_of(engine.get()), 60'000));
  engine.reset();
  stream.take();
  EXPECT_EQ(stream.finish_reason, uint32_t(LMN_FINISH_CANCELLED));
}

TEST(a_callback_or_the_descriptor) {
  const Engine engine = create_null_engine();
  lmn_request_options options = options_of("a", 1);
  options.flags |= LMN_REQUEST_NOTIFY;
  options.callback = [](void*, lmn_request*) {};
  lmn_request* request = nullptr;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "LMN_REQUEST_NOTIFY",
                 lmn_engine_submit(engine.get(), &options, &request, err));
}
