// SPDX-License-Identifier: Apache-2.0
//
// Inside the room: the protobuf wire format (https://protobuf.dev/programming-guides/encoding/) as
// far as ONNX uses it. A Message hands out its fields one by one, each checked to lie inside it;
// `get` stores a field, `add` appends one element of a repeated field, packed or not. Both check
// the wire type, and charge what they allocate to the memory limit. It knows no message of ONNX: a
// sub-message of type T is read by parse(Message&, T*), found next to T.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lmn::formats {

// Messages inside messages: what protobuf's own readers allow, so no file that others read is
// refused. It bounds the stack.
inline constexpr int kMaxOnnxDepth = 100;

enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;                // kVarint, kFixed32, kFixed64
  std::span<const std::byte> bytes;  // kBytes
  const std::byte* at = nullptr;     // its first byte, for messages
};

// What one file's messages share.
struct Input {
  std::span<const std::byte> bytes;
  uint64_t memory_limit = 0;
  uint64_t memory_used = 0;

  Status charge(uint64_t bytes, uint64_t count = 1);  // count < 2^60
};

// Reads one varint of at most `end - *at` bytes and moves *at behind it; null, or what is wrong.
const char* read_varint(const std::byte** at, const std::byte* end, uint64_t* value);
// How many varints end in these bytes.
size_t count_varints(std::span<const std::byte> bytes);

class Message {
 public:
  // `up` is the message around this one and `name` its field there ("node", index 12); both
  // outlive it.
  Message(Input* input, std::span<const std::byte> bytes, const Message* up, const char* name,
          size_t index)
      : input_(input),
        at_(bytes.data()),
        end_(bytes.data() + bytes.size()),
        bytes_(bytes),
        up_(up),
        name_(name),
        index_(index),
        depth_(up == nullptr ? 0 : up->depth_ + 1) {}

  Input* input() const { return input_; }
  // Calls `body` (Field -> Status) for each field in order; from the first one again when repeated.
  template <typename Body>
  Status each(Body body) {
    at_ = bytes_.data();
    while (at_ != end_) {
      Field field;
      LMN_RETURN_IF_ERROR(next(&field));
      LMN_RETURN_IF_ERROR(body(field));
    }
    return {};
  }

  Status get(const Field& field, const char* name, int64_t* value) const;
  Status get(const Field& field, const char* name, int32_t* value) const;
  Status get(const Field& field, const char* name, float* value) const;
  Status get(const Field& field, const char* name, std::string_view* text) const;  // UTF-8, no NUL
  Status get_bytes(const Field& field, const char* name, std::span<const std::byte>* bytes) const;
  Status add(const Field& field, const char* name, std::vector<int64_t>* values) const;
  Status add(const Field& field, const char* name, std::vector<float>* values) const;
  Status add(const Field& field, const char* name, std::vector<std::string_view>* texts) const;
  Status add_bytes(const Field& field, const char* name, std::vector<std::string_view>* all) const;

  template <typename T>  // a sub-message
  Status get(const Field& field, const char* name, T* value) const {
    return child(field, name, kSingle, value);
  }
  template <typename T>
  Status get(const Field& field, const char* name, std::unique_ptr<T>* value) const {
    if (*value != nullptr) return twice(field, name);
    LMN_RETURN_IF_ERROR(input_->charge(sizeof(T)));
    *value = std::make_unique<T>();
    return child(field, name, kSingle, value->get());
  }
  template <typename T>
  Status add(const Field& field, const char* name, std::vector<T>* values) const {
    LMN_RETURN_IF_ERROR(grow(values, 1));
    values->emplace_back();
    return child(field, name, values->size() - 1, &values->back());
  }

  Status expect(const Field& field, const char* name, Wire wire) const;
  Status twice(const Field& field, const char* name) const;
  // CORRUPT: "graph.node[12]: <what>, at byte 1234: <the remedy>".
  [[gnu::format(printf, 3, 4)]] Status damaged(const std::byte* at, const char* format, ...) const;

 private:
  static constexpr size_t kSingle = ~size_t{0};

  Status next(Field* field);
  std::string path() const;  // "graph.node[12]"; "" for the outermost
  Status enter(const Field& field, const char* name) const;
  template <typename T>
  Status child(const Field& field, const char* name, size_t index, T* value) const {
    LMN_RETURN_IF_ERROR(enter(field, name));
    Message message(input_, field.bytes, this, name, index);
    return parse(message, value);
  }
  // Room for `more` elements. Twice their size is charged, since vectors grow by doubling.
  template <typename T>
  Status grow(std::vector<T>* values, size_t more) const {
    LMN_RETURN_IF_ERROR(input_->charge(2 * sizeof(T), more));
    const size_t needed = values->size() + more;
    if (needed > values->capacity()) values->reserve(std::max(needed, 2 * values->capacity()));
    return {};
  }

  Input* input_;
  const std::byte* at_;
  const std::byte* end_;
  std::span<const std::byte> bytes_;
  const Message* up_;
  const char* name_;
  size_t index_;
  int depth_;
};

}  // namespace lmn::formats
