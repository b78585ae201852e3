// SPDX-License-Identifier: Apache-2.0
#include "server/server.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <system_error>
#include <thread>

#include "server/clock.h"
#include "server/json.h"
#include "server/utf8.h"

namespace lmn::server {
namespace {

// After the grace, for last bytes to leave.
constexpr int64_t kLastBytesNs = 1'000'000'000;

void raise_descriptor_limit(uint32_t connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, rlim_t{connections} + 1024);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

void close_all(const Listening& listening) {
  for (const ListeningSocket& socket : listening.sockets) ::close(socket.descriptor);
}

const ApiError kStopped(503, "the server is stopping", {}, "stopping");

}  // namespace

Failure Server::create(const lmn_server_options& options, std::unique_ptr<Server>* out) {
  Config config;
  if (Failure failure = read_config(options, &config); failure.failed()) return failure;
  raise_descriptor_limit(config.max_connections);
  Listening listening;
  if (Failure failure = open_listening(config, &listening); failure.failed()) return failure;
  try {
    out->reset(new Server(std::move(config), listening));
    (*out)->start();
    return {};
  } catch (const std::system_error& error) {
    if (*out == nullptr) close_all(listening);
    out->reset();
    return {LMN_OUT_OF_MEMORY,
            std::string("the system has no thread for the server: ") + error.what()};
  } catch (...) {
    if (*out == nullptr) close_all(listening);
    throw;
  }
}

Server::Server(Config config, Listening listening)
    : config_(std::move(config)),
      begin_ns_(now_ns()),
      listening_(std::move(listening)),
      access_log_(config_.log_descriptor) {
  for (uint32_t i = 0; i < config_.threads; ++i)
    threads_.push_back(std::make_unique<IoThread>(*this, i));
  for (const ListeningSocket& socket : listening_.sockets)
    acceptors_.push_back(std::make_unique<Acceptor>(*this, socket));
}

void Server::start() {
  for (const auto& acceptor : acceptors_) acceptor->arm();  // before the thread runs
  for (const auto& thread : threads_) thread->start();
}

Server::~Server() {
  (void)stop(0);
  {
    const std::lock_guard lock(loaders_mutex_);
    loaders_.clear();  // joins
  }
  helper_.close();
  for (const auto& thread : threads_) thread->stop();
  for (const auto& thread : threads_) thread->join();
  // All that may hold an engine, while the helper is there to end it.
  for (const auto& pump : pumps_) pump->stop();
  pumps_.clear();
  acceptors_.clear();
  threads_.clear();
  models_.clear();
}

void Server::close_in_child() { close_all(listening_); }

void Server::run_on(uint32_t index, const std::function<void()>& function) {
  std::promise<void> done;
  threads_[index]->post([&] {
    function();
    done.set_value();
  });
  done.get_future().wait();
}

// Models ------------------------------------------------------------------------------------------

Failure Server::add_engine(EngineHandle engine, ModelHandle model, std::string name) {
  if (name.empty()) name = default_name(model.get());
  // An engine's end joins its threads: no I/O thread waits for that.
  std::shared_ptr<ServedEngine> served(
      new ServedEngine, [this](ServedEngine* gone) { helper_.post([gone] { delete gone; }); });
  Failure failure = make_served_engine(std::move(engine), std::move(model), name, served.get());
  if (failure.failed()) return failure;
  if (stopping()) return {LMN_CLOSED, "the server is stopping"};
  const auto pump = std::make_shared<NewsPump>(*this, served);
  run_on(0, [&] {
    failure = pump->start();
    if (!failure.failed() && !models_.add(served)) {
      pump->stop();
      failure = {LMN_INVALID_ARGUMENT,
                 "a model named " + served->quoted_name + " is served already; give another name"};
    }
    if (!failure.failed()) pumps_.push_back(pump);
  });
  return failure;
}

Failure Server::add_session(SessionHandle session, TokenizerHandle tokenizer,
                            const lmn_embedding_options& options) {
  auto served = std::make_shared<ServedSession>();
  Failure failure =
      make_served_session(std::move(session), std::move(tokenizer), options, served.get());
  if (failure.failed()) return failure;
  if (models_.add(served)) return {};
  return {LMN_INVALID_ARGUMENT,
          "a model named " + served->quoted_name + " is served already; give another name"};
}

Failure Server::remove(std::string_view name) {
  const std::shared_ptr<ServedModel> model = models_.remove(name);
  if (model == nullptr) {
    if (models_.forget_load(name)) return {};
    return {LMN_NOT_FOUND, "no model named " + json_quoted(lossy(name)) + " is served"};
  }
  end_work(model, ApiError(503, "the model " + model->quoted_name + " was unloaded", "model",
                           "model_unloaded"));
  return {};
}

// The threads hold the model until they have looked: no other one can have its address meanwhile.
void Server::end_work(const std::shared_ptr<ServedModel>& model, const ApiError& why) {
  for (const auto& thread : threads_) {
    IoThread& of = *thread;
    thread->post([this, &of, model, why] {
      const auto connections = of.connections();  // answers may close some
      for (const auto& connection : connections) {
        Work* const work = connection->work();
        if (work == nullptr) {  // the helper is at it
          if (model == nullptr && connection->answering()) connection->refuse(why);
        } else if (model == nullptr || work->model() == model.get()) {
          work->give_up(why);
        }
      }
      if (of.index() != 0) return;
      std::erase_if(pumps_, [&model](const auto& pump) {
        const bool gone = model != nullptr && pump->engine() == model.get();
        if (gone) pump->stop();
        return gone;
      });
    });
  }
}

Failure Server::load(std::string path, std::string name, const lmn_engine_options& options,
                     std::string device, std::string* served) {
  if (name.empty()) {
    name = path.substr(path.rfind('/') + 1);
    if (name.ends_with(".gguf")) name.resize(name.size() - 5);
    std::replace(name.begin(), name.end(), ' ', '-');
  }
  if (Failure failure = check_name(name); failure.failed()) return failure;
  *served = name;
  if (stopping()) return {LMN_CLOSED, "the server is stopping"};
  if (!models_.begin_load(name)) {
    return {LMN_INVALID_ARGUMENT,
            "a model named " + json_quoted(name) + " is served or being loaded already"};
  }
  loading_.fetch_add(1, std::memory_order_relaxed);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto body = [this, path = std::move(path), name, options, device = std::move(device),
                     ended]() mutable {
    struct Progress {
      Server* server;
      const std::string* name;
    } progress{this, &name};
    const lmn_progress_fn report = [](void* user, const char*, uint64_t done,
                                      uint64_t total) -> int32_t {
      const auto& to = *static_cast<Progress*>(user);
      try {
        to.server->models_.set_load(
            *to.name,
            {total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(total), false, {}});
      } catch (const std::bad_alloc&) {
      }
      return to.server->stopping() ? 1 : 0;
    };
    Failure failure;
    try {
      auto how = sized<lmn_model_options>();
      how.progress = report;
      how.progress_user = &progress;
      lmn_model* model = nullptr;
      failure =
          attempt([&](lmn_error** err) { return lmn_model_open(path.c_str(), &how, &model, err); });
      ModelHandle opened(model);
      lmn_engine* engine = nullptr;
      lmn_engine_options build = options;
      build.progress = report;
      build.progress_user = &progress;
      build.device = device.c_str();
      if (!failure.failed()) {
        failure = attempt(
            [&](lmn_error** err) { return lmn_engine_create(model, &build, &engine, err); });
      }
      EngineHandle built(engine);
      if (!failure.failed()) failure = add_engine(std::move(built), std::move(opened), name);
    } catch (const std::exception& error) {
      failure = {LMN_OUT_OF_MEMORY, error.what()};
    }
    if (failure.failed()) {
      models_.set_load(name, {0, true, in_words_of_clients(failure.message)});
    } else {
      models_.end_load(name);
    }
    loading_.fetch_sub(1, std::memory_order_relaxed);
    ended->store(true, std::memory_order_release);
  };
  const std::lock_guard lock(loaders_mutex_);
  try {
    std::erase_if(loaders_, [](const Loader& loader) { return loader.done->load(); });
    loaders_.push_back({Thread("lmn-load", body), ended});
  } catch (...) {
    loading_.fetch_sub(1, std::memory_order_relaxed);
    models_.end_load(name);
    throw;
  }
  return {};
}

// Connections -------------------------------------------------------------------------------------

bool Server::has_room() const { return counters_.connections.load() < config_.max_connections; }

void Server::deal_out(int descriptor, std::string client) {
  counters_.accepted.fetch_add(1, std::memory_order_relaxed);
  counters_.connections.fetch_add(1, std::memory_order_relaxed);
  // In one order with what threads do that close connections: either they see that accepting waits,
  // or Acceptor::arm() sees the room that they made.
  if (!has_room()) full_.store(true);
  IoThread& thread = *threads_[next_thread_];
  next_thread_ = (next_thread_ + 1) % config_.threads;
  if (thread.index() == 0) {
    thread.adopt(descriptor, std::move(client));
  } else {
    thread.post([&thread, descriptor, client = std::move(client)]() mutable {
      thread.adopt(descriptor, std::move(client));
    });
  }
}

void Server::on_connection_closed() {
  if (!full_.load() || !full_.exchange(false)) return;
  threads_[0]->post([this] {
    for (const auto& acceptor : acceptors_) acceptor->arm();
  });
}

// The end -----------------------------------------------------------------------------------------

// Until no connection is open, or stop_at_ns_ has come.
bool Server::wait_until_quiet() {
  while (counters_.connections.load(std::memory_order_relaxed) > 0) {
    if (now_ns() >= stop_at_ns_.load(std::memory_order_relaxed)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (const auto& thread : threads_) thread->post([&of = *thread] { of.close_idle(); });
  }
  return true;
}

bool Server::stop(uint64_t grace_ns) {
  const int64_t until =
      now_ns() + static_cast<int64_t>(std::min<uint64_t>(grace_ns, INT64_MAX / 2));
  int64_t before = stop_at_ns_.load();
  while (until < before && !stop_at_ns_.compare_exchange_weak(before, until)) {
  }
  const std::lock_guard lock(stop_mutex_);
  if (stopped_) return stopped_quietly_;
  stopping_.store(true, std::memory_order_relaxed);
  run_on(0, [&] {
    for (const auto& acceptor : acceptors_) acceptor->close();
  });
  remove_unix_socket(config_, listening_);
  stopped_quietly_ = wait_until_quiet();
  if (!stopped_quietly_) {
    stopped_quietly_ = counters_.requests.load(std::memory_order_relaxed) == 0;
    end_work(nullptr, kStopped);
    stop_at_ns_.store(now_ns() + kLastBytesNs);
    (void)wait_until_quiet();
    for (uint32_t i = 0; i < config_.threads; ++i) {
      run_on(i, [&of = *threads_[i]] {
        while (!of.connections().empty()) of.connections().back()->close();
      });
    }
  }
  stopped_ = true;
  return stopped_quietly_;
}

lmn_server_info Server::info() const {
  auto out = sized<lmn_server_info>();
  const auto value = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  out.port = listening_.port;
  out.address = listening_.address.c_str();
  out.threads = config_.threads;
  out.models = static_cast<uint32_t>(models_.size());
  out.connections = value(counters_.connections);
  out.requests = value(counters_.requests);
  out.accepted = value(counters_.accepted);
  out.answered = value(counters_.answered);
  out.refused = value(counters_.refused);
  out.failed = value(counters_.failed);
  out.aborted = value(counters_.aborted);
  out.log_lost = access_log_.lost();
  return out;
}

}  // namespace lmn::server
