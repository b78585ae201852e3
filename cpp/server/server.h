// SPDX-License-Identifier: Apache-2.0
//
// Server: the threads, the sockets, the models, and the start and end of all. See README.md.
#pragma once

#include <atomic>
#include <boost/version.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/access_log.h"
#include "server/config.h"
#include "server/connection.h"
#include "server/counters.h"
#include "server/helper_thread.h"
#include "server/io_thread.h"
#include "server/listener.h"
#include "server/models.h"
#include "server/news_pump.h"

static_assert(BOOST_VERSION >= 108100, "see cmake/boost.cmake: an older Boost was found first");

namespace lmn::server {

class Server {
 public:
  static Failure create(const lmn_server_options& options, std::unique_ptr<Server>* out);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // In a forked child, where there are no threads: lets go of the sockets it inherited.
  void close_in_child();

  // Any thread. ----------------------------------------------------------------------------------
  Failure add_engine(EngineHandle engine, ModelHandle model, std::string name);
  Failure add_session(SessionHandle session, TokenizerHandle tokenizer,
                      const lmn_embedding_options& options);
  Failure remove(std::string_view name);
  // Opens a file and serves it, in the background (see ModelTable::loads()), as *served. `device`:
  // in place of that of the options, which may point at what does not last.
  Failure load(std::string path, std::string name, const lmn_engine_options& options,
               std::string device, std::string* served);
  // False when something had to be cancelled. Another call with less grace shortens one that runs.
  bool stop(uint64_t grace_ns);
  lmn_server_info info() const;  // its address lives as long as the server

  const Config& config() const { return config_; }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  AccessLog& access_log() { return access_log_; }
  HelperThread& helper() { return helper_; }
  ModelTable& models() { return models_; }
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }
  bool is_loading() const { return loading_.load(std::memory_order_relaxed) > 0; }
  int64_t begin_ns() const { return begin_ns_; }
  IoThread& thread(uint32_t index) { return *threads_[index]; }

  // Of I/O threads. ------------------------------------------------------------------------------
  // Finds who answers, or refuses what need not be read.
  void check_header(Connection& connection);
  void dispatch(Connection& connection);
  void on_connection_closed();
  bool has_room() const;                              // for one more connection
  void deal_out(int descriptor, std::string client);  // thread 0

 private:
  Server(Config config, Listening listening);

  void start();
  // Runs on thread `index`, and returns when it has.
  void run_on(uint32_t index, const std::function<void()>& function);
  // Of all threads; null: any model's.
  void end_work(const std::shared_ptr<ServedModel>& model, const ApiError& why);
  bool wait_until_quiet();

  const Config config_;
  const int64_t begin_ns_;
  Listening listening_;
  Counters counters_;
  AccessLog access_log_;
  ModelTable models_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> loading_{0};
  std::atomic<bool> full_{false};  // accepting waits for a connection to close
  uint32_t next_thread_ = 0;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;  // thread 0's
  std::vector<std::shared_ptr<NewsPump>> pumps_;      // thread 0's
  HelperThread helper_;                               // ends before the threads that it posts to
  struct Loader {
    Thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };
  std::mutex loaders_mutex_;
  std::vector<Loader> loaders_;
  std::atomic<int64_t> stop_at_ns_{INT64_MAX};
  std::mutex stop_mutex_;
  bool stopped_ = false;
  bool stopped_quietly_ = true;
};

// function(), with what it throws as the answer.
template <typename Function>
void answer_with(Connection& connection, Function&& function) {
  try {
    function();
  } catch (const ApiError& error) {
    connection.refuse(error);
  } catch (const std::bad_alloc&) {
    connection.refuse(out_of_memory());
  } catch (const std::exception& error) {
    connection.refuse(
        ApiError(500, std::string("internal error: ") + error.what(), {}, "internal_error"));
  }
}

// job() -> Result on the helper thread, then then(connection, result) on the connection's, if it
// still waits for this answer.
template <typename Job, typename Then>
void run_on_helper(Connection& connection, Job job, Then then) {
  IoThread& thread = connection.thread();
  thread.server().helper().post([&thread, job = std::move(job), then = std::move(then),
                                 who = connection.weak_from_this(),
                                 serial = connection.serial()]() mutable {
    auto result = job();
    thread.post([who, serial, then = std::move(then), result = std::move(result)]() mutable {
      const std::shared_ptr<Connection> still = who.lock();
      if (still == nullptr || !still->answering() || still->serial() != serial) return;
      answer_with(*still, [&] { then(*still, std::move(result)); });
    });
  });
}

}  // namespace lmn::server
