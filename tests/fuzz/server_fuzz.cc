// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes from a client of the HTTP server, in pieces, over the null model.
// What comes back must be a sequence of well-formed answers, none of them a 500, and the end of the
// connection; afterwards nothing is in work. Build and run: cmake/fuzz.cmake.
//
// The last kTail bytes of an input say how the others are sent (see Plan).
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <future>
#include <string>
#include <string_view>

#include "server/reply.h"
#include "server/server.h"
#include "server/utf8.h"

namespace {

using namespace lmn::server;  // NOLINT: a program of one file
using std::string_view_literals::operator""sv;

constexpr size_t kTail = 9;
// What takes longer than this hangs; machines of tests may stand still for seconds. An input waits
// twice: cmake/fuzz.cmake gives it 40 s.
constexpr std::chrono::milliseconds kHangs(15000);

[[noreturn]] void fail(const char* why, std::string_view about) {
  std::fprintf(stderr, "%s:\n%.*s\n", why, static_cast<int>(about.size()), about.data());
  __builtin_trap();
}

void require(bool held, const char* why, std::string_view about) {
  if (!held) fail(why, about);
}

struct Plan {
  bool waits = true;      // for its answers, before it closes its side
  bool leaves = false;    // without reading
  uint8_t sizes[8] = {};  // of pieces, in turn; 0: all that is left
};

// A chat template of the caller's: "tools" and the like reach it.
lmn_status render(void*, const lmn_model*, const char* request, uint64_t bytes, lmn_reply* reply) {
  reply->text.assign(
      request, bytes < 64 ? bytes : 64);  // not the library's memory: its allocator is another one
  return LMN_OK;
}

std::unique_ptr<Server> make_server() {
  lmn_model* model = nullptr;
  lmn_engine* engine = nullptr;
  auto engine_options = sized<lmn_engine_options>();
  engine_options.threads = 1;
  require(lmn_model_open("null:vocab=300,context=128", nullptr, &model, nullptr) == LMN_OK,
          "no model", "");
  require(lmn_engine_create(model, &engine_options, &engine, nullptr) == LMN_OK, "no engine", "");
  const lmn_string origin{"https://example.com", 19};
  auto options = sized<lmn_server_options>();
  options.threads = 1;
  options.max_header_bytes = 2048;
  options.max_body_bytes = 8192;
  options.max_stream_bytes = 4096;
  options.cors_origins = &origin;
  options.cors_origin_count = 1;
  options.chat = render;
  std::unique_ptr<Server> server;
  require(!Server::create(options, &server).failed(), "no server", "");
  require(!server->add_engine(EngineHandle(engine), ModelHandle(model), "null").failed(),
          "not served", "");
  return server;
}

// Answers -----------------------------------------------------------------------------------------

// Takes the text up to `mark` and the mark off the front; false: there is no mark.
bool take_until(std::string_view mark, std::string_view* text, std::string_view* out) {
  const size_t at = text->find(mark);
  if (at == std::string_view::npos) return false;
  *out = text->substr(0, at);
  text->remove_prefix(at + mark.size());
  return true;
}

std::string_view field(std::string_view head, std::string_view name) {
  for (std::string_view line; take_until("\r\n", &head, &line);) {
    if (line.size() > name.size() && line[name.size()] == ':' &&
        ::strncasecmp(line.data(), name.data(), name.size()) == 0)
      return line.substr(name.size() + 2);
  }
  return {};
}

size_t number(std::string_view text, int base) {
  size_t out = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  require(failure == std::errc() && end == text.data() + text.size(), "a bad number", text);
  return out;
}

// Appends the chunks' data; false: they end too early.
bool take_chunks(std::string_view* rest, std::string* body) {
  for (std::string_view line; take_until("\r\n", rest, &line);) {
    const size_t size = number(line, 16);
    if (rest->size() < size + 2) return false;
    body->append(rest->substr(0, size));
    require(rest->substr(size, 2) == "\r\n", "a chunk without its end", *rest);
    rest->remove_prefix(size + 2);
    if (size == 0) return true;
  }
  return false;
}

void check_body(std::string_view type, const std::string& body, bool whole) {
  if (type.starts_with("text/event-stream")) {
    if (whole) require(lossy(body) == body, "a stream that is not UTF-8", body);
    return;
  }
  require(lossy(body) == body, "a body that is not UTF-8", body);
  if (type != "application/json") return;
  boost::system::error_code failure;
  (void)boost::json::parse(body, failure);
  require(!failure, "a body that is not JSON", body);
}

// `may_lack_bodies`: some request may have been a HEAD.
void check_answers(std::string_view rest, bool may_lack_bodies) {
  const std::string_view all = rest;
  while (!rest.empty()) {
    std::string_view head;
    require(take_until("\r\n\r\n", &rest, &head), "a head without its end", all);
    const std::string lines = std::string(head) + "\r\n";
    require(head.starts_with("HTTP/1.1 ") && head.size() > 12, "no status line", all);
    const size_t status = number(head.substr(9, 3), 10);
    require(status != 500, "status 500", all);
    if (status < 200 || status == 204) continue;
    const std::string_view type = field(lines, "Content-Type");
    std::string body;
    if (field(lines, "Transfer-Encoding") == "chunked") {
      const bool whole = take_chunks(&rest, &body);
      if (!whole) rest = {};  // the client had left
      check_body(type, body, whole);
    } else if (const auto length = field(lines, "Content-Length"); length.empty()) {
      body = rest;
      rest = {};
      check_body(type, body, false);
    } else {
      const size_t size = number(length, 10);
      if (may_lack_bodies && (rest.empty() || rest.starts_with("HTTP/1.1 "))) continue;
      require(rest.size() >= size, "a body that is cut off", all);
      check_body(type, std::string(rest.substr(0, size)), true);
      rest.remove_prefix(size);
    }
  }
}

// The client --------------------------------------------------------------------------------------

void pause() { ::usleep(20); }

template <typename Condition>
bool within(std::chrono::milliseconds time, Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + time;
  for (int i = 0; !condition(); ++i) {
    if (i >= 50) pause();
    ::sched_yield();
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

void wait_for_thread(Server& server) {
  std::promise<void> done;
  server.thread(0).post([&] { done.set_value(); });
  done.get_future().wait();
}

bool is_taken(int descriptor) {
  int unread = 0;
  return ::ioctl(descriptor, SIOCOUTQ, &unread) != 0 || unread == 0;
}

void send_pieces(int descriptor, std::string_view bytes, const Plan& plan) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);  // of waiting
  for (size_t i = 0; !bytes.empty(); ++i) {
    const uint8_t size = plan.sizes[i % std::size(plan.sizes)];
    const size_t n = size == 0 ? bytes.size() : std::min<size_t>(size, bytes.size());
    if (::send(descriptor, bytes.data(), n, MSG_NOSIGNAL) < 0) return;  // it has enough of us
    bytes.remove_prefix(n);
    // The server takes no more while it is busy.
    (void)within(std::chrono::milliseconds(2),
                 [&] { return is_taken(descriptor) || std::chrono::steady_clock::now() > end; });
  }
}

std::string read_all(int descriptor, std::string_view request) {
  std::string out;
  char buffer[65536];
  for (;;) {
    pollfd ready{descriptor, POLLIN, 0};
    require(::poll(&ready, 1, static_cast<int>(kHangs.count())) == 1, "a connection that hangs",
            request);
    const ssize_t n = ::recv(descriptor, buffer, sizeof buffer, 0);
    if (n <= 0) return out;
    out.append(buffer, static_cast<size_t>(n));
  }
}

bool contains(std::string_view text, std::string_view word) {
  return std::search(text.begin(), text.end(), word.begin(), word.end(), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b;
         }) != text.end();
}

void talk(Server& server, std::string_view bytes, const Plan& plan) {
  if (contains(bytes, "-interval-"sv)) return;  // answers that take their time
  int pair[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0, "no socket", "");
  server.thread(0).post([&server, theirs = pair[1]] { server.deal_out(theirs, "fuzz"); });
  wait_for_thread(server);
  send_pieces(pair[0], bytes, plan);
  const auto& counters = server.counters();
  if (plan.waits) {
    wait_for_thread(server);
    (void)within(std::chrono::milliseconds(50), [&] { return counters.requests == 0; });
  }
  if (!plan.leaves) {
    (void)::shutdown(pair[0], SHUT_WR);
    check_answers(read_all(pair[0], bytes), contains(bytes, "head"sv));
  }
  ::close(pair[0]);
  require(within(kHangs, [&] { return counters.connections == 0; }), "a connection that stays",
          bytes);
  require(counters.requests == 0, "a request that stays", bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Server> server = make_server();
  Plan plan;
  if (size > kTail) {
    const uint8_t* const tail = data + size - kTail;
    plan.waits = (tail[0] & 1) == 0;
    plan.leaves = (tail[0] & 6) == 6;
    std::copy(tail + 1, tail + kTail, plan.sizes);
    size -= kTail;
  }
  talk(*server, {reinterpret_cast<const char*>(data), size}, plan);
  return 0;
}
