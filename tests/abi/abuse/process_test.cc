// SPDX-License-Identifier: Apache-2.0
//
// Threads, forks and callbacks: what the library owes to the process it is a guest in.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "abuse.h"

using namespace abuse;  // NOLINT: tests

TEST(threads_share_a_model_and_its_tokenizer) {
  const Model model = open_model();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(
        [&] {  // all of them at once ask for the tokenizer, which one of them builds
          const Tokenizer tokenizer = create_tokenizer(model.get());
          for (int round = 0; round < 50; ++round) {
            int32_t ids[16];
            size_t count = 0, bytes = 0;
            char text[64];
            wrong += lmn_tokenizer_encode(tokenizer.get(), "Hello world", 11, nullptr, ids, 16,
                                          &count, nullptr) != LMN_OK;
            wrong += lmn_tokenizer_decode(tokenizer.get(), ids, count, nullptr, text, 64, &bytes,
                                          nullptr) != LMN_OK;
            wrong += std::string(text, bytes) != "Hello world";
            auto element = sized<lmn_value>();
            wrong += lmn_model_metadata_element_get(model.get(), 32, 7, &element, nullptr) ==
                     LMN_INTERNAL;
          }
        });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(threads_submit_to_one_engine) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  const Answer want = drain(submit(engine.get(), "The capital of France is", 8).get());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        const Request request = submit(engine.get(), "The capital of France is", 8);
        if ((i + round) % 3 == 0) lmn_request_cancel(request.get(), nullptr);
        const Answer got = drain(request.get());
        if (got.finish_reason == LMN_FINISH_LENGTH)
          wrong += got.ids != want.ids || got.text != want.text;
        else
          wrong += got.finish_reason != LMN_FINISH_CANCELLED;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(a_request_is_cancelled_and_looked_at_from_another_thread) {
  const Model model = open_model();
  const Engine engine = create_engine(model.get());
  const Request request = submit(engine.get(), "Once upon a time", 2000);
  std::thread other([&] {
    auto stats = sized<lmn_request_stats>();
    while (stats.generated_tokens < 3) lmn_request_stats_get(request.get(), &stats, nullptr);
    lmn_request_cancel(request.get(), nullptr);
  });
  const Answer answer = drain(request.get());
  other.join();
  EXPECT_EQ(answer.finish_reason, uint32_t(LMN_FINISH_CANCELLED));
  EXPECT(answer.ids.size() >= 3);
}

TEST(pthread_cancel_of_a_thread_in_the_library) {
#ifdef __SANITIZE_ADDRESS__
  testing::skip(
      "a cancelled thread leaves its stack poisoned, which AddressSanitizer takes for an overflow");
#endif
  // A thread that is cancelled finishes the call it is in, whatever that waits for, joins or closes
  // on the way, and ends at its next cancellation point outside the library.
  const Model model = open_model();
  struct Job {
    std::string path;
    lmn_engine* engine;
    lmn_request* request;
    std::atomic<int> calls{0};
  } job{model_path(), create_engine(model.get()).release(), nullptr};
  job.request = submit(job.engine, "Once upon a time", 1000).release();
  pthread_t thread;
  ASSERT(pthread_create(
             &thread, nullptr,
             [](void* user) -> void* {
               auto* self = static_cast<Job*>(user);
               pthread_cancel(pthread_self());
               self->calls += lmn_request_wait(self->request, 1'000'000, nullptr) == LMN_TIMEOUT;
               lmn_model* other = nullptr;
               auto options = sized<lmn_model_options>();
               options.read_mode = LMN_READ_MAP_POPULATE;
               options.progress = [](void*, const char*, uint64_t, uint64_t) -> int32_t {
                 pthread_testcancel();  // a callback with a cancellation point in it
                 return 0;
               };
               self->calls +=
                   lmn_model_open(self->path.c_str(), &options, &other, nullptr) == LMN_OK;
               DLManagedTensorVersioned* tensor = nullptr;
               self->calls +=
                   lmn_model_tensor_export(other, "token_embd.weight", &tensor, nullptr) == LMN_OK;
               lmn_model_destroy(other);
               tensor->deleter(tensor);  // the last share of the model: closes its file
               lmn_request_destroy(self->request);
               lmn_engine_destroy(self->engine);  // joins its threads
               ++self->calls;
               pthread_testcancel();
               ++self->calls;  // not reached
               return nullptr;
             },
             &job) == 0);
  void* result = nullptr;
  ASSERT(pthread_join(thread, &result) == 0);
  EXPECT(result == PTHREAD_CANCELED);
  EXPECT_EQ(job.calls.load(), 4);
}

// Runs `body` in a child process; its exit code.
template <typename Body>
int in_child(Body&& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);  // a child that hangs fails the test
    _exit(body());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(a_forked_child_gets_closed_and_no_hang) {
  const Model model = open_model();
  Engine engine = create_engine(model.get());
  Request request = submit(engine.get(), "Once upon a time", 40);
  const int code = in_child([&] {
    auto chunk = sized<lmn_chunk>();
    auto options = sized<lmn_request_options>();
    options.prompt = "a";
    options.prompt_bytes = 1;
    auto engine_stats = sized<lmn_engine_stats>();
    auto request_stats = sized<lmn_request_stats>();
    lmn_request* other = nullptr;
    DLManagedTensorVersioned* logits = nullptr;
    DLManagedTensorVersioned ids{};
    size_t count = 0;
    int32_t descriptor = 0;
    uint64_t lost = 0;
    const lmn_status statuses[] = {
        lmn_request_next(request.get(), -1, &chunk, nullptr),
        lmn_request_wait(request.get(), -1, nullptr),
        lmn_request_cancel(request.get(), nullptr),
        lmn_request_stats_get(request.get(), &request_stats, nullptr),
        lmn_engine_submit(engine.get(), &options, &other, nullptr),
        lmn_engine_score(engine.get(), &ids, nullptr, &logits, nullptr),
        lmn_engine_stats_get(engine.get(), &engine_stats, nullptr),
        lmn_engine_memory_get(engine.get(), nullptr, 0, &count, nullptr),
        lmn_engine_descriptor_get(engine.get(), &descriptor, nullptr),
        lmn_engine_drain(engine.get(), nullptr, 0, &count, nullptr),
        lmn_engine_histogram_get(engine.get(), nullptr, 0, &count, nullptr),
        lmn_engine_profile_get(engine.get(), nullptr, 0, &count, nullptr),
        lmn_engine_trace_get(engine.get(), nullptr, 0, &count, &lost, nullptr),
    };
    for (size_t i = 0; i < std::size(statuses); ++i) {
      if (statuses[i] != LMN_CLOSED) return 10 + static_cast<int>(i);
    }
    request.reset();  // and both may be destroyed there
    engine.reset();
#ifdef __SANITIZE_THREAD__
    return 0;  // ThreadSanitizer starts no threads in a forked child
#endif
    // The model is only memory, and an engine of its own works in the child.
    const Engine own = create_engine(model.get());
    const Answer answer = drain(submit(own.get(), "The capital of France is", 4).get());
    return answer.ids.size() == 4 ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(drain(request.get()).finish_reason,
            uint32_t(LMN_FINISH_LENGTH));  // the parent did not notice
}

TEST(a_child_forked_while_another_thread_builds_the_tokenizer) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  testing::skip("the sanitizers' own locks do not survive a fork beside a thread that allocates");
#endif
  const std::string path = model_path();
  for (const int delay_us : {200, 1000, 3000, 10'000}) {
    const Model model = open_model();
    std::atomic<bool> started{false};
    std::thread builder([&] {
      started = true;
      create_tokenizer(model.get());
    });
    while (!started) std::this_thread::yield();
    usleep(static_cast<useconds_t>(delay_us));
    EXPECT_EQ(in_child([&] {
                lmn_tokenizer* tokenizer = nullptr;
                const lmn_status status = lmn_tokenizer_create(model.get(), &tokenizer, nullptr);
                if (status != LMN_OK && status != LMN_CLOSED) return 1;
                lmn_model* own = nullptr;  // and the remedy works
                if (lmn_model_open(path.c_str(), nullptr, &own, nullptr) != LMN_OK) return 2;
                return lmn_tokenizer_create(own, &tokenizer, nullptr) == LMN_OK ? 0 : 3;
              }),
              0);
    builder.join();
  }
}

TEST(destroying_in_the_child_what_was_never_used_there) {
  const Model model = open_model();
  Engine engine = create_engine(model.get());
  Request request = submit(engine.get(), "Once upon a time", 40);
  EXPECT_EQ(in_child([&] {
              engine.reset();
              request.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(drain(request.get()).finish_reason, uint32_t(LMN_FINISH_LENGTH));
}

namespace {

struct Seen {
  int calls = 0;
  double stop_at = 2;  // this share of the total
  bool stopped = false;
  bool throws = false;
  bool ordered = true;
  uint64_t done = 0, total = 0;
  std::thread::id thread;
};

int32_t record(void* user, const char* what, uint64_t done, uint64_t total) {
  auto* seen = static_cast<Seen*>(user);
  seen->ordered =
      seen->ordered && !seen->stopped && done >= seen->done && done <= total && what[0] != '\0';
  seen->done = done;
  seen->total = total;
  seen->thread = std::this_thread::get_id();
  if (seen->throws) throw std::runtime_error("from a C++ callback");
  ++seen->calls;
  seen->stopped = static_cast<double>(done) >= seen->stop_at * static_cast<double>(total);
  return seen->stopped ? 1 : 0;
}

}  // namespace

TEST(progress_of_an_engine) {
  const Model model = open_model();
  Seen all;
  auto options = sized<lmn_engine_options>();
  options.threads = 2;
  options.context_tokens = 256;
  options.progress = record;
  options.progress_user = &all;
  lmn_engine* raw = nullptr;
  CHECK_CALL(lmn_engine_create(model.get(), &options, &raw, err));
  const Engine engine(raw);
  EXPECT(all.calls > 1 && all.ordered && all.done == all.total && all.total > 0);
  EXPECT(all.thread == std::this_thread::get_id());
  for (const double stop_at : {0.0, 0.01, 0.5, 1.0}) {
    Seen seen;
    seen.stop_at = stop_at;
    options.progress_user = &seen;
    lmn_engine* none = nullptr;
    EXPECT_FAILURE(LMN_CANCELLED, "progress", lmn_engine_create(model.get(), &options, &none, err));
    EXPECT(seen.stopped && seen.ordered);  // and not asked again
    EXPECT(none == nullptr);
  }
  Seen throwing;
  throwing.throws = true;
  options.progress_user = &throwing;
  lmn_engine* none = nullptr;
  EXPECT_FAILURE(LMN_CANCELLED, "progress", lmn_engine_create(model.get(), &options, &none, err));
}

TEST(progress_of_reading_a_model) {
  const std::string path = model_path();
  for (const uint32_t mode : {LMN_READ_COPY, LMN_READ_MAP_POPULATE}) {
    Seen all;
    auto options = sized<lmn_model_options>();
    options.read_mode = mode;
    options.progress = record;
    options.progress_user = &all;
    lmn_model* raw = nullptr;
    CHECK_CALL(lmn_model_open(path.c_str(), &options, &raw, err));
    const Model model(raw);
    EXPECT(all.calls > 1 && all.ordered && all.done == all.total);
    Seen seen;
    seen.stop_at = 0;
    options.progress_user = &seen;
    lmn_model* none = nullptr;
    EXPECT_FAILURE(LMN_CANCELLED, "", lmn_model_open(path.c_str(), &options, &none, err));
    EXPECT(none == nullptr && seen.calls == 1);
  }
}
