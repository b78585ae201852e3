// SPDX-License-Identifier: Apache-2.0
//
// Connection: HTTP over one socket, on one thread. Requests are answered one at a time, in their
// order. An answer is given at once (respond, refuse) or grows (begin_stream, stream, end_stream)
// while a Work makes it; the connection owns that Work and destroys it when the client is gone.
// While nothing is asked, it holds no buffer.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/api_error.h"
#include "server/deadlines.h"
#include "server/http_parser.h"
#include "server/io_thread.h"
#include "server/trace_context.h"

namespace lmn::server {

// What makes an answer that takes time.
class Work {
 public:
  virtual ~Work() = default;
  virtual void abandon() {}          // nobody waits for it any more; the connection is going
  virtual void resume() {}           // congested() has ended
  virtual void give_up(ApiError) {}  // the server ends it: answers with the error
  virtual const void* model() const { return nullptr; }  // whose requests it waits for
};

// What the log and the counters learn of a request.
struct Record {
  std::string id;
  TraceContext trace;
  std::string model;
  std::string finish;
  int64_t begin_ns = 0;    // its last byte was read
  int64_t engine_ns = -1;  // submit to the token that begins the answer: the first, or the last
  int64_t first_byte_ns = 0;
  int64_t prompt_tokens = -1, cached_tokens = -1, completion_tokens = -1;  // -1: none
  int64_t queue_ns = -1, first_token_ns = -1;
  uint64_t bytes = 0;
  int status = 0;
};

class Connection final : public std::enable_shared_from_this<Connection>, public Timed {
 public:
  Connection(IoThread& thread, std::string client);
  ~Connection();

  void start(int descriptor, size_t position);
  void close();  // at once; what was asked is given up
  // Nothing is asked, and all answers have left.
  bool is_idle() const { return !closed_ && !answering_ && parser_ == nullptr && out_.empty(); }
  void on_deadline();
  size_t position() const { return position_; }
  void set_position(size_t position) { position_ = position; }

  // What handlers use. ----------------------------------------------------------------------------
  IoThread& thread() { return thread_; }
  HttpParser& request() { return *parser_; }
  std::string_view path() const { return path_; }
  void set_path(std::string_view path) { path_ = path; }
  // Who answers it, found when its header was read.
  using Handler = void (*)(Server&, Connection&);
  Handler handler() const { return handler_; }
  void set_handler(Handler function) { handler_ = function; }
  Record& record() { return record_; }
  const std::string& client() const { return client_; }
  // Counts requests: an answer that comes from elsewhere checks that it is still the one waited
  // for.
  uint64_t serial() const { return serial_; }
  bool answering() const { return answering_ && !closed_; }
  void allow_origin(std::string_view origin) { origin_ = origin; }

  void set_work(std::unique_ptr<Work> work) { work_ = std::move(work); }
  Work* work() { return work_.get(); }

  // `fields`: more of the header, each line with its end.
  void respond(int status, std::string_view type, std::string_view body,
               std::string_view fields = {});
  void refuse(const ApiError& error, std::string_view fields = {});

  void begin_stream(std::string_view type);
  bool streaming() const { return streaming_; }
  void stream(std::string_view data);  // leaves with the next flush()
  void flush();
  bool congested() const;  // make no more until resume()
  void end_stream();

 private:
  enum class Phase { kOpen, kLingering };

  bool is_busy() const;
  bool has_ended() const { return close_after_ && parser_ == nullptr; }
  bool may_read() const;
  void arm_read();
  void on_readable();
  void take(std::string_view bytes);
  size_t parse(std::string_view bytes);
  bool count_body(size_t bytes);
  void begin_request();
  void forget_request();
  void answer_request();
  void append_head(int status, std::string_view type, bool has_length, uint64_t length,
                   std::string_view fields);
  void count_status(int status);
  void finish_answer();
  void after_answer();
  void arm_write();
  void linger();
  void drop_work();
  void log(bool aborted);

  IoThread& thread_;
  boost::asio::posix::stream_descriptor socket_;
  std::string client_;
  size_t position_ = 0;
  uint64_t serial_ = 0;
  Phase phase_ = Phase::kOpen;
  bool closed_ = false;
  bool read_armed_ = false, write_armed_ = false;
  bool parsing_ = false;         // in parse(): it goes on by itself after an answer
  bool header_checked_ = false;  // of the request that is being read
  bool answering_ = false;
  bool streaming_ = false;
  bool chunked_ = false;
  bool was_congested_ = false;
  bool close_after_ = false;
  bool head_only_ = false;
  std::unique_ptr<HttpParser> parser_;  // of the request that is being read or answered
  uint64_t request_bytes_ = 0;          // of it
  uint64_t counted_bytes_ = 0;          // of those, in Counters::body_bytes
  std::string pending_;                 // bytes that were read and not parsed
  std::string out_;                     // bytes to be sent, from sent_ on
  size_t sent_ = 0;
  std::string path_;
  Handler handler_ = nullptr;
  std::string origin_;
  Record record_;
  std::unique_ptr<Work> work_;
};

}  // namespace lmn::server
