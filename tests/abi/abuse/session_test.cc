// SPDX-License-Identifier: Apache-2.0
//
// lmn_session_*, lmn_session_value_* and lmn_binding_*: wrong arguments, orders of destruction,
// threads, forks, and the C++ face, on C = ReLU(A·B + bias) (tests/onnx/make_models.py).
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "abuse.h"
#include "lmnative/lmnative.hpp"

using namespace abuse;  // NOLINT: tests

namespace {

using OwnedSession = std::unique_ptr<lmn_session, Destroy<lmn_session_destroy>>;
using OwnedValue = std::unique_ptr<lmn_session_value, Destroy<lmn_session_value_destroy>>;
using OwnedBinding = std::unique_ptr<lmn_binding, Destroy<lmn_binding_destroy>>;

constexpr const char* kModel = LMN_TEST_ONNX;

std::string model_bytes() {
  std::ifstream file(kModel, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

OwnedSession create_session(int32_t threads = 1) {
  auto options = sized<lmn_session_options>();
  options.threads = threads;
  lmn_session* session = nullptr;
  CHECK_CALL(lmn_session_create(kModel, &options, &session, err));
  return OwnedSession(session);
}

Tensor create_tensor(int32_t code, int32_t bits, std::initializer_list<int64_t> shape) {
  DLManagedTensorVersioned* tensor = nullptr;
  CHECK_CALL(lmn_tensor_create(code, bits, static_cast<int32_t>(shape.size()), shape.begin(),
                               &tensor, err));
  return Tensor(tensor);
}

float* floats(const Tensor& tensor) { return static_cast<float*>(tensor->dl_tensor.data); }

OwnedValue value_of(Tensor tensor) {
  lmn_session_value* value = nullptr;
  CHECK_CALL(lmn_session_value_create(tensor.release(), nullptr, &value, err));
  return OwnedValue(value);
}

// Element (row, column) of A in the test that numbers its runs.
float a_of(int run, int row, int column) {
  return static_cast<float>((run + 3 * row + column) % 7 - 3);
}
// And of C, by hand: B is 1 to 12 in rows of three. Exact in float32.
float c_of(int run, int row, int column) {
  constexpr float kBias[] = {-20, 0, 0.5f};
  float sum = kBias[column];
  for (int k = 0; k < 4; ++k) sum += a_of(run, row, k) * static_cast<float>(3 * k + column + 1);
  return sum > 0 ? sum : 0;
}

void fill_a(float* a, int run, int rows) {
  for (int i = 0; i < rows * 4; ++i) a[i] = a_of(run, i / 4, i % 4);
}
bool is_c(const float* c, int run, int rows) {
  for (int i = 0; i < rows * 3; ++i) {
    if (c[i] != c_of(run, i / 3, i % 3)) return false;
  }
  return true;
}

// One run with new values; whether the result is right.
bool run_once(lmn_session* session, int run, int rows) {
  Tensor a = create_tensor(kDLFloat, 32, {rows, 4});
  fill_a(floats(a), run, rows);
  const OwnedValue input = value_of(std::move(a));
  const lmn_session_value* in[] = {input.get()};
  lmn_session_value* out[] = {nullptr};
  if (lmn_session_run(session, in, 1, out, 1, nullptr) != LMN_OK) return false;
  const OwnedValue output(out[0]);
  DLManagedTensorVersioned* raw = nullptr;
  if (lmn_session_value_tensor_get(out[0], &raw, nullptr) != LMN_OK) return false;
  const Tensor c(raw);
  return c->dl_tensor.ndim == 2 && c->dl_tensor.shape[0] == rows && c->dl_tensor.shape[1] == 3 &&
         is_c(floats(c), run, rows);
}

TEST(sessions_run) {
  const OwnedSession session = create_session();
  for (int rows = 0; rows < 9; ++rows) EXPECT(run_once(session.get(), rows, rows));
  auto info = sized<lmn_session_info>();
  CHECK_CALL(lmn_session_info_get(session.get(), &info, err));
  EXPECT(info.input_count == 1 && info.output_count == 1 && info.threads == 1);
  auto port = sized<lmn_port_info>();
  CHECK_CALL(lmn_session_input_get(session.get(), 0, &port, err));
  EXPECT(std::string(port.name) == "A" && std::string(port.dtype) == "f32" && port.ndim == 2);
  EXPECT(port.kind == LMN_SESSION_VALUE_TENSOR && port.shape[0] == -1 && port.shape[1] == 4);
  EXPECT(port.symbols[0] != nullptr && std::string(port.symbols[0]) == "rows");
  EXPECT(port.symbols[1] == nullptr);
}

TEST(session_models_in_memory_are_copied) {
  std::string bytes = model_bytes();
  lmn_session* raw = nullptr;
  CHECK_CALL(lmn_session_bytes_create(bytes.data(), bytes.size(), nullptr, &raw, err));
  const OwnedSession session(raw);
  std::fill(bytes.begin(), bytes.end(), 'x');
  EXPECT(run_once(session.get(), 1, 2));
}

TEST(session_null_arguments) {
  lmn_session* session = nullptr;
  EXPECT_NULL_ARGUMENT("path", lmn_session_create(nullptr, nullptr, &session, err));
  EXPECT_NULL_ARGUMENT("session", lmn_session_create(kModel, nullptr, nullptr, err));
  EXPECT_NULL_ARGUMENT("data", lmn_session_bytes_create(nullptr, 1, nullptr, &session, err));
  EXPECT_NULL_ARGUMENT("session", lmn_session_bytes_create("x", 1, nullptr, nullptr, err));
  auto info = sized<lmn_session_info>();
  auto port = sized<lmn_port_info>();
  EXPECT_NULL_ARGUMENT("session", lmn_session_info_get(nullptr, &info, err));
  EXPECT_NULL_ARGUMENT("session", lmn_session_input_get(nullptr, 0, &port, err));
  EXPECT_NULL_ARGUMENT("session", lmn_session_output_get(nullptr, 0, &port, err));
  EXPECT_NULL_ARGUMENT("session", lmn_session_run(nullptr, nullptr, 0, nullptr, 0, err));
  EXPECT_NULL_ARGUMENT("session",
                       lmn_binding_create(nullptr, nullptr, 0, nullptr, 0, nullptr, err));
  EXPECT_NULL_ARGUMENT("binding", lmn_binding_run(nullptr, err));
  size_t length = 0;
  EXPECT_NULL_ARGUMENT("session", lmn_session_graph_get(nullptr, 0, nullptr, 0, &length, err));

  const OwnedSession here = create_session();
  EXPECT_NULL_ARGUMENT("info", lmn_session_info_get(here.get(), nullptr, err));
  EXPECT_NULL_ARGUMENT("info", lmn_session_input_get(here.get(), 0, nullptr, err));
  EXPECT_NULL_ARGUMENT("inputs", lmn_session_run(here.get(), nullptr, 1, nullptr, 1, err));
  const OwnedValue input = value_of(create_tensor(kDLFloat, 32, {1, 4}));
  const lmn_session_value* in[] = {input.get()};
  EXPECT_NULL_ARGUMENT("outputs", lmn_session_run(here.get(), in, 1, nullptr, 1, err));
  EXPECT_NULL_ARGUMENT("binding", lmn_binding_create(here.get(), in, 1, nullptr, 1, nullptr, err));
  in[0] = nullptr;
  lmn_session_value* out[] = {nullptr};
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "inputs[0] is NULL",
                 lmn_session_run(here.get(), in, 1, out, 1, err));
  lmn_session_destroy(nullptr);
  lmn_binding_destroy(nullptr);
  lmn_session_value_destroy(nullptr);
}

TEST(session_value_null_arguments) {
  lmn_session_value* value = nullptr;
  EXPECT_NULL_ARGUMENT("tensor", lmn_session_value_create(nullptr, nullptr, &value, err));
  EXPECT_FAILURE(
      LMN_INVALID_ARGUMENT, "'value' is NULL",
      lmn_session_value_create(create_tensor(kDLFloat, 32, {2}).release(), nullptr, nullptr, err));
  const int64_t shape[] = {1};
  const char* text[] = {nullptr};
  const size_t lengths[] = {3};
  EXPECT_NULL_ARGUMENT("shape",
                       lmn_session_value_strings_create(1, nullptr, text, lengths, &value, err));
  EXPECT_NULL_ARGUMENT("strings",
                       lmn_session_value_strings_create(1, shape, nullptr, lengths, &value, err));
  EXPECT_NULL_ARGUMENT("lengths",
                       lmn_session_value_strings_create(1, shape, text, nullptr, &value, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "strings[0] is NULL",
                 lmn_session_value_strings_create(1, shape, text, lengths, &value, err));
  EXPECT_NULL_ARGUMENT("dtype",
                       lmn_session_value_items_create(1, nullptr, nullptr, 0, &value, err));
  EXPECT_NULL_ARGUMENT("items", lmn_session_value_items_create(1, "f32", nullptr, 1, &value, err));
  const lmn_session_value* none[] = {nullptr};
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "items[0] is NULL",
                 lmn_session_value_items_create(1, "f32", none, 1, &value, err));
  auto info = sized<lmn_session_value_info>();
  DLManagedTensorVersioned* tensor = nullptr;
  const char* at = nullptr;
  size_t length = 0;
  EXPECT_NULL_ARGUMENT("value", lmn_session_value_info_get(nullptr, &info, err));
  EXPECT_NULL_ARGUMENT("value", lmn_session_value_tensor_get(nullptr, &tensor, err));
  EXPECT_NULL_ARGUMENT("value", lmn_session_value_string_get(nullptr, 0, &at, &length, err));
  EXPECT_NULL_ARGUMENT("value", lmn_session_value_item_get(nullptr, 0, &value, err));
}

TEST(session_wrong_files_and_options) {
  lmn_session* session = nullptr;
  EXPECT_FAILURE(LMN_NOT_FOUND, "/nonexistent/x.onnx",
                 lmn_session_create("/nonexistent/x.onnx", nullptr, &session, err));
  EXPECT_FAILURE(LMN_CORRUPT, "",
                 lmn_session_bytes_create("\xff\xff\xff", 3, nullptr, &session, err));
  auto options = sized<lmn_session_options>();
  options.threads = -1;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "threads is -1",
                 lmn_session_create(kModel, &options, &session, err));
  options = sized<lmn_session_options>();
  options.optimize = 9;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "optimize",
                 lmn_session_create(kModel, &options, &session, err));
  options = sized<lmn_session_options>();
  options.device = "gpu";
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "device is \"gpu\"",
                 lmn_session_create(kModel, &options, &session, err));
  options.device = "cuda:1000";  // on no machine
  EXPECT_FAILURE(LMN_UNSUPPORTED, "cuda:1000", lmn_session_create(kModel, &options, &session, err));
  struct {
    lmn_session_options known;
    uint64_t added_later;
  } future{};
  future.known.struct_size = sizeof future;
  future.added_later = 1;
  EXPECT_FAILURE(LMN_UNSUPPORTED, "", lmn_session_create(kModel, &future.known, &session, err));
  // Every prefix of the file is an error or a session, never a crash.
  const std::string bytes = model_bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Outcome out = outcome_of([&](lmn_error** err) {
      return lmn_session_bytes_create(bytes.data(), size, nullptr, &session, err);
    });
    if (out.status == LMN_OK) lmn_session_destroy(session);
  }
}

TEST(session_wrong_values) {
  const OwnedSession session = create_session();
  const OwnedValue right = value_of(create_tensor(kDLFloat, 32, {1, 4}));
  lmn_session_value* out[] = {nullptr, nullptr};
  const lmn_session_value* in[] = {right.get(), right.get()};
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "2 inputs; the model has 1",
                 lmn_session_run(session.get(), in, 2, out, 1, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "2 outputs; the model has 1",
                 lmn_session_run(session.get(), in, 1, out, 2, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "0 inputs",
                 lmn_session_run(session.get(), nullptr, 0, out, 1, err));
  Tensor wrongs[] = {create_tensor(kDLFloat, 64, {1, 4}), create_tensor(kDLInt, 32, {1, 4}),
                     create_tensor(kDLFloat, 32, {1, 5}), create_tensor(kDLFloat, 32, {4})};
  for (Tensor& wrong : wrongs) {
    const OwnedValue value = value_of(std::move(wrong));
    const lmn_session_value* bad[] = {value.get()};
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "input 'A' is",
                   lmn_session_run(session.get(), bad, 1, out, 1, err));
    EXPECT(out[0] == nullptr);
  }
  lmn_session_value* sequence = nullptr;
  CHECK_CALL(
      lmn_session_value_items_create(LMN_SESSION_VALUE_SEQUENCE, "f32", in, 1, &sequence, err));
  const OwnedValue held(sequence);
  const lmn_session_value* bad[] = {sequence};
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "input 'A' is sequence f32",
                 lmn_session_run(session.get(), bad, 1, out, 1, err));
  auto port = sized<lmn_port_info>();
  EXPECT_FAILURE(LMN_NOT_FOUND, "input 1 of 1",
                 lmn_session_input_get(session.get(), 1, &port, err));
  EXPECT_FAILURE(LMN_NOT_FOUND, "output 7 of 1",
                 lmn_session_output_get(session.get(), 7, &port, err));
}

TEST(session_output_buffers) {
  const OwnedSession session = create_session();
  Tensor a = create_tensor(kDLFloat, 32, {3, 4});
  fill_a(floats(a), 5, 3);
  const OwnedValue input = value_of(std::move(a));
  Tensor c = create_tensor(kDLFloat, 32, {3, 3});
  const float* data = floats(c);
  const OwnedValue buffer = value_of(std::move(c));
  const lmn_session_value* in[] = {input.get()};
  lmn_session_value* out[] = {buffer.get()};
  CHECK_CALL(lmn_session_run(session.get(), in, 1, out, 1, err));
  EXPECT(out[0] == buffer.get() && is_c(data, 5, 3));
  const OwnedValue wrong = value_of(create_tensor(kDLFloat, 32, {2, 3}));
  out[0] = wrong.get();
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "output 'C' is f32[2, 3], expected f32[3, 3]",
                 lmn_session_run(session.get(), in, 1, out, 1, err));
}

TEST(session_values_of_every_kind) {
  lmn_session_value* raw = nullptr;
  const int64_t shape[] = {2};
  const char* texts[] = {"a\0b", ""};
  const size_t lengths[] = {3, 0};
  CHECK_CALL(lmn_session_value_strings_create(1, shape, texts, lengths, &raw, err));
  OwnedValue strings(raw);
  const char* text = nullptr;
  size_t length = 9;
  CHECK_CALL(lmn_session_value_string_get(raw, 0, &text, &length, err));
  EXPECT(std::string(text, length) == std::string("a\0b", 3));
  CHECK_CALL(lmn_session_value_string_get(raw, 1, &text, &length, err));
  EXPECT_EQ(length, 0u);
  EXPECT_FAILURE(LMN_NOT_FOUND, "string 2 of 2",
                 lmn_session_value_string_get(raw, 2, &text, &length, err));
  DLManagedTensorVersioned* tensor = nullptr;
  EXPECT_FAILURE(LMN_UNSUPPORTED, "strings", lmn_session_value_tensor_get(raw, &tensor, err));
  const int64_t negative[] = {-1}, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "shape[0]",
                 lmn_session_value_strings_create(1, negative, texts, lengths, &raw, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "shape[1]",
                 lmn_session_value_strings_create(2, huge, texts, lengths, &raw, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "ndim is 9",
                 lmn_session_value_strings_create(9, shape, texts, lengths, &raw, err));

  const lmn_session_value* items[] = {strings.get(), strings.get()};
  CHECK_CALL(
      lmn_session_value_items_create(LMN_SESSION_VALUE_SEQUENCE, "string", items, 2, &raw, err));
  const OwnedValue sequence(raw);
  strings.reset();  // the sequence keeps it
  auto info = sized<lmn_session_value_info>();
  CHECK_CALL(lmn_session_value_info_get(sequence.get(), &info, err));
  EXPECT(info.kind == LMN_SESSION_VALUE_SEQUENCE && info.item_count == 2);
  lmn_session_value* item = nullptr;
  CHECK_CALL(lmn_session_value_item_get(sequence.get(), 1, &item, err));
  const OwnedValue held(item);
  CHECK_CALL(lmn_session_value_string_get(item, 0, &text, &length, err));
  EXPECT_EQ(length, 3u);
  EXPECT_FAILURE(LMN_NOT_FOUND, "item 2 of 2",
                 lmn_session_value_item_get(sequence.get(), 2, &item, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "not a tensor",
                 lmn_session_value_tensor_get(sequence.get(), &tensor, err));
  for (const int32_t kind : {-1, LMN_SESSION_VALUE_TENSOR, 4})
    EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "kind is",
                   lmn_session_value_items_create(kind, "f32", nullptr, 0, &raw, err));
  items[0] = items[1] = held.get();
  EXPECT_FAILURE(
      LMN_INVALID_ARGUMENT, "2 items",
      lmn_session_value_items_create(LMN_SESSION_VALUE_OPTIONAL, "string", items, 2, &raw, err));
  EXPECT_FAILURE(
      LMN_INVALID_ARGUMENT, "1 items",
      lmn_session_value_items_create(LMN_SESSION_VALUE_MAP, "string", items, 1, &raw, err));
  EXPECT_FAILURE(
      LMN_INVALID_ARGUMENT, "element type \"q4_0\" is not known",
      lmn_session_value_items_create(LMN_SESSION_VALUE_SEQUENCE, "q4_0", items, 1, &raw, err));
}

// A tensor of this test's own, which counts how often its deleter is called.
struct Counted {
  DLManagedTensorVersioned managed{};
  int64_t shape[9] = {2, 2, 1, 1, 1, 1, 1, 1, 1};
  int64_t strides[9] = {1, 2, 1, 1, 1, 1, 1, 1, 1};  // of the transpose
  float data[4] = {1, 2, 3, 4};
  int deleted = 0;

  Counted() {
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Counted*>(self->manager_ctx)->deleted;
    };
    managed.dl_tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  }
};

TEST(session_values_take_tensors_over_whatever_happens) {
  const auto refused = [](lmn_status status, const std::string& word, const char* dtype,
                          const std::function<void(Counted*)>& spoil) {
    Counted tensor;
    spoil(&tensor);
    lmn_session_value* value = nullptr;
    EXPECT_FAILURE(status, word, lmn_session_value_create(&tensor.managed, dtype, &value, err));
    EXPECT_EQ(tensor.deleted, 1);
  };
  refused(LMN_UNSUPPORTED, "DLPack 9", nullptr, [](Counted* t) { t->managed.version.major = 9; });
  refused(LMN_INVALID_ARGUMENT, "CPU", nullptr,
          [](Counted* t) { t->managed.dl_tensor.device.device_type = kDLCUDA; });
  refused(LMN_INVALID_ARGUMENT, "9 dimensions", nullptr,
          [](Counted* t) { t->managed.dl_tensor.ndim = 9; });
  refused(LMN_INVALID_ARGUMENT, "-1 dimensions", nullptr,
          [](Counted* t) { t->managed.dl_tensor.ndim = -1; });
  refused(LMN_INVALID_ARGUMENT, "is -3", nullptr, [](Counted* t) { t->shape[1] = -3; });
  refused(LMN_INVALID_ARGUMENT, "64 bits", nullptr,
          [](Counted* t) { t->shape[0] = t->shape[1] = int64_t{1} << 62; });
  refused(LMN_INVALID_ARGUMENT, "no data", nullptr,
          [](Counted* t) { t->managed.dl_tensor.data = nullptr; });
  refused(LMN_INVALID_ARGUMENT, "lanes 2", nullptr,
          [](Counted* t) { t->managed.dl_tensor.dtype.lanes = 2; });
  refused(LMN_INVALID_ARGUMENT, "code 5", nullptr, [](Counted* t) {
    t->managed.dl_tensor.dtype = {kDLComplex, 64, 1};
  });
  refused(LMN_INVALID_ARGUMENT, "not as wide", "f64", [](Counted*) {});
  refused(LMN_INVALID_ARGUMENT, "not as wide", "string", [](Counted*) {});
  refused(LMN_INVALID_ARGUMENT, "not known", "f33", [](Counted*) {});

  Counted transposed;  // is copied, and let go of at once
  lmn_session_value* value = nullptr;
  CHECK_CALL(lmn_session_value_create(&transposed.managed, nullptr, &value, err));
  EXPECT_EQ(transposed.deleted, 1);
  DLManagedTensorVersioned* raw = nullptr;
  CHECK_CALL(lmn_session_value_tensor_get(value, &raw, err));
  const Tensor copy(raw);
  lmn_session_value_destroy(value);
  const float want[] = {1, 3, 2, 4};
  EXPECT_EQ(std::memcmp(floats(copy), want, sizeof want), 0);

  Counted compact;
  compact.managed.dl_tensor.strides = nullptr;
  CHECK_CALL(lmn_session_value_create(&compact.managed, nullptr, &value, err));
  CHECK_CALL(lmn_session_value_tensor_get(value, &raw, err));
  EXPECT(raw->dl_tensor.data == compact.data);
  lmn_session_value_destroy(value);
  EXPECT_EQ(compact.deleted, 0);  // the tensor that came out still reads it
  lmn_tensor_destroy(raw);
  EXPECT_EQ(compact.deleted, 1);
}

TEST(session_bindings) {
  OwnedSession session = create_session(2);
  Tensor a = create_tensor(kDLFloat, 32, {2, 4}), c = create_tensor(kDLFloat, 32, {2, 3});
  float *in_data = floats(a), *out_data = floats(c);
  OwnedValue input = value_of(std::move(a)), output = value_of(std::move(c));
  const lmn_session_value *in[] = {input.get()}, *out[] = {output.get()};
  lmn_binding* raw = nullptr;
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "0 inputs",
                 lmn_binding_create(session.get(), nullptr, 0, out, 1, &raw, err));
  const OwnedValue wrong = value_of(create_tensor(kDLFloat, 32, {3, 3}));
  const lmn_session_value* bad[] = {wrong.get()};
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "output 'C'",
                 lmn_binding_create(session.get(), in, 1, bad, 1, &raw, err));
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "input 'A'",
                 lmn_binding_create(session.get(), bad, 1, out, 1, &raw, err));
  CHECK_CALL(lmn_binding_create(session.get(), in, 1, out, 1, &raw, err));
  const OwnedBinding binding(raw);
  session.reset();  // the binding keeps what it needs
  input.reset();
  output.reset();
  for (int run = 0; run < 100; ++run) {
    fill_a(in_data, run, 2);
    CHECK_CALL(lmn_binding_run(raw, err));
    EXPECT(is_c(out_data, run, 2));
  }
}

TEST(session_results_outlive_the_session) {
  OwnedSession session = create_session();
  OwnedValue input = value_of(create_tensor(kDLFloat, 32, {1, 4}));
  const lmn_session_value* in[] = {input.get()};
  lmn_session_value* out[] = {nullptr};
  CHECK_CALL(lmn_session_run(session.get(), in, 1, out, 1, err));
  session.reset();
  input.reset();
  DLManagedTensorVersioned* raw = nullptr;
  CHECK_CALL(lmn_session_value_tensor_get(out[0], &raw, err));
  lmn_session_value_destroy(out[0]);
  const Tensor c(raw);
  EXPECT(floats(c)[0] == 0 && floats(c)[1] == 0 && floats(c)[2] == 0.5f);
}

TEST(session_graph_text_follows_the_rule_of_buffers) {
  const OwnedSession session = create_session();
  size_t length = 0;
  EXPECT_EQ(lmn_session_graph_get(session.get(), 0, nullptr, 0, &length, nullptr),
            LMN_BUFFER_TOO_SMALL);
  std::string text(length, '?');
  CHECK_CALL(lmn_session_graph_get(session.get(), 0, text.data(), text.size(), &length, err));
  EXPECT(length == text.size() && text.find("MatMul") != std::string::npos);
  EXPECT_FAILURE(LMN_INVALID_ARGUMENT, "optimized",
                 lmn_session_graph_get(session.get(), 2, text.data(), text.size(), &length, err));
}

// Bytes that the process has.
size_t resident_bytes() {
  size_t total = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%zu %zu", &total, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// 100,000 runs of one session by eight threads, of eight shapes and through bindings.
TEST(session_eight_threads) {
  constexpr int kThreads = 8, kRuns = 12'500;
  const OwnedSession session = create_session(2);
  std::atomic<int> wrong{0};
  const auto work = [&](int runs) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const int rows = 1 + t;
        Tensor a = create_tensor(kDLFloat, 32, {rows, 4}),
               c = create_tensor(kDLFloat, 32, {rows, 3});
        float *in_data = floats(a), *out_data = floats(c);
        const OwnedValue input = value_of(std::move(a)), output = value_of(std::move(c));
        const lmn_session_value *in[] = {input.get()}, *out[] = {output.get()};
        lmn_binding* raw = nullptr;
        if (lmn_binding_create(session.get(), in, 1, out, 1, &raw, nullptr) != LMN_OK) ++wrong;
        const OwnedBinding binding(raw);
        for (int run = 0; run < runs; ++run) {
          if (run % 2 == 0) {
            wrong += !run_once(session.get(), t + run, 1 + (t + run) % kThreads);
          } else {
            fill_a(in_data, run, rows);
            wrong += lmn_binding_run(raw, nullptr) != LMN_OK || !is_c(out_data, run, rows);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  work(200);
  const size_t before = resident_bytes();
  work(kRuns);
  EXPECT_EQ(wrong.load(), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT(resident_bytes() < before + (16u << 20));  // a leak of 200 bytes a run would show
#else
  (void)before;
#endif
}

TEST(session_in_a_forked_child) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  ::testing::skip("the sanitizers' own locks do not survive a fork beside a thread that allocates");
#endif
  const OwnedSession session = create_session(2);
  EXPECT(run_once(session.get(), 0, 2));
  const pid_t pid = fork();
  if (pid == 0) {
    Tensor a = create_tensor(kDLFloat, 32, {1, 4});
    const OwnedValue input = value_of(std::move(a));
    const lmn_session_value* in[] = {input.get()};
    lmn_session_value* out[] = {nullptr};
    const lmn_status status = lmn_session_run(session.get(), in, 1, out, 1, nullptr);
    // A session of its own works.
    const bool own = run_once(create_session(2).get(), 3, 2);
    _exit(status == LMN_CLOSED && own ? 0 : 1);
  }
  int status = 1;
  waitpid(pid, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT(run_once(session.get(), 1, 2));
}

TEST(session_cpp) {
  const lmnative::Session session(kModel, {.threads = 1});
  EXPECT(session.info().input_count == 1 && std::string(session.input(0).name) == "A" &&
         std::string(session.output(0).name) == "C");
  EXPECT(session.graph(false).find("MatMul") != std::string::npos);
  lmnative::Tensor a(kDLFloat, 32, {2, 4}), c(kDLFloat, 32, {2, 3});
  fill_a(a.values<float>().data(), 4, 2);
  float* written = c.values<float>().data();
  std::vector<lmnative::SessionValue> in, out;
  in.emplace_back(std::move(a));
  out.emplace_back(std::move(c));
  const std::vector<lmnative::SessionValue> outputs = session.run(in);
  ASSERT(outputs.size() == 1 && outputs[0].info().ndim == 2);
  EXPECT(is_c(outputs[0].tensor().values<float>().data(), 4, 2));
  EXPECT(session.run(in[0]).size() == 1);
  lmnative::Binding binding = session.bind(in, out);
  binding.run();
  EXPECT(is_c(written, 4, 2));

  const std::string bytes = model_bytes();
  const lmnative::Session copy(std::as_bytes(std::span(bytes)));
  EXPECT(is_c(copy.run(in)[0].tensor().values<float>().data(), 4, 2));
  const std::string_view texts[] = {"x", "yz"};
  const int64_t shape[] = {2};
  const auto strings = lmnative::SessionValue::strings(shape, texts);
  EXPECT(strings.text(1) == "yz");
  const auto sequence =
      lmnative::SessionValue::items(LMN_SESSION_VALUE_SEQUENCE, "string", {&strings, 1});
  EXPECT(sequence.info().item_count == 1 && sequence.item(0).text(0) == "x");
  for (const std::function<void()>& bad : std::initializer_list<std::function<void()>>{
           [&] { (void)lmnative::Session("/nonexistent.onnx"); }, [&] { (void)session.run({}); },
           [&] { (void)sequence.item(1); },
           [&] {
             (void)lmnative::SessionValue::strings(shape, {texts, 1});
           }}) {
    bool thrown = false;
    try {
      bad();
    } catch (const lmnative::Error&) {
      thrown = true;
    }
    EXPECT(thrown);
  }
}

}  // namespace
