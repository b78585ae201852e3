// SPDX-License-Identifier: Apache-2.0
//
// Deadlines, slots, histogram, trace contexts, UTF-8, JSON fields, the log.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "server/access_log.h"
#include "server/counters.h"
#include "server/deadlines.h"
#include "server/generation_request.h"
#include "server/json.h"
#include "server/slots.h"
#include "server/thread.h"
#include "server/trace_context.h"
#include "server/utf8.h"
#include "testing.h"

namespace lmn::server {
namespace {

TEST(deadlines_end_in_order_whatever_was_set_and_cleared) {
  Deadlines deadlines({0, 100, 10, 50, 30, 5});
  Timed a, b, c;
  EXPECT_EQ(deadlines.next(), Deadlines::kNever);
  deadlines.set(&a, Wait::kIdle, 0);    // 100
  deadlines.set(&b, Wait::kHeader, 5);  // 15
  deadlines.set(&c, Wait::kIdle, 7);    // 107
  EXPECT_EQ(deadlines.next(), 15);
  EXPECT(deadlines.expired(14) == nullptr);
  EXPECT(deadlines.expired(15) == &b);
  deadlines.set(&b, Wait::kBody, 20);  // moves: 70
  EXPECT(deadlines.expired(15) == nullptr);
  EXPECT_EQ(deadlines.next(), 70);
  deadlines.clear(&b);
  deadlines.clear(&b);
  EXPECT_EQ(deadlines.next(), 100);
  deadlines.set(&a, Wait::kIdle, 50);  // behind c now
  EXPECT_EQ(deadlines.next(), 107);
  deadlines.clear(&c);
  EXPECT_EQ(deadlines.next(), 150);
  deadlines.clear(&a);
  EXPECT_EQ(deadlines.next(), Deadlines::kNever);
}

struct Receiver final : NewsReceiver {
  void on_news(uint32_t index) override { got.push_back(index); }
  std::vector<uint32_t> got;
};

TEST(news_of_a_slot_that_was_given_up_finds_nobody) {
  Slots slots(3);
  Receiver first, second;
  const uint64_t old = slots.take(&first, 7);
  EXPECT_EQ(Slots::thread_of(old), 3u);
  slots.deliver(old);
  slots.release(old);
  const uint64_t reused = slots.take(&second, 8);
  EXPECT_EQ(static_cast<uint32_t>(reused), static_cast<uint32_t>(old));  // the same slot
  slots.deliver(old);
  slots.deliver(reused);
  slots.deliver(uint64_t{3} << 56 | 12345);  // never given out
  EXPECT(first.got == std::vector<uint32_t>{7});
  EXPECT(second.got == std::vector<uint32_t>{8});
}

TEST(histogram_percentiles_are_exact_to_their_bucket) {
  Histogram histogram;
  lmn_histogram out;
  histogram.read("x", &out);
  EXPECT_EQ(out.count, 0u);
  EXPECT_EQ(out.p99_ns, 0u);
  for (int i = 1; i <= 1000; ++i) histogram.add(i * 1000);  // 1 to 1000 us
  histogram.read("x", &out);
  EXPECT_EQ(out.count, 1000u);
  EXPECT_EQ(out.sum_ns, 500500000u);
  EXPECT_EQ(out.max_ns, 1000000u);
  // A quarter of a power of two is the width of a bucket.
  EXPECT(out.p50_ns >= 500000 && out.p50_ns <= 500000 * 5 / 4);
  EXPECT(out.p90_ns >= 900000 && out.p90_ns <= 1000000);
  EXPECT(out.p99_ns >= 990000 && out.p99_ns <= 1000000);
  histogram.add(INT64_MAX);
  histogram.add(-5);
  histogram.read("x", &out);
  EXPECT_EQ(out.count, 1002u);
}

TEST(trace_contexts) {
  Random random;
  const std::string given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const TraceContext child = make_trace_context(given, random);
  EXPECT_EQ(child.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT(child.span_id != "b7ad6b7169203331" && child.span_id.size() == 16);
  EXPECT_EQ(child.traceparent(), "00-" + child.trace_id + "-" + child.span_id + "-01");
  // A later version may say more behind its flags.
  EXPECT_EQ(make_trace_context("cc" + given.substr(2) + "-what", random).trace_id, child.trace_id);
  for (const char* bad : {"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
                          "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                          "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g"}) {
    const TraceContext made = make_trace_context(bad, random);
    EXPECT(made.trace_id.size() == 32 && made.trace_id != child.trace_id);
    EXPECT(!made.sampled);
  }
  EXPECT(random_hex(random, 24) != random_hex(random, 24));
}

// Unicode 15, table 3-8: a maximal subpart becomes one U+FFFD.
TEST(lossy_utf8) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(lossy("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"),
            "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z");
  EXPECT_EQ(lossy("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(lossy("\xC0\xAF\xED\xA0\x80\xF4\x90\x80\x80"), r + r + r + r + r + r + r + r + r);
  EXPECT_EQ(lossy("\xE2\x82"), r);
}

TEST(a_thread_that_gives_way_to_another_is_joined) {
  std::atomic<int> ended{0};
  const auto body = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++ended;
  };
  std::vector<Thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back("test", body);
  threads.erase(threads.begin());
  EXPECT(ended >= 1);
  threads.clear();
  EXPECT_EQ(ended.load(), 3);
}

TEST(cut_in_whole_characters) {
  const std::string text = "a\xC3\xA9\xF0\x9F\x98\x80";
  const size_t want[] = {0, 1, 1, 3, 3, 3, 3, 7, 7};
  for (size_t bytes = 0; bytes < std::size(want); ++bytes)
    EXPECT_EQ(std::string(cut(text, bytes)), text.substr(0, want[bytes]));
}

std::string refusal(const std::string& body, bool chat = true) {
  try {
    const json::value value = parse_body(body, {});
    const Fields fields(value.get_object());
    chat ? read_chat_request(fields) : read_completion_request(fields);
    return "";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    return error.param + "|" + error.code;
  }
}

TEST(chat_fields_are_checked) {
  const std::string head = R"({"messages":[{"role":"user","content":"x"}])";
  const auto with = [&](const std::string& more) { return refusal(head + "," + more + "}"); };
  EXPECT_EQ(refusal(head + "}"), "");
  EXPECT_EQ(with(R"("temperature":"hot")"), "temperature|invalid_type");
  EXPECT_EQ(with(R"("temperature":101)"), "temperature|invalid_value");
  EXPECT_EQ(with(R"("temperature":null,"n":2.0,"unknown":{"a":[]})"), "");
  EXPECT_EQ(with(R"("n":2.5)"), "n|invalid_value");
  EXPECT_EQ(with(R"("n":0)"), "n|invalid_value");
  EXPECT_EQ(with(R"("n":1e300)"), "n|invalid_value");
  EXPECT_EQ(with(R"("seed":18446744073709551615)"), "seed|invalid_value");
  EXPECT_EQ(with(R"("seed":-5)"), "");
  EXPECT_EQ(with(R"("stop":["a",3])"), "stop[1]|invalid_type");
  EXPECT_EQ(with(R"("stop":"")"), "stop|invalid_value");
  EXPECT_EQ(with(R"("logit_bias":{"x":1})"), "logit_bias|invalid_value");
  EXPECT_EQ(with(R"("logit_bias":{"5":101})"), "logit_bias.5|invalid_value");
  EXPECT_EQ(with(R"("response_format":{"type":"json_object"})"),
            "response_format|unsupported_value");
  EXPECT_EQ(with(R"("response_format":{"type":"text"})"), "");
  EXPECT_EQ(with(R"("stream_options":{"include_usage":true})"), "stream_options|invalid_value");
  EXPECT_EQ(with(R"("top_logprobs":2)"), "top_logprobs|invalid_value");
  EXPECT_EQ(with(R"("tool_choice":"required")"), "tool_choice|unsupported_value");
  EXPECT_EQ(refusal(R"({"messages":[]})"), "messages|invalid_value");
  EXPECT_EQ(refusal(R"({})"), "messages|missing_required_parameter");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user"}]})"),
            "messages[0].content|missing_required_parameter");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"king","content":""}]})"),
            "messages[0].role|invalid_value");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"),
            "messages[0].content[0].type|unsupported_value");
  for (const char* bad : {"", "[]", "{", "{}x", "{\"a\":\"\xFF\"}", "nul", "{\"a\":01}"})
    EXPECT(!refusal(bad).empty());
  EXPECT_EQ(refusal("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"),
            "|invalid_json");
}

TEST(completion_fields_are_checked) {
  EXPECT_EQ(refusal(R"({"prompt":[1,2]})", false), "");
  EXPECT_EQ(refusal(R"({"prompt":["a",[1]]})", false), "prompt[1]|invalid_type");
  EXPECT_EQ(refusal(R"({"prompt":[1,"a"]})", false), "prompt[1]|invalid_type");
  EXPECT_EQ(refusal(R"({"prompt":[-1]})", false), "prompt[0]|invalid_value");
  EXPECT_EQ(refusal(R"({"prompt":""})", false), "prompt|invalid_value");
  EXPECT_EQ(refusal(R"({"prompt":[]})", false), "prompt|invalid_value");
  EXPECT_EQ(refusal(R"({"prompt":"a","suffix":"b"})", false), "suffix|unsupported_parameter");
  EXPECT_EQ(refusal(R"({"prompt":"a","best_of":2})", false), "best_of|unsupported_value");
  EXPECT_EQ(refusal(R"({"prompt":"a","best_of":2,"n":2})", false), "");
  std::string many = R"("a")";
  for (int i = 1; i < 33; ++i) many += R"(,"a")";
  EXPECT_EQ(refusal(R"({"prompt":[)" + many + R"(],"n":64})", false), "n|invalid_value");
  EXPECT_EQ(refusal(R"({"prompt":[)" + many + R"(],"n":62})", false), "");
}

TEST(strings_are_escaped) {
  EXPECT_EQ(json_quoted("a\"\\\n\x01\xC3\xA9"), "\"a\\\"\\\\\\n\\u0001\xC3\xA9\"");
  const std::string long_text(1000, '\n');  // over several blocks
  std::string want = "\"";
  for (int i = 0; i < 1000; ++i) want += "\\n";
  EXPECT_EQ(json_quoted(long_text), want + "\"");
  std::string out;
  append_number(&out, 0.1f);
  append_number(&out, -9999.0f);
  EXPECT_EQ(out, "0.1-9999");
}

TEST(a_log_whose_reader_sleeps_keeps_nobody_waiting) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  {
    AccessLog log(pipe_ends[1]);
    const std::string line(1000, 'x');
    for (int i = 0; i < 10000; ++i) log.add(line + "\n");  // 10 MB, of which nobody reads any
    EXPECT(log.lost() > 0);
  }
  ::close(pipe_ends[0]);
  {
    AccessLog log(pipe_ends[1]);  // no reader at all: no SIGPIPE
    log.add("gone\n");
  }
  ::close(pipe_ends[1]);
  char path[] = "/tmp/lmn-log-XXXXXX";
  const int file = ::mkstemp(path);
  {
    AccessLog log(file);
    for (int i = 0; i < 1000; ++i) log.add(std::to_string(i) + "\n");
  }
  std::string want, got(16384, '\0');
  for (int i = 0; i < 1000; ++i) want += std::to_string(i) + "\n";
  got.resize(static_cast<size_t>(std::max<ssize_t>(::pread(file, got.data(), got.size(), 0), 0)));
  EXPECT_EQ(got, want);
  ::close(file);
  ::unlink(path);
}

}  // namespace
}  // namespace lmn::server
