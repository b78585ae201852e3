// SPDX-License-Identifier: Apache-2.0
//
// Servers. No call of a request's path comes here but two, on the server's helper thread: chat
// templates that the library does not render, and tokenizers of Python for embedding models. They
// answer (status, text or ids) and take the GIL; whoever waits for the server's threads lets it go.
#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "handles.h"
#include "interrupt.h"
#include "model.h"
#include "status.h"

namespace lmn::python {
namespace {

// This thread is in a callback of a server: the garbage collector may free one here.
thread_local bool in_callback = false;

using Callbacks = std::vector<std::unique_ptr<py::object>>;  // addresses stay

// A server with what it calls. The last share goes with the GIL held.
struct State {
  lmn_server* server = nullptr;
  Callbacks callbacks;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (in_callback) {  // destroy joins this thread
      std::thread([server = server, kept = std::move(callbacks)]() mutable {
        lmn_server_destroy(server);
        const py::gil_scoped_acquire gil;
        kept.clear();
      }).detach();
      return;
    }
    const WithoutGil nogil;
    lmn_server_destroy(server);
  }
  // The user of a callback to `callable`.
  void* keep(py::object callable) {
    callbacks.push_back(std::make_unique<py::object>(std::move(callable)));
    return callbacks.back().get();
  }
};
using StatePtr = std::shared_ptr<State>;

// Calls `ask(function)`, which returns (status, answer), and hands the answer to `take`; an
// exception is the server's fault and becomes the message.
template <typename Ask, typename Take>
lmn_status answer(void* user, lmn_reply* reply, const Ask& ask, const Take& take) {
  const py::gil_scoped_acquire gil;
  in_callback = true;
  lmn_status status = LMN_INTERNAL;
  try {
    const auto result = ask(*static_cast<py::object*>(user)).template cast<py::tuple>();
    status = result[0].template cast<lmn_status>();
    if (status == LMN_OK) {
      status = take(py::object(result[1]));
    } else {
      const std::string_view message = utf8_view(result[1], "message");
      (void)lmn_reply_text_set(reply, message.data(), message.size(), nullptr);
    }
  } catch (const std::exception& error) {
    status = LMN_INTERNAL;
    const std::string_view message = error.what();
    (void)lmn_reply_text_set(reply, message.data(), message.size(), nullptr);
  }
  in_callback = false;
  return status;
}

lmn_status render_chat(void* user, const lmn_model* model, const char* request,
                       uint64_t request_bytes, lmn_reply* reply) {
  return answer(
      user, reply,
      [&](const py::object& function) {
        auto source = sized<lmn_value>();
        const bool found =
            lmn_model_metadata_find(model, "tokenizer.chat_template", &source, nullptr) == LMN_OK &&
            source.kind == LMN_VALUE_STRING;
        return function(std::make_unique<Tokenizer>(model),
                        found ? py::object(py::bytes(source.text, source.text_bytes)) : py::none(),
                        py::bytes(request, request_bytes));
      },
      [&](const py::object& prompt) {
        const std::string_view text = utf8_view(prompt, "prompt");
        return lmn_reply_text_set(reply, text.data(), text.size(), nullptr);
      });
}

lmn_status tokenize(void* user, const char* text, uint64_t text_bytes, lmn_reply* reply) {
  return answer(
      user, reply, [&](const py::object& function) { return function(py::str(text, text_bytes)); },
      [&](const py::object& list) {
        const auto ids = list.cast<std::vector<int32_t>>();
        return lmn_reply_ids_set(reply, ids.data(), ids.size(), nullptr);
      });
}

std::vector<lmn_string> views(const std::vector<std::string>& texts) {
  std::vector<lmn_string> out;
  for (const std::string& text : texts) out.push_back({text.data(), text.size()});
  return out;
}

class Server {
 public:
  using Text = std::optional<std::string>;
  using Texts = std::vector<std::string>;

  Server(const Text& host, uint32_t port, const Text& unix_path, uint32_t unix_mode,
         int32_t threads, uint32_t max_connections, uint32_t max_requests,
         uint32_t max_header_bytes, uint64_t max_body_bytes, uint64_t max_stream_bytes,
         uint64_t header_timeout_ns, uint64_t body_timeout_ns, uint64_t idle_timeout_ns,
         uint64_t write_timeout_ns, const Texts& api_keys, const Texts& admin_keys,
         const Texts& cors_origins, int32_t log_descriptor, bool page, py::object chat) {
    const auto api = views(api_keys), admin = views(admin_keys), cors = views(cors_origins);
    auto options = sized<lmn_server_options>();
    if (!page) options.flags |= LMN_SERVER_NO_PAGE;
    options.host = host ? host->c_str() : nullptr;
    options.port = port;
    options.unix_path = unix_path ? unix_path->c_str() : nullptr;
    options.unix_mode = unix_mode;
    options.threads = threads;
    options.max_connections = max_connections;
    options.max_requests = max_requests;
    options.max_header_bytes = max_header_bytes;
    options.max_body_bytes = max_body_bytes;
    options.max_stream_bytes = max_stream_bytes;
    options.header_timeout_ns = header_timeout_ns;
    options.body_timeout_ns = body_timeout_ns;
    options.idle_timeout_ns = idle_timeout_ns;
    options.write_timeout_ns = write_timeout_ns;
    options.api_keys = api.data();
    options.api_key_count = api.size();
    options.admin_keys = admin.data();
    options.admin_key_count = admin.size();
    options.cors_origins = cors.data();
    options.cors_origin_count = cors.size();
    options.chat = &render_chat;
    auto state = std::make_shared<State>();
    options.chat_user = state->keep(std::move(chat));
    options.log_descriptor = log_descriptor;
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = lmn_server_create(&options, &state->server, error.out());
    }
    check(status, error);
    state_ = std::move(state);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void add_engine(const py::object& engine, const std::string& name) {
    const StatePtr state = use();
    EnginePtr added = engine_of(engine);
    auto options = sized<lmn_served_options>();
    options.name = name.c_str();
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = lmn_server_engine_add(state->server, added.get(), &options, error.out());
      added.reset();  // perhaps the last share, after close() in another thread
    }
    check(status, error);
  }

  // `tokenizer`: a Tokenizer, a callable as `tokenize` wants it, or None.
  void add_session(const py::object& session, const std::string& name, const py::object& tokenizer,
                   uint32_t pooling, bool normalize, uint32_t max_tokens, uint32_t max_batch,
                   int32_t pad_id) {
    const StatePtr state = use();
    auto options = sized<lmn_embedding_options>();
    if (!normalize) options.flags |= LMN_EMBEDDING_RAW;
    options.name = name.c_str();
    if (py::isinstance<Tokenizer>(tokenizer)) {
      options.tokenizer = tokenizer.cast<const Tokenizer&>().get();
    } else if (!tokenizer.is_none()) {
      options.tokenize = &tokenize;
      options.tokenize_user = state->keep(tokenizer);
    }
    options.pooling = pooling;
    options.max_tokens = max_tokens;
    options.max_batch = max_batch;
    options.pad_id = pad_id;
    const lmn_session* handle = session_of(session);
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = lmn_server_session_add(state->server, handle, &options, error.out());
    }
    check(status, error);
  }

  void remove(const std::string& name) {
    const StatePtr state = use();
    ErrorSlot error;
    lmn_status status = LMN_OK;
    {
      const WithoutGil nogil;
      status = lmn_server_model_remove(state->server, name.c_str(), error.out());
    }
    check(status, error);
  }

  // True if all that ran came to its end. A signal handler that raises ends the grace.
  bool stop(uint64_t grace_ns) {
    const StatePtr state = use();
    ErrorSlot error;
    lmn_status status = LMN_OK;
    std::mutex mutex;
    std::condition_variable changed;
    bool stopped = false;
    std::optional<py::error_already_set> raised;
    {
      const WithoutGil nogil;
      std::thread stopping([&] {
        const lmn_status outcome = lmn_server_stop(state->server, grace_ns, error.out());
        const std::lock_guard lock(mutex);
        status = outcome;
        stopped = true;
        changed.notify_all();
      });
      std::unique_lock lock(mutex);
      while (!changed.wait_for(lock, kSignalSlice, [&] { return stopped; }) && !raised) {
        lock.unlock();
        {
          const py::gil_scoped_acquire gil;
          try {
            check_signals();
          } catch (py::error_already_set& signal) {
            raised.emplace(std::move(signal));
          }
        }
        if (raised) (void)lmn_server_stop(state->server, 0, nullptr);
        lock.lock();
      }
      lock.unlock();
      stopping.join();
    }
    if (raised) {
      py::error_already_set signal = std::move(*raised);
      raised.reset();
      throw signal;
    }
    if (status == LMN_TIMEOUT) return false;
    check(status, error);
    return true;
  }

  void close() { state_.reset(); }
  bool closed() const { return !state_; }

  py::dict info() const {
    const StatePtr state = use();
    auto info = sized<lmn_server_info>();
    ErrorSlot error;
    check(lmn_server_info_get(state->server, &info, error.out()), error);
    py::dict result;
    result["address"] = info.address;
    result["port"] = info.port;
    result["threads"] = info.threads;
    result["models"] = info.models;
    result["connections"] = info.connections;
    result["requests"] = info.requests;
    result["accepted"] = info.accepted;
    result["answered"] = info.answered;
    result["refused"] = info.refused;
    result["failed"] = info.failed;
    result["aborted"] = info.aborted;
    result["log_lost"] = info.log_lost;
    return result;
  }

 private:
  StatePtr use() const {
    if (!state_) raise(LMN_CLOSED, "the server is closed");
    return state_;
  }

  StatePtr state_;
};

}  // namespace

void bind_server(py::module_& module) {
  py::class_<Server>(module, "Server")
      .def(py::init<const Server::Text&, uint32_t, const Server::Text&, uint32_t, int32_t, uint32_t,
                    uint32_t, uint32_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                    const Server::Texts&, const Server::Texts&, const Server::Texts&, int32_t, bool,
                    py::object>(),
           py::kw_only(), py::arg("host"), py::arg("port"), py::arg("unix_path"),
           py::arg("unix_mode"), py::arg("threads"), py::arg("max_connections"),
           py::arg("max_requests"), py::arg("max_header_bytes"), py::arg("max_body_bytes"),
           py::arg("max_stream_bytes"), py::arg("header_timeout_ns"), py::arg("body_timeout_ns"),
           py::arg("idle_timeout_ns"), py::arg("write_timeout_ns"), py::arg("api_keys"),
           py::arg("admin_keys"), py::arg("cors_origins"), py::arg("log_descriptor"),
           py::arg("page"), py::arg("chat"))
      .def("add_engine", &Server::add_engine)
      .def("add_session", &Server::add_session, py::arg("session"), py::arg("name"), py::kw_only(),
           py::arg("tokenizer"), py::arg("pooling"), py::arg("normalize"), py::arg("max_tokens"),
           py::arg("max_batch"), py::arg("pad_id"))
      .def("remove", &Server::remove)
      .def("stop", &Server::stop)
      .def("close", &Server::close)
      .def("info", &Server::info)
      .def_property_readonly("closed", &Server::closed);
}

}  // namespace lmn::python
