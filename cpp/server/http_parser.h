// SPDX-License-Identifier: Apache-2.0
//
// HttpParser: one request from a stream of bytes (Boost.Beast), HTTP/1.0 and 1.1, with or without
// chunks. It refuses what could be read in two ways: both or several length fields, transfer
// codings other than chunked, no or several Host fields. Knows nothing of sockets and time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lmn::server {

struct HttpLimits {
  uint32_t header_bytes = 0;
  uint64_t body_bytes = 0;
};

class HttpParser {
 public:
  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  // Takes what it can of `bytes`, to the end of the request at most, and returns how much. What is
  // left comes again, before what follows. Not after failed() or done().
  size_t put(std::string_view bytes);

  bool header_done() const;
  bool done() const;
  bool failed() const { return failure_status_ != 0; }
  int failure_status() const { return failure_status_; }  // of HTTP
  const char* failure() const { return failure_; }

  // From header_done() on; views into the parser.
  std::string_view method() const;
  std::string_view target() const;
  std::string_view header(std::string_view name) const;  // its first field of that name, or ""
  bool has_header(std::string_view name) const;
  bool is_http_1_0() const;
  bool keep_alive() const;
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;

  std::string& body();  // when done()

 private:
  void fail(int status, const char* why);
  void check_header();

  struct Beast;
  std::unique_ptr<Beast> beast_;
  int failure_status_ = 0;
  const char* failure_ = "";
};

}  // namespace lmn::server
