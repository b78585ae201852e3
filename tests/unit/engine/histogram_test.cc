// SPDX-License-Identifier: Apache-2.0
#include "engine/histogram.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "engine/trace.h"
#include "testing.h"

namespace lmn::engine {
namespace {

TEST(buckets_by_hand) {
  EXPECT_EQ(histogram_bucket(-5), 0);
  EXPECT_EQ(histogram_bucket(0), 0);
  EXPECT_EQ(histogram_bucket(79), 0);
  EXPECT_EQ(histogram_bucket(80), 1);
  EXPECT_EQ(histogram_bucket(96), 2);
  EXPECT_EQ(histogram_bucket(127), 3);
  EXPECT_EQ(histogram_bucket(128), 4);
  EXPECT_EQ(histogram_bucket(160), 5);
  EXPECT_EQ(histogram_bucket(INT64_MAX), kHistogramBuckets - 1);
  EXPECT_EQ(histogram_lower(1), int64_t{80});
  EXPECT_EQ(histogram_lower(4), int64_t{128});
}

TEST(every_bucket_holds_what_its_bounds_say) {
  for (int b = 1; b < kHistogramBuckets; ++b) {
    EXPECT_EQ(histogram_bucket(histogram_lower(b)), b);
    EXPECT_EQ(histogram_bucket(histogram_lower(b) - 1), b - 1);
  }
}

TEST(percentiles_lie_in_the_right_bucket) {
  Histogram histogram("test");
  EXPECT_EQ(histogram.snapshot().percentile(0.5), int64_t{0});
  for (int64_t ns = 1; ns <= 10'000; ++ns) histogram.add(ns * 100);
  const HistogramSnapshot now = histogram.snapshot();
  EXPECT_EQ(now.count, int64_t{10'000});
  EXPECT_EQ(now.sum_ns, int64_t{100} * 10'000 * 10'001 / 2);
  EXPECT_EQ(now.max_ns, int64_t{1'000'000});
  for (const double p : {0.01, 0.5, 0.9, 0.99}) {
    const double got = static_cast<double>(now.percentile(p)), want = p * 1'000'000;
    EXPECT(got > want * 0.85 && got < want * 1.15);  // a bucket is a quarter of a power of two
  }
  EXPECT(now.percentile(1) <= now.max_ns);
}

TEST(a_trace_keeps_its_first_events_and_counts_the_others) {
  Trace trace(5);  // eight fit
  for (int i = 0; i < 11; ++i) trace.add({"span", i, i + 1, 0, 0, 0});
  EXPECT_EQ(trace.lost(), uint64_t{3});
  std::vector<TraceEvent> events(3);
  EXPECT_EQ(trace.take(events), size_t{3});
  EXPECT_EQ(events[2].begin_ns, int64_t{2});
  trace.add({"span", 11, 12, 0, 0, 0});
  events.resize(100);
  EXPECT_EQ(trace.take(events), size_t{6});
  EXPECT_EQ(events[0].begin_ns, int64_t{3});
  EXPECT_EQ(events[5].begin_ns, int64_t{11});
  EXPECT_EQ(trace.take(events), size_t{0});
  Trace none(0);
  none.add({"span", 0, 1, 0, 0, 0});
  EXPECT(!none.enabled() && none.lost() == 0);
}

TEST(a_trace_is_read_while_it_is_written) {
  constexpr int64_t kEvents = 100'000;
  Trace trace(64);
  std::thread writer([&] {
    for (int64_t i = 0; i < kEvents; ++i) trace.add({"span", i, 2 * i, 0, 0, 0});
  });
  std::vector<TraceEvent> events(16);
  int64_t taken = 0, last = -1;
  bool right = true;
  const auto take = [&] {
    const size_t count = trace.take(events);
    for (size_t i = 0; i < count; ++i) {
      right = right && events[i].begin_ns > last && events[i].end_ns == 2 * events[i].begin_ns;
      last = events[i].begin_ns;
    }
    taken += static_cast<int64_t>(count);
    return count;
  };
  while (taken + static_cast<int64_t>(trace.lost()) < kEvents) take();
  writer.join();
  while (take() > 0) {
  }
  EXPECT(right);
  EXPECT_EQ(taken + static_cast<int64_t>(trace.lost()), kEvents);
}

}  // namespace
}  // namespace lmn::engine
