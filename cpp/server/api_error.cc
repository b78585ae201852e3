// SPDX-License-Identifier: Apache-2.0
#include "server/api_error.h"

#include <algorithm>
#include <utility>

#include "server/json.h"

namespace lmn::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 501:
    case 505:
      return "invalid_request_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

int http_status(lmn_status status) {
  switch (status) {
    case LMN_INVALID_ARGUMENT:
    case LMN_UNSUPPORTED:
      return 400;
    case LMN_NOT_FOUND:
      return 404;
    case LMN_QUEUE_FULL:
    case LMN_OUT_OF_MEMORY:
      return 429;
    case LMN_CANCELLED:
    case LMN_CLOSED:
      return 503;
    default:
      return 500;
  }
}

const char* code_of(lmn_status status) {
  switch (status) {
    case LMN_INVALID_ARGUMENT:
      return "invalid_value";
    case LMN_UNSUPPORTED:
      return "unsupported_value";
    case LMN_NOT_FOUND:
      return "not_found";
    case LMN_QUEUE_FULL:
      return "queue_full";
    case LMN_OUT_OF_MEMORY:
      return "out_of_memory";
    case LMN_CANCELLED:
    case LMN_CLOSED:
      return "stopping";
    default:
      return "internal_error";
  }
}

}  // namespace

ApiError::ApiError(int status_, std::string message_, std::string param_, std::string code_)
    : status(status_),
      message(std::move(message_)),
      param(std::move(param_)),
      code(std::move(code_)) {}

std::string ApiError::json() const {
  std::string out = R"({"error":{"message":)";
  append_quoted(&out, message);
  out += R"(,"type":")";
  out += type_of(status);
  out += R"(","param":)";
  param.empty() ? void(out += "null") : append_quoted(&out, param);
  out += R"(,"code":)";
  code.empty() ? void(out += "null") : append_quoted(&out, code);
  out += "}}";
  return out;
}

ApiError api_error(const Failure& failure) {
  // Fields of the API that messages of the library begin with.
  constexpr std::string_view kFields[] = {"prompt",
                                          "max_tokens",
                                          "temperature",
                                          "top_k",
                                          "top_p",
                                          "min_p",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "seed",
                                          "repetition_penalty",
                                          "top_logprobs",
                                          "logit_bias",
                                          "stop",
                                          "n",
                                          "priority"};
  std::string message = in_words_of_clients(failure.message);
  const std::string first = message.substr(0, message.find_first_of(" :["));
  const bool is_field =
      std::find(std::begin(kFields), std::end(kFields), first) != std::end(kFields);
  std::string param = is_field ? first : std::string();
  std::string code = code_of(failure.status);
  if (failure.status == LMN_INVALID_ARGUMENT &&
      message.find("leaves no room for an answer") != std::string::npos)
    code = "context_length_exceeded";
  return {http_status(failure.status), std::move(message), std::move(param), std::move(code)};
}

std::string in_words_of_clients(std::string message) {
  for (const std::string_view prefix : {"lmn_request_options.", "lmn_engine_options."}) {
    for (size_t at; (at = message.find(prefix)) != std::string::npos;)
      message.erase(at, prefix.size());
  }
  return message;
}

ApiError bad_field(std::string_view param, std::string_view problem, std::string_view code) {
  return {400, "'" + std::string(param) + "' " + std::string(problem), std::string(param),
          std::string(code)};
}

ApiError out_of_memory() {
  return {503, "the server has no memory for this now", {}, "out_of_memory"};
}

const char* reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Error";
  }
}

}  // namespace lmn::server
