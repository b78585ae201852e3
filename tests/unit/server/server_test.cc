// SPDX-License-Identifier: Apache-2.0
//
// A server and its clients through sockets, over the null model: what threads, early ends and
// stopping may not break. What answers look like is tested from Python (tests/server).
#include "lmnative/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/handles.h"
#include "testing.h"

namespace lmn::server {
namespace {

using ServerHandle = std::unique_ptr<lmn_server, Destroyer<lmn_server_destroy>>;

EngineHandle make_engine(const char* name = "null:") {
  lmn_model* model = nullptr;
  EXPECT_EQ(lmn_model_open(name, nullptr, &model, nullptr), LMN_OK);
  const ModelHandle owner(model);
  auto options = sized<lmn_engine_options>();
  options.threads = 1;
  lmn_engine* engine = nullptr;
  EXPECT_EQ(lmn_engine_create(model, &options, &engine, nullptr), LMN_OK);
  return EngineHandle(engine);
}

ServerHandle make_server(lmn_server_options options = sized<lmn_server_options>()) {
  lmn_server* server = nullptr;
  const Failure failure =
      attempt([&](lmn_error** err) { return lmn_server_create(&options, &server, err); });
  EXPECT_EQ(failure.message, "");
  return ServerHandle(server);
}

void add(lmn_server* server, const lmn_engine* engine, const char* name) {
  auto options = sized<lmn_served_options>();
  options.name = name;
  const Failure failure = attempt(
      [&](lmn_error** err) { return lmn_server_engine_add(server, engine, &options, err); });
  EXPECT_EQ(failure.message, "");
}

lmn_server_info info_of(const lmn_server* server) {
  auto info = sized<lmn_server_info>();
  EXPECT_EQ(lmn_server_info_get(server, &info, nullptr), LMN_OK);
  return info;
}

lmn_engine_stats stats_of(const lmn_engine* engine) {
  auto stats = sized<lmn_engine_stats>();
  EXPECT_EQ(lmn_engine_stats_get(engine, &stats, nullptr), LMN_OK);
  return stats;
}

// A blocking client.
class Client {
 public:
  explicit Client(const lmn_server* server)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(info_of(server).port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  // Until `what` has been read, or the end; what was read.
  std::string read_until(const std::string& what) {
    std::string got;
    char buffer[4096];
    while (got.find(what) == std::string::npos) {
      pollfd ready{fd_, POLLIN, 0};
      if (::poll(&ready, 1, 20000) != 1) return got + "<nothing came>";
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return got + "<closed>";
      got.append(buffer, static_cast<size_t>(n));
    }
    return got;
  }

 private:
  int fd_;
  bool connected_ = false;
};

std::string post(const std::string& path, const std::string& body, const std::string& fields = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Waits for what other threads bring about; false after 20 s.
template <typename Condition>
bool soon(Condition&& condition) {
  for (int i = 0; i < 10000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

TEST(answers_over_one_connection_and_several_threads) {
  auto options = sized<lmn_server_options>();
  options.threads = 3;
  const ServerHandle server = make_server(options);
  EngineHandle engine = make_engine();
  add(server.get(), engine.get(), "a");
  engine.reset();  // the server keeps it
  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 6; ++c) {
    clients.emplace_back([&] {
      Client client(server.get());
      for (int i = 0; i < 50; ++i) {
        client.send(post("/v1/completions", R"({"prompt":"hi","max_tokens":4,"temperature":0})"));
        right += contains(client.read_until("\"usage\""), R"("text":"aaaa")") ? 1 : 0;
        client.send(post("/v1/completions",
                         R"({"prompt":"hi","max_tokens":3,"temperature":0,"stream":true})"));
        right += contains(client.read_until("[DONE]\n\n\r\n0\r\n\r\n"), R"("text":"a)") ? 1 : 0;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right.load(), 600);
  EXPECT_EQ(info_of(server.get()).answered, 600u);
  EXPECT_EQ(info_of(server.get()).failed, 0u);
}

TEST(a_client_that_goes_has_its_request_cancelled) {
  const ServerHandle server = make_server();
  const EngineHandle engine = make_engine("null:step_ns=1000000");
  add(server.get(), engine.get(), "a");
  for (const char* stream : {"true", "false"}) {
    const uint64_t before = stats_of(engine.get()).cancelled;
    {
      Client client(server.get());
      client.send(
          post("/v1/completions",
               std::string(R"({"prompt":"hi","max_tokens":4000,"stream":)") + stream + "}"));
      EXPECT(soon([&] { return stats_of(engine.get()).running == 1; }));
    }
    EXPECT(soon([&] { return stats_of(engine.get()).cancelled == before + 1; }));
    EXPECT_EQ(stats_of(engine.get()).running, 0u);
  }
  EXPECT(soon([&] { return info_of(server.get()).aborted == 2; }));
  EXPECT_EQ(info_of(server.get()).requests, 0u);
}

TEST(a_reader_that_sleeps_is_dropped_and_nobody_else_notices) {
  auto options = sized<lmn_server_options>();
  options.max_stream_bytes = 4096;
  options.write_timeout_ns = 300'000'000;
  const ServerHandle server = make_server(options);
  const EngineHandle engine = make_engine("null:context=200000");
  add(server.get(), engine.get(), "a");
  Client sleeper(server.get());  // 30 MB, far more than sockets buffer
  sleeper.send(post("/v1/completions", R"({"prompt":"hi","max_tokens":20000,"temperature":0,)"
                                       R"("stream":true,"n":4,"logprobs":20})"));
  Client other(server.get());
  for (int i = 0; i < 20; ++i) {
    other.send(post("/v1/completions", R"({"prompt":"hi","max_tokens":1})"));
    EXPECT(contains(other.read_until("\"usage\""), "200 OK"));
  }
  EXPECT(soon([&] { return info_of(server.get()).aborted == 1; }));
  EXPECT(soon([&] { return stats_of(engine.get()).running == 0; }));
  EXPECT_EQ(info_of(server.get()).connections, 1u);
}

TEST(stopping_lets_what_runs_finish) {
  ServerHandle server = make_server();
  const EngineHandle engine = make_engine("null:step_ns=2000000");
  add(server.get(), engine.get(), "a");
  Client client(server.get());
  client.send(post("/v1/completions", R"({"prompt":"hi","max_tokens":100,"stream":true})"));
  EXPECT(contains(client.read_until("data:"), "200 OK"));
  std::thread reader([&] { EXPECT(contains(client.read_until("<never>"), "[DONE]")); });
  EXPECT_EQ(lmn_server_stop(server.get(), 20'000'000'000, nullptr), LMN_OK);
  reader.join();
  EXPECT(!Client(server.get()).connected());
  EXPECT_EQ(stats_of(engine.get()).cancelled, 0u);
  EXPECT_EQ(stats_of(engine.get()).finished, 1u);
}

TEST(stopping_cancels_after_the_grace) {
  ServerHandle server = make_server();
  const EngineHandle engine = make_engine("null:step_ns=2000000");
  add(server.get(), engine.get(), "a");
  Client stream(server.get()), whole(server.get());
  stream.send(post("/v1/completions", R"({"prompt":"hi","max_tokens":4000,"stream":true})"));
  whole.send(post("/v1/completions", R"({"prompt":"hi","max_tokens":4000})"));
  EXPECT(contains(stream.read_until("data:"), "200 OK"));
  EXPECT(soon([&] { return stats_of(engine.get()).running == 2; }));
  std::string ends[2];
  std::thread first([&] { ends[0] = stream.read_until("<never>"); });
  std::thread second([&] { ends[1] = whole.read_until("<never>"); });
  // A long grace that another thread cuts short.
  std::thread stopper([&] { (void)lmn_server_stop(server.get(), 60'000'000'000, nullptr); });
  EXPECT_EQ(lmn_server_stop(server.get(), 10'000'000, nullptr), LMN_TIMEOUT);
  stopper.join();
  first.join();
  second.join();
  EXPECT(contains(ends[0], R"("code":"stopping")"));
  EXPECT(contains(ends[1], "503 Service Unavailable"));
  EXPECT(soon([&] { return stats_of(engine.get()).cancelled == 2; }));
}

TEST(models_come_and_go_under_load) {
  auto options = sized<lmn_server_options>();
  options.threads = 2;
  const ServerHandle server = make_server(options);
  const EngineHandle stays = make_engine();
  add(server.get(), stays.get(), "stays");
  std::atomic<bool> done{false};
  std::atomic<int> bad{0}, good{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      const char* const model = c % 2 == 0 ? "stays" : "goes";
      while (!done) {
        Client client(server.get());
        for (int i = 0; i < 10 && !done; ++i) {
          client.send(post("/v1/completions", std::string(R"({"model":")") + model +
                                                  R"(","prompt":"hi","max_tokens":20})"));
          const std::string got = client.read_until("\"}");  // of an answer, or of an error
          if (contains(got, "200 OK")) {
            (void)(contains(got, "\"usage\"") ? got : client.read_until("\"usage\""));
            ++good;
          } else if (c % 2 == 0 || !(contains(got, "404") || contains(got, "503"))) {
            ++bad;
          } else {
            break;  // the rest of the error's body is not read
          }
        }
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    const EngineHandle goes = make_engine();
    add(server.get(), goes.get(), "goes");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(lmn_server_model_remove(server.get(), "goes", nullptr), LMN_OK);
  }
  EXPECT_EQ(lmn_server_model_remove(server.get(), "goes", nullptr), LMN_NOT_FOUND);
  done = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(bad.load(), 0);
  EXPECT(good.load() > 0);
}

TEST(destroyed_in_the_middle_of_everything) {
  for (int round = 0; round < 5; ++round) {
    auto options = sized<lmn_server_options>();
    options.threads = 2;
    ServerHandle server = make_server(options);
    EngineHandle engine = make_engine("null:step_ns=100000");
    add(server.get(), engine.get(), "a");
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 20; ++i) {
      clients.push_back(std::make_unique<Client>(server.get()));
      clients.back()->send(
          post("/v1/completions", R"({"prompt":"hi","max_tokens":4000,"n":2,"stream":)" +
                                      std::string(i % 2 == 0 ? "true}" : "false}")));
      if (i % 3 == 0) clients.back()->send("GET /hea");
    }
    if (round % 2 == 0) engine.reset();
    server.reset();
    if (engine != nullptr) EXPECT_EQ(stats_of(engine.get()).running, 0u);
  }
}

TEST(what_cannot_be_served) {
  const ServerHandle server = make_server();
  const EngineHandle engine = make_engine();
  add(server.get(), engine.get(), "a");
  auto options = sized<lmn_served_options>();
  options.name = "a";
  Failure failure = attempt([&](lmn_error** err) {
    return lmn_server_engine_add(server.get(), engine.get(), &options, err);
  });
  EXPECT_EQ(failure.status, LMN_INVALID_ARGUMENT);
  EXPECT(contains(failure.message, "\"a\" is served already"));
  options.name = "";
  EXPECT_EQ(lmn_server_engine_add(server.get(), engine.get(), &options, nullptr),
            LMN_OK);  // "null"
  for (const char* name : {"a b", "\xC3", "\xED\xA0\x80", "a\n", "\x7F"}) {
    options.name = name;
    failure = attempt([&](lmn_error** err) {
      return lmn_server_engine_add(server.get(), engine.get(), &options, err);
    });
    EXPECT_EQ(failure.status, LMN_INVALID_ARGUMENT);
    EXPECT(contains(failure.message, "UTF-8 without spaces"));
  }
  auto taken = sized<lmn_server_options>();
  taken.port = info_of(server.get()).port;
  lmn_server* second = nullptr;
  failure = attempt([&](lmn_error** err) { return lmn_server_create(&taken, &second, err); });
  EXPECT_EQ(failure.status, LMN_IO_ERROR);
  EXPECT(contains(failure.message, "choose another port"));
  taken = sized<lmn_server_options>();
  taken.port = 70000;
  failure = attempt([&](lmn_error** err) { return lmn_server_create(&taken, &second, err); });
  EXPECT_EQ(failure.status, LMN_INVALID_ARGUMENT);
  EXPECT(second == nullptr);
}

TEST(a_forked_child_lets_go) {
#if defined(__SANITIZE_THREAD__)
  testing::skip("ThreadSanitizer ends children of processes with threads");
#endif
  ServerHandle server = make_server();
  const EngineHandle engine = make_engine();
  add(server.get(), engine.get(), "a");
  const pid_t child = ::fork();
  if (child == 0) {
    auto info = sized<lmn_server_info>();
    const bool refused = lmn_server_info_get(server.get(), &info, nullptr) == LMN_CLOSED;
    lmn_server_destroy(server.release());  // returns
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  Client client(server.get());  // the parent's goes on
  client.send(post("/v1/completions", R"({"prompt":"hi","max_tokens":1})"));
  EXPECT(contains(client.read_until("\"usage\""), "200 OK"));
}

}  // namespace
}  // namespace lmn::server
