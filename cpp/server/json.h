// SPDX-License-Identifier: Apache-2.0
//
// JSON (Boost.JSON) as the server needs it: bodies into objects, fields with their types checked,
// strings out. Failures are ApiErrors that name the field.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace lmn::server {

namespace json = boost::json;

// The body of a request, which must be an object. Memory comes from `storage`.
json::value parse_body(std::string_view body, const json::storage_ptr& storage);

// The fields of an object. null counts as left out, as OpenAI has it.
class Fields {
 public:
  // `path` comes before the names in errors: "stream_options."
  explicit Fields(const json::object& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  const json::value* find(std::string_view name) const;  // null: left out
  std::string param(std::string_view name) const { return path_ + std::string(name); }

  std::optional<bool> boolean(std::string_view name) const;
  // A whole number of [least, most]; 3.0 is one.
  std::optional<int64_t> integer(std::string_view name, int64_t least, int64_t most) const;
  std::optional<double> number(std::string_view name, double least, double most) const;
  std::optional<std::string_view> text(std::string_view name) const;
  const json::object* object(std::string_view name) const;
  const json::array* array(std::string_view name) const;

 private:
  [[noreturn]] void wrong_type(std::string_view name, const char* wanted) const;

  const json::object& object_;
  std::string path_;
};

// A JSON value that is a whole number, or nothing.
std::optional<int64_t> whole_number(const json::value& value);
const char* kind_name(const json::value& value);  // "a string"

inline std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

// `text`, which is UTF-8, in quotes and escaped.
void append_quoted(std::string* out, std::string_view text);
std::string json_quoted(std::string_view text);
void append_number(std::string* out, double value);  // shortest that reads back as the same
void append_number(std::string* out, float value);
void append_number(std::string* out, int64_t value);
void append_number(std::string* out, uint64_t value);

}  // namespace lmn::server
