// SPDX-License-Identifier: Apache-2.0
#include "server/connection.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <utility>

#include "server/access_log.h"
#include "server/clock.h"
#include "server/json.h"
#include "server/server.h"

namespace lmn::server {
namespace {

// A buffer that grew beyond this is given back once it is empty.
constexpr size_t kKeptBytes = 4 << 10;

// Of the requests that all connections hold, where they are more than small ones.
constexpr uint64_t kMaxBodyBytes = uint64_t{1} << 30;
constexpr size_t kSmallRequestBytes = 64 << 10;

void give_back(std::string* buffer) {
  buffer->clear();
  if (buffer->capacity() > kKeptBytes) buffer->shrink_to_fit();
}

// "2026-01-01T00:00:00.000Z"
std::string utc_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm fields{};
  ::gmtime_r(&now.tv_sec, &fields);
  char text[64];
  const int n =
      std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", fields.tm_year + 1900,
                    fields.tm_mon + 1, fields.tm_mday, fields.tm_hour, fields.tm_min, fields.tm_sec,
                    static_cast<int>(now.tv_nsec / 1'000'000));
  return {text, static_cast<size_t>(n)};
}

void append_ms(std::string* out, const char* name, int64_t ns) {
  if (ns < 0) return;
  *out += name;
  append_number(out, static_cast<double>(ns / 1000) / 1000);
}

void append_count(std::string* out, const char* name, int64_t value) {
  if (value < 0) return;
  *out += name;
  append_number(out, value);
}

// Up to 128 printable characters of the client's, which go into the answer's header and the log.
bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

Connection::Connection(IoThread& thread, std::string client)
    : thread_(thread), socket_(thread.io()), client_(std::move(client)) {}

Connection::~Connection() = default;

void Connection::start(int descriptor, size_t position) {
  position_ = position;
  boost::system::error_code failure;
  socket_.assign(descriptor, failure);
  if (failure) {
    ::close(descriptor);
    close();
    return;
  }
  thread_.set_deadline(*this, Wait::kIdle);
  arm_read();
}

void Connection::close() {
  if (closed_) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  closed_ = true;
  Counters& counters = thread_.server().counters();
  if (answering_ || !out_.empty()) counters.aborted.fetch_add(1, std::memory_order_relaxed);
  if (answering_) {
    counters.requests.fetch_sub(1, std::memory_order_relaxed);
    log(true);
  }
  drop_work();
  forget_request();
  ++serial_;
  thread_.clear_deadline(*this);
  boost::system::error_code ignored;
  socket_.close(ignored);
  thread_.forget(*this);
  counters.connections.fetch_sub(1);  // pairs with deal_out(): see there
  thread_.server().on_connection_closed();
}

// It may be what called.
void Connection::drop_work() {
  if (work_ == nullptr) return;
  work_->abandon();
  thread_.bury(std::move(work_));
}

void Connection::on_deadline() {
  const std::shared_ptr<Connection> self = shared_from_this();
  const Wait what = wait;
  thread_.clear_deadline(*this);
  const bool half_read = parser_ != nullptr && !answering_;
  if ((what == Wait::kHeader || what == Wait::kBody) && half_read) {
    begin_request();
    close_after_ = true;
    refuse(ApiError(408, "the request did not arrive in time", {}, "request_timeout"));
    return;
  }
  close();
}

// Reading -----------------------------------------------------------------------------------------

void Connection::arm_read() {
  if (closed_ || read_armed_ || !may_read()) return;
  read_armed_ = true;
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [self = shared_from_this()](boost::system::error_code failure) {
                       self->read_armed_ = false;
                       if (failure || self->closed_) return;
                       try {
                         self->on_readable();
                       } catch (const std::bad_alloc&) {
                         self->close();
                       }
                     });
}

// An answer is being made, or waits to be taken: what follows is only read ahead.
bool Connection::is_busy() const { return phase_ == Phase::kOpen && (answering_ || congested()); }

bool Connection::may_read() const {
  return !is_busy() || pending_.size() < thread_.server().config().limits.header_bytes;
}

void Connection::on_readable() {
  if (!may_read()) return;  // after the answer
  const std::span<char> buffer = thread_.buffer();
  const bool busy = is_busy();
  const size_t ahead = thread_.server().config().limits.header_bytes;
  const size_t room = busy ? std::min(buffer.size(), ahead - pending_.size()) : buffer.size();
  const ssize_t n = ::recv(socket_.native_handle(), buffer.data(), room, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return arm_read();
  if (n == 0 && !answering_ && !out_.empty()) {  // it may still read what was answered
    close_after_ = true;
    forget_request();
    thread_.set_deadline(*this, Wait::kWrite);
    return;
  }
  if (n <= 0) return close();
  const std::string_view bytes(buffer.data(), static_cast<size_t>(n));
  if (phase_ == Phase::kLingering) return arm_read();
  if (busy) {
    pending_ += bytes;
    return arm_read();
  }
  take(bytes);
  after_answer();
}

// Bytes that follow what is pending.
void Connection::take(std::string_view bytes) {
  if (pending_.empty()) {
    const size_t used = parse(bytes);
    if (!closed_) pending_.assign(bytes.substr(used));
  } else {
    std::string all = std::move(pending_);
    all += bytes;
    pending_.clear();
    const size_t used = parse(all);
    if (!closed_) pending_.assign(all, used);
  }
  if (pending_.empty()) give_back(&pending_);
}

// Answers what it can of the requests in `bytes`; returns how much of it was used.
size_t Connection::parse(std::string_view bytes) {
  size_t used = 0;
  parsing_ = true;
  while (!closed_ && !is_busy() && phase_ == Phase::kOpen && used < bytes.size()) {
    if (has_ended()) break;  // what follows the last request is nobody's (RFC 9112, section 9.6)
    if (parser_ == nullptr) {
      // Empty lines before a request are skipped (RFC 9112, section 2.2).
      if (bytes[used] == '\r' || bytes[used] == '\n') {
        ++used;
        continue;
      }
      parser_ = std::make_unique<HttpParser>(thread_.server().config().limits);
      header_checked_ = false;
    }
    const size_t taken = parser_->put(bytes.substr(used));
    used += taken;
    if (!count_body(taken)) {
      begin_request();
      refuse(out_of_memory());
      break;
    }
    if (parser_->failed()) {
      begin_request();
      close_after_ = true;
      refuse(ApiError(parser_->failure_status(), parser_->failure(), {},
                      parser_->failure_status() == 413   ? "request_too_large"
                      : parser_->failure_status() == 431 ? "header_too_large"
                                                         : "bad_http"));
      break;
    }
    if (parser_->header_done() && !std::exchange(header_checked_, true)) {
      thread_.clear_deadline(*this);
      begin_request();
      thread_.server().check_header(*this);  // may answer
      if (answering_ || closed_ || phase_ != Phase::kOpen || parser_ == nullptr) continue;
      if (!parser_->done() && parser_->expects_continue()) {
        out_ += "HTTP/1.1 100 Continue\r\n\r\n";
        flush();
        if (closed_) break;
      }
    }
    if (parser_->done()) {
      answer_request();
      continue;
    }
    // More must come. A line of a chunked body may be no longer than a header.
    if (bytes.size() - used > thread_.server().config().limits.header_bytes) {
      begin_request();
      close_after_ = true;
      refuse(ApiError(431, "a line of the request is longer than this server takes", {},
                      "header_too_large"));
      break;
    }
    const Wait what = parser_->header_done() ? Wait::kBody : Wait::kHeader;
    if (wait != what) thread_.set_deadline(*this, what);
    break;
  }
  parsing_ = false;
  return used;
}

// Bodies of all connections together have a bound. False: it is reached.
bool Connection::count_body(size_t bytes) {
  request_bytes_ += bytes;
  if (request_bytes_ <= kSmallRequestBytes) return true;
  const uint64_t more = request_bytes_ - counted_bytes_;
  counted_bytes_ = request_bytes_;
  auto& all = thread_.server().counters().body_bytes;
  return all.fetch_add(more, std::memory_order_relaxed) + more <= kMaxBodyBytes ||
         parser_->failed();
}

void Connection::forget_request() {
  parser_.reset();
  request_bytes_ = 0;
  if (counted_bytes_ == 0) return;
  thread_.server().counters().body_bytes.fetch_sub(std::exchange(counted_bytes_, 0),
                                                   std::memory_order_relaxed);
}

void Connection::begin_request() {
  record_ = {};
  path_.clear();
  origin_.clear();
  head_only_ = false;
  close_after_ = true;  // until the header says otherwise
  std::string_view id, traceparent;
  if (parser_->header_done()) {
    close_after_ = !parser_->keep_alive();
    head_only_ = parser_->method() == "HEAD";
    id = parser_->header("X-Request-Id");
    traceparent = parser_->header("traceparent");
  }
  record_.trace = make_trace_context(traceparent, thread_.random());
  record_.id = is_request_id(id) ? std::string(id) : random_hex(thread_.random(), 24);
}

void Connection::answer_request() {
  thread_.clear_deadline(*this);
  record_.begin_ns = now_ns();
  answering_ = true;
  ++serial_;
  thread_.server().counters().requests.fetch_add(1, std::memory_order_relaxed);
  thread_.server().dispatch(*this);
}

// Answering ---------------------------------------------------------------------------------------

void Connection::count_status(int status) {
  record_.status = status;
  record_.first_byte_ns = now_ns();
  if (record_.begin_ns == 0) record_.begin_ns = record_.first_byte_ns;
  Counters& counters = thread_.server().counters();
  counters.answered.fetch_add(1, std::memory_order_relaxed);
  if (status >= 500) {
    counters.failed.fetch_add(1, std::memory_order_relaxed);
  } else if (status >= 400) {
    counters.refused.fetch_add(1, std::memory_order_relaxed);
  }
  if (!answering_) {  // refused before all of it was read
    answering_ = true;
    ++serial_;
    counters.requests.fetch_add(1, std::memory_order_relaxed);
  }
}

void Connection::append_head(int status, std::string_view type, bool has_length, uint64_t length,
                             std::string_view fields) {
  if (thread_.server().stopping() || (parser_ != nullptr && !parser_->done())) close_after_ = true;
  const bool http_1_0 = parser_ == nullptr || !parser_->header_done() || parser_->is_http_1_0();
  out_ += "HTTP/1.1 ";
  append_number(&out_, int64_t{status});
  out_ += ' ';
  out_ += reason_phrase(status);
  out_ += "\r\nDate: ";
  out_ += thread_.date();
  out_ += "\r\nServer: lmnative";
  if (!type.empty()) {
    out_ += "\r\nContent-Type: ";
    out_ += type;
  }
  if (has_length && status != 204 && status != 304) {
    out_ += "\r\nContent-Length: ";
    append_number(&out_, length);
  }
  if (!has_length && chunked_) out_ += "\r\nTransfer-Encoding: chunked";
  if (close_after_) {
    out_ += "\r\nConnection: close";
  } else if (http_1_0) {
    out_ += "\r\nConnection: keep-alive";
  }
  if (!origin_.empty()) {
    out_ += "\r\nAccess-Control-Allow-Origin: ";
    out_ += origin_;
    out_ +=
        "\r\nAccess-Control-Expose-Headers: X-Request-Id, traceparent, Retry-After\r\nVary: Origin";
  }
  out_ += "\r\nX-Request-Id: ";
  out_ += record_.id;
  out_ += "\r\ntraceparent: ";
  out_ += record_.trace.traceparent();
  out_ += "\r\n";
  out_ += fields;
  out_ += "\r\n";
}

void Connection::respond(int status, std::string_view type, std::string_view body,
                         std::string_view fields) {
  if (closed_) return;
  count_status(status);
  append_head(status, type, true, body.size(), fields);
  if (!head_only_) {
    out_ += body;
    record_.bytes += body.size();
  }
  flush();
  finish_answer();
}

void Connection::refuse(const ApiError& error, std::string_view fields) {
  if (streaming_) {  // its status is long gone
    stream("data: " + error.json() + "\n\n");
    record_.finish = "error";
    end_stream();
    return;
  }
  std::string more(fields);
  if (error.status == 429 || error.status == 503) more += "Retry-After: 1\r\n";
  if (error.status == 401) more += "WWW-Authenticate: Bearer\r\n";
  respond(error.status, "application/json", error.json(), more);
}

void Connection::begin_stream(std::string_view type) {
  if (closed_) return;
  chunked_ = !parser_->is_http_1_0();
  if (!chunked_) close_after_ = true;
  streaming_ = true;
  count_status(200);
  append_head(200, type, false, 0, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
}

void Connection::stream(std::string_view data) {
  if (closed_ || data.empty() || head_only_) return;
  record_.bytes += data.size();
  if (!chunked_) {
    out_ += data;
    return;
  }
  char size[20];
  const auto end = std::to_chars(size, size + sizeof size, data.size(), 16).ptr;
  out_.append(size, static_cast<size_t>(end - size));
  out_ += "\r\n";
  out_ += data;
  out_ += "\r\n";
}

bool Connection::congested() const {
  return out_.size() - sent_ > thread_.server().config().max_stream_bytes;
}

void Connection::end_stream() {
  if (closed_) return;
  if (chunked_ && !head_only_) out_ += "0\r\n\r\n";
  flush();
  finish_answer();
}

void Connection::finish_answer() {
  if (closed_) return;
  Counters& counters = thread_.server().counters();
  counters.requests.fetch_sub(1, std::memory_order_relaxed);
  counters.bytes_out.fetch_add(record_.bytes, std::memory_order_relaxed);
  if (record_.engine_ns >= 0)
    counters.overhead.add(record_.first_byte_ns - record_.begin_ns - record_.engine_ns);
  log(false);
  answering_ = streaming_ = chunked_ = was_congested_ = false;
  ++serial_;
  drop_work();
  forget_request();
  if (!parsing_) after_answer();
}

// An answer is made, or has left: goes on with what was read ahead; where there is nothing more,
// the connection is idle.
void Connection::after_answer() {
  if (!close_after_ && !pending_.empty() && !is_busy()) take({});
  if (closed_ || phase_ != Phase::kOpen) return;
  if (has_ended()) {
    if (out_.empty()) linger();
    return;
  }
  if (parser_ == nullptr && out_.empty() && wait == Wait::kNone)
    thread_.set_deadline(*this, Wait::kIdle);
  arm_read();
}

void Connection::flush() {
  if (closed_) return;
  if (write_armed_) {
    if (wait == Wait::kNone) thread_.set_deadline(*this, Wait::kWrite);
    return;
  }
  while (sent_ < out_.size()) {
    const ssize_t n = ::send(socket_.native_handle(), out_.data() + sent_, out_.size() - sent_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      out_.erase(0, sent_);
      sent_ = 0;
      // A request that is half read keeps its own deadline.
      if (wait == Wait::kNone || wait == Wait::kIdle) thread_.set_deadline(*this, Wait::kWrite);
      arm_write();
      return;
    }
    if (n <= 0) return close();
    sent_ += static_cast<size_t>(n);
    if (wait == Wait::kWrite) thread_.set_deadline(*this, Wait::kWrite);
  }
  give_back(&out_);
  sent_ = 0;
  if (wait == Wait::kWrite) thread_.clear_deadline(*this);
}

void Connection::arm_write() {
  write_armed_ = true;
  was_congested_ |= congested();
  socket_.async_wait(
      boost::asio::posix::stream_descriptor::wait_write,
      [self = shared_from_this()](boost::system::error_code failure) {
        self->write_armed_ = false;
        if (failure || self->closed_) return;
        try {
          self->flush();
          if (self->closed_) return;
          if (self->answering_) {
            const bool room = self->out_.size() - self->sent_ <=
                              self->thread_.server().config().max_stream_bytes / 2;
            if (room && std::exchange(self->was_congested_, false) && self->work_ != nullptr)
              self->work_->resume();
          } else if (self->phase_ == Phase::kOpen && !self->congested()) {
            self->after_answer();
          }
        } catch (const std::bad_alloc&) {
          self->close();
        }
      });
}

// The last answer has left. Closing now, with bytes unread, would reset the connection, and the
// client could lose what it was told.
void Connection::linger() {
  phase_ = Phase::kLingering;
  give_back(&pending_);
  (void)::shutdown(socket_.native_handle(), SHUT_WR);
  thread_.set_deadline(*this, Wait::kLinger);
  arm_read();
}

void Connection::log(bool aborted) {
  AccessLog& to = thread_.server().access_log();
  if (!to.enabled()) return;
  std::string line = R"({"time":")" + utc_now() + R"(","id":)";
  append_quoted(&line, record_.id);
  line += R"(,"trace_id":")" + record_.trace.trace_id + R"(","span_id":")" + record_.trace.span_id +
          R"(","client":)";
  append_quoted(&line, client_);
  if (parser_ != nullptr && parser_->header_done()) {
    line += R"(,"method":)";
    append_quoted(&line, parser_->method());
    line += R"(,"path":)";
    append_quoted(&line, path_);
  }
  append_count(&line, R"(,"status":)", record_.status == 0 ? -1 : record_.status);
  append_count(&line, R"(,"bytes":)", static_cast<int64_t>(record_.bytes));
  if (!record_.model.empty()) {
    line += R"(,"model":)";
    append_quoted(&line, record_.model);
  }
  append_count(&line, R"(,"prompt_tokens":)", record_.prompt_tokens);
  append_count(&line, R"(,"cached_tokens":)", record_.cached_tokens);
  append_count(&line, R"(,"completion_tokens":)", record_.completion_tokens);
  if (!record_.finish.empty()) {
    line += R"(,"finish":)";
    append_quoted(&line, record_.finish);
  }
  append_ms(&line, R"(,"queue_ms":)", record_.queue_ns);
  append_ms(&line, R"(,"first_token_ms":)", record_.first_token_ns);
  append_ms(&line, R"(,"total_ms":)", now_ns() - record_.begin_ns);
  if (aborted) line += R"(,"aborted":true)";
  line += "}\n";
  to.add(line);
}

}  // namespace lmn::server
