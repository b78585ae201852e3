// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/tokenizer.h.
#include "lmnative/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "capi/handles.h"
#include "capi/options.h"
#include "capi/tri_state.h"
#include "text/chat_template.h"
#include "text/stream_decoder.h"

struct lmn_decoder {
  std::shared_ptr<const lmn::text::Tokenizer> tokenizer;
  lmn::text::StreamDecoder object;
};

namespace lmn::capi {
namespace {

Result<text::EncodeOptions> encode_options(const lmn_encode_options* options) {
  lmn_encode_options given;
  LMN_RETURN_IF_ERROR(read_options(options, "lmn_encode_options", &given));
  LMN_RETURN_IF_ERROR(check_bool(given.parse_special, "lmn_encode_options.parse_special"));
  text::EncodeOptions out;
  out.parse_special = given.parse_special != 0;
  LMN_ASSIGN_OR_RETURN(out.add_bos, tri_state(given.add_bos, "lmn_encode_options.add_bos"));
  LMN_ASSIGN_OR_RETURN(out.add_eos, tri_state(given.add_eos, "lmn_encode_options.add_eos"));
  return out;
}

Result<text::DecodeOptions> decode_options(const lmn_decode_options* options) {
  lmn_decode_options given;
  LMN_RETURN_IF_ERROR(read_options(options, "lmn_decode_options", &given));
  LMN_RETURN_IF_ERROR(check_bool(given.skip_special, "lmn_decode_options.skip_special"));
  LMN_RETURN_IF_ERROR(
      check_bool(given.keep_leading_space, "lmn_decode_options.keep_leading_space"));
  LMN_RETURN_IF_ERROR(check_reserved(given.reserved, "lmn_decode_options.reserved"));
  text::DecodeOptions out;
  out.skip_special = given.skip_special != 0;
  out.strip_leading_space = given.keep_leading_space == 0;
  return out;
}

Status check_text(const char* text, uint64_t bytes, const char* argument) {
  if (text != nullptr || bytes == 0) return {};
  return error(Code::kInvalidArgument, "argument '%s' is NULL and has %llu bytes", argument,
               static_cast<unsigned long long>(bytes));
}

std::string_view view_of(const char* text, uint64_t bytes) {
  return text == nullptr ? std::string_view() : std::string_view(text, static_cast<size_t>(bytes));
}

std::string_view token_text(const text::Tokenizer& tokenizer, int32_t id) {
  return tokenizer.valid_id(id) ? tokenizer.token_bytes(id) : std::string_view();
}

}  // namespace
}  // namespace lmn::capi

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_tokenizer_create(const lmn_model* model, lmn_tokenizer** tokenizer,
                                lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(model);
    LMN_REQUIRE_ONE(tokenizer);
    LMN_ASSIGN_OR_RETURN(std::shared_ptr<const text::Tokenizer> object, model->object->tokenizer());
    auto handle = std::make_unique<lmn_tokenizer>();
    handle->model = model->object;
    handle->model_name = object->model();
    handle->pre = object->pre();
    handle->object = std::move(object);
    *tokenizer = handle.release();
    return {};
  });
}

void lmn_tokenizer_destroy(lmn_tokenizer* tokenizer) {
  guard_destroy([&] { delete tokenizer; });
}

lmn_status lmn_tokenizer_info_get(const lmn_tokenizer* tokenizer, lmn_tokenizer_info* info,
                                  lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(tokenizer);
    LMN_RETURN_IF_ERROR(check_output(info, "info", "lmn_tokenizer_info"));
    const text::Tokenizer& object = *tokenizer->object;
    lmn_tokenizer_info out{};
    out.vocab_size = static_cast<uint32_t>(object.vocab_size());
    out.model = tokenizer->model_name.c_str();
    out.pre = tokenizer->pre.c_str();
    out.bos_id = object.bos_id();
    out.eos_id = object.eos_id();
    out.eot_id = object.eot_id();
    out.unk_id = object.unk_id();
    out.pad_id = object.pad_id();
    out.add_bos = object.add_bos() ? 1 : 0;
    out.add_eos = object.add_eos() ? 1 : 0;
    write_output(out, info);
    return {};
  });
}

lmn_status lmn_tokenizer_token_get(const lmn_tokenizer* tokenizer, int32_t id, lmn_token_info* info,
                                   lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(tokenizer);
    LMN_RETURN_IF_ERROR(check_output(info, "info", "lmn_token_info"));
    const text::Tokenizer& object = *tokenizer->object;
    if (!object.valid_id(id)) {
      return error(Code::kInvalidArgument, "token id %d is outside the vocabulary [0, %d)", id,
                   object.vocab_size());
    }
    const std::string_view bytes = object.token_bytes(id);
    lmn_token_info out{};
    out.kind = static_cast<uint32_t>(object.kind(id));
    out.bytes = bytes.data();
    out.byte_count = bytes.size();
    out.end_of_generation = object.is_end_of_generation(id) ? 1 : 0;
    write_output(out, info);
    return {};
  });
}

lmn_status lmn_tokenizer_encode(const lmn_tokenizer* tokenizer, const char* text, size_t text_bytes,
                                const lmn_encode_options* options, int32_t* ids, size_t capacity,
                                size_t* count, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(tokenizer);
    LMN_RETURN_IF_ERROR(check_text(text, text_bytes, "text"));
    LMN_RETURN_IF_ERROR(check_buffer(ids, capacity, "ids", count, "count"));
    LMN_ASSIGN_OR_RETURN(const text::EncodeOptions how, encode_options(options));
    LMN_ASSIGN_OR_RETURN(const std::vector<int32_t> result,
                         tokenizer->object->encode(view_of(text, text_bytes), how));
    return write_items(ids, capacity, result.size(), count,
                       [&](int32_t* out) { std::copy(result.begin(), result.end(), out); });
  });
}

lmn_status lmn_tokenizer_decode(const lmn_tokenizer* tokenizer, const int32_t* ids, size_t id_count,
                                const lmn_decode_options* options, char* text, size_t capacity,
                                size_t* text_bytes, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(tokenizer);
    if (id_count > 0) LMN_REQUIRE_ONE(ids);
    LMN_RETURN_IF_ERROR(check_buffer(text, capacity, "text", text_bytes, "text_bytes"));
    LMN_ASSIGN_OR_RETURN(const text::DecodeOptions how, decode_options(options));
    LMN_ASSIGN_OR_RETURN(const std::string result, tokenizer->object->decode({ids, id_count}, how));
    return write_items(text, capacity, result.size(), text_bytes,
                       [&](char* out) { std::memcpy(out, result.data(), result.size()); });
  });
}

lmn_status lmn_decoder_create(const lmn_tokenizer* tokenizer, const lmn_decode_options* options,
                              lmn_decoder** decoder, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(tokenizer);
    LMN_REQUIRE_ONE(decoder);
    LMN_ASSIGN_OR_RETURN(const text::DecodeOptions how, decode_options(options));
    *decoder = new lmn_decoder{tokenizer->object, text::StreamDecoder(*tokenizer->object, how)};
    return {};
  });
}

void lmn_decoder_destroy(lmn_decoder* decoder) {
  guard_destroy([&] { delete decoder; });
}

lmn_status lmn_decoder_decode(lmn_decoder* decoder, int32_t id, const char** text,
                              size_t* text_bytes, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(decoder);
    LMN_REQUIRE_ONE(text);
    LMN_REQUIRE_ONE(text_bytes);
    LMN_ASSIGN_OR_RETURN(const std::string_view piece, decoder->object.push(id));
    *text = piece.empty() ? "" : piece.data();
    *text_bytes = piece.size();
    return {};
  });
}

lmn_status lmn_decoder_flush(lmn_decoder* decoder, const char** text, size_t* text_bytes,
                             lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(decoder);
    LMN_REQUIRE_ONE(text);
    LMN_REQUIRE_ONE(text_bytes);
    const std::string_view piece = decoder->object.flush();
    *text = piece.empty() ? "" : piece.data();
    *text_bytes = piece.size();
    return {};
  });
}

lmn_status lmn_tokenizer_chat_render(const lmn_tokenizer* tokenizer,
                                     const lmn_chat_message* messages, size_t message_count,
                                     const lmn_chat_options* options, char* text, size_t capacity,
                                     size_t* text_bytes, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(tokenizer);
    if (message_count > 0) LMN_REQUIRE_ONE(messages);
    LMN_RETURN_IF_ERROR(check_buffer(text, capacity, "text", text_bytes, "text_bytes"));
    lmn_chat_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_chat_options", &given));
    LMN_RETURN_IF_ERROR(
        check_bool(given.no_generation_prompt, "lmn_chat_options.no_generation_prompt"));
    const text::Tokenizer& object = *tokenizer->object;
    if (object.chat_template().empty()) {
      return error(Code::kNotFound, "%s has no chat template; write the prompt out yourself",
                   tokenizer->model->file().path().c_str());
    }
    std::vector<text::ChatMessage> turns;
    turns.reserve(message_count);
    for (size_t i = 0; i < message_count; ++i) {
      if (messages[i].role == nullptr) {
        return error(Code::kInvalidArgument, "messages[%zu].role is NULL", i);
      }
      LMN_RETURN_IF_ERROR(
          check_text(messages[i].content, messages[i].content_bytes, "messages[].content"));
      turns.push_back({messages[i].role, view_of(messages[i].content, messages[i].content_bytes)});
    }
    LMN_ASSIGN_OR_RETURN(
        const std::string result,
        text::render_chat(object.chat_template(), turns, given.no_generation_prompt == 0,
                          token_text(object, object.bos_id()),
                          token_text(object, object.eos_id())));
    return write_items(text, capacity, result.size(), text_bytes,
                       [&](char* out) { std::memcpy(out, result.data(), result.size()); });
  });
}

}  // extern "C"
