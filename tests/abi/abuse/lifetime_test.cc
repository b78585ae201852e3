// SPDX-License-Identifier: Apache-2.0
//
// Any order of destruction is safe, deleters outlive everything, and what is destroyed is given
// back.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <thread>

#include "abuse.h"

using namespace abuse;  // NOLINT: tests

TEST(destroy_in_every_order) {
  // 0 model, 1 tokenizer, 2 decoder, 3 engine, 4 request, 5 exported tensor, 6 logits of a score:
  // 5,040 orders. The handles of one round share their model with no other.
  constexpr int kHandles = 7;
  std::array<int, kHandles> order = {0, 1, 2, 3, 4, 5, 6};
  int round = 0;
  do {
    // Each round creates an engine: all of them would take minutes, a stride through all takes
    // seconds.
    if (round++ % 251 != 0) continue;
    Model model = open_model();
    Tokenizer tokenizer = create_tokenizer(model.get());
    Decoder decoder = create_decoder(tokenizer.get());
    Engine engine = create_engine(model.get());
    Request request = submit(engine.get(), "Once upon a time", 1000);
    DLManagedTensorVersioned *raw = nullptr, *raw_logits = nullptr;
    CHECK_CALL(lmn_model_tensor_export(model.get(), "output_norm.weight", &raw, err));
    Tensor tensor(raw);
    int32_t id = 1;
    int64_t size = 1;
    DLManagedTensorVersioned ids{};
    ids.version = {1, 0};
    ids.dl_tensor.device = {kDLCPU, 0};
    ids.dl_tensor.ndim = 1;
    ids.dl_tensor.dtype = {kDLInt, 32, 1};
    ids.dl_tensor.shape = &size;
    ids.dl_tensor.data = &id;
    // The score waits its turn behind the request: one that was cancelled, or a short one.
    if (round % 2 == 0)
      lmn_request_cancel(request.get(), nullptr);
    else
      request = submit(engine.get(), "Once", 3);
    CHECK_CALL(lmn_engine_score(engine.get(), &ids, nullptr, &raw_logits, err));
    Tensor logits(raw_logits);
    for (const int handle : order) {
      if (handle == 0) model.reset();
      if (handle == 1) tokenizer.reset();
      if (handle == 2) {
        const char* text = nullptr;
        size_t bytes = 0;
        CHECK_CALL(lmn_decoder_decode(decoder.get(), 504, &text, &bytes, err));
        EXPECT_EQ(std::string(text, bytes), "The");
        decoder.reset();
      }
      if (handle == 3) engine.reset();
      if (handle == 4) {
        EXPECT(drain(request.get()).finish_reason != LMN_FINISH_NONE);
        request.reset();
      }
      if (handle == 5) {
        EXPECT(static_cast<const float*>(tensor->dl_tensor.data)[0] > 0);
        tensor.reset();
      }
      if (handle == 6) {
        EXPECT_EQ(logits->dl_tensor.shape[1], 49152);
        logits.reset();
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(round, 5040);
}

TEST(tensors_outlive_all_handles_and_die_on_another_thread) {
  std::vector<DLManagedTensorVersioned*> tensors;
  {
    const Model model = open_model();
    auto info = sized<lmn_model_info>();
    CHECK_CALL(lmn_model_info_get(model.get(), &info, err));
    for (uint64_t i = 0; i < info.tensor_count; ++i) {
      auto tensor = sized<lmn_tensor_info>();
      CHECK_CALL(lmn_model_tensor_get(model.get(), i, &tensor, err));
      DLManagedTensorVersioned* raw = nullptr;
      const std::string name(tensor.name, tensor.name_bytes);
      CHECK_CALL(lmn_model_tensor_export(model.get(), name.c_str(), &raw, err));
      EXPECT((raw->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0);
      tensors.push_back(raw);
    }
  }
  // The mapping is still there: each tensor reads its last byte.
  uint64_t sum = 0;
  std::vector<std::thread> threads;
  for (const DLManagedTensorVersioned* tensor : tensors) {
    const DLTensor& t = tensor->dl_tensor;
    int64_t bytes = t.dtype.bits / 8;
    for (int i = 0; i < t.ndim; ++i) bytes *= t.shape[i];
    sum += static_cast<const unsigned char*>(t.data)[bytes - 1];
  }
  EXPECT(sum > 0);
  for (int part = 0; part < 2; ++part) {
    threads.emplace_back([&, part] {
      for (size_t i = static_cast<size_t>(part); i < tensors.size(); i += 2)
        tensors[i]->deleter(tensors[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(exported_tensors_are_the_bytes_of_the_file) {
  const Model model = open_model();
  auto info = sized<lmn_tensor_info>();
  CHECK_CALL(lmn_model_tensor_get(model.get(), 0, &info, err));
  DLManagedTensorVersioned* raw = nullptr;
  CHECK_CALL(lmn_model_tensor_export(model.get(), "token_embd.weight", &raw, err));
  const Tensor tensor(raw);
  EXPECT_EQ(std::string(info.type), "q8_0");
  EXPECT_EQ(tensor->dl_tensor.ndim, 2);
  EXPECT_EQ(tensor->dl_tensor.shape[0], 49152);
  EXPECT_EQ(tensor->dl_tensor.shape[1], 576 / 32 * 34);
  EXPECT_EQ(int(tensor->dl_tensor.dtype.code), int(kDLUInt));
  std::vector<char> file(4096);
  FILE* in = std::fopen(model_path().c_str(), "rb");
  ASSERT(in != nullptr);
  ASSERT(std::fseek(in, static_cast<long>(info.offset), SEEK_SET) == 0);
  ASSERT(std::fread(file.data(), 1, file.size(), in) == file.size());
  std::fclose(in);
  EXPECT_EQ(std::memcmp(tensor->dl_tensor.data, file.data(), file.size()), 0);
  EXPECT_FAILURE(LMN_NOT_FOUND, "no.such.tensor",
                 lmn_model_tensor_export(model.get(), "no.such.tensor", &raw, err));
}

TEST(created_tensors_are_zeroed_aligned_and_writable) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 20}) {
    const int64_t shape[] = {3, size};
    DLManagedTensorVersioned* raw = nullptr;
    CHECK_CALL(lmn_tensor_create(kDLFloat, 32, 2, shape, &raw, err));
    const Tensor tensor(raw);
    EXPECT_EQ(tensor->version.major, 1u);
    EXPECT_EQ(tensor->flags, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->dl_tensor.data) % 64, 0u);
    EXPECT_EQ(tensor->dl_tensor.strides[1], 1);
    EXPECT_EQ(tensor->dl_tensor.strides[0], std::max<int64_t>(size, 1));
    auto* values = static_cast<float*>(tensor->dl_tensor.data);
    for (int64_t i = 0; i < 3 * size; ++i) {
      if (values[i] != 0) EXPECT_EQ(values[i], 0.0f);
      values[i] = 1;
    }
  }
}

TEST(metadata_walk) {
  const Model model = open_model();
  auto info = sized<lmn_model_info>();
  CHECK_CALL(lmn_model_info_get(model.get(), &info, err));
  for (uint64_t i = 0; i < info.metadata_count; ++i) {
    auto value = sized<lmn_value>();
    CHECK_CALL(lmn_model_metadata_get(model.get(), i, &value, err));
    const std::string key(value.key, value.key_bytes);
    auto found = sized<lmn_value>();
    CHECK_CALL(lmn_model_metadata_find(model.get(), key.c_str(), &found, err));
    EXPECT_EQ(found.kind, value.kind);
    auto element = sized<lmn_value>();
    if (value.kind != LMN_VALUE_ARRAY) {
      EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "not an array",
                     lmn_model_metadata_element_get(model.get(), i, 0, &element, err));
      continue;
    }
    ASSERT(value.array_count > 0);
    CHECK_CALL(
        lmn_model_metadata_element_get(model.get(), i, value.array_count - 1, &element, err));
    EXPECT_EQ(element.kind, value.array_kind);
    EXPECT_EQ(std::string(element.key, element.key_bytes), key);
    if (key == "tokenizer.ggml.tokens") EXPECT_EQ(value.array_count, 49152u);
    EXPECT_FAILURE(
        LMN_NOT_FOUND, "element",
        lmn_model_metadata_element_get(model.get(), i, value.array_count, &element, err));
  }
  auto value = sized<lmn_value>();
  auto tensor = sized<lmn_tensor_info>();
  EXPECT_FAILURE(LMN_NOT_FOUND, "has 33",
                 lmn_model_metadata_get(model.get(), info.metadata_count, &value, err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "no.such.key",
                 lmn_model_metadata_find(model.get(), "no.such.key", &value, err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "has 272",
                 lmn_model_tensor_get(model.get(), UINT64_MAX, &tensor, err));
}
