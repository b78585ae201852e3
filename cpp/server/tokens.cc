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
  const json::value body = parse_body(connection.request().body(), {});
  const Fields fields(body.get_object());
  const auto engine = engine_for(server, fields);
  const auto content = fields.text("content");
  if (!content) throw bad_field("content", "is missing", "missing_required_parameter");
  const uint32_t bos = fields.boolean("add_special").value_or(true) ? LMN_DEFAULT : LMN_NO;
  const bool special = fields.boolean("parse_special").value_or(false);
  const lmn_tokenizer* const tokenizer = tokenizer_of(*engine);
  if (content->size() <= kLongTextBytes) {
    std::vector<int32_t> ids;
    const Failure failure = encode(tokenizer, *content, special, bos, &ids);
    if (failure.failed()) throw api_error(failure);
    answer_tokens(connection, ids);
    return;
  }
  run_on_helper(
      connection,
      [engine, tokenizer, text = std::string(*content), special, bos] {
        Encoded out;
        out.failure = encode(tokenizer, text, special, bos, &out.ids);
        return out;
      },
      [](Connection& still, Encoded encoded) {
        if (encoded.failure.failed()) throw api_error(encoded.failure);
        answer_tokens(still, encoded.ids);
      });
}

void post_detokenize(Server& server, Connection& connection) {
  const json::value body = parse_body(connection.request().body(), {});
  const Fields fields(body.get_object());
  const auto engine = engine_for(server, fields);
  const json::array* const tokens = fields.array("tokens");
  if (tokens == nullptr) throw bad_field("tokens", "is missing", "missing_required_parameter");
  const std::vector<int32_t> ids = read_token_ids(*tokens, "tokens");
  std::string text;
  const Failure failure = decode(tokenizer_of(*engine), ids, &text);
  if (failure.failed()) {
    ApiError error = api_error(failure);
    error.param = "tokens";
    throw error;
  }
  std::string out = R"({"content":)";
  append_quoted(&out, text);
  connection.respond(200, kJson, out + "}");
}

}  // namespace lmn::server
