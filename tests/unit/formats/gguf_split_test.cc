// SPDX-License-Identifier: Apache-2.0
//
// Split models: opened by any part, and every way in which the parts can disagree.
#include <cstdio>
#include <filesystem>

#include "formats/files.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "testing.h"

namespace {

using namespace gguf_test;
using lmn::Code;
using lmn::Result;
using lmn::formats::GgufModel;
using lmn::formats::ReadMode;

Writer part(uint16_t number, uint16_t count, int32_t tensors) {
  Writer w;
  if (number == 0) w.kv("general.architecture", kString, str("llama"));
  w.kv("split.no", kU16, le(number))
      .kv("split.count", kU16, le(count))
      .kv("split.tensors.count", kI32, le(tensors));
  return w;
}

std::string name(int number, int count) {
  char text[64];
  std::snprintf(text, sizeof text, "model-%05d-of-%05d.gguf", number, count);
  return text;
}

// Three parts with two, one and one tensors; the second is aligned differently.
struct Split {
  TempDir dir;
  std::string first, second, third;
  Split() {
    first = dir.write(name(1, 3), part(0, 3, 4)
                                      .tensor("a", {1}, 0, "aaaa")
                                      .tensor("b", {32}, 8, std::string(34, 'b'))
                                      .finish());
    Writer w = part(1, 3, 4);
    w.alignment = 64;
    w.kv("general.alignment", kU32, le<uint32_t>(64)).tensor("c", {2, 3}, 1, std::string(12, 'c'));
    second = dir.write(name(2, 3), w.finish());
    third = dir.write(name(3, 3), part(2, 3, 4).tensor("d", {1}, 0, "dddd").finish());
  }
};

void expect_open_error(const std::string& path, Code code, const std::string& text, int line) {
  const Result<GgufModel> model = GgufModel::open(path);
  const std::string message(model.status().message());
  if (model.ok() || model.status().code() != code || message.find(text) == std::string::npos) {
    testing::report_failure(__FILE__, line, "message \"" + message + "\", want \"" + text + "\"");
  }
}
#define EXPECT_OPEN_ERROR(path, code, text) expect_open_error((path), Code::code, (text), __LINE__)

TEST(split_opens_by_any_part) {
  const Split split;
  for (const auto& path : {split.first, split.second, split.third}) {
    for (const auto mode : {ReadMode::kMap, ReadMode::kCopy}) {
      const Result<GgufModel> model = GgufModel::open(path, {mode, {}});
      ASSERT_OK(model);
      EXPECT_EQ(model->path(), path);
      EXPECT_EQ(*model->get<std::string_view>("general.architecture"), "llama");
      EXPECT_EQ(model->files().size(), 3u);
      EXPECT_EQ(model->tensor_count(), 4u);
      for (const char* tensor : {"a", "b", "c", "d"}) {
        const auto view = model->view(tensor);
        ASSERT_OK(view);
        EXPECT(view->data[0] == static_cast<std::byte>(tensor[0]));
        EXPECT(view->data[view->bytes() - 1] == static_cast<std::byte>(tensor[0]));
      }
      EXPECT_EQ(model->find_tensor("c")->part, 1u);
      EXPECT_EQ(model->find_tensor("d")->part, 2u);
      EXPECT(model->check_unchanged().ok());
    }
  }
}

TEST(split_progress_counts_all_parts) {
  const Split split;
  uint64_t total = 0;
  for (const auto& path : {split.first, split.second, split.third}) {
    total += std::filesystem::file_size(path);
  }
  uint64_t last = 0;
  int calls = 0;
  const Result<GgufModel> model =
      GgufModel::open(split.second, {ReadMode::kCopy, [&](uint64_t done, uint64_t all) {
                                       EXPECT_EQ(all, total);
                                       EXPECT(done > last);
                                       last = done;
                                       ++calls;
                                       return true;
                                     }});
  ASSERT_OK(model);
  EXPECT_EQ(last, total);
  EXPECT_EQ(calls, 3);
  const auto stopped =
      GgufModel::open(split.first, {ReadMode::kCopy, [](uint64_t, uint64_t) { return false; }});
  EXPECT(stopped.status().code() == Code::kCancelled);
}

TEST(split_with_a_missing_part) {
  const Split split;
  std::filesystem::remove(split.second);
  EXPECT_OPEN_ERROR(split.first, kNotFound, split.second + ": part 2 of 3 is missing");
  EXPECT_OPEN_ERROR(split.third, kNotFound, split.second);
}

TEST(split_with_parts_that_disagree) {
  {
    const Split split;
    std::filesystem::rename(split.second, split.dir.path("x"));
    std::filesystem::rename(split.third, split.second);
    std::filesystem::rename(split.dir.path("x"), split.third);
    EXPECT_OPEN_ERROR(
        split.first, kCorrupt,
        split.second + ": its metadata calls it part 3 of 3 and its name part 2 of 3");
  }
  {
    const Split split;
    split.dir.write(name(2, 3), part(1, 4, 4).tensor("c", {1}, 0, "cccc").finish());
    EXPECT_OPEN_ERROR(split.first, kCorrupt,
                      "its metadata calls it part 2 of 4 and its name part 2 of 3");
  }
  {
    const Split split;
    split.dir.write(name(3, 3), part(2, 3, 4).finish());
    EXPECT_OPEN_ERROR(split.first, kCorrupt,
                      "split.tensors.count promises 4 tensors and the 3 parts have 3");
  }
  {
    const Split split;
    split.dir.write(name(3, 3), part(2, 3, 4).tensor("a", {1}, 0, "dddd").finish());
    EXPECT_OPEN_ERROR(split.first, kCorrupt, "two tensors are named 'a'");
  }
  {
    const Split split;
    split.dir.write(name(3, 3), Writer().tensor("d", {1}, 0, "dddd").finish());
    EXPECT_OPEN_ERROR(
        split.first, kCorrupt,
        split.third + ": is named as a part of a split model but has no metadata key 'split.no'");
  }
  {
    const Split split;
    split.dir.write(name(1, 3), Writer().kv("split.no", kString, str("0")).finish());
    EXPECT_OPEN_ERROR(split.first, kCorrupt, "metadata key 'split.no': has type string");
  }
  {
    const Split split;
    split.dir.write(name(2, 3), "GGUF");
    EXPECT_OPEN_ERROR(split.first, kCorrupt, split.second + ": truncated");
  }
}

TEST(renamed_parts_do_not_pass_for_a_model) {
  const TempDir dir;
  const std::string file = part(0, 3, 4).tensor("a", {1}, 0, "aaaa").finish();
  for (const char* odd :
       {"model.gguf", "model-1-of-3.gguf", "model-00004-of-00003.gguf", "model-00000-of-00003.gguf",
        "model-0000x-of-00003.gguf", "-00001-of-00003.gguf.bak"}) {
    EXPECT_OPEN_ERROR(dir.write(odd, file), kCorrupt,
                      "is one of 3 parts of a split model but not named as such");
  }
}

TEST(a_single_part_is_a_whole_model) {
  const TempDir dir;
  EXPECT(GgufModel::open(dir.write(name(1, 1), part(0, 1, 1).tensor("a", {1}, 0, "aaaa").finish()))
             .ok());
  EXPECT(
      GgufModel::open(dir.write("plain.gguf", part(0, 0, 1).tensor("a", {1}, 0, "aaaa").finish()))
          .ok());
}

}  // namespace
