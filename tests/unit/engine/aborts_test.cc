// SPDX-License-Identifier: Apache-2.0
//
// Ten thousand requests that end early: cancelled by their client, by another thread, from their
// callback, by a deadline, by dropping the handle. Everything they held comes back, and the
// requests beside them get the tokens they get alone.
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "fake_model.h"
#include "parallel/clock.h"
#include "testing.h"

namespace lmn::engine {
namespace {

bool at_rest(FakeEngine& engine) {
  const EngineStats stats = engine->stats();
  return engine->memory()[memory::Owner::kRequests].current == 0 && stats.queue_bytes == 0 &&
         stats.queue_tokens == 0 && stats.queue_depth == 0 && stats.waiting == 0 &&
         stats.running == 0 && stats.kv_pages_used == 0 &&
         stats.submitted == stats.finished + stats.cancelled + stats.failed;
}

// What a callback knows. The handle is set before the engine sees the request, and stays until no
// callback runs.
struct Caller {
  std::shared_ptr<Request> request;
  int calls = 0;
  int cancel_at = 0;  // the call that cancels, if so many come
  bool drop = false;  // and drops the handle
  std::atomic<bool> over{false};

  static void call(void* self) { static_cast<Caller*>(self)->on_news(); }
  void on_news() {
    Status status;
    for (Chunk chunk; status.ok();) status = request->next(0, &chunk);
    if (++calls < cancel_at && status.code() == Code::kTimeout) return;
    request->cancel();
    if (over.load()) return;
    if (drop) request.reset();
    over.store(true);
  }
};

TEST(ten_thousand_aborts) {
  constexpr uint64_t kThreads = 4;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr uint64_t kEach = 500;  // 2,000 in all: the sanitizers are ten times slower
#else
  constexpr uint64_t kEach = 2'500;
#endif
  FakeSetup setup;
  setup.threads = 2;
  setup.sequences = 12;
  setup.outputs = 12;
  setup.kv_tokens = 1'500;  // some are preempted, too
  FakeEngine engine(setup);
  std::atomic<int> wrong{0}, refused{0};
  std::atomic<bool> done{false};

  // The bystanders.
  std::thread bystander([&] {
    for (uint64_t i = 0; !done.load(); ++i) {
      const auto prompt = some_prompt(i % 50, 1 + static_cast<int32_t>(mix(i) % 100));
      const auto answer = collect(*must_submit(*engine.engine, greedy(prompt, 30)));
      if (answer.tokens != reference_greedy(prompt, 30)) wrong.fetch_add(1);
    }
  });
  std::vector<std::thread> clients;
  for (uint64_t c = 0; c < kThreads; ++c) {
    clients.emplace_back([&, c] {
      for (uint64_t i = 0; i < kEach; ++i) {
        const uint64_t r = mix(c * kEach + i);
        RequestOptions options =
            greedy(some_prompt(r % 50, 1 + static_cast<int32_t>(r >> 8 & 127)), 100);
        options.samples = (r >> 16) % 4 == 0 ? 3 : 1;
        options.priority = static_cast<int32_t>((r >> 20) % 5) - 2;
        Caller caller;
        const uint64_t how = (r >> 32) % 5;
        if (how == 0) options.deadline_ns = 1 + static_cast<int64_t>((r >> 40) % 300'000);
        if (how == 1) {
          options.callback = Caller::call;
          options.callback_user = &caller;
          caller.cancel_at = 1 + static_cast<int>((r >> 40) % 4);
          caller.drop = (r >> 48) % 2 == 0;
        }
        if (!engine->submit(std::move(options), &caller.request).ok()) {
          refused.fetch_add(1);
          continue;
        }
        if (how == 1) {
          while (!caller.over.load()) std::this_thread::yield();
          if (!caller.drop) caller.request->close();
          continue;
        }
        const std::shared_ptr<Request> request = std::move(caller.request);
        const int64_t until = parallel::now_ns() + static_cast<int64_t>((r >> 40) % 100'000);
        while (how != 0 && parallel::now_ns() < until) std::this_thread::yield();
        if (how == 2) request->cancel();
        if (how == 3) std::thread([&] { request->cancel(); }).join();
        // 4: the handle is dropped.
        if (how != 4) EXPECT(request->wait(30'000'000'000).ok());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  done.store(true);
  bystander.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(refused.load(), 0);
  for (const int64_t end = parallel::now_ns() + 10'000'000'000;
       !at_rest(engine) && parallel::now_ns() < end;)
    std::this_thread::yield();
  EXPECT(at_rest(engine));
  // How many were cancelled in time depends on the machine; enough to mean something.
  const int64_t cancelled = engine->stats().cancelled;
  std::printf("     %lld of %llu were cancelled in time\n", static_cast<long long>(cancelled),
              static_cast<unsigned long long>(kThreads * kEach));
  EXPECT(cancelled > static_cast<int64_t>(kThreads * kEach / 20));
}

// A callback that takes long holds up its own request, and no other.
TEST(a_slow_callback_delays_nobody) {
  FakeSetup setup;
  setup.sequences = 8;
  FakeEngine engine(setup);
  struct Slow {
    std::shared_ptr<Request> request;
    std::atomic<bool> entered{false}, go_on{false};
    std::atomic<int> inside{0}, overlaps{0}, calls{0};
    static void call(void* self) {
      Slow& slow = *static_cast<Slow*>(self);
      if (slow.inside.fetch_add(1) != 0) slow.overlaps.fetch_add(1);
      slow.calls.fetch_add(1);
      slow.entered.store(true);
      while (!slow.go_on.load()) std::this_thread::yield();
      slow.inside.fetch_sub(1);
    }
  };
  std::vector<Slow> slow(5);
  for (Slow& one : slow) {
    RequestOptions options = greedy({1, 2, 3}, 50);
    options.callback = Slow::call;
    options.callback_user = &one;
    ASSERT_OK(engine->submit(std::move(options), &one.request));
    while (!one.entered.load()) std::this_thread::yield();
  }
  // All five sit in their callbacks; one more stream by callback runs to its end.
  struct Quick {
    std::shared_ptr<Request> request;
    std::vector<int32_t> tokens;
    std::atomic<bool> over{false};
    static void call(void* self) {
      Quick& quick = *static_cast<Quick*>(self);
      if (quick.over.load()) return;  // a call for what the last one took
      Chunk chunk;
      while (chunk.finish_reason == FinishReason::kNone && quick.request->next(0, &chunk).ok())
        quick.tokens.insert(quick.tokens.end(), chunk.token_ids.begin(), chunk.token_ids.end());
      if (chunk.finish_reason != FinishReason::kNone) quick.over.store(true);
    }
  } quick;
  RequestOptions options = greedy({4, 5}, 60);
  options.callback = Quick::call;
  options.callback_user = &quick;
  ASSERT_OK(engine->submit(std::move(options), &quick.request));
  while (!quick.over.load()) std::this_thread::yield();
  quick.request.reset();
  EXPECT(quick.tokens == reference_greedy({4, 5}, 60));
  for (Slow& one : slow) {
    EXPECT_EQ(one.calls.load(), 1);
    one.go_on.store(true);
    one.request.reset();  // returns when the call has
    EXPECT_EQ(one.inside.load(), 0);
    EXPECT_EQ(one.overlaps.load(), 0);
  }
}

// A callback that submits the next request, like a server that queues from within; the chain ends,
// and the engine goes with callbacks in flight.
TEST(callbacks_may_submit) {
  constexpr size_t kLinks = 200;
  FakeEngine engine(FakeSetup{});
  struct Chain;
  struct Link {
    Chain* chain = nullptr;
    size_t index = 0;
    std::shared_ptr<Request> request;
    bool ended = false;  // of its callback
  };
  struct Chain {
    Engine* engine;
    std::vector<Link> links{kLinks};
    std::atomic<size_t> ended{0};
    void submit(size_t index) {
      Link& link = links[index];
      link.chain = this;
      link.index = index;
      RequestOptions options = greedy({static_cast<int32_t>(index % 60)}, 3);
      options.callback = [](void* user) { on_news(*static_cast<Link*>(user)); };
      options.callback_user = &link;
      ASSERT_OK(engine->submit(std::move(options), &link.request));
    }
    static void on_news(Link& link) {
      Chunk chunk;
      while (!link.ended && link.request->next(0, &chunk).ok()) {
        if (chunk.finish_reason == FinishReason::kNone) continue;
        link.ended = true;
        Chain& chain = *link.chain;
        if (link.index + 1 < kLinks) chain.submit(link.index + 1);
        chain.ended.fetch_add(1);
      }
    }
  } chain{engine.engine.get()};
  chain.submit(0);
  while (chain.ended.load() < kLinks) std::this_thread::yield();
  for (Link& link : chain.links) link.request.reset();
}

}  // namespace
}  // namespace lmn::engine
