// SPDX-License-Identifier: Apache-2.0
#include "capi/null_model.h"

#include <algorithm>
#include <charconv>

namespace lmn::capi {
namespace {

struct Key {
  std::string_view name;
  int64_t NullModel::*field;
  int64_t least;
  int64_t most;
};
constexpr Key kKeys[] = {
    {"vocab", &NullModel::vocab, 1, 1'000'000},
    {"context", &NullModel::context, 1, int64_t{1} << 20},
    {"step_ns", &NullModel::step_ns, 0, 1'000'000'000},
    {"token_ns", &NullModel::token_ns, 0, 1'000'000'000},
};
constexpr std::string_view kPrefix = "null:";

Status refuse(std::string_view part, const char* why) {
  return error(
      Code::kInvalidArgument,
      "null model: \"%.*s\" %s; the name is \"null:\" and any of vocab=1000, context=4096, "
      "step_ns=0, token_ns=0, with commas between them",
      static_cast<int>(std::min<size_t>(part.size(), 80)), part.data(), why);
}

Status read_part(std::string_view part, NullModel* model, uint32_t* seen) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos) return refuse(part, "is no key=value");
  const std::string_view name = part.substr(0, equals), digits = part.substr(equals + 1);
  const auto* key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                 [&](const Key& known) { return known.name == name; });
  if (key == std::end(kKeys)) return refuse(part, "has an unknown key");
  const uint32_t bit = 1u << (key - std::begin(kKeys));
  if ((*seen & bit) != 0) return refuse(part, "gives its key a second time");
  *seen |= bit;
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(digits.begin(), digits.end(), value);
  if (failure == std::errc::invalid_argument || end != digits.end())
    return refuse(part, "has no whole number as its value");
  if (failure != std::errc() || value < key->least || value > key->most) {
    return error(Code::kInvalidArgument, "null model: %.*s is %.*s; it is %lld to %lld",
                 static_cast<int>(name.size()), name.data(),
                 static_cast<int>(std::min<size_t>(digits.size(), 80)), digits.data(),
                 static_cast<long long>(key->least), static_cast<long long>(key->most));
  }
  model->*key->field = value;
  return {};
}

// Bytes of a GGUF file, version 3, little endian as the machine is.
class Writer {
 public:
  template <typename T>
  void number(T value) {
    raw({reinterpret_cast<const char*>(&value), sizeof(T)});
  }
  void text(std::string_view text) {
    number(uint64_t{text.size()});
    raw(text);
  }
  void raw(std::string_view bytes) {
    for (const char c : bytes) bytes_.push_back(static_cast<std::byte>(c));
  }
  void entry(std::string_view key, std::string_view value) {
    text(key);
    number(kString);
    text(value);
  }
  void entry(std::string_view key, uint32_t value) {
    text(key);
    number(kU32);
    number(value);
  }
  // An array of `count` strings follows.
  void strings(std::string_view key, uint64_t count) {
    text(key);
    number(kArray);
    number(kString);
    number(count);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  static constexpr uint32_t kU32 = 4, kString = 8, kArray = 9;  // of the specification
  std::vector<std::byte> bytes_;
};

// How GPT-2's alphabet writes a byte: the printable ones of Latin-1 as themselves, the others, in
// order, as the characters from U+0100 on. UTF-8.
std::string spelling_of_byte(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  int character = byte;
  if (!printable(byte)) {
    character = 0x100;
    for (int b = 0; b < byte; ++b) character += printable(b) ? 0 : 1;
  }
  if (character < 0x80) return std::string(1, static_cast<char>(character));
  return {static_cast<char>(0xC0 | character >> 6), static_cast<char>(0x80 | (character & 0x3F))};
}

void write_vocabulary(int64_t vocab, Writer* out) {
  out->entry("tokenizer.ggml.model", "gpt2");
  out->entry("tokenizer.ggml.pre", "gpt-2");
  out->strings("tokenizer.ggml.tokens", static_cast<uint64_t>(vocab));
  for (int64_t id = 0; id < vocab; ++id) {
    out->text(id < kNullTokenizerVocab ? spelling_of_byte(static_cast<int>(id))
                                       : "<|" + std::to_string(id) + "|>");
  }
}

}  // namespace

std::string NullModel::name() const {
  std::string out(kPrefix);
  for (const Key& key : kKeys) {
    if (out.size() > kPrefix.size()) out += ',';
    out += std::string(key.name) + "=" + std::to_string(this->*key.field);
  }
  return out;
}

int32_t NullModel::likeliest_token() const {
  return static_cast<int32_t>(std::min<int64_t>('a', vocab - 1));
}

Result<NullModel> parse_null_model(std::string_view name) {
  NullModel model;
  uint32_t seen = 0;
  std::string_view rest = name.substr(kPrefix.size());
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    LMN_RETURN_IF_ERROR(read_part(rest.substr(0, comma), &model, &seen));
    if (comma + 1 == rest.size()) return refuse(name, "ends with a comma");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return model;
}

std::vector<std::byte> null_model_gguf(const NullModel& model) {
  Writer out;
  out.raw("GGUF");
  out.number(uint32_t{3});
  out.number(uint64_t{0});                                      // tensors
  out.number(uint64_t{5} + (model.has_tokenizer() ? 3u : 0u));  // metadata entries
  out.entry("general.architecture", "null");
  out.entry("general.name", "null");
  out.entry("null.block_count", 0);
  out.entry("null.context_length", static_cast<uint32_t>(model.context));
  out.entry("null.vocab_size", static_cast<uint32_t>(model.vocab));
  if (model.has_tokenizer()) write_vocabulary(model.vocab, &out);
  return out.take();
}

}  // namespace lmn::capi
