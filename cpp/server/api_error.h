// SPDX-License-Identifier: Apache-2.0
//
// Why a client does not get what it asked for, in OpenAI's shape. Thrown by what reads requests and
// caught where they are dispatched; never leaves the room.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "server/handles.h"

namespace lmn::server {

struct ApiError : std::exception {
  // `param` is the field that is to blame, `code` says it for programs; either may be empty.
  ApiError(int status, std::string message, std::string param = {}, std::string code = {});

  const char* what() const noexcept override { return message.c_str(); }
  std::string json() const;  // {"error": {...}}

  int status;  // of HTTP
  std::string message;
  std::string param;
  std::string code;
};

// The API error for a failed call of the C ABI that had to do with a request. Fields of option
// structs that the message names become `param`.
ApiError api_error(const Failure& failure);

// The message as a client knows it: fields without the names of the C ABI's structs.
std::string in_words_of_clients(std::string message);

// A 400 that names a field.
ApiError bad_field(std::string_view param, std::string_view problem,
                   std::string_view code = "invalid_value");

ApiError out_of_memory();  // a 503

const char* reason_phrase(int status);

}  // namespace lmn::server
