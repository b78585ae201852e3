// SPDX-License-Identifier: Apache-2.0
//
// GGUF files that are wrong, one fault each: the code, and that the message names the file, the
// place and the remedy.
#include <cstdio>

#include "formats/files.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "testing.h"

namespace {

using namespace gguf_test;
using lmn::Code;
using lmn::Result;
using lmn::formats::GgufModel;

// Parses from an exact-size heap copy, so that AddressSanitizer sees a read past the end.
void expect_error(const std::string& file, Code code, std::string_view part, int line) {
  const std::vector<char> exact(file.begin(), file.end());
  const Result<GgufModel> model = GgufModel::parse(std::as_bytes(std::span(exact)), "bad.gguf");
  const std::string message(model.status().message());
  if (model.ok() || model.status().code() != code || message.find(part) == std::string::npos ||
      message.find("bad.gguf: ") != 0) {
    testing::report_failure(__FILE__, line,
                            "code " + std::to_string(static_cast<int>(model.status().code())) +
                                ", message \"" + message + "\", want code " +
                                std::to_string(static_cast<int>(code)) + " and \"" +
                                std::string(part) + "\"");
  }
}
#define EXPECT_ERROR(file, code, part) expect_error((file), Code::code, (part), __LINE__)

constexpr uint64_t kHuge = 0xFFFFFFFFFFFFFFFFull;

TEST(magic_and_version) {
  const std::string good = sample().finish();
  EXPECT_ERROR(std::string("PK\3\4") + good.substr(4), kCorrupt,
               "is not a GGUF file: it begins with 'PK\\x03\\x04'");
  EXPECT_ERROR(std::string("ggjt") + good.substr(4), kCorrupt, "is not a GGUF file");
  EXPECT_ERROR(std::string("G"), kCorrupt, "truncated");
  EXPECT_ERROR(std::string(), kCorrupt, "truncated");
  EXPECT_ERROR(std::string("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), kCorrupt,
               "git lfs pull");
  for (const uint32_t version : {0u, 1u, 4u, 99u}) {
    Writer w = sample();
    w.version = version;
    EXPECT_ERROR(w.finish(), kUnsupported,
                 "is GGUF version " + std::to_string(version) + ", this build reads 2 and 3");
  }
  for (const uint32_t version : {0x01000000u, 0x02000000u, 0x03000000u}) {
    Writer w = sample();
    w.version = version;
    EXPECT_ERROR(w.finish(), kUnsupported, "big-endian");
  }
}

TEST(counts_beyond_the_file) {
  const Writer w = sample();
  for (const uint64_t count :
       {uint64_t{1} << 20, uint64_t{1} << 32, uint64_t{1} << 60, uint64_t{1} << 63, kHuge}) {
    EXPECT_ERROR(w.finish(count, 1), kCorrupt, "claims " + std::to_string(count) + " tensors");
    EXPECT_ERROR(w.finish(1, count), kCorrupt,
                 "claims " + std::to_string(count) + " metadata keys");
  }
}

TEST(keys) {
  EXPECT_ERROR(Writer().kv("", kU8, "\1").finish(), kCorrupt, "metadata key at offset 24 is empty");
  EXPECT_ERROR(Writer().kv(std::string(65536, 'k'), kU8, "\1").finish(), kCorrupt,
               "has 65536 bytes, more than the 65535");
  EXPECT(
      GgufModel::parse(bytes_of(Writer().kv(std::string(65535, 'k'), kU8, "\1").finish()), "long")
          .ok());
  EXPECT_ERROR(Writer().kv(std::string("a\0b", 3), kU8, "\1").finish(), kCorrupt,
               "'a\\x00b' at offset 24 is not printable");
  EXPECT_ERROR(Writer().kv("a\nb", kU8, "\1").finish(), kCorrupt, "'a\\x0ab'");
  for (const char* invalid :
       {"\x80", "\xC0\xAF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
        "\xF0\x80\x80\x80", "\xFF", "\xE2\x82", "a\x7F"}) {
    EXPECT_ERROR(Writer().kv(invalid, kU8, "\1").finish(), kCorrupt, "is not printable UTF-8");
  }
  for (const char* valid :
       {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF", "\xF4\x8F\xBF\xBF"}) {
    const std::string file = Writer().kv(valid, kU8, "\1").finish();
    EXPECT(GgufModel::parse(bytes_of(file), "valid").ok());
  }
  EXPECT_ERROR(Writer().kv("a", kU8, "\1").kv("b", kU8, "\1").kv("a", kI8, "\1").finish(), kCorrupt,
               "metadata key 'a' occurs twice");
}

TEST(values) {
  EXPECT_ERROR(Writer().kv("k", 13, "xxxxxxxxxxxxxxxx").finish(), kCorrupt,
               "metadata key 'k': unknown value type 13");
  EXPECT_ERROR(Writer().kv("k", 0xFFFFFFFF, "xxxxxxxx").finish(), kCorrupt,
               "unknown value type 4294967295");
  EXPECT_ERROR(Writer().kv("k", kBool, "\2").finish(), kCorrupt, "metadata key 'k': a bool is 2");
  EXPECT_ERROR(Writer().kv("k", kArray, array(kBool, 3, "\1\1\xFF")).finish(), kCorrupt,
               "a bool is 255");
  EXPECT_ERROR(Writer().kv("k", kString, le(kHuge) + "abc").finish(), kCorrupt,
               "'k': truncated: 18446744073709551615 bytes");
  EXPECT_ERROR(Writer().kv("k", kArray, array(13, 1, "x")).finish(), kCorrupt,
               "unknown value type 13");
  for (const uint32_t element : {kU8, kI16, kF32, kU64, kF64, kBool, kString, kArray}) {
    for (const uint64_t count :
         {uint64_t{1} << 30, uint64_t{1} << 61, uint64_t{1} << 62, uint64_t{1} << 63, kHuge}) {
      EXPECT_ERROR(Writer().kv("k", kArray, array(element, count, "\1\1\1\1\1\1\1\1")).finish(),
                   kCorrupt,
                   "metadata key 'k': an array of " + std::to_string(count) + " elements");
    }
  }
  // One element more than the bytes hold.
  const std::string five = Writer().kv("k", kArray, array(kU64, 5, std::string(32, '\0'))).finish();
  EXPECT_ERROR(five.substr(0, 24 + 9 + 4 + 12 + 32), kCorrupt,
               "an array of 5 elements of type u64");
  std::string nested = array(kU8, 1, "\1");
  for (int depth = 1; depth < 4; ++depth) nested = array(kArray, 1, nested);
  const std::string deepest = Writer().kv("k", kArray, nested).finish();
  EXPECT(GgufModel::parse(bytes_of(deepest), "deepest").ok());
  EXPECT_ERROR(Writer().kv("k", kArray, array(kArray, 1, nested)).finish(), kUnsupported,
               "nested deeper than 4");
  // Depth far beyond any stack, and width with nothing inside.
  std::string abyss;
  for (int i = 0; i < 100000; ++i) abyss += le<uint32_t>(kArray) + le<uint64_t>(1);
  EXPECT_ERROR(Writer().kv("k", kArray, abyss).finish(), kUnsupported, "nested deeper");
}

TEST(alignment) {
  for (const uint32_t alignment : {0u, 1u, 4u, 12u, 33u, 0xFFFFFFFFu}) {
    EXPECT_ERROR(Writer().kv("general.alignment", kU32, le(alignment)).finish(), kCorrupt,
                 "general.alignment is " + std::to_string(alignment));
  }
  EXPECT_ERROR(Writer().kv("general.alignment", kString, str("32")).finish(), kCorrupt,
               "'general.alignment': has type string");
  EXPECT_ERROR(Writer().kv("general.alignment", kI32, le<int32_t>(-32)).finish(), kCorrupt,
               "is -32, out of range");
  EXPECT_ERROR(Writer()
                   .kv("general.alignment", kU64, le(uint64_t{1} << 63))
                   .tensor("t", {1}, 0, "aaaa")
                   .finish(),
               kCorrupt, "tensor 't': needs 4 bytes");
}

TEST(tensor_names) {
  EXPECT_ERROR(Writer().tensor("", {1}, 0, "aaaa").finish(), kCorrupt,
               "tensor name at offset 24 is empty");
  EXPECT_ERROR(Writer().tensor(std::string(128, 't'), {1}, 0, "aaaa").finish(), kCorrupt,
               "128 bytes, more than the 127");
  EXPECT_ERROR(Writer().tensor(std::string("a\0", 2), {1}, 0, "aaaa").finish(), kCorrupt,
               "'a\\x00'");
  EXPECT_ERROR(Writer()
                   .tensor("t", {1}, 0, "aaaa")
                   .tensor("u", {1}, 0, "aaaa")
                   .tensor("t", {1}, 0, "aaaa")
                   .finish(),
               kCorrupt, "two tensors are named 't'");
}

TEST(tensor_shapes_and_types) {
  EXPECT_ERROR(Writer().tensor("t", {}, 0, std::string(64, 'a')).finish(), kCorrupt,
               "tensor 't': has 0 dimensions");
  EXPECT_ERROR(Writer().tensor("t", {1, 1, 1, 1, 1}, 0, "aaaa").finish(), kCorrupt,
               "has 5 dimensions, expected 1 to 4");
  EXPECT_ERROR(Writer().tensor("t", {4, 0}, 0, "").data(std::string(64, 'a')).finish(), kCorrupt,
               "a dimension of 0");
  EXPECT_ERROR(Writer().tensor("t", {kHuge}, 0, "").finish(), kCorrupt,
               "a dimension of 18446744073709551615");
  const uint64_t big = uint64_t{1} << 62;
  EXPECT_ERROR(Writer().tensor("t", {big, 4}, 24, "").finish(), kCorrupt, "too large to exist");
  EXPECT_ERROR(Writer().tensor("t", {big}, 0, "").finish(), kCorrupt, "too large to exist");
  EXPECT_ERROR(Writer().tensor("t", {big, big, big, big}, 2, "").finish(), kCorrupt,
               "too large to exist");
  EXPECT_ERROR(Writer().tensor("t", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, "").finish(),
               kCorrupt, "too large to exist");
  EXPECT_ERROR(Writer().tensor("t", {33, 2}, 8, std::string(136, 'a')).finish(), kCorrupt,
               "rows of 33 elements, not a multiple of the 32 in a block of q8_0");
  EXPECT_ERROR(Writer().tensor("t", {128, 2}, 14, std::string(210, 'a')).finish(), kCorrupt,
               "256 in a block of q6_k");
  EXPECT_ERROR(Writer().tensor("t", {100}, 10, std::string(84, 'a')).finish(), kCorrupt,
               "256 in a block of q2_k");
  for (const uint32_t type : {4u, 5u, 42u, 1000u, 0xFFFFFFFFu}) {
    EXPECT_ERROR(Writer().tensor("t", {32}, type, std::string(128, 'a')).finish(), kCorrupt,
                 "tensor 't': has unknown type number " + std::to_string(type));
  }
}

TEST(tensor_places) {
  EXPECT_ERROR(Writer().tensor_at("t", {1}, 0, 4).data(std::string(64, 'a')).finish(), kCorrupt,
               "begins at 4, not a multiple of the alignment 32");
  EXPECT_ERROR(Writer().tensor_at("t", {8}, 0, 64).data(std::string(64, 'a')).finish(), kCorrupt,
               "needs 32 bytes at offset 64");
  EXPECT_ERROR(Writer().tensor_at("t", {9}, 0, 32).data(std::string(64, 'a')).finish(), kCorrupt,
               "needs 36 bytes at offset 32");
  EXPECT_ERROR(Writer().tensor_at("t", {1}, 0, kHuge - 31).data(std::string(64, 'a')).finish(),
               kCorrupt, "needs 4 bytes");
  EXPECT_ERROR(
      Writer().tensor_at("t", {(uint64_t{1} << 61) - 8}, 0, 32).data(std::string(64, 'a')).finish(),
      kCorrupt, "needs 9223372036854775776 bytes");
  EXPECT_ERROR(Writer()
                   .tensor_at("t", {16}, 0, 0)
                   .tensor_at("u", {1}, 0, 32)
                   .data(std::string(64, 'a'))
                   .finish(),
               kCorrupt, "the data of tensors 't' and 'u' overlap");
  EXPECT_ERROR(Writer()
                   .tensor_at("t", {1}, 0, 0)
                   .tensor_at("u", {1}, 0, 0)
                   .data(std::string(64, 'a'))
                   .finish(),
               kCorrupt, "overlap");
  // The directory ends exactly at the end of the file: nothing to align into.
  const std::string bare = Writer().tensor_at("t", {1}, 0, 0).finish();
  EXPECT_ERROR(bare.substr(0, 24 + 9 + 4 + 8 + 4 + 8), kCorrupt, "tensor 't': needs 4 bytes");
}

// A message may travel to terminals and to Python str: whatever bytes were in the file, it is
// printable UTF-8.
TEST(messages_do_not_carry_raw_bytes) {
  const std::string file = Writer().kv("\x1B[31m\xFF", kU8, "\1").finish();
  const Result<GgufModel> model = GgufModel::parse(bytes_of(file), "bad.gguf");
  for (const char c : std::string(model.status().message())) EXPECT(c >= 0x20 && c < 0x7F);
  const std::string long_key(60000, 'k');
  const std::string twice = Writer().kv(long_key, kU8, "\1").kv(long_key, kU8, "\1").finish();
  EXPECT(GgufModel::parse(bytes_of(twice), "bad.gguf").status().message().size() < 300);
}

TEST(open_names_the_file) {
  TempDir dir;
  const std::string path = dir.write("broken.gguf", "GGML and then some more bytes");
  const Result<GgufModel> model = GgufModel::open(path);
  EXPECT(model.status().code() == Code::kCorrupt);
  EXPECT(model.status().message().find(path + ": is not a GGUF file") == 0);
  EXPECT(GgufModel::open(dir.path("absent.gguf")).status().code() == Code::kNotFound);
  EXPECT(GgufModel::open(dir.root()).status().code() == Code::kInvalidArgument);
  EXPECT(GgufModel::open("").status().code() == Code::kInvalidArgument);
}

}  // namespace
