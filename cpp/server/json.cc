// SPDX-License-Identifier: Apache-2.0
#include "server/json.h"

#include <charconv>
#include <cmath>

namespace lmn::server {
namespace {

constexpr size_t kMaxDepth = 64;  // more than any request of the API

template <typename T>
void append_chars(std::string* out, T value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out->append(text, static_cast<size_t>(end - text));
}

template <typename T>
void append_finite(std::string* out, T value) {
  if (std::isfinite(value)) {
    append_chars(out, value);
  } else {  // JSON has no word for it
    *out += "null";
  }
}

std::string range_text(double least, double most) {
  std::string out;
  append_number(&out, least);
  out += " to ";
  append_number(&out, most);
  return out;
}

}  // namespace

json::value parse_body(std::string_view body, const json::storage_ptr& storage) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::system::error_code failure;
  json::parser parser(storage, options);
  const size_t read = parser.write_some(body.data(), body.size(), failure);
  if (!failure && read < body.size()) failure = json::error::extra_data;
  if (failure) {
    throw ApiError(400,
                   "the body is not valid JSON: " + failure.message() + " (at byte " +
                       std::to_string(read) + " of " + std::to_string(body.size()) + ")",
                   {}, "invalid_json");
  }
  json::value value = parser.release();
  if (!value.is_object()) {
    throw ApiError(400,
                   std::string("the body is ") + kind_name(value) + "; it must be a JSON object",
                   {}, "invalid_type");
  }
  return value;
}

const json::value* Fields::find(std::string_view name) const {
  const json::value* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void Fields::wrong_type(std::string_view name, const char* wanted) const {
  throw bad_field(param(name),
                  std::string("is ") + kind_name(*find(name)) + "; it must be " + wanted,
                  "invalid_type");
}

std::optional<bool> Fields::boolean(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) wrong_type(name, "a boolean");
  return value->get_bool();
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t least, int64_t most) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> whole = whole_number(*value);
  if (!whole && !value->is_number()) wrong_type(name, "an integer");
  if (!whole || *whole < least || *whole > most) {
    throw bad_field(param(name), "is " + json::serialize(*value) + "; it must be an integer of " +
                                     std::to_string(least) + " to " + std::to_string(most));
  }
  return whole;
}

std::optional<double> Fields::number(std::string_view name, double least, double most) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(name, "a number");
  const double number = value->to_number<double>();
  if (!(number >= least && number <= most)) {
    throw bad_field(param(name),
                    "is " + json::serialize(*value) + "; it must be " + range_text(least, most));
  }
  return number;
}

std::optional<std::string_view> Fields::text(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong_type(name, "a string");
  return view(value->get_string());
}

const json::object* Fields::object(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) wrong_type(name, "an object");
  return &value->get_object();
}

const json::array* Fields::array(std::string_view name) const {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) wrong_type(name, "an array");
  return &value->get_array();
}

std::optional<int64_t> whole_number(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_uint64()) return std::nullopt;  // above what any field takes
  if (!value.is_double()) return std::nullopt;
  const double number = value.get_double();
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (std::nearbyint(number) != number || std::fabs(number) > kExact) return std::nullopt;
  return static_cast<int64_t>(number);
}

const char* kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "a value";
}

void append_quoted(std::string* out, std::string_view text) {
  json::serializer serializer;
  serializer.reset(text);
  char block[256];
  while (!serializer.done()) {
    const auto piece = serializer.read(block);
    out->append(piece.data(), piece.size());
  }
}

std::string json_quoted(std::string_view text) {
  std::string out;
  append_quoted(&out, text);
  return out;
}

void append_number(std::string* out, double value) { append_finite(out, value); }
void append_number(std::string* out, float value) { append_finite(out, value); }

void append_number(std::string* out, int64_t value) { append_chars(out, value); }
void append_number(std::string* out, uint64_t value) { append_chars(out, value); }

}  // namespace lmn::server
