// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <limits>

namespace lmn::server {
namespace {

constexpr int kManyCpus = 16;  // from here on one thread may be too few for all connections

// 0 leaves the default.
template <typename T, typename From>
void take(From given, T* field) {
  if (given != 0) *field = static_cast<T>(given);
}

Failure refuse(const char* field, const std::string& problem) {
  return {LMN_INVALID_ARGUMENT, "lmn_server_options." + std::string(field) + " " + problem};
}

Failure take_texts(const lmn_string* texts, uint64_t count, const char* field,
                   std::vector<std::string>* out) {
  if (texts == nullptr && count > 0) return refuse(field, "is NULL and its count is not 0");
  for (uint64_t i = 0; i < count; ++i) {
    if (texts[i].data == nullptr || texts[i].bytes == 0) {
      return refuse(field, "has an empty element at " + std::to_string(i));
    }
    std::string text(texts[i].data, static_cast<size_t>(texts[i].bytes));
    const bool printable =
        std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
    if (!printable) {
      return refuse(field, "has an element with spaces or characters beyond ASCII at " +
                               std::to_string(i) + ", which no header field can carry");
    }
    out->push_back(std::move(text));
  }
  return {};
}

}  // namespace

Failure read_config(const lmn_server_options& options, Config* config) {
  if (options.host != nullptr) config->host = options.host;
  if (options.unix_path != nullptr) config->unix_path = options.unix_path;
  if (options.port > 65535)
    return refuse("port", "is " + std::to_string(options.port) + "; it is 0 to 65535");
  config->port = options.port;
  if (options.unix_mode > 0777) return refuse("unix_mode", "has bits beyond 0777");
  take(options.unix_mode, &config->unix_mode);
  config->page = (options.flags & LMN_SERVER_NO_PAGE) == 0;
  if (options.threads < 0 || options.threads > 64) {
    return refuse("threads", "is " + std::to_string(options.threads) + "; it is 1 to 64, or 0");
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= kManyCpus)
    config->threads = 2;
  take(options.threads, &config->threads);
  take(options.max_connections, &config->max_connections);
  take(options.max_requests, &config->max_requests);
  if (options.max_header_bytes > (1u << 20)) return refuse("max_header_bytes", "is above 1 MiB");
  take(options.max_header_bytes, &config->limits.header_bytes);
  take(options.max_body_bytes, &config->limits.body_bytes);
  take(options.max_stream_bytes, &config->max_stream_bytes);
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / 4);
  take(std::min(options.header_timeout_ns, kMost), &config->header_timeout_ns);
  take(std::min(options.body_timeout_ns, kMost), &config->body_timeout_ns);
  take(std::min(options.idle_timeout_ns, kMost), &config->idle_timeout_ns);
  take(std::min(options.write_timeout_ns, kMost), &config->write_timeout_ns);
  for (const auto& [texts, count, field, out] :
       {std::tuple{options.api_keys, options.api_key_count, "api_keys", &config->api_keys},
        std::tuple{options.admin_keys, options.admin_key_count, "admin_keys", &config->admin_keys},
        std::tuple{options.cors_origins, options.cors_origin_count, "cors_origins",
                   &config->cors_origins}}) {
    if (Failure failure = take_texts(texts, count, field, out); failure.failed()) return failure;
  }
  config->chat = options.chat;
  config->chat_user = options.chat_user;
  if (options.log_descriptor != 0 && ::fcntl(options.log_descriptor, F_GETFD) < 0) {
    return refuse("log_descriptor",
                  "is " + std::to_string(options.log_descriptor) + ", which is not open");
  }
  config->log_descriptor = options.log_descriptor;
  return {};
}

}  // namespace lmn::server
