// SPDX-License-Identifier: Apache-2.0
//
// /tokenize and /detokenize, and what others need of the same.
#include "server/tokens.h"

#include <utility>

#include "server/generation_request.h"
#include "server/routes.h"

namespace lmn::server {
namespace {

const lmn_tokenizer* tokenizer_of(const ServedEngine& engine) {
  if (engine.tokenizer == nullptr) throw api_error(engine.no_tokenizer);
  return engine.tokenizer.get();
}

void answer_tokens(Connection& connection, const std::vector<int32_t>& ids) {
  std::string out = R"({"tokens":[)";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_number(&out, int64_t{ids[i]});
  }
  out += R"(],"count":)";
  append_number(&out, uint64_t{ids.size()});
  connection.respond(200, kJson, out + "}");
}

struct Encoded {
  std::vector<int32_t> ids;
  Failure failure;
};

}  // namespace

Failure encode(const lmn_tokenizer* tokenizer, std::string_view text, bool special, uint32_t bos,
               std::vector<int32_t>* ids) {
  auto how = sized<lmn_encode_options>();
  how.parse_special = special ? 1 : 0;
  how.add_bos = bos;
  how.add_eos = LMN_NO;
  return filled(ids, text.size() / 3 + 16,
                [&](int32_t* out, size_t capacity, size_t* count, lmn_error** err) {
                  return lmn_tokenizer_encode(tokenizer, text.empty() ? "" : text.data(),
                                              text.size(), &how, out, capacity, count, err);
                });
}

Failure decode(const lmn_tokenizer* tokenizer, std::span<const int32_t> ids, std::string* text) {
  return filled(text, ids.size() * 6 + 16,
                [&](char* out, size_t capacity, size_t* count, lmn_error** err) {
                  return lmn_tokenizer_decode(tokenizer, ids.data(), ids.size(), nullptr, out,
                                              capacity, count, err);
                });
}

void post_tokenize(Server& server, Connection& connection) {
  struct Request {
    std::optional<std::string> model;
    std::string content;
    uint32_t bos;
    bool special;
  };
  const auto read = [](const Fields& fields) {
    const auto content = fields.text("content");
    if (!content) throw bad_field("content", "is missing", "missing_required_parameter");
    return Request{
        read_model(fields), std::string(*content),
        fields.boolean("add_special").value_or(true) ? uint32_t{LMN_DEFAULT} : uint32_t{LMN_NO},
        fields.boolean("parse_special").value_or(false)};
  };
  read_body(connection, read, [&server](Connection& still, Request request) {
    const auto engine = engine_for(server, request.model);
    const lmn_tokenizer* const tokenizer = tokenizer_of(*engine);
    const auto job = [engine, tokenizer, request = std::move(request)] {
      Encoded out;
      out.failure = encode(tokenizer, request.content, request.special, request.bos, &out.ids);
      return out;
    };
    const auto then = [](Connection& waiting, const Encoded& encoded) {
      if (encoded.failure.failed()) throw api_error(encoded.failure);
      answer_tokens(waiting, encoded.ids);
    };
    if (still.request().body().size() <= kLongTextBytes) {
      then(still, job());
    } else {
      run_on_helper(still, job, then);
    }
  });
}

void post_detokenize(Server& server, Connection& connection) {
  struct Request {
    std::optional<std::string> model;
    std::vector<int32_t> tokens;
  };
  const auto read = [](const Fields& fields) {
    const json::array* const tokens = fields.array("tokens");
    if (tokens == nullptr) throw bad_field("tokens", "is missing", "missing_required_parameter");
    return Request{read_model(fields), read_token_ids(*tokens, "tokens")};
  };
  read_body(connection, read, [&server](Connection& still, const Request& request) {
    const auto engine = engine_for(server, request.model);
    std::string text;
    const Failure failure = decode(tokenizer_of(*engine), request.tokens, &text);
    if (failure.failed()) {
      ApiError error = api_error(failure);
      error.param = "tokens";
      throw error;
    }
    std::string out = R"({"content":)";
    append_quoted(&out, text);
    still.respond(200, kJson, out + "}");
  });
}

}  // namespace lmn::server
