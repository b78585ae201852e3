// SPDX-License-Identifier: Apache-2.0
//
// Files that are no models, models that are cut or changed anywhere, and files that change while
// they are used: each is a status with a message, and the process lives. Run under
// AddressSanitizer, this is also the leak check.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>

#include "abuse.h"

using namespace abuse;  // NOLINT: tests

namespace {

// A file in a folder of its own, removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes) {
    const char* base = std::getenv("TMPDIR");
    folder_ = std::string(base != nullptr ? base : "/tmp") + "/lmnative_abuse_XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) testing::skip("no folder for temporary files");
    path_ = folder_ + "/model.gguf";
    write(bytes);
  }
  ~TemporaryFile() {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  void write(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  void put(size_t offset, char byte) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  const std::string& path() const { return path_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_, path_;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string bytes(static_cast<size_t>(file.tellg()), '\0');
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

// Opens, and builds the tokenizer when that works; LMN_INTERNAL and LMN_OUT_OF_MEMORY are bugs
// here.
lmn_status open_and_tokenize(const std::string& path, bool tokenize) {
  lmn_model* raw = nullptr;
  const Outcome opened =
      outcome_of([&](lmn_error** err) { return lmn_model_open(path.c_str(), nullptr, &raw, err); });
  const Model model(raw);
  EXPECT((opened.status == LMN_OK) == (raw != nullptr));
  EXPECT(opened.status == LMN_OK || opened.message.find(path) != std::string::npos);
  EXPECT(opened.status != LMN_INTERNAL && opened.status != LMN_OUT_OF_MEMORY);
  if (raw == nullptr) return opened.status;
  auto info = sized<lmn_model_info>();
  CHECK_CALL(lmn_model_info_get(raw, &info, err));
  for (uint64_t i = 0; i < info.metadata_count; ++i) {
    auto value = sized<lmn_value>();
    CHECK_CALL(lmn_model_metadata_get(raw, i, &value, err));
  }
  for (uint64_t i = 0; i < info.tensor_count; ++i) {
    auto tensor = sized<lmn_tensor_info>();
    CHECK_CALL(lmn_model_tensor_get(raw, i, &tensor, err));
  }
  if (tokenize) {
    lmn_tokenizer* tokenizer = nullptr;
    const Outcome built =
        outcome_of([&](lmn_error** err) { return lmn_tokenizer_create(raw, &tokenizer, err); });
    lmn_tokenizer_destroy(tokenizer);
    EXPECT(built.status != LMN_INTERNAL && built.status != LMN_OUT_OF_MEMORY);
  }
  return opened.status;
}

// Bytes before the data of the first tensor: all that opening reads.
size_t header_bytes() {
  const Model model = open_model();
  auto info = sized<lmn_model_info>();
  CHECK_CALL(lmn_model_info_get(model.get(), &info, err));
  uint64_t first = UINT64_MAX;
  for (uint64_t i = 0; i < info.tensor_count; ++i) {
    auto tensor = sized<lmn_tensor_info>();
    CHECK_CALL(lmn_model_tensor_get(model.get(), i, &tensor, err));
    first = std::min(first, tensor.offset);
  }
  return static_cast<size_t>(first);
}

}  // namespace

TEST(paths_that_are_no_models) {
  const TemporaryFile file("");
  lmn_model* model = nullptr;
  const auto open = [&](const std::string& path, lmn_error** err) {
    return lmn_model_open(path.c_str(), nullptr, &model, err);
  };
  EXPECT_FAILURE(LMN_NOT_FOUND, "/nonexistent/x.gguf", open("/nonexistent/x.gguf", err));
  EXPECT_FAILURE(LMN_CORRUPT, file.path(), open(file.path(), err));  // empty
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "directory", open(file.folder(), err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "/dev/null", open("/dev/null", err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "empty", open("", err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "'smollm2-135m'", open("SmolLM2-135M", err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "'smollm2-135m'", open("smollm2_135m", err));
  EXPECT(outcome_of([&](lmn_error** err) { return open("gpt-5", err); }).message.find("smollm2") ==
         std::string::npos);
  EXPECT_FAILURE(LMN_IO_ERROR, "name too long", open(std::string(5000, 'x'), err));
  EXPECT(model == nullptr);
}

TEST(wrong_magic_version_and_garbage) {
  TemporaryFile file("this is no model file at all");
  lmn_model* model = nullptr;
  const auto open = [&](lmn_error** err) {
    return lmn_model_open(file.path().c_str(), nullptr, &model, err);
  };
  EXPECT_FAILURE(LMN_CORRUPT, "GGUF", open(err));
  file.write(std::string("GGUF\x09\0\0\0", 8) + std::string(16, '\0'));
  EXPECT_FAILURE(LMN_UNSUPPORTED, "version", open(err));
  file.write(std::string("GGUF\x03\0\0\0", 8) + std::string(16, '\xFF'));
  EXPECT_FAILURE(LMN_CORRUPT, file.path(), open(err));
}

TEST(truncated_at_200_places) {
  const std::string whole = read_file(model_path());
  const TemporaryFile file(whole);
  const size_t header = header_bytes();
  std::mt19937_64 random(20240601);
  std::vector<size_t> sizes;
  for (int i = 0; i < 200; ++i) {  // as many in the small header as in the large rest
    const size_t below = i % 2 == 0 ? header : whole.size();
    sizes.push_back(std::uniform_int_distribution<size_t>(0, below - 1)(random));
  }
  std::sort(sizes.rbegin(), sizes.rend());  // so that each cut only shortens the file
  EXPECT_EQ(open_and_tokenize(file.path(), true), LMN_OK);
  for (const size_t size : sizes) {
    ASSERT(truncate(file.path().c_str(), static_cast<off_t>(size)) == 0);
    EXPECT_EQ(open_and_tokenize(file.path(), false), LMN_CORRUPT);
  }
}

TEST(mutations_of_2000_header_bytes) {
  const std::string whole = read_file(model_path());
  TemporaryFile file(whole);
  const size_t header = header_bytes();
  std::mt19937_64 random(20240602);
  int opened = 0;
  for (int i = 0; i < 2000; ++i) {
    // The first kilobytes hold all counts and types; most of the rest are vocabulary strings.
    const size_t below = i % 2 == 0 ? std::min<size_t>(header, 4096) : header;
    const size_t at = std::uniform_int_distribution<size_t>(0, below - 1)(random);
    file.put(at, static_cast<char>(random()));
    opened += open_and_tokenize(file.path(), i % 40 == 0) == LMN_OK;
    file.put(at, whole[at]);
  }
  EXPECT(opened > 0 && opened < 2000);
  EXPECT_EQ(open_and_tokenize(file.path(), true), LMN_OK);
}

TEST(a_file_that_shrinks_between_open_and_use) {
  const TemporaryFile file(read_file(model_path()));
  const auto open = [&](uint32_t mode) {
    auto options = sized<lmn_model_options>();
    options.read_mode = mode;
    lmn_model* model = nullptr;
    CHECK_CALL(lmn_model_open(file.path().c_str(), &options, &model, err));
    return Model(model);
  };
  const Model mapped = open(LMN_READ_MAP), copied = open(LMN_READ_COPY);
  ASSERT(truncate(file.path().c_str(), 50'000'000) == 0);
  auto options = sized<lmn_engine_options>();
  options.context_tokens = 256;
  lmn_engine* engine = nullptr;
  // Found before a byte of the missing part is touched, which would be SIGBUS.
  const Outcome got = outcome_of(
      [&](lmn_error** err) { return lmn_engine_create(mapped.get(), &options, &engine, err); });
  EXPECT_EQ(got.status, LMN_IO_ERROR);
  EXPECT(got.message.find(file.path()) != std::string::npos);
  EXPECT(engine == nullptr);
  CHECK_CALL(lmn_engine_create(copied.get(), &options, &engine, err));  // immune
  const Engine immune(engine);
  EXPECT_EQ(drain(submit(immune.get(), "The capital of France is", 2).get()).ids.size(), 2u);
}

TEST(a_file_whose_directory_is_gone_when_it_is_read) {
  // Truncated below what the tokenizer and the metadata are read from: SIGBUS, were the file not
  // looked at first.
  const std::string whole = read_file(model_path());
  for (const off_t size : {0, 4096}) {
    const auto open = [](const TemporaryFile& file) {
      lmn_model* model = nullptr;
      CHECK_CALL(lmn_model_open(file.path().c_str(), nullptr, &model, err));
      return Model(model);
    };
    const TemporaryFile file(whole);
    const Model model = open(file), used = open(file);
    const Tokenizer before = create_tokenizer(used.get());
    ASSERT(truncate(file.path().c_str(), size) == 0);
    lmn_tokenizer* tokenizer = nullptr;
    EXPECT_FAILURE(LMN_IO_ERROR, file.path(), lmn_tokenizer_create(model.get(), &tokenizer, err));
    lmn_engine* engine = nullptr;
    EXPECT_FAILURE(LMN_IO_ERROR, file.path(),
                   lmn_engine_create(model.get(), nullptr, &engine, err));
    auto value = sized<lmn_value>();
    EXPECT_FAILURE(LMN_IO_ERROR, file.path(), lmn_model_metadata_get(model.get(), 30, &value, err));
    EXPECT_FAILURE(LMN_IO_ERROR, file.path(),
                   lmn_model_metadata_find(model.get(), "general.name", &value, err));
    for (uint64_t i = 0; i < 30; ++i) {
      EXPECT_FAILURE(LMN_IO_ERROR, file.path(),
                     lmn_model_metadata_element_get(model.get(), i, 0, &value, err));
    }
    DLManagedTensorVersioned* tensor = nullptr;
    EXPECT_FAILURE(LMN_IO_ERROR, file.path(),
                   lmn_model_tensor_export(model.get(), "token_embd.weight", &tensor, err));
    // What was made before holds copies.
    const Tokenizer shared = create_tokenizer(used.get());
    int32_t ids[16];
    size_t count = 0;
    CHECK_CALL(
        lmn_tokenizer_encode(shared.get(), "Hello world", 11, nullptr, ids, 16, &count, err));
    EXPECT_EQ(count, size_t{2});
  }
}

TEST(arrays_of_arrays_have_no_elements) {
  std::string bytes("GGUF\x03\0\0\0", 8);
  const auto number = [&](uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i));
  };
  number(0, 8);  // tensors
  number(1, 8);  // metadata: "k", an array of two arrays of one u8
  number(1, 8);
  bytes += "k";
  number(9, 4);
  number(9, 4);
  number(2, 8);
  for (const uint64_t item : {7, 8}) {
    number(0, 4);
    number(1, 8);
    number(item, 1);
  }
  const TemporaryFile file(bytes);
  lmn_model* raw = nullptr;
  CHECK_CALL(lmn_model_open(file.path().c_str(), nullptr, &raw, err));
  const Model model(raw);
  auto value = sized<lmn_value>();
  CHECK_CALL(lmn_model_metadata_get(raw, 0, &value, err));
  EXPECT_EQ(value.array_kind, uint32_t(LMN_VALUE_ARRAY));
  EXPECT_EQ(value.array_count, uint64_t{2});
  EXPECT_FAILURE(LMN_UNSUPPORTED, "array of arrays",
                 lmn_model_metadata_element_get(raw, 0, 1, &value, err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "element 2",
                 lmn_model_metadata_element_get(raw, 0, 2, &value, err));
}

TEST(a_model_of_another_architecture) {
  // llama becomes llamb, at every place where the name stands: a well-formed file that nobody can
  // run.
  std::string whole = read_file(model_path());
  const size_t header = header_bytes();
  for (size_t at = whole.find("llama"); at != std::string::npos && at < header;
       at = whole.find("llama", at + 1)) {
    whole[at + 4] = 'b';
  }
  const TemporaryFile file(whole);
  lmn_model* raw = nullptr;
  CHECK_CALL(lmn_model_open(file.path().c_str(), nullptr, &raw, err));
  const Model model(raw);
  lmn_engine* engine = nullptr;
  EXPECT_FAILURE(LMN_UNSUPPORTED, "llamb", lmn_engine_create(model.get(), nullptr, &engine, err));
}
