// SPDX-License-Identifier: Apache-2.0
//
// Queues of news: each request once, in its own queue and no other, whoever goes first.
#include "engine/news_queue.h"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <thread>

#include "fake_model.h"
#include "testing.h"

namespace lmn::engine {
namespace {

std::shared_ptr<NewsQueue> make_queue() {
  auto queue = NewsQueue::create();
  ASSERT_OK(queue);
  return std::move(queue).value();
}

bool readable(const NewsQueue& queue, int timeout_ms) {
  pollfd descriptor{queue.descriptor(), POLLIN, 0};
  return poll(&descriptor, 1, timeout_ms) == 1;
}

std::vector<uint64_t> drained(NewsQueue& queue) {
  std::vector<uint64_t> tags(1000);
  const auto count = queue.drain(tags);
  ASSERT_OK(count);
  tags.resize(*count);
  return tags;
}

std::shared_ptr<Request> must_submit_to(FakeEngine& engine, std::shared_ptr<NewsQueue> queue,
                                        uint64_t tag, int32_t tokens = 20) {
  RequestOptions options = greedy(some_prompt(tag, 10), tokens);
  options.news = std::move(queue);
  options.tag = tag;
  return must_submit(*engine.engine, std::move(options));
}

TEST(drain_lists_each_request_with_news_once) {
  FakeSetup setup;
  setup.sequences = 16;
  setup.outputs = 16;
  FakeEngine engine(setup);
  const auto queue = make_queue();
  constexpr uint64_t kRequests = 100;
  std::vector<std::shared_ptr<Request>> requests;
  std::vector<std::vector<int32_t>> got(kRequests);
  for (uint64_t i = 0; i < kRequests; ++i) {
    RequestOptions options = greedy(some_prompt(i, 10), 20);
    options.news = queue;
    options.tag = i;
    requests.push_back(must_submit(*engine.engine, std::move(options)));
  }
  uint64_t ended = 0;
  std::vector<uint64_t> tags(7);
  while (ended < kRequests) {
    const auto count = queue->drain(tags);
    ASSERT_OK(count);
    for (size_t k = 0; k < *count; ++k) {
      const size_t i = tags[k];
      Chunk chunk;
      while (requests[i]->next(0, &chunk).ok()) {
        got[i].insert(got[i].end(), chunk.token_ids.begin(), chunk.token_ids.end());
        if (chunk.finish_reason != FinishReason::kNone) ++ended;
      }
    }
  }
  for (uint64_t i = 0; i < kRequests; ++i)
    EXPECT(got[i] == reference_greedy(some_prompt(i, 10), 20));
  // A request may be listed for news that was taken in the meantime, and never once more.
  for (size_t listed = 1; listed > 0;) {
    const auto rest = queue->drain(tags);
    ASSERT_OK(rest);
    listed = *rest;
    for (size_t k = 0; k < listed; ++k) {
      Chunk chunk;
      EXPECT(requests[tags[k]]->next(0, &chunk).code() == Code::kClosed);
    }
  }
  // One whose handle has gone is not listed.
  RequestOptions options = greedy({1}, 200);
  options.news = queue;
  options.tag = 7;
  auto request = must_submit(*engine.engine, std::move(options));
  Chunk chunk;
  ASSERT_OK(request->next(-1, &chunk));
  request.reset();
  while (engine->stats().running != 0) std::this_thread::yield();
  const auto none = queue->drain(tags);
  EXPECT(none.ok() && *none == 0);
}

// Two clients, each asleep until its own descriptor is readable: each is woken, and sees its own
// tags only.
TEST(queues_do_not_see_each_others_tags) {
  FakeSetup setup;
  setup.sequences = 16;
  FakeEngine engine(setup);
  const auto client = [&engine](uint64_t first) {
    constexpr uint64_t kRequests = 50;
    const auto queue = make_queue();
    std::vector<std::shared_ptr<Request>> requests;
    std::vector<std::vector<int32_t>> got(kRequests);
    for (uint64_t i = 0; i < kRequests; ++i)
      requests.push_back(must_submit_to(engine, queue, first + i));
    for (uint64_t ended = 0; ended < kRequests;) {
      EXPECT(readable(*queue, 20'000));
      for (const uint64_t tag : drained(*queue)) {
        ASSERT(tag >= first && tag < first + kRequests);
        Chunk chunk;
        while (requests[tag - first]->next(0, &chunk).ok()) {
          auto& tokens = got[tag - first];
          tokens.insert(tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
          ended += chunk.finish_reason == FinishReason::kLength ? 1 : 0;
        }
      }
    }
    for (uint64_t i = 0; i < kRequests; ++i)
      EXPECT(got[i] == reference_greedy(some_prompt(first + i, 10), 20));
  };
  std::thread one([&] { client(0); }), other([&] { client(1'000); });
  one.join();
  other.join();
}

TEST(a_queue_without_news_stays_quiet) {
  FakeEngine engine(FakeSetup{});
  const auto busy = make_queue(), quiet = make_queue();
  auto request = must_submit_to(engine, busy, 1);
  EXPECT(collect(*request).reason == FinishReason::kLength);
  EXPECT(readable(*busy, 20'000));
  EXPECT(!readable(*quiet, 0));
  EXPECT(drained(*quiet).empty());
}

TEST(a_queue_and_its_engine_may_go_in_any_order) {
  auto engine = std::make_unique<FakeEngine>(FakeSetup{});
  auto gone = make_queue();
  auto stays = make_queue();
  auto first = must_submit_to(*engine, gone, 1);
  gone.reset();  // the request announces to it until it has ended
  EXPECT(collect(*first).tokens == reference_greedy(some_prompt(1, 10), 20));
  auto second = must_submit_to(*engine, stays, 2, 200);
  engine.reset();
  EXPECT(readable(*stays, 0));
  EXPECT((drained(*stays) == std::vector<uint64_t>{2}));
  EXPECT(collect(*second).reason != FinishReason::kNone);
}

TEST(a_forked_child_drains_nothing) {
  FakeEngine engine(FakeSetup{});
  auto queue = make_queue();
  auto request = must_submit_to(engine, queue, 1);
  (void)collect(*request);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // a hang is a failure
    uint64_t tag = 0;
    const bool ok = queue->drain({&tag, 1}).status().code() == Code::kClosed;
    queue.reset();
    request.reset();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT((drained(*queue) == std::vector<uint64_t>{1}));  // the parent's is untouched
}

}  // namespace
}  // namespace lmn::engine
