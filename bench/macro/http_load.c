/* SPDX-License-Identifier: Apache-2.0
 *
 * http_load closed PORT MODEL CLIENTS SECONDS PROMPT
 * http_load chat PORT MODEL CLIENTS REQUESTS TOKENS PROMPT
 * http_load streams PORT MODEL IDLE STREAMS SECONDS INTERVAL_MS PID
 *
 * Load for a server with OpenAI's API on 127.0.0.1: one thread, epoll, connections that stay open.
 * Prints one line of JSON. A "%u" in PROMPT becomes the number of the request. Every answer's
 * status and body are checked, down to the number of tokens; the first that is wrong ends the
 * program with exit code 1 and a message.
 *
 * closed: each client asks for completions of one token, one after the other, for SECONDS.
 * chat: clients ask for REQUESTS chat completions of TOKENS tokens together, streamed.
 * streams: IDLE connections that have had an answer and stay, and STREAMS completions streamed at a
 * token each INTERVAL_MS (X-Token-Interval-Ms), begun over that time. Once all are open, for
 * SECONDS: how late each token comes after the time that the stream's first one sets, how long a
 * new connection's completion of one token takes beside them (50 a second), and what was dropped.
 * PID is the server's: its resident memory before and after. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  kRead = 1 << 16,
  kEvents = 512,
  kPerAddress = 5000, /* connections from one source address: ports are 28,000 by default */
  kOpening = 256,     /* connections that open at once, below the backlog of any server */
  kNewPerSecond = 50, /* requests beside the streams */
  kPatienceS = 60,    /* without any answer */
  kBuckets = 64 * 32, /* of a histogram: 32 for each power of two, 3 % wide */
};
static const int64_t kSecond = 1000000000;

static void die(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(1);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

/* --- times ---------------------------------------------------------------------------------- */

typedef struct {
  uint64_t count, buckets[kBuckets];
  int64_t most;
} Times;

static void add_time(Times *times, int64_t ns) {
  const uint64_t value = ns < 32 ? 32 : (uint64_t)ns; /* a clock may stand still */
  const int power = 63 - __builtin_clzll(value);
  ++times->buckets[power * 32 + (int)(value >> (power - 5) & 31)];
  ++times->count;
  if (ns > times->most) times->most = ns;
}

/* The middle of the bucket that holds it, in ns. */
static double percentile(const Times *times, double percent) {
  uint64_t left = (uint64_t)((double)times->count * percent / 100);
  if (times->count == 0) die("nothing was measured");
  if (left >= times->count) left = times->count - 1;
  for (int i = 0; i < kBuckets; ++i) {
    if (left < times->buckets[i]) return (32 + i % 32 + 0.5) * (double)(1ull << i / 32) / 32;
    left -= times->buckets[i];
  }
  return 0;
}

/* --- connections ---------------------------------------------------------------------------- */

typedef struct {
  char *data;
  size_t bytes, room;
} Buffer;

static void append(Buffer *buffer, const char *data, size_t bytes) {
  if (buffer->room - buffer->bytes < bytes) {
    buffer->room = 2 * buffer->room + bytes + 256;
    buffer->data = realloc(buffer->data, buffer->room);
    if (buffer->data == NULL) die("no memory");
  }
  memcpy(buffer->data + buffer->bytes, data, bytes);
  buffer->bytes += bytes;
}

static void drop_front(Buffer *buffer, size_t bytes) {
  buffer->bytes -= bytes;
  memmove(buffer->data, buffer->data + bytes, buffer->bytes);
  if (buffer->bytes > 0) return;
  free(buffer->data);
  memset(buffer, 0, sizeof *buffer);
}

typedef struct Connection {
  int fd;
  int state;
  const char *out; /* what is to be sent still; of `request` or of a text that all share */
  size_t out_left;
  char *request;
  Buffer in;         /* a header or the size of a chunk that has not come whole */
  Buffer body;       /* of an event stream: an open line */
  int64_t body_left; /* of a body with a length, or of a chunk; -1: the header is read */
  int chunked, behind_chunk, event_stream;
  int64_t sent_ns, first_ns; /* request, first token */
  uint32_t tokens;           /* events with text */
  int64_t said_tokens;       /* what "usage" says, -1: nothing yet */
  int done;                  /* "data: [DONE]" */
  int finished;              /* with a finish_reason */
  uint32_t answers;
} Connection;

enum { kClosed, kConnecting, kWaiting, kIdle };

static int poller, port;
static const char *model;
static unsigned opened; /* connections so far: chooses source addresses */
static int64_t last_answer_ns;

static void on_answer(Connection *c, int64_t now);
static void on_token(Connection *c, int64_t now);
static void on_lost(Connection *c, const char *why);

static void watch(Connection *c, int op, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = c};
  if (epoll_ctl(poller, op, c->fd, &event) != 0) die("epoll_ctl: %s", strerror(errno));
}

static void close_connection(Connection *c) {
  if (c->state != kClosed) close(c->fd);
  c->state = kClosed;
  free(c->request);
  c->request = NULL;
  drop_front(&c->in, c->in.bytes);
  drop_front(&c->body, c->body.bytes);
}

static void connect_socket(Connection *c) {
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (c->fd < 0) die("socket: %s", strerror(errno));
  const int one = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  struct sockaddr_in from = {.sin_family = AF_INET};
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + opened++ / kPerAddress % 200);
  if (bind(c->fd, (struct sockaddr *)&from, sizeof from) != 0) die("bind: %s", strerror(errno));
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS)
    die("connect: %s", strerror(errno));
  c->state = kConnecting;
  watch(c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

static void open_connection(Connection *c) {
  memset(c, 0, sizeof *c);
  connect_socket(c);
}

static void send_rest(Connection *c) {
  while (c->out_left > 0) {
    const ssize_t sent = send(c->fd, c->out, c->out_left, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
      watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
      return;
    }
    if (sent < 0) {
      on_lost(c, strerror(errno));
      return;
    }
    c->out += sent;
    c->out_left -= (size_t)sent;
  }
}

/* Takes `request` over when `owned`. */
static void ask(Connection *c, char *request, int owned) {
  free(c->request);
  c->request = owned ? request : NULL;
  c->out = request;
  c->out_left = strlen(request);
  c->tokens = 0;
  c->first_ns = 0;
  c->said_tokens = -1;
  c->done = c->finished = 0;
  c->body_left = -1;
  c->chunked = c->behind_chunk = c->event_stream = 0;
  const int connecting = c->state == kConnecting;
  if (!connecting) c->state = kWaiting;
  c->sent_ns = now_ns();
  if (!connecting) send_rest(c);
}

static char *make_request(const char *path, const char *header, const char *body) {
  char *out = NULL;
  if (asprintf(&out,
               "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n%s"
               "Content-Length: %zu\r\n\r\n%s",
               path, port, header, strlen(body), body) < 0)
    die("no memory");
  return out;
}

/* PROMPT with its number in it. */
static char *numbered(const char *prompt, unsigned number) {
  const char *place = strstr(prompt, "%u");
  char *out = NULL;
  if ((place == NULL
           ? asprintf(&out, "%s", prompt)
           : asprintf(&out, "%.*s%u%s", (int)(place - prompt), prompt, number, place + 2)) < 0)
    die("no memory");
  return out;
}

static char *completion(const char *prompt, unsigned number, unsigned tokens, const char *more,
                        const char *header) {
  char *text = numbered(prompt, number), *body = NULL;
  if (asprintf(&body,
               "{\"model\":\"%s\",\"prompt\":\"%s\",\"max_tokens\":%u,\"temperature\":0,"
               "\"ignore_eos\":true%s}",
               model, text, tokens, more) < 0)
    die("no memory");
  char *request = make_request("/v1/completions", header, body);
  free(text);
  free(body);
  return request;
}

/* --- answers -------------------------------------------------------------------------------- */

/* The number behind the last "KEY": in the text, or -1. */
static int64_t number_of(const char *text, size_t bytes, const char *key) {
  const size_t length = strlen(key);
  const char *found = NULL;
  for (const char *at = text; (at = memmem(at, bytes - (size_t)(at - text), key, length)) != NULL;)
    found = at += length;
  return found == NULL ? -1 : strtoll(found + strspn(found, ": "), NULL, 10);
}

static int has(const char *text, size_t bytes, const char *word) {
  return memmem(text, bytes, word, strlen(word)) != NULL;
}

/* A string that is there and not empty. */
static int has_text(const char *text, size_t bytes, const char *key) {
  const char *at = memmem(text, bytes, key, strlen(key));
  if (at == NULL) return 0;
  at += strlen(key);
  at += strspn(at, ": ");
  return at[0] == '"' && at[1] != '"';
}

/* One line of an event stream, without its end. */
static void on_line(Connection *c, const char *line, size_t bytes, int64_t now) {
  if (bytes == 0 || line[0] == ':') return;
  if (bytes < 6 || memcmp(line, "data: ", 6) != 0) die("no event: %.*s", (int)bytes, line);
  if (bytes == 12 && memcmp(line, "data: [DONE]", 12) == 0) {
    c->done = 1;
    return;
  }
  if (has(line, bytes, "\"error\"")) die("an error: %.*s", (int)bytes, line);
  const int64_t said = number_of(line, bytes, "\"completion_tokens\"");
  if (said >= 0) c->said_tokens = said;
  if (has_text(line, bytes, "\"finish_reason\"")) c->finished = 1;
  if (has_text(line, bytes, "\"content\"") || has_text(line, bytes, "\"text\"")) {
    if (c->tokens++ == 0) c->first_ns = now;
    on_token(c, now);
  }
}

/* Handles the whole lines; returns how many bytes they have. */
static size_t on_lines(Connection *c, const char *data, size_t bytes, int64_t now) {
  size_t taken = 0;
  const char *end;
  while ((end = memchr(data + taken, '\n', bytes - taken)) != NULL) {
    size_t length = (size_t)(end - data) - taken;
    if (length > 0 && end[-1] == '\r') --length;
    on_line(c, data + taken, length, now);
    taken = (size_t)(end - data) + 1;
  }
  return taken;
}

static void on_body(Connection *c, const char *data, size_t bytes, int64_t now) {
  if (c->event_stream && c->body.bytes == 0) {
    const size_t taken = on_lines(c, data, bytes, now);
    data += taken;
    bytes -= taken;
  }
  if (bytes == 0) return;
  append(&c->body, data, bytes);
  if (c->event_stream) drop_front(&c->body, on_lines(c, c->body.data, c->body.bytes, now));
}

static void end_answer(Connection *c, int64_t now) {
  if (!c->event_stream && c->body.bytes > 0) {
    c->said_tokens = number_of(c->body.data, c->body.bytes, "\"completion_tokens\"");
    c->finished = has_text(c->body.data, c->body.bytes, "\"finish_reason\"");
  }
  drop_front(&c->body, c->body.bytes);
  c->body_left = -1;
  c->state = kIdle;
  ++c->answers;
  last_answer_ns = now;
  on_answer(c, now);
}

static void on_header(Connection *c, const char *header, size_t bytes) {
  if (memcmp(header, "HTTP/1.1 200", 12) != 0) die("no answer: %.*s", (int)bytes, header);
  c->event_stream = has(header, bytes, "text/event-stream");
  c->chunked = has(header, bytes, ": chunked\r\n");
  c->body_left = 0;
  if (c->chunked) return;
  const char *line = header;
  while (strncasecmp(line, "Content-Length:", 15) != 0) {
    line = (const char *)memmem(line, bytes - (size_t)(line - header), "\r\n", 2) + 2;
    if (line == header + bytes) die("no length: %.*s", (int)bytes, header);
  }
  c->body_left = strtoll(line + 15, NULL, 10);
}

/* Understands [data, data + bytes), behind which there is a 0; returns how much was whole. */
static size_t parse(Connection *c, const char *data, size_t bytes, int64_t now) {
  size_t at = 0;
  while (at < bytes && c->state == kWaiting) {
    if (c->body_left < 0) {
      const char *end = memmem(data + at, bytes - at, "\r\n\r\n", 4);
      if (end == NULL) return at;
      const size_t length = (size_t)(end - data) + 4 - at;
      on_header(c, data + at, length);
      at += length;
      continue;
    }
    if (c->body_left > 0) {
      const size_t left = bytes - at, want = (size_t)c->body_left,
                   length = left < want ? left : want;
      c->body_left -= (int64_t)length;
      c->behind_chunk = c->chunked;
      on_body(c, data + at, length, now);
      at += length;
      if (c->body_left == 0 && !c->chunked) end_answer(c, now);
      continue;
    }
    if (c->behind_chunk) {
      if (bytes - at < 2) return at;
      at += 2;
      c->behind_chunk = 0;
      continue;
    }
    const char *line = memmem(data + at, bytes - at, "\r\n", 2);
    if (line == NULL) return at;
    const int64_t size = strtoll(data + at, NULL, 16);
    const size_t next = (size_t)(line - data) + (size > 0 ? 2 : 4);
    if (next > bytes) return at;
    at = next;
    c->body_left = size;
    if (size == 0) end_answer(c, now);
  }
  return at;
}

static void on_readable(Connection *c) {
  static char in[kRead + 1];
  for (;;) {
    const ssize_t got = recv(c->fd, in, kRead, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      on_lost(c, got == 0 ? "closed by the server" : strerror(errno));
      return;
    }
    const int64_t now = now_ns();
    in[got] = 0;
    const char *data = in;
    size_t bytes = (size_t)got;
    if (c->in.bytes > 0) {
      append(&c->in, in, bytes + 1); /* with the 0 */
      data = c->in.data;
      bytes = --c->in.bytes;
    }
    const size_t used = parse(c, data, bytes, now);
    if (c->state == kClosed) return;
    if (used < bytes && c->state == kIdle)
      die("more than an answer: %.*s", (int)(bytes - used), data + used);
    if (data == in) {
      if (used < bytes) append(&c->in, data + used, bytes - used);
    } else {
      drop_front(&c->in, used);
    }
    if (got < kRead) return;
  }
}

/* Waits for at most `wait_ms` and handles what has come. */
static void turn(int wait_ms) {
  struct epoll_event events[kEvents];
  const int count = epoll_wait(poller, events, kEvents, wait_ms);
  for (int i = 0; i < count; ++i) {
    Connection *c = events[i].data.ptr;
    if (c->state == kConnecting && (events[i].events & (EPOLLOUT | EPOLLERR)) != 0) {
      int failure = 0;
      socklen_t size = sizeof failure;
      getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failure, &size);
      if (failure != 0) die("connect: %s", strerror(failure));
      c->state = kWaiting;
      watch(c, EPOLL_CTL_MOD, EPOLLIN);
      send_rest(c);
    } else if ((events[i].events & EPOLLOUT) != 0 && c->out_left > 0) {
      watch(c, EPOLL_CTL_MOD, EPOLLIN);
      send_rest(c);
    }
    if (c->state != kClosed && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
      on_readable(c);
  }
  if (now_ns() - last_answer_ns > kPatienceS * kSecond)
    die("nothing was answered for %d seconds", kPatienceS);
}

static void check_answer(const Connection *c, int64_t tokens) {
  if (c->said_tokens != tokens)
    die("an answer of %lld tokens and not of %lld", (long long)c->said_tokens, (long long)tokens);
  if (!c->finished) die("an answer without a finish_reason");
  if (c->event_stream && !c->done) die("a stream without [DONE]");
}

/* --- closed, chat --------------------------------------------------------------------------- */

static enum { kModeClosed, kModeChat, kModeStreams } mode;
static const char *prompt;
static unsigned number; /* of requests so far */
static unsigned most_requests = ~0u;
static unsigned tokens_each = 1;
static unsigned answered, running, reconnects;
static int64_t until_ns = INT64_MAX;
static uint64_t all_tokens;
static Times latency, first_token;

static char *next_request(void) {
  if (mode == kModeClosed) return completion(prompt, number++, 1, "", "");
  char *text = numbered(prompt, number++), *body = NULL;
  if (asprintf(&body,
               "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],"
               "\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
               "\"stream_options\":{\"include_usage\":true}}",
               model, text, tokens_each) < 0)
    die("no memory");
  char *request = make_request("/v1/chat/completions", "", body);
  free(text);
  free(body);
  return request;
}

static void go_on(Connection *c) {
  if (number < most_requests && now_ns() < until_ns) {
    ask(c, next_request(), 1);
  } else {
    close_connection(c);
    --running;
  }
}

static void run_clients(unsigned clients) {
  Connection *all = calloc(clients, sizeof *all);
  if (all == NULL) die("no memory");
  running = clients;
  for (unsigned i = 0; i < clients; ++i) {
    open_connection(&all[i]);
    ask(&all[i], next_request(), 1);
  }
  const int64_t begin = now_ns();
  while (running > 0) turn(1000);
  const double seconds = (double)(now_ns() - begin) / 1e9;
  free(all);
  printf(
      "{\"requests\":%u,\"reconnects\":%u,\"rps\":%.1f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"tok_s\":%."
      "2f",
      answered, reconnects, answered / seconds, percentile(&latency, 50) / 1e3,
      percentile(&latency, 99) / 1e3, (double)all_tokens / seconds);
  if (mode == kModeChat)
    printf(",\"ttft_p50_ms\":%.3f,\"ttft_p99_ms\":%.3f", percentile(&first_token, 50) / 1e6,
           percentile(&first_token, 99) / 1e6);
  printf("}\n");
}

/* --- streams -------------------------------------------------------------------------------- */

static Connection *idle, *streams, *beside;
static unsigned idle_count, stream_count, begun, dropped, new_open;
static int64_t interval_ns, measure_from = INT64_MAX;
static Times lateness, beside_times;

static uint64_t resident_kb(int pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/statm", pid);
  FILE *file = fopen(path, "r");
  unsigned long total = 0, resident = 0;
  if (file == NULL || fscanf(file, "%lu %lu", &total, &resident) != 2) die("cannot read %s", path);
  fclose(file);
  return resident * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

static int in(const Connection *c, const Connection *array, unsigned count) {
  return c >= array && c < array + count;
}

/* Opens `count` connections, a few at a time and spread over `spread_ns`, and waits until each has
 * had its answer, or its first token. */
static void open_all(Connection *array, unsigned count, char *request, int64_t spread_ns) {
  const int64_t begin = now_ns();
  begun = 0;
  for (unsigned i = 0; begun < count; turn(i < count ? 1 : 1000)) {
    while (i < count && i - begun < kOpening && now_ns() - begin >= spread_ns / count * i) {
      open_connection(&array[i]);
      ask(&array[i++], request, 0);
    }
  }
}

static void run_streams(double seconds, int pid) {
  idle = calloc(idle_count + 1, sizeof *idle);
  streams = calloc(stream_count, sizeof *streams);
  beside = calloc(1, sizeof *beside);
  if (idle == NULL || streams == NULL || beside == NULL) die("no memory");
  char header[64];
  snprintf(header, sizeof header, "X-Token-Interval-Ms: %lld\r\n",
           (long long)(interval_ns / 1000000));
  /* Tokens for the time that opening takes, too: nobody reaches the end. */
  const unsigned tokens = (unsigned)((seconds + 120) * 1e9 / (double)interval_ns) + 2;
  char *small = completion("x", 0, 1, "", "");
  char *stream = completion("x", 0, tokens, ",\"stream\":true", header);

  open_all(idle + idle_count, 1, small, 0); /* what a server allocates once, it has now */
  const uint64_t before = resident_kb(pid);
  open_all(idle, idle_count, small, 0);
  const uint64_t with_idle = resident_kb(pid);
  const int64_t open_begin = now_ns();
  open_all(streams, stream_count, stream, interval_ns); /* whose tokens then come evenly */
  const double open_s = (double)(now_ns() - open_begin) / 1e9;

  measure_from = now_ns();
  const int64_t until = measure_from + (int64_t)(seconds * 1e9);
  int64_t next_new = measure_from;
  for (int64_t now; (now = now_ns()) < until;) {
    if (now >= next_new && new_open == 0) {
      open_connection(beside);
      ask(beside, small, 0);
      beside->sent_ns = now;
      new_open = 1;
      while (next_new <= now) next_new += kSecond / kNewPerSecond;
    }
    turn(next_new > now ? (int)((next_new - now) / 1000000) + 1 : 20);
  }
  const uint64_t after = resident_kb(pid);
  measure_from = INT64_MAX;
  begun = 0; /* every idle connection still answers */
  for (unsigned i = 0, asked = 0; i < idle_count || begun < asked; turn(1000)) {
    for (; i < idle_count && asked - begun < kOpening; ++i) {
      if (idle[i].state != kIdle) continue;
      ask(&idle[i], small, 0);
      ++asked;
    }
  }
  printf(
      "{\"tokens\":%llu,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,\"dropped\":%u,"
      "\"new_requests\":%llu,\"new_p50_ms\":%.3f,\"new_p99_ms\":%.3f,\"kb\":%.3f,"
      "\"idle_kb\":%.3f,\"open_s\":%.3f}\n",
      (unsigned long long)lateness.count, percentile(&lateness, 50) / 1e6,
      percentile(&lateness, 99) / 1e6, (double)lateness.most / 1e6, dropped,
      (unsigned long long)beside_times.count, percentile(&beside_times, 50) / 1e6,
      percentile(&beside_times, 99) / 1e6, (double)(after - before) / (idle_count + stream_count),
      (double)(with_idle - before) / idle_count, open_s);
}

static void on_token(Connection *c, int64_t now) {
  last_answer_ns = now;
  if (mode != kModeStreams || !in(c, streams, stream_count)) return;
  if (c->tokens == 1) {
    ++begun;
  } else if (now >= measure_from) {
    add_time(&lateness, now - c->first_ns - (int64_t)(c->tokens - 1) * interval_ns);
  }
}

static void on_answer(Connection *c, int64_t now) {
  if (mode == kModeStreams && in(c, streams, stream_count)) {
    on_lost(c, "a stream has ended");
    return;
  }
  check_answer(c, tokens_each);
  if (mode == kModeStreams) {
    if (c == beside) {
      add_time(&beside_times, now - c->sent_ns);
      close_connection(c);
      new_open = 0;
    } else {
      ++begun;
    }
    return;
  }
  add_time(&latency, now - c->sent_ns);
  if (c->first_ns != 0) add_time(&first_token, c->first_ns - c->sent_ns);
  ++answered;
  all_tokens += (uint64_t)c->said_tokens;
  go_on(c);
}

/* A server may close a connection that stays open at any time after an answer, as llama-server does
 * after a hundred: then the client connects anew, and the time that this takes is the request's. */
static void on_lost(Connection *c, const char *why) {
  if (mode == kModeStreams && c != beside) {
    ++dropped;
    close_connection(c);
    return;
  }
  if (c->answers == 0 || c->in.bytes > 0 || c->body_left >= 0 || c->first_ns != 0)
    die("a connection was lost: %s", why);
  ++reconnects;
  c->answers = 0;
  c->out = c->request;
  c->out_left = strlen(c->request);
  close(c->fd);
  connect_socket(c);
}

int main(int argc, char **argv) {
  if (argc < 6) die("usage: http_load closed|chat|streams PORT MODEL ...; see the source");
  port = atoi(argv[2]);
  model = argv[3];
  poller = epoll_create1(EPOLL_CLOEXEC);
  last_answer_ns = now_ns();
  if (strcmp(argv[1], "closed") == 0 && argc == 7) {
    mode = kModeClosed;
    until_ns = now_ns() + (int64_t)(atof(argv[5]) * 1e9);
    prompt = argv[6];
    run_clients((unsigned)atoi(argv[4]));
  } else if (strcmp(argv[1], "chat") == 0 && argc == 8) {
    mode = kModeChat;
    most_requests = (unsigned)atoi(argv[5]);
    tokens_each = (unsigned)atoi(argv[6]);
    prompt = argv[7];
    run_clients((unsigned)atoi(argv[4]));
  } else if (strcmp(argv[1], "streams") == 0 && argc == 9) {
    mode = kModeStreams;
    idle_count = (unsigned)atoi(argv[4]);
    stream_count = (unsigned)atoi(argv[5]);
    interval_ns = atoll(argv[7]) * 1000000;
    struct rlimit is, limit = {idle_count + stream_count + 100, idle_count + stream_count + 100};
    getrlimit(RLIMIT_NOFILE, &is);
    if (is.rlim_max > limit.rlim_max) limit.rlim_max = is.rlim_max;
    if (is.rlim_cur < limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &limit) != 0)
      die("%llu descriptors are needed and the hard limit is %llu: ulimit -Hn",
          (unsigned long long)limit.rlim_cur, (unsigned long long)is.rlim_max);
    run_streams(atof(argv[6]), atoi(argv[8]));
  } else {
    die("usage: http_load closed|chat|streams PORT MODEL ...; see the source");
  }
  return 0;
}
