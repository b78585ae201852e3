// SPDX-License-Identifier: Apache-2.0
#include "formats/onnx/wire.h"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>

#include "formats/bytes.h"

namespace lmn::formats {
namespace {

using ull = unsigned long long;

const char* wire_name(Wire wire) {
  switch (wire) {
    case Wire::kVarint:
      return "a varint";
    case Wire::kFixed64:
      return "8 bytes";
    case Wire::kBytes:
      return "bytes with a length";
    case Wire::kFixed32:
      return "4 bytes";
  }
  return "?";
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Status Input::charge(uint64_t size, uint64_t count) {
  if (count <= (memory_limit - memory_used) / size) {
    memory_used += size * count;
    return {};
  }
  return error(Code::kOutOfMemory,
               "its structure takes more than the %llu bytes of memory that are allowed for a file "
               "of %zu bytes: raise the limit if you trust the file",
               ull{memory_limit}, bytes.size());
}

const char* read_varint(const std::byte** at, const std::byte* end, uint64_t* value) {
  *value = 0;
  const std::byte* p = *at;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (p == end) return "a number is cut off";
    const auto byte = static_cast<uint64_t>(*p++);
    if (shift == 63 && byte > 1) return "a number has more than 64 bits";
    *value |= (byte & 0x7F) << shift;
    if (byte < 0x80) {
      *at = p;
      return nullptr;
    }
  }
  return "a number has more than 64 bits";
}

std::string Message::path() const {
  if (up_ == nullptr) return "";
  std::string out = up_->path();
  if (!out.empty()) out += '.';
  out += name_;
  if (index_ != kSingle) out += "[" + std::to_string(index_) + "]";
  return out;
}

Status Message::damaged(const std::byte* at, const char* format, ...) const {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::string where = path();
  if (!where.empty()) where += ": ";
  return error(Code::kCorrupt,
               "%s%s, at byte %zu: the file is damaged or cut short, download or copy it again",
               where.c_str(), text, static_cast<size_t>(at - input_->bytes.data()));
}

Status Message::next(Field* field) {
  const std::byte* start = at_;
  field->at = start;
  uint64_t tag = 0;
  if (const char* wrong = read_varint(&at_, end_, &tag)) return damaged(start, "%s", wrong);
  if (tag >> 32 != 0 || tag >> 3 == 0) {
    return damaged(start, "%llu is no field number", ull{tag >> 3});
  }
  field->number = static_cast<uint32_t>(tag >> 3);
  const auto left = [&] { return static_cast<uint64_t>(end_ - at_); };
  switch (tag & 7) {
    case 0:
      field->wire = Wire::kVarint;
      if (const char* wrong = read_varint(&at_, end_, &field->value)) {
        return damaged(start, "field %u: %s", field->number, wrong);
      }
      return {};
    case 1:
    case 5: {
      const size_t size = (tag & 7) == 1 ? 8 : 4;
      field->wire = size == 8 ? Wire::kFixed64 : Wire::kFixed32;
      if (left() < size) return damaged(start, "field %u: a number is cut off", field->number);
      field->value = size == 8 ? load<uint64_t>(at_) : load<uint32_t>(at_);
      at_ += size;
      return {};
    }
    case 2: {
      field->wire = Wire::kBytes;
      uint64_t length = 0;
      if (const char* wrong = read_varint(&at_, end_, &length)) {
        return damaged(start, "field %u: %s", field->number, wrong);
      }
      if (length > left()) {
        return damaged(
            start, "field %u: length %llu runs past the end of the %s, where %llu are left",
            field->number, ull{length}, up_ == nullptr ? "file" : "message around it", ull{left()});
      }
      field->bytes = {at_, static_cast<size_t>(length)};
      at_ += length;
      return {};
    }
    default:
      return damaged(start, "field %u has wire type %u, which ONNX does not use", field->number,
                     static_cast<unsigned>(tag & 7));
  }
}

Status Message::expect(const Field& field, const char* name, Wire wire) const {
  if (field.wire == wire) return {};
  return damaged(field.at, "%s is encoded as %s, not as %s", name, wire_name(field.wire),
                 wire_name(wire));
}

Status Message::twice(const Field& field, const char* name) const {
  return damaged(field.at, "%s occurs twice", name);
}

Status Message::enter(const Field& field, const char* name) const {
  LMN_RETURN_IF_ERROR(expect(field, name, Wire::kBytes));
  if (depth_ < kMaxOnnxDepth) return {};
  return damaged(field.at, "messages are nested deeper than %d", kMaxOnnxDepth);
}

Status Message::get(const Field& field, const char* name, int64_t* value) const {
  LMN_RETURN_IF_ERROR(expect(field, name, Wire::kVarint));
  *value = static_cast<int64_t>(field.value);
  return {};
}

Status Message::get(const Field& field, const char* name, int32_t* value) const {
  int64_t wide = 0;
  LMN_RETURN_IF_ERROR(get(field, name, &wide));
  if (wide < INT32_MIN || wide > INT32_MAX) {
    return damaged(field.at, "%s is %lld, which 32 bits do not hold", name,
                   static_cast<long long>(wide));
  }
  *value = static_cast<int32_t>(wide);
  return {};
}

Status Message::get(const Field& field, const char* name, float* value) const {
  LMN_RETURN_IF_ERROR(expect(field, name, Wire::kFixed32));
  *value = std::bit_cast<float>(static_cast<uint32_t>(field.value));
  return {};
}

Status Message::get_bytes(const Field& field, const char* name,
                          std::span<const std::byte>* bytes) const {
  LMN_RETURN_IF_ERROR(expect(field, name, Wire::kBytes));
  *bytes = field.bytes;
  return {};
}

Status Message::get(const Field& field, const char* name, std::string_view* text) const {
  LMN_RETURN_IF_ERROR(expect(field, name, Wire::kBytes));
  *text = text_of(field.bytes);
  if (is_utf8_without_nul(*text)) return {};
  return damaged(field.at, "%s is %s, not UTF-8 text", name, quoted(*text).c_str());
}

Status Message::add(const Field& field, const char* name,
                    std::vector<std::string_view>* texts) const {
  std::string_view text;
  LMN_RETURN_IF_ERROR(get(field, name, &text));
  LMN_RETURN_IF_ERROR(grow(texts, 1));
  texts->push_back(text);
  return {};
}

Status Message::add_bytes(const Field& field, const char* name,
                          std::vector<std::string_view>* all) const {
  LMN_RETURN_IF_ERROR(expect(field, name, Wire::kBytes));
  LMN_RETURN_IF_ERROR(grow(all, 1));
  all->push_back(text_of(field.bytes));
  return {};
}

Status Message::add(const Field& field, const char* name, std::vector<int64_t>* values) const {
  if (field.wire != Wire::kBytes) {
    int64_t value = 0;
    LMN_RETURN_IF_ERROR(get(field, name, &value));
    LMN_RETURN_IF_ERROR(grow(values, 1));
    values->push_back(value);
    return {};
  }
  LMN_RETURN_IF_ERROR(grow(values, count_varints(field.bytes)));
  const std::byte* at = field.bytes.data();
  for (const std::byte* end = at + field.bytes.size(); at != end;) {
    uint64_t value = 0;
    if (const char* wrong = read_varint(&at, end, &value)) {
      return damaged(at, "%s: %s", name, wrong);
    }
    values->push_back(static_cast<int64_t>(value));
  }
  return {};
}

Status Message::add(const Field& field, const char* name, std::vector<float>* values) const {
  if (field.wire != Wire::kBytes) {
    float value = 0;
    LMN_RETURN_IF_ERROR(get(field, name, &value));
    LMN_RETURN_IF_ERROR(grow(values, 1));
    values->push_back(value);
    return {};
  }
  const size_t size = field.bytes.size();
  if (size % sizeof(float) != 0) {
    return damaged(field.at, "%s has %zu bytes, no multiple of 4", name, size);
  }
  LMN_RETURN_IF_ERROR(grow(values, size / sizeof(float)));
  for (size_t i = 0; i < size; i += sizeof(float)) {
    values->push_back(load<float>(field.bytes.data() + i));
  }
  return {};
}

size_t count_varints(std::span<const std::byte> bytes) {
  return static_cast<size_t>(
      std::count_if(bytes.begin(), bytes.end(), [](std::byte b) { return b < std::byte{0x80}; }));
}

}  // namespace lmn::formats
