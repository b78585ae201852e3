// SPDX-License-Identifier: Apache-2.0
//
// Handles that share an engine: each has its own news, and the engine lives as long as one of them.
#include "capi/engine_handle.h"

#include <poll.h>

#include <string>
#include <vector>

#include "lmnative/lmnative.h"
#include "testing.h"

using namespace lmn;        // NOLINT: tests
using namespace lmn::capi;  // NOLINT

namespace {

lmn_engine* make_engine() {
  lmn_model* model = nullptr;
  lmn_engine* engine = nullptr;
  ASSERT(lmn_model_open("null:", nullptr, &model, nullptr) == LMN_OK);
  ASSERT(lmn_engine_create(model, nullptr, &engine, nullptr) == LMN_OK);
  lmn_model_destroy(model);
  return engine;
}

lmn_engine* share(const lmn_engine* engine) {
  auto shared = share_engine(*engine);
  ASSERT_OK(shared);
  return std::move(shared).value().release();
}

lmn_request* notify(lmn_engine* engine, uint64_t tag, uint32_t tokens) {
  const int32_t ids[] = {1, 2, 3};
  lmn_request_options options{};
  options.struct_size = sizeof(options);
  options.flags = LMN_REQUEST_NOTIFY | LMN_REQUEST_IGNORE_EOS;
  options.prompt_ids = ids;
  options.prompt_id_count = 3;
  options.max_tokens = tokens;
  options.tag = tag;
  lmn_request* request = nullptr;
  ASSERT(lmn_engine_submit(engine, &options, &request, nullptr) == LMN_OK);
  return request;
}

// The one tag that is listed, or 0.
uint64_t drain_one(lmn_engine* engine) {
  uint64_t tags[4];
  size_t count = 0;
  ASSERT(lmn_engine_drain(engine, tags, 4, &count, nullptr) == LMN_OK);
  return count == 1 ? tags[0] : 0;
}

int32_t descriptor_of(const lmn_engine* engine) {
  int32_t descriptor = -1;
  ASSERT(lmn_engine_descriptor_get(engine, &descriptor, nullptr) == LMN_OK);
  return descriptor;
}

uint64_t submitted(const lmn_engine* engine) {
  lmn_engine_stats stats{};
  stats.struct_size = sizeof(stats);
  ASSERT(lmn_engine_stats_get(engine, &stats, nullptr) == LMN_OK);
  return stats.submitted;
}

}  // namespace

TEST(handles_share_an_engine_and_not_their_news) {
  lmn_engine* first = make_engine();
  lmn_engine* second = share(first);
  EXPECT(descriptor_of(first) != descriptor_of(second));
  lmn_request* of_first = notify(first, 11, 5);
  lmn_request* of_second = notify(second, 22, 5);
  EXPECT_EQ(lmn_request_wait(of_first, -1, nullptr), LMN_OK);
  EXPECT_EQ(lmn_request_wait(of_second, -1, nullptr), LMN_OK);
  for (lmn_engine* engine : {first, second}) {
    pollfd wait{descriptor_of(engine), POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 20'000), 1);  // signalled after the step, which follows the end
    EXPECT_EQ(submitted(engine), uint64_t{2});
  }
  EXPECT_EQ(drain_one(first), uint64_t{11});
  EXPECT_EQ(drain_one(second), uint64_t{22});
  lmn_request_destroy(of_first);
  lmn_request_destroy(of_second);
  lmn_engine_destroy(first);
  lmn_engine_destroy(second);
}

TEST(the_engine_lives_until_its_last_handle_is_destroyed) {
  for (const bool first_goes : {true, false}) {
    lmn_engine* gone = make_engine();
    lmn_engine* stays = share(gone);
    if (!first_goes) std::swap(gone, stays);
    lmn_request* of_gone = notify(gone, 1, 4'000);
    lmn_request* of_stays = notify(stays, 2, 4'000);
    lmn_engine_destroy(gone);
    // Both go on to their ends, and new ones come.
    EXPECT_EQ(lmn_request_wait(of_gone, -1, nullptr), LMN_OK);
    EXPECT_EQ(lmn_request_wait(of_stays, -1, nullptr), LMN_OK);
    lmn_request* later = notify(stays, 3, 1);
    EXPECT_EQ(lmn_request_wait(later, -1, nullptr), LMN_OK);
    for (lmn_request* request : {of_gone, of_stays, later}) {
      lmn_request_stats stats{};
      stats.struct_size = sizeof(stats);
      EXPECT_EQ(lmn_request_stats_get(request, &stats, nullptr), LMN_OK);
      EXPECT_EQ(stats.finish_reason, uint32_t{LMN_FINISH_LENGTH});
    }
    lmn_request* cut_off = notify(stays, 4, 4'000);
    lmn_engine_destroy(stays);  // the last one ends it, with what is in flight
    EXPECT_EQ(lmn_request_wait(cut_off, -1, nullptr), LMN_OK);
    for (lmn_request* request : {of_gone, of_stays, later, cut_off}) lmn_request_destroy(request);
  }
}
