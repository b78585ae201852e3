// SPDX-License-Identifier: Apache-2.0
#include "server/http_parser.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/string_body.hpp>

namespace lmn::server {

namespace http = boost::beast::http;

namespace {

std::string_view view_of(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

struct HttpParser::Beast {
  http::request_parser<http::string_body> parser;
  const auto& message() const { return parser.get(); }
  size_t count(http::field name) const { return message().count(name); }
};

HttpParser::HttpParser(const HttpLimits& limits) : beast_(std::make_unique<Beast>()) {
  beast_->parser.header_limit(limits.header_bytes);
  beast_->parser.body_limit(limits.body_bytes);
  beast_->parser.eager(true);
}

HttpParser::~HttpParser() = default;

void HttpParser::fail(int status, const char* why) {
  failure_status_ = status;
  failure_ = why;
}

size_t HttpParser::put(std::string_view bytes) {
  auto& parser = beast_->parser;
  boost::system::error_code failure;
  const bool had_header = parser.is_header_done();
  const size_t used = parser.put(boost::asio::buffer(bytes.data(), bytes.size()), failure);
  if (!had_header && parser.is_header_done()) check_header();
  if (failed() || !failure || failure == http::error::need_more) return used;
  if (failure == http::error::body_limit) {
    fail(413, "the body is longer than this server takes");
  } else if (failure == http::error::header_limit) {
    fail(431, "the header is longer than this server takes");
  } else if (failure == http::error::bad_version) {
    fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  } else {
    fail(400, "the request is not well-formed HTTP");
  }
  return used;
}

// RFC 9112, sections 3.2, 6.1, 6.3: where two readers could disagree, nobody reads.
void HttpParser::check_header() {
  const auto& message = beast_->message();
  const size_t lengths = beast_->count(http::field::content_length);
  const size_t codings = beast_->count(http::field::transfer_encoding);
  const size_t hosts = beast_->count(http::field::host);
  if (message.version() != 10 && message.version() != 11) {
    fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  } else if (lengths > 1 || (lengths > 0 && codings > 0) ||
             header("Content-Length").find_first_not_of("0123456789") != std::string_view::npos) {
    fail(400, "the length of the body is given twice, or is no number");
  } else if (codings > 1 || (codings == 1 && is_http_1_0())) {
    fail(400, "Transfer-Encoding is given twice, or in HTTP/1.0");
  } else if (codings == 1 &&
             !boost::beast::iequals(message[http::field::transfer_encoding], "chunked")) {
    fail(501, "the only Transfer-Encoding spoken here is chunked");
  } else if (has_header("Expect") && !is_http_1_0() && !expects_continue()) {
    fail(417, "the only expectation known here is 100-continue");
  } else if (!is_printable(target())) {
    fail(400, "the target has bytes that a URI has not");
  } else if (hosts > 1 || (hosts == 0 && !is_http_1_0())) {
    fail(400, "a request has one Host field");
  }
}

bool HttpParser::header_done() const { return beast_->parser.is_header_done(); }
bool HttpParser::done() const { return beast_->parser.is_done(); }
std::string_view HttpParser::method() const { return view_of(beast_->message().method_string()); }
std::string_view HttpParser::target() const { return view_of(beast_->message().target()); }

std::string_view HttpParser::header(std::string_view name) const {
  const auto& message = beast_->message();
  const auto found = message.find(boost::beast::string_view(name.data(), name.size()));
  return found == message.end() ? std::string_view() : view_of(found->value());
}

bool HttpParser::has_header(std::string_view name) const {
  const auto& message = beast_->message();
  return message.find(boost::beast::string_view(name.data(), name.size())) != message.end();
}

bool HttpParser::is_http_1_0() const { return beast_->message().version() == 10; }
bool HttpParser::keep_alive() const { return beast_->message().keep_alive(); }

bool HttpParser::expects_continue() const {
  return !is_http_1_0() &&
         boost::beast::iequals(beast_->message()[http::field::expect], "100-continue");
}

std::string& HttpParser::body() { return beast_->parser.get().body(); }

}  // namespace lmn::server
