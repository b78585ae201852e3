// SPDX-License-Identifier: Apache-2.0
//
// Puts the parts together: creation from TokenizerData with all its checks, the order of special
// tokens and text in encode(), and what the file's defaults mean.
#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/check.h"
#include "text/bpe/byte_level_bpe.h"
#include "text/bpe/sentencepiece_bpe.h"
#include "text/bpe/special_tokens.h"
#include "text/bpe/vocabulary.h"
#include "text/stream_decoder.h"
#include "text/unicode/utf8.h"

namespace lmn::text {
namespace {

// Tokens that end a turn or a text in the model families in use, by name. Counted only when they
// are control or user-defined: a normal token of that spelling can be part of any text.
constexpr std::string_view kEndMarkers[] = {
    "</s>",             // Llama 2, Mistral, Zephyr
    "<eos>",            // Gemma
    "<end_of_turn>",    // Gemma
    "<|im_end|>",       // ChatML
    "<|endoftext|>",    // GPT-2, Qwen2, SmolLM2, Phi-3
    "<|end_of_text|>",  // Llama 3
    "<|eot_id|>",       // Llama 3
    "<|eom_id|>",       // Llama 3.1, before a tool answers
    "<|end|>",          // Phi-3
    "<EOT>",            // CodeLlama fill-in
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",  // DeepSeek
};

// Ids, offsets and positions are 32 bits wide.
constexpr size_t kMaxTokens = std::numeric_limits<int32_t>::max() / 4;
constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();

Status check_id(int32_t id, size_t tokens, const char* name) {
  if (id >= -1 && (id == -1 || static_cast<size_t>(id) < tokens)) return {};
  return error(Code::kCorrupt, "tokenizer %s token id %d is outside the vocabulary of %zu tokens",
               name, id, tokens);
}

Status check_sizes(const TokenizerData& data, size_t& total_bytes) {
  const size_t count = data.tokens.size();
  if (count == 0) return error(Code::kCorrupt, "tokenizer vocabulary is empty");
  if (!data.token_types.empty() && data.token_types.size() != count) {
    return error(Code::kCorrupt, "tokenizer has %zu token types for %zu tokens",
                 data.token_types.size(), count);
  }
  total_bytes = 0;
  for (const std::string_view token : data.tokens) total_bytes += token.size();
  if (count > kMaxTokens || data.merges.size() > kMaxTokens ||
      total_bytes > std::numeric_limits<uint32_t>::max()) {
    return error(
        Code::kUnsupported,
        "tokenizer of %zu tokens, %zu bytes and %zu merges is larger than this library takes",
        count, total_bytes, data.merges.size());
  }
  LMN_RETURN_IF_ERROR(check_id(data.bos_id, count, "bos"));
  LMN_RETURN_IF_ERROR(check_id(data.eos_id, count, "eos"));
  LMN_RETURN_IF_ERROR(check_id(data.eot_id, count, "eot"));
  LMN_RETURN_IF_ERROR(check_id(data.unk_id, count, "unknown"));
  return check_id(data.pad_id, count, "padding");
}

}  // namespace

struct Tokenizer::Impl {
  Vocabulary vocabulary;
  SpecialTokens specials;
  std::array<int32_t, 256> byte_ids{};       // "llama": the byte tokens
  std::unique_ptr<ByteLevelBpe> byte_level;  // exactly one of these two is set
  std::unique_ptr<SentencePieceBpe> sentencepiece;
  std::string model, pre, chat_template;
  std::vector<int32_t> end_ids;
  int32_t bos_id = -1, eos_id = -1, eot_id = -1, unk_id = -1, pad_id = -1;
  bool add_bos = false, add_eos = false, add_space_prefix = false;

  Status add_token(std::string_view text, int32_t type, bool is_byte_level);
  Status fill_vocabulary(const TokenizerData& data, size_t total_bytes, bool is_byte_level);
  void find_end_ids();
};

Status Tokenizer::Impl::add_token(std::string_view text, int32_t type, bool is_byte_level) {
  const int32_t id = vocabulary.size();
  if (type < 0 || type > static_cast<int32_t>(TokenKind::kByte)) {
    return error(Code::kCorrupt, "tokenizer token %d has type %d, want 0 to 6", id, type);
  }
  const TokenKind kind =
      type == 0 ? TokenKind::kNormal : static_cast<TokenKind>(type);  // 0: "undefined"
  if (kind == TokenKind::kControl || kind == TokenKind::kUnknown) {
    specials.add(text, id, false);
    vocabulary.add(text, kind, false);
  } else if (is_byte_level && kind == TokenKind::kUserDefined) {
    specials.add(text, id, true);
    vocabulary.add(text, kind, false);
  } else if (is_byte_level) {
    std::string bytes;  // short: stays inside the object
    const bool spelled = append_unspelled(bytes, text);
    vocabulary.add(spelled ? bytes : text, kind, spelled);
  } else if (kind == TokenKind::kByte) {
    const int byte = byte_of_token(text);
    if (byte < 0) {
      return error(Code::kCorrupt, "tokenizer byte token %d is '%.*s', want the form <0x0A>", id,
                   static_cast<int>(std::min<size_t>(text.size(), 80)), text.data());
    }
    byte_ids[static_cast<size_t>(byte)] = id;
    const char c = static_cast<char>(byte);
    vocabulary.add(std::string_view(&c, 1), kind, false);
  } else {
    const std::string bytes = replace_space_marks(text);
    if (kind == TokenKind::kUserDefined) specials.add(bytes, id, true);
    vocabulary.add(bytes, kind, true);
  }
  return {};
}

Status Tokenizer::Impl::fill_vocabulary(const TokenizerData& data, size_t total_bytes,
                                        bool is_byte_level) {
  vocabulary.reserve(data.tokens.size(), total_bytes);
  byte_ids.fill(-1);
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const int32_t type = data.token_types.empty() ? 1 : data.token_types[i];
    LMN_RETURN_IF_ERROR(add_token(data.tokens[i], type, is_byte_level));
    const bool unknown = type == static_cast<int32_t>(TokenKind::kUnknown);
    if (unknown && unk_id < 0) unk_id = static_cast<int32_t>(i);
  }
  vocabulary.build_index();
  return {};
}

void Tokenizer::Impl::find_end_ids() {
  for (const int32_t id : {eos_id, eot_id}) {
    if (id >= 0) end_ids.push_back(id);
  }
  for (const std::string_view marker : kEndMarkers) {
    if (const int32_t id = specials.find(marker); id >= 0) end_ids.push_back(id);
  }
  std::sort(end_ids.begin(), end_ids.end());
  end_ids.erase(std::unique(end_ids.begin(), end_ids.end()), end_ids.end());
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(const TokenizerData& data) {
  const bool is_byte_level = data.model == "gpt2";
  if (!is_byte_level && data.model != "llama") {
    return error(Code::kUnsupported,
                 "tokenizer model '%.*s' is not supported; supported: gpt2, llama",
                 static_cast<int>(std::min<size_t>(data.model.size(), 80)), data.model.data());
  }
  const auto pre = is_byte_level ? find_pre_tokenizer(data.pre) : PreTokenizer::kGpt2;
  if (!pre) {
    return error(Code::kUnsupported, "pre-tokenizer '%.*s' is not supported; supported: %s",
                 static_cast<int>(std::min<size_t>(data.pre.size(), 80)), data.pre.data(),
                 supported_pre_tokenizers().c_str());
  }
  size_t total_bytes = 0;
  LMN_RETURN_IF_ERROR(check_sizes(data, total_bytes));

  auto impl = std::make_unique<Impl>();
  impl->model = data.model;
  impl->pre = is_byte_level ? data.pre : std::string_view();
  impl->chat_template = data.chat_template;
  impl->bos_id = data.bos_id;
  impl->eos_id = data.eos_id;
  impl->eot_id = data.eot_id;
  impl->unk_id = data.unk_id;
  impl->pad_id = data.pad_id;
  const bool bos_is_usual = !is_byte_level || pre == PreTokenizer::kLlama3;
  impl->add_bos = data.bos_id >= 0 && data.add_bos.value_or(bos_is_usual);
  impl->add_eos = data.eos_id >= 0 && data.add_eos.value_or(false);
  impl->add_space_prefix = !is_byte_level && data.add_space_prefix.value_or(true);
  LMN_RETURN_IF_ERROR(impl->fill_vocabulary(data, total_bytes, is_byte_level));
  if (is_byte_level) {
    LMN_ASSIGN_OR_RETURN(impl->byte_level,
                         ByteLevelBpe::create(impl->vocabulary, impl->specials, data.merges, *pre));
  } else {
    LMN_ASSIGN_OR_RETURN(
        SentencePieceBpe bpe,
        SentencePieceBpe::create(impl->vocabulary, data.scores, impl->byte_ids, impl->unk_id));
    impl->sentencepiece = std::make_unique<SentencePieceBpe>(std::move(bpe));
  }
  impl->find_end_ids();
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return error(Code::kInvalidArgument,
                 "text of %zu bytes is too long to encode at once; cut it below 2 GiB",
                 text.size());
  }
  LMN_RETURN_IF_ERROR(check_utf8(text, "text"));
  const bool add_bos = options.add_bos.value_or(impl_->add_bos),
             add_eos = options.add_eos.value_or(impl_->add_eos);
  if ((add_bos && impl_->bos_id < 0) || (add_eos && impl_->eos_id < 0)) {
    return error(Code::kInvalidArgument,
                 "this vocabulary has no %s token to add; encode without it",
                 add_bos && impl_->bos_id < 0 ? "BOS" : "EOS");
  }
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 8);  // English has about 4 bytes per token
  if (add_bos) out.push_back(impl_->bos_id);
  bool after_special = true;  // the start counts as one: add_space_prefix applies there too
  for (size_t at = 0;;) {
    const SpecialTokens::Match match = impl_->specials.next(text, at, options.parse_special);
    const std::string_view between = text.substr(at, match.begin - at);
    if (!between.empty()) {
      if (impl_->byte_level) {
        impl_->byte_level->encode(between, out);
      } else {
        std::string spaced = replace_space_marks(between);
        if (impl_->add_space_prefix && after_special) spaced.insert(0, " ");
        LMN_RETURN_IF_ERROR(impl_->sentencepiece->encode(spaced, out));
      }
      after_special = false;
    }
    if (match.size == 0) break;
    out.push_back(match.id);
    after_special = true;
    at = match.begin + match.size;
  }
  if (add_eos) out.push_back(impl_->eos_id);
  return out;
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids,
                                      const DecodeOptions& options) const {
  StreamDecoder decoder(*this, options);
  std::string out;
  for (const int32_t id : ids) {
    LMN_ASSIGN_OR_RETURN(const std::string_view piece, decoder.push(id));
    out.append(piece);
  }
  out.append(decoder.flush());
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  LMN_CHECK(valid_id(id));
  return impl_->vocabulary.bytes(id);
}

TokenKind Tokenizer::kind(int32_t id) const {
  LMN_CHECK(valid_id(id));
  return impl_->vocabulary.kind(id);
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  return std::binary_search(impl_->end_ids.begin(), impl_->end_ids.end(), id);
}

int32_t Tokenizer::vocab_size() const { return impl_->vocabulary.size(); }
int32_t Tokenizer::bos_id() const { return impl_->bos_id; }
int32_t Tokenizer::eos_id() const { return impl_->eos_id; }
int32_t Tokenizer::eot_id() const { return impl_->eot_id; }
int32_t Tokenizer::unk_id() const { return impl_->unk_id; }
int32_t Tokenizer::pad_id() const { return impl_->pad_id; }
bool Tokenizer::add_bos() const { return impl_->add_bos; }
bool Tokenizer::add_eos() const { return impl_->add_eos; }
bool Tokenizer::add_space_prefix() const { return impl_->add_space_prefix; }
std::string_view Tokenizer::model() const { return impl_->model; }
std::string_view Tokenizer::pre() const { return impl_->pre; }
std::string_view Tokenizer::chat_template() const { return impl_->chat_template; }

int64_t Tokenizer::memory_bytes() const {
  return static_cast<int64_t>(sizeof(Impl) + impl_->chat_template.capacity()) +
         impl_->vocabulary.memory_bytes() + impl_->specials.memory_bytes() +
         (impl_->byte_level ? impl_->byte_level->memory_bytes()
                            : impl_->sentencepiece->memory_bytes());
}

}  // namespace lmn::text
