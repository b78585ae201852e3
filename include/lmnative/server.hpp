// SPDX-License-Identifier: Apache-2.0
//
// Part of lmnative.hpp, which says the rules: the HTTP server.
//
//   lmnative::Server server({.port = 8080});
//   server.add(lmnative::Engine(lmnative::Model("smollm2-135m")), "smollm2-135m");
//   ...                                         // http://127.0.0.1:8080/v1/chat/completions
//   server.stop(std::chrono::seconds(30));      // what runs may end
#ifndef LMNATIVE_SERVER_HPP_
#define LMNATIVE_SERVER_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmnative/engine.hpp"
#include "lmnative/session.hpp"

namespace lmnative {

// Callbacks of a server: called on its helper thread, one at a time, not in the life of an answer's
// tokens. Error with LMN_INVALID_ARGUMENT blames the client (400, with its message); whatever else
// they throw is the server's fault (500).

// The prompt of a chat for which the library has no renderer. `request`: the JSON body of the chat
// completion.
using ChatFunction = std::function<std::string(const lmn_model* model, std::string_view request)>;
// The ids of a text, special tokens included.
using TokenizeFunction = std::function<std::vector<int32_t>(std::string_view text)>;

// The fields of lmn_server_options; 0 is each one's default.
struct ServerOptions {
  std::string host{};       // "": 127.0.0.1
  std::string unix_path{};  // not empty: a UNIX socket instead
  uint32_t port = 0;        // 0: a free one
  uint32_t unix_mode = 0;
  int32_t threads = 0;
  uint32_t max_connections = 0;
  uint32_t max_requests = 0;
  uint32_t max_header_bytes = 0;
  uint64_t max_body_bytes = 0;
  uint64_t max_stream_bytes = 0;
  std::chrono::nanoseconds header_timeout{0};
  std::chrono::nanoseconds body_timeout{0};
  std::chrono::nanoseconds idle_timeout{0};
  std::chrono::nanoseconds write_timeout{0};
  std::vector<std::string> api_keys{};
  std::vector<std::string> admin_keys{};
  std::vector<std::string> cors_origins{};
  ChatFunction chat{};
  int32_t log_descriptor = 0;  // 0: no log
  bool page = true;            // for people, at "/"
};

// The fields of lmn_embedding_options; 0 is each one's default.
struct EmbeddingOptions {
  const Tokenizer* tokenizer = nullptr;  // for texts; the server keeps what it needs of it
  TokenizeFunction tokenize{};           // in its place
  uint32_t pooling = 0;                  // LMN_POOLING_*
  bool normalize = true;                 // to length 1
  uint32_t max_tokens = 0;
  uint32_t max_batch = 0;
  int32_t pad_id = 0;
};

namespace detail {

// Runs a callback's `call`, and turns what it throws into a status and the reply's text.
template <typename Call>
lmn_status reply_with(lmn_reply* reply, const Call& call) noexcept {
  const auto fail = [reply](lmn_status status, std::string_view message) {
    (void)lmn_reply_text_set(reply, message.data(), message.size(), nullptr);
    return status == LMN_OK ? LMN_INTERNAL : status;
  };
  try {
    call();
    return LMN_OK;
  } catch (const Error& error) {
    return fail(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(LMN_OUT_OF_MEMORY, "there is no memory for this request");
  } catch (const std::exception& error) {
    return fail(LMN_INTERNAL, error.what());
  } catch (...) {
    return fail(LMN_INTERNAL, "a callback of the server threw");
  }
}

inline lmn_status call_chat(void* user, const lmn_model* model, const char* request,
                            uint64_t request_bytes, lmn_reply* reply) noexcept {
  return reply_with(reply, [&] {
    const std::string_view body(request, static_cast<size_t>(request_bytes));
    const std::string prompt = (*static_cast<const ChatFunction*>(user))(model, body);
    invoke([&](lmn_error** err) {
      return lmn_reply_text_set(reply, prompt.data(), prompt.size(), err);
    });
  });
}

inline lmn_status call_tokenize(void* user, const char* text, uint64_t text_bytes,
                                lmn_reply* reply) noexcept {
  return reply_with(reply, [&] {
    const std::string_view input(text, static_cast<size_t>(text_bytes));
    const std::vector<int32_t> ids = (*static_cast<const TokenizeFunction*>(user))(input);
    invoke([&](lmn_error** err) { return lmn_reply_ids_set(reply, ids.data(), ids.size(), err); });
  });
}

}  // namespace detail

// Listens from construction on. Any number of threads may use one; not to be destroyed in a
// callback.
class Server {
 public:
  explicit Server(const ServerOptions& options = {})
      : callbacks_(std::make_unique<Callbacks>(options.chat)) {
    const auto nanoseconds = [](std::chrono::nanoseconds time) {
      return static_cast<uint64_t>(time.count());
    };
    const auto api = views(options.api_keys), admin = views(options.admin_keys),
               cors = views(options.cors_origins);
    auto given = detail::sized<lmn_server_options>();
    if (!options.page) given.flags |= LMN_SERVER_NO_PAGE;
    given.host = options.host.empty() ? nullptr : options.host.c_str();
    given.unix_path = options.unix_path.empty() ? nullptr : options.unix_path.c_str();
    given.port = options.port;
    given.unix_mode = options.unix_mode;
    given.threads = options.threads;
    given.max_connections = options.max_connections;
    given.max_requests = options.max_requests;
    given.max_header_bytes = options.max_header_bytes;
    given.max_body_bytes = options.max_body_bytes;
    given.max_stream_bytes = options.max_stream_bytes;
    given.header_timeout_ns = nanoseconds(options.header_timeout);
    given.body_timeout_ns = nanoseconds(options.body_timeout);
    given.idle_timeout_ns = nanoseconds(options.idle_timeout);
    given.write_timeout_ns = nanoseconds(options.write_timeout);
    given.api_keys = api.data();
    given.api_key_count = api.size();
    given.admin_keys = admin.data();
    given.admin_key_count = admin.size();
    given.cors_origins = cors.data();
    given.cors_origin_count = cors.size();
    if (options.chat) {
      given.chat = &detail::call_chat;
      given.chat_user = &callbacks_->chat;
    }
    given.log_descriptor = options.log_descriptor;
    lmn_server* raw = nullptr;
    detail::invoke([&](lmn_error** err) { return lmn_server_create(&given, &raw, err); });
    handle_.reset(raw);
  }

  Server(Server&& other) noexcept = default;
  Server& operator=(Server&& other) noexcept {
    handle_ = std::move(other.handle_);  // ends the old server before what it calls goes
    callbacks_ = std::move(other.callbacks_);
    return *this;
  }

  // Serves an engine, which it keeps alive. `name`: in the requests' "model"; "": the file's,
  // without its folder and ending.
  void add(const Engine& engine, const std::string& name = {}) {
    auto given = detail::sized<lmn_served_options>();
    given.name = name.empty() ? nullptr : name.c_str();
    detail::invoke(
        [&](lmn_error** err) { return lmn_server_engine_add(get(), engine.get(), &given, err); });
  }
  // Serves a session as an embedding model, and keeps it alive.
  void add(const Session& session, const std::string& name, const EmbeddingOptions& options = {}) {
    auto given = detail::sized<lmn_embedding_options>();
    if (!options.normalize) given.flags |= LMN_EMBEDDING_RAW;
    given.name = name.c_str();
    if (options.tokenizer != nullptr) given.tokenizer = options.tokenizer->get();
    if (options.tokenize) {
      given.tokenize = &detail::call_tokenize;
      given.tokenize_user = callbacks_->keep(options.tokenize);
    }
    given.pooling = options.pooling;
    given.max_tokens = options.max_tokens;
    given.max_batch = options.max_batch;
    given.pad_id = options.pad_id;
    detail::invoke(
        [&](lmn_error** err) { return lmn_server_session_add(get(), session.get(), &given, err); });
  }
  // Ends serving the model of that name; its requests are cancelled.
  void remove(const std::string& name) {
    detail::invoke(
        [&](lmn_error** err) { return lmn_server_model_remove(get(), name.c_str(), err); });
  }

  // Accepts nothing more; what runs may go on for `grace`. True if all of it came to its end.
  bool stop(std::chrono::nanoseconds grace) {
    return detail::invoke_except(LMN_TIMEOUT, [&](lmn_error** err) {
             return lmn_server_stop(get(), static_cast<uint64_t>(grace.count()), err);
           }) == LMN_OK;
  }

  // Address and counters.
  lmn_server_info info() const {
    auto out = detail::sized<lmn_server_info>();
    detail::invoke([&](lmn_error** err) { return lmn_server_info_get(get(), &out, err); });
    return out;
  }

  lmn_server* get() const { return handle_.get(); }

 private:
  // What the server calls; at addresses that stay.
  struct Callbacks {
    explicit Callbacks(ChatFunction function) : chat(std::move(function)) {}
    void* keep(TokenizeFunction function) {
      const std::lock_guard lock(mutex);
      return tokenize.emplace_back(std::make_unique<TokenizeFunction>(std::move(function))).get();
    }
    ChatFunction chat;
    std::mutex mutex;
    std::vector<std::unique_ptr<TokenizeFunction>> tokenize;
  };
  static std::vector<lmn_string> views(const std::vector<std::string>& texts) {
    std::vector<lmn_string> out;
    for (const std::string& text : texts) out.push_back({text.data(), text.size()});
    return out;
  }

  std::unique_ptr<Callbacks> callbacks_;
  detail::Handle<lmn_server, lmn_server_destroy> handle_;  // goes before them
};

}  // namespace lmnative

#endif  // LMNATIVE_SERVER_HPP_
