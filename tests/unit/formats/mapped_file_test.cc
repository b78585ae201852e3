// SPDX-License-Identifier: Apache-2.0
#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "formats/files.h"
#include "testing.h"

namespace {

using lmn::Code;
using lmn::Result;
using lmn::formats::MappedFile;
using lmn::formats::ReadMode;

constexpr ReadMode kModes[] = {ReadMode::kMap, ReadMode::kMapPopulate, ReadMode::kCopy};

std::string noise(size_t size) {
  std::mt19937 random(7);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

bool same(const MappedFile& file, const std::string& bytes) {
  const auto got = file.bytes();
  return got.size() == bytes.size() && std::memcmp(got.data(), bytes.data(), bytes.size()) == 0;
}

// Memory of this process that is file pages. Those of files on a tmpfs count as shared memory.
int64_t resident_file_kib() {
  int64_t kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    for (const std::string_view field : {"RssFile:", "RssShmem:"}) {
      if (line.rfind(field, 0) == 0) kib += std::stoll(line.substr(field.size()));
    }
  }
  return kib;
}

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST(every_mode_shows_the_bytes) {
  const TempDir dir;
  for (const size_t size : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{300000}}) {
    const std::string bytes = noise(size);
    const std::string path = dir.write("f", bytes);
    const int before = open_descriptors();
    for (const ReadMode mode : kModes) {
      const auto file = MappedFile::open(path, mode);
      ASSERT_OK(file);
      EXPECT(same(**file, bytes));
      EXPECT((*file)->mode() == mode);
      EXPECT_EQ((*file)->path(), path);
      EXPECT_EQ(reinterpret_cast<uintptr_t>((*file)->bytes().data()) % 4096, 0u);
      EXPECT((*file)->check_unchanged().ok());
    }
    EXPECT_EQ(open_descriptors(), before);
  }
}

TEST(advice_never_changes_the_bytes) {
  const TempDir dir;
  const std::string bytes = noise(5 * 4096 + 100);
  const std::string path = dir.write("f", bytes);
  constexpr uint64_t kHuge = ~uint64_t{0};
  for (const ReadMode mode : kModes) {
    const auto file = MappedFile::open(path, mode);
    ASSERT_OK(file);
    for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{5 * 4096 + 99},
                                  uint64_t{5 * 4096 + 100}, kHuge}) {
      for (const uint64_t length :
           {uint64_t{0}, uint64_t{1}, uint64_t{4096}, uint64_t{9000}, kHuge}) {
        (*file)->advise_will_need(offset, length);
        (*file)->advise_dont_need(offset, length);
      }
    }
    EXPECT(same(**file, bytes));
  }
}

TEST(what_is_let_go_of_leaves_memory) {
  const TempDir dir;
  const std::string bytes = noise(8 << 20);
  const auto file = MappedFile::open(dir.write("f", bytes));
  ASSERT_OK(file);
  EXPECT(same(**file, bytes));
  const int64_t before = resident_file_kib();
  (*file)->advise_dont_need(0, 4 << 20);
  const int64_t half = resident_file_kib();
  (*file)->advise_dont_need(4 << 20, 4 << 20);
  const int64_t none = resident_file_kib();
  // Other tests' threads and the C library touch a few pages of theirs.
  EXPECT(before - half > 4096 - 256 && before - half < 4096 + 256);
  EXPECT(before - none > 8192 - 256);
  EXPECT(same(**file, bytes));
}

TEST(what_is_not_a_readable_file) {
  const TempDir dir;
  for (const ReadMode mode : kModes) {
    const auto absent = MappedFile::open(dir.path("absent"), mode);
    EXPECT(absent.status().code() == Code::kNotFound);
    EXPECT_EQ(absent.status().message(), dir.path("absent") + ": no such file: check the path");
    EXPECT(MappedFile::open(dir.write("f", "x") + "/below", mode).status().code() ==
           Code::kNotFound);
    const auto folder = MappedFile::open(dir.root(), mode);
    EXPECT(folder.status().code() == Code::kInvalidArgument);
    EXPECT_EQ(folder.status().message(),
              dir.root() + ": is a directory: give the path of the file inside it");
    const auto empty = MappedFile::open(dir.write("empty", ""), mode);
    EXPECT(empty.status().code() == Code::kCorrupt);
    EXPECT_EQ(empty.status().message(),
              dir.path("empty") + ": the file is empty: download or copy it again");
    EXPECT(MappedFile::open("", mode).status().code() == Code::kInvalidArgument);
    EXPECT(MappedFile::open(std::string("a\0b", 3), mode).status().code() ==
           Code::kInvalidArgument);
    EXPECT(MappedFile::open("/dev/zero", mode).status().code() == Code::kInvalidArgument);
  }
  ASSERT(::mkfifo(dir.path("fifo").c_str(), 0600) == 0);
  const auto fifo = MappedFile::open(dir.path("fifo"));  // must not wait for a writer
  EXPECT(fifo.status().code() == Code::kInvalidArgument);
  EXPECT(fifo.status().message().find("is not a regular file") != std::string_view::npos);
}

TEST(no_permission) {
  const TempDir dir;
  const std::string path = dir.write("secret", "x");
  ASSERT(::chmod(path.c_str(), 0) == 0);
  const bool root = ::geteuid() == 0;  // who may read everything, until another user for a moment
  if (root && ::seteuid(65534) != 0) {
    testing::skip("root in a container that cannot become another user");
  }
  const auto file = MappedFile::open(path);
  if (root) ASSERT(::seteuid(0) == 0);
  EXPECT(file.status().code() == Code::kIo);
  EXPECT(file.status().message().find(path + ": no permission to read it") == 0);
}

TEST(shrinking_growing_and_writing_are_noticed) {
  const TempDir dir;
  const std::string bytes = noise(10000);
  for (const ReadMode mode : {ReadMode::kMap, ReadMode::kMapPopulate}) {
    const std::string path = dir.write("f", bytes);
    const auto file = MappedFile::open(path, mode);
    ASSERT_OK(file);
    ASSERT(::truncate(path.c_str(), 5000) == 0);
    const auto shrunk = (*file)->check_unchanged();
    EXPECT(shrunk.code() == Code::kIo);
    EXPECT(shrunk.message().find(
               path +
               ": the file shrank from 10000 to 5000 bytes after it was opened: open it again") ==
           0);
    ASSERT(::truncate(path.c_str(), 12000) == 0);
    EXPECT((*file)->check_unchanged().message().find("grew from 10000 to 12000") !=
           std::string_view::npos);
    ASSERT(::truncate(path.c_str(), 10000) == 0);  // the same size, another time
    const timespec later[2] = {{0, UTIME_OMIT}, {2000000000, 5}};
    ASSERT(::utimensat(AT_FDCWD, path.c_str(), later, 0) == 0);
    EXPECT((*file)->check_unchanged().message().find("was written to") != std::string_view::npos);
  }
}

TEST(a_copy_is_immune) {
  const TempDir dir;
  const std::string bytes = noise(10000);
  const std::string path = dir.write("f", bytes);
  const auto file = MappedFile::open(path, ReadMode::kCopy);
  ASSERT_OK(file);
  ASSERT(::truncate(path.c_str(), 1) == 0);
  EXPECT((*file)->check_unchanged().ok());
  EXPECT(same(**file, bytes));
}

TEST(replacing_by_rename_is_harmless) {
  const TempDir dir;
  const std::string bytes = noise(10000);
  const std::string path = dir.write("f", bytes);
  const auto file = MappedFile::open(path);
  ASSERT_OK(file);
  std::filesystem::rename(dir.write("new", "short"), path);
  EXPECT((*file)->check_unchanged().ok());
  EXPECT(same(**file, bytes));
}

TEST(a_file_that_shrinks_while_it_is_copied) {
  const TempDir dir;
  const std::string path = dir.path("f");
  dir.write("f", "x");
  ASSERT(::truncate(path.c_str(), 40 << 20) == 0);
  const auto file = MappedFile::open(path, ReadMode::kCopy, [&](uint64_t, uint64_t) {
    return ::truncate(path.c_str(), 18 << 20) == 0;
  });
  EXPECT(file.status().code() == Code::kIo);
  EXPECT(file.status().message().find(
             "became shorter while it was read (18874368 of 41943040 bytes)") !=
         std::string_view::npos);
  ASSERT(::truncate(path.c_str(), 40 << 20) == 0);
  const auto late = MappedFile::open(path, ReadMode::kCopy, [&](uint64_t done, uint64_t total) {
    return done < total || ::truncate(path.c_str(), 18 << 20) == 0;
  });
  EXPECT(late.status().code() == Code::kIo);
}

TEST(progress_and_cancelling) {
  const TempDir dir;
  const std::string path = dir.path("f");
  dir.write("f", "x");
  ASSERT(::truncate(path.c_str(), (40 << 20) + 5) == 0);
  const int before = open_descriptors();
  for (const ReadMode mode : {ReadMode::kMapPopulate, ReadMode::kCopy}) {
    std::vector<uint64_t> seen;
    const auto file = MappedFile::open(path, mode, [&](uint64_t done, uint64_t total) {
      EXPECT_EQ(total, uint64_t{(40 << 20) + 5});
      seen.push_back(done);
      return true;
    });
    ASSERT_OK(file);
    EXPECT(seen.size() >= 3);
    EXPECT(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.back(), uint64_t{(40 << 20) + 5});
    const auto stopped = MappedFile::open(path, mode, [](uint64_t, uint64_t) { return false; });
    EXPECT(stopped.status().code() == Code::kCancelled);
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
