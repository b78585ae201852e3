// SPDX-License-Identifier: Apache-2.0
//
// Tensors of ONNX models whose data lies in other files: found, mapped once, held to the model's
// folder and to the bounds of the file.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "formats/files.h"
#include "formats/onnx/onnx.h"
#include "formats/onnx_writer.h"
#include "testing.h"

namespace {

using namespace onnx_test;
using namespace lmn::formats;
using lmn::Code;
using lmn::Result;

std::string one(const std::string& location, const std::string& offset, const std::string& length,
                int64_t size = 4) {
  return with_tensor(tensor("w", 2, {size}, external(location, offset, length)));
}

Result<OnnxTensorBytes> first(const OnnxFile& file) {
  return tensor_bytes(file, file.model().graph.initializers[0]);
}

std::string text_of(const Result<OnnxTensorBytes>& data) {
  if (!data.ok()) return std::string(data.status().message());
  return {reinterpret_cast<const char*>(data->bytes.data()), data->bytes.size()};
}

// Of the model at this path: its first tensor, as text, or the message.
std::string read(const std::string& path, Code code = Code::kOk) {
  const auto file = open_onnx(path);
  if (!file.ok()) return std::string(file.status().message());
  const auto data = first(*file);
  EXPECT_EQ(static_cast<int>(data.status().code()), static_cast<int>(code));
  return text_of(data);
}

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  testing::report_failure(__FILE__, __LINE__, "\"" + part + "\" is not in \"" + text + "\"");
  return false;
}

TEST(offsets_and_lengths) {
  const TempDir dir;
  dir.write("w.bin", "0123456789");
  EXPECT_EQ(read(dir.write("m", one("w.bin", "", "4"))), "0123");
  EXPECT_EQ(read(dir.write("m", one("w.bin", "6", "4"))), "6789");
  EXPECT_EQ(read(dir.write("m", one("w.bin", "3", ""))), "3456");
  EXPECT_EQ(read(dir.write("m", one("./w.bin", "3", ""))), "3456");
  EXPECT_EQ(read(dir.write("m", one("absent", "3", "0", 0))), "");
  std::filesystem::create_directory(dir.path("sub"));
  dir.write("sub/w", "abcd");
  EXPECT_EQ(read(dir.write("m", one("sub/w", "", ""))), "abcd");

  EXPECT(has(read(dir.write("m", one("w.bin", "7", "4")), Code::kCorrupt),
             "m: tensor 'w': needs 4 bytes at offset 7 of its external data, and " +
                 std::filesystem::canonical(dir.path("w.bin")).string() +
                 " ends at 10: download or copy that file again"));
  EXPECT(has(read(dir.write("m", one("w.bin", "18446744073709551615", "4")), Code::kCorrupt),
             "needs 4 bytes at offset 18446744073709551615"));
  EXPECT(has(read(dir.write("m", one("w.bin", "0", "5")), Code::kCorrupt),
             "has 5 bytes of external data, and its shape and type need 4"));
  for (const std::string wrong : {"-1", "1x", " 1", "0x10", "18446744073709551616"}) {
    EXPECT(has(read(dir.write("m", one("w.bin", wrong, ""))),
               "graph.initializer[0]: the offset of the external data is '" + wrong +
                   "', no number of bytes, at byte "));
    EXPECT(has(read(dir.write("m", one("w.bin", "", wrong))),
               "the length of the external data is '" + wrong + "'"));
  }
  const std::string no_value = str(13, str(1, "offset"));
  EXPECT(has(read(dir.write("m", with_tensor(num(2, 2) + no_value + num(14, 1)))),
             "graph.initializer[0]: the offset of the external data is '', no number of bytes, at "
             "byte 12:"));
}

TEST(locations) {
  const TempDir dir;
  std::filesystem::create_directory(dir.path("in"));
  dir.write("outside", "secret");
  dir.write("in/w", "abcd");
  const auto at = [&](const std::string& location, Code code = Code::kCorrupt) {
    return read(dir.write("in/m", one(location, "", "")), code);
  };
  EXPECT(has(at("../outside"), "which is not inside the model's folder"));
  EXPECT(has(at("x/../../outside"), "which is not inside the model's folder"));
  EXPECT(has(at(".."), "which is not inside the model's folder"));
  EXPECT(has(at(dir.path("outside")), "which is not inside the model's folder"));
  EXPECT(has(at(""), "its external data names no file"));
  EXPECT(has(at("absent", Code::kNotFound),
             "which is absent: put that file beside the model, under this name"));
  EXPECT(has(at("w/below", Code::kNotFound), "which is absent"));
  EXPECT(has(at(".", Code::kCorrupt), "outside the model's folder"));
  EXPECT(has(at("..w", Code::kNotFound), "which is absent"));
  std::filesystem::create_directory(dir.path("in/folder"));
  EXPECT(has(at("folder", Code::kInvalidArgument), "is a directory"));
  dir.write("in/empty", "");
  EXPECT(has(at("empty"), "the file is empty"));

  // Links: within the folder they are fine, out of it they are not, nor through a folder.
  std::filesystem::create_symlink("w", dir.path("in/good"));
  EXPECT_EQ(at("good", Code::kOk), "abcd");
  std::filesystem::create_symlink("../outside", dir.path("in/bad"));
  EXPECT(has(at("bad"), "outside the model's folder: put a copy of that file in its place"));
  std::filesystem::create_symlink("..", dir.path("in/up"));
  EXPECT(has(at("up/outside"), "outside the model's folder"));
  std::filesystem::create_directory(dir.path("in2"));  // a name that begins with the folder's
  dir.write("in2/w", "abcd");
  std::filesystem::create_symlink("../in2/w", dir.path("in/sibling"));
  EXPECT(has(at("sibling"), "outside the model's folder"));
}

TEST(a_cache_of_links) {
  // snapshots/1/m -> blobs/a, snapshots/1/w -> blobs/b: how the caches of model hubs lie.
  const TempDir dir;
  std::filesystem::create_directories(dir.path("snapshots/1"));
  std::filesystem::create_directory(dir.path("blobs"));
  dir.write("blobs/a", one("w", "", ""));
  dir.write("blobs/b", "abcd");
  dir.write("other", "abcd");
  std::filesystem::create_symlink("../../blobs/a", dir.path("snapshots/1/m"));
  std::filesystem::create_symlink("../../blobs/b", dir.path("snapshots/1/w"));
  EXPECT_EQ(read(dir.path("snapshots/1/m")), "abcd");
  std::filesystem::remove(dir.path("snapshots/1/w"));
  std::filesystem::create_symlink("../../other", dir.path("snapshots/1/w"));
  EXPECT(has(read(dir.path("snapshots/1/m"), Code::kCorrupt), "outside the model's folder"));
}

TEST(one_mapping_for_all_tensors_and_threads) {
  const TempDir dir;
  dir.write("w", "0123456789");
  std::string graph;
  for (int i = 0; i < 10; ++i) {
    graph += str(5, tensor("t", 2, {1}, external(i % 2 ? "w" : "./w", std::to_string(i), "1")));
  }
  const auto file = open_onnx(dir.write("m", model(graph)));
  ASSERT_OK(file);
  EXPECT_EQ(file->files().size(), 1u);  // nothing is opened before it is asked for
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        const auto data = tensor_bytes(*file, file->model().graph.initializers[size_t(i)]);
        right += text_of(data) == std::to_string(i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 40);
  EXPECT_EQ(file->files().size(), 2u);
  EXPECT(file->check_unchanged().ok());
  ASSERT(::truncate(dir.path("w").c_str(), 5) == 0);
  EXPECT(file->check_unchanged().code() == Code::kIo);
}

TEST(a_model_in_memory) {
  const TempDir dir;
  dir.write("w", "abcd");
  const std::string bytes = one("w", "", "");
  const auto with = parse_onnx(bytes_of(bytes), nullptr, dir.root());
  ASSERT_OK(with);
  EXPECT_EQ(text_of(first(*with)), "abcd");
  const auto without = parse_onnx(bytes_of(bytes), nullptr, "");
  ASSERT_OK(without);
  EXPECT(first(*without).status().code() == Code::kInvalidArgument);
  EXPECT(has(text_of(first(*without)), "a model in memory has no folder: give one"));
}

}  // namespace
