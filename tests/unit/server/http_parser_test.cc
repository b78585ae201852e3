// SPDX-License-Identifier: Apache-2.0
#include "server/http_parser.h"

#include <string>
#include <vector>

#include "testing.h"

namespace lmn::server {
namespace {

constexpr HttpLimits kLimits{1024, 64};

// What becomes of `bytes` when they come in two pieces.
struct Outcome {
  bool done = false;
  int failure = 0;
  size_t used = 0;
  std::string method, target, body;
};

Outcome parse(const std::string& bytes, size_t split) {
  HttpParser parser(kLimits);
  Outcome out;
  std::string pending;
  for (const std::string& piece : {bytes.substr(0, split), bytes.substr(split)}) {
    pending += piece;
    while (!parser.failed() && !parser.done() && !pending.empty()) {
      const size_t n = parser.put(pending);
      out.used += n;
      pending.erase(0, n);
      if (n == 0) break;
    }
  }
  out.done = parser.done() && !parser.failed();
  out.failure = parser.failure_status();
  if (out.done) {
    out.method = parser.method();
    out.target = parser.target();
    out.body = parser.body();
  }
  return out;
}

TEST(every_split_gives_the_same_request) {
  const std::string plain =
      "POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX-Long: b c\r\n\r\nhello";
  const std::string chunked =
      "POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2;ext=1\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: t\r\n\r\n";
  for (const std::string& request : {plain, chunked}) {
    for (size_t split = 0; split <= request.size(); ++split) {
      const Outcome out = parse(request + "GET", split);  // the next one begins already
      EXPECT(out.done);
      EXPECT_EQ(out.method, "POST");
      EXPECT_EQ(out.target, "/v1/x?y=1");
      EXPECT_EQ(out.body, "hello");
      EXPECT_EQ(out.used, request.size());
    }
  }
}

TEST(what_could_be_read_in_two_ways_is_refused) {
  const struct {
    const char* header;
    int status;
  } cases[] = {
      {"Host: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
      {"Host: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n", 400},
      {"Host: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n", 400},
      {"Host: a\r\nContent-Length: +5\r\n", 400},
      {"Host: a\r\nContent-Length: -1\r\n", 400},
      {"Host: a\r\nContent-Length: 0x5\r\n", 400},
      {"Host: a\r\nContent-Length: 5, 5\r\n", 400},
      {"Host: a\r\nContent-Length: 99999999999999999999\r\n", 400},
      {"Host: a\r\nTransfer-Encoding: gzip, chunked\r\n", 501},
      {"Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400},
      {"Host: a\r\nHost: b\r\n", 400},
      {"X: y\r\n", 400},  // no Host
      {"Host: a\r\nX y: z\r\n", 400},
      {"Host: a\r\nX : z\r\n", 400},
      {"Host: a\r\nX\r\n", 400},
      {"Host: a\r\nExpect: 200-ok\r\n", 417},
      {"Host: a\r\nContent-Length: 65\r\n", 413},
  };
  for (const auto& [header, status] : cases) {
    const std::string request = std::string("POST / HTTP/1.1\r\n") + header + "\r\nhello";
    for (size_t split = 0; split <= request.size(); split += 7) {
      const Outcome out = parse(request, split);
      EXPECT(!out.done);
      if (out.failure != status) testing::report_failure(__FILE__, __LINE__, header);
      EXPECT_EQ(out.failure, status);
    }
  }
}

TEST(bad_request_lines) {
  for (const char* line : {"GET\r\n", "GET  / HTTP/1.1\r\n", "G\x01T / HTTP/1.1\r\n",
                           "GET /\x80 HTTP/1.1\r\n", "{\"a\":1}\r\n", "\x16\x03\x01\x02"}) {
    EXPECT_EQ(parse(std::string(line) + "Host: a\r\n\r\n", 0).failure, 400);
  }
  for (const char* line :
       {"GET / HTTP/2.0\r\n", "GET / FTP/1.1\r\n", "GET / HTTP/1.1 \r\n", "PRI * HTTP/2.0\r\n"}) {
    EXPECT_EQ(parse(std::string(line) + "Host: a\r\n\r\n", 0).failure, 505);
  }
  EXPECT_EQ(parse(std::string("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 29), 0).failure, 400);
}

TEST(limits) {
  EXPECT_EQ(
      parse("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(2000, 'x') + "\r\n\r\n", 0).failure,
      431);
  EXPECT_EQ(parse("GET /" + std::string(2000, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n", 0).failure,
            431);
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT(parse(head + "40\r\n" + std::string(64, 'x') + "\r\n0\r\n\r\n", 10).done);
  EXPECT_EQ(parse(head + "41\r\n" + std::string(65, 'x') + "\r\n0\r\n\r\n", 10).failure, 413);
  EXPECT_EQ(parse(head + "zz\r\n", 10).failure, 400);
  EXPECT_EQ(parse(head + "1\r\nxy\r\n0\r\n\r\n", 10).failure, 400);
}

TEST(keep_alive_and_expectations) {
  const auto header = [](const std::string& text) {
    auto parser = std::make_unique<HttpParser>(kLimits);
    (void)parser->put(text);
    return parser;
  };
  EXPECT(header("GET / HTTP/1.1\r\nHost: a\r\n\r\n")->keep_alive());
  EXPECT(!header("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")->keep_alive());
  EXPECT(!header("GET / HTTP/1.0\r\n\r\n")->keep_alive());
  EXPECT(header("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")->keep_alive());
  const auto waiting =
      header("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT(waiting->header_done() && !waiting->done() && waiting->expects_continue());
  EXPECT_EQ(std::string(waiting->header("content-LENGTH")), "3");
  EXPECT(!waiting->has_header("X"));
  // HTTP/1.0 knows no expectations (RFC 9110, section 10.1.1).
  const auto old = header("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT(!old->failed() && !old->expects_continue());
}

}  // namespace
}  // namespace lmn::server
