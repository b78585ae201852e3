// SPDX-License-Identifier: Apache-2.0
//
// What an lmn_server was asked to be: the options with their defaults filled in, and copies of all
// that they point to. Immutable; all threads read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/handles.h"
#include "server/http_parser.h"

namespace lmn::server {

struct Config {
  std::string host = "127.0.0.1";
  std::string unix_path;  // empty: TCP
  uint32_t port = 0;
  uint32_t unix_mode = 0600;
  bool page = true;
  uint32_t threads = 1;
  uint32_t max_connections = 65536;
  uint32_t max_requests = 16384;
  HttpLimits limits{16 << 10, 8 << 20};
  uint64_t max_stream_bytes = 256 << 10;
  int64_t header_timeout_ns = 10'000'000'000;
  int64_t body_timeout_ns = 60'000'000'000;
  int64_t idle_timeout_ns = 120'000'000'000;
  int64_t write_timeout_ns = 30'000'000'000;
  std::vector<std::string> api_keys;
  std::vector<std::string> admin_keys;
  std::vector<std::string> cors_origins;
  lmn_chat_fn chat = nullptr;
  void* chat_user = nullptr;
  int log_descriptor = 0;
};

// Fills `config`; a failure names the field and its range.
Failure read_config(const lmn_server_options& options, Config* config);

// Connections in the pause after a last answer: long enough for what is under way to arrive.
inline constexpr int64_t kLingerNs = 2'000'000'000;

}  // namespace lmn::server
