// SPDX-License-Identifier: Apache-2.0
//
// Builds the bytes of a GGUF file from the specification alone, sharing nothing with the reader
// under test, and lets a test write what no honest writer would: any count, any type number, any
// offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gguf_test {

enum : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

template <typename T>
std::string le(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value,
              sizeof(T));  // tests run on little-endian machines, as the library does
  return bytes;
}
inline std::string str(std::string_view s) { return le<uint64_t>(s.size()) + std::string(s); }
inline std::string array(uint32_t type, uint64_t count, const std::string& payload) {
  return le(type) + le(count) + payload;
}
inline std::string strings(const std::vector<std::string>& values) {
  std::string payload;
  for (const auto& v : values) payload += str(v);
  return array(kString, values.size(), payload);
}

class Writer {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // used for padding; the key is the test's to add

  Writer& kv(std::string_view key, uint32_t type, const std::string& payload) {
    keys_ += str(key) + le(type) + payload;
    ++key_count_;
    return *this;
  }
  // ne in GGUF's order (fastest first). The data is placed behind what is there, aligned.
  Writer& tensor(std::string_view name, std::vector<uint64_t> ne, uint32_t type,
                 const std::string& data) {
    pad(data_);
    tensor_at(name, std::move(ne), type, data_.size());
    data_ += data;
    return *this;
  }
  // Only the directory entry, with an offset of the test's choice.
  Writer& tensor_at(std::string_view name, std::vector<uint64_t> ne, uint32_t type,
                    uint64_t offset) {
    infos_ += str(name) + le<uint32_t>(static_cast<uint32_t>(ne.size()));
    for (uint64_t n : ne) infos_ += le(n);
    infos_ += le(type) + le(offset);
    ++tensor_count_;
    return *this;
  }
  Writer& data(const std::string& bytes) {
    data_ += bytes;
    return *this;
  }
  std::string finish() const { return finish(tensor_count_, key_count_); }
  std::string finish(uint64_t tensor_count, uint64_t key_count) const {
    std::string out = "GGUF" + le(version) + le(tensor_count) + le(key_count) + keys_ + infos_;
    pad(out);
    return out + data_;
  }
  // Bytes before the data section.
  size_t header_size() const {
    std::string out(24 + keys_.size() + infos_.size(), '\0');
    pad(out);
    return out.size();
  }

 private:
  void pad(std::string& bytes) const {
    while (bytes.size() % alignment != 0) bytes += '\0';
  }
  std::string keys_, infos_, data_;
  uint64_t key_count_ = 0, tensor_count_ = 0;
};

inline std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

// A small file with what real ones have: strings, numbers, big arrays, an f32 vector, quantised
// matrices.
inline Writer sample() {
  Writer w;
  w.kv("general.architecture", kString, str("llama"))
      .kv("general.alignment", kU32, le<uint32_t>(32))
      .kv("llama.block_count", kU32, le<uint32_t>(2))
      .kv("llama.rope.freq_base", kF32, le<float>(10000.0f))
      .kv("tokenizer.ggml.add_bos_token", kBool, le<uint8_t>(1));
  std::vector<std::string> tokens;
  std::string types;
  for (int i = 0; i < 64; ++i) {
    tokens.push_back("tok" + std::to_string(i));
    types += le<int32_t>(i % 6);
  }
  w.kv("tokenizer.ggml.tokens", kArray, strings(tokens))
      .kv("tokenizer.ggml.token_type", kArray, array(kI32, 64, types))
      .kv("nested", kArray,
          array(kArray, 2,
                strings({"a", "bc"}) +
                    array(kU16, 3, le<uint16_t>(7) + le<uint16_t>(8) + le<uint16_t>(9))))
      .tensor("token_embd.weight", {32, 64}, 8, std::string(64 * 34, 'q'))
      .tensor("blk.0.attn_norm.weight", {32}, 0, std::string(128, '\0'))
      .tensor("blk.0.ffn_down.weight", {64, 32}, 3, std::string(32 * 2 * 20, 'w'))
      .tensor("experts", {256, 2, 3}, 14, std::string(6 * 210, 'k'));
  return w;
}

}  // namespace gguf_test
