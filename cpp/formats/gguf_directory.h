// SPDX-License-Identifier: Apache-2.0
//
// Inside the room: what a GgufModel points to, and the parser that fills it. Nothing is stored here
// before it was checked against the bytes; the accessors of gguf.h rely on that and do not check
// again. Names are found by binary search in sorted indices: no hashing, so a file cannot be built
// to make lookups or opening quadratic.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "formats/bytes.h"
#include "formats/gguf.h"

namespace lmn::formats {

// The specification's limit for keys. For tensor names it says 64; 127 is what ggml holds in its
// larger build (GGML_MAX_NAME=128, with the NUL), and such files exist.
inline constexpr size_t kMaxKeyLength = 65535;
inline constexpr size_t kMaxTensorNameLength = 127;
// Far above any model (the largest have some ten thousand tensors); bounds the memory of a
// directory to ~100 MB.
inline constexpr uint64_t kMaxEntries = 1u << 20;
// Arrays of arrays occur in no known file; the specification allows any depth.
inline constexpr int kMaxArrayDepth = 4;
inline constexpr int kMaxTensorRank = 4;
inline constexpr uint64_t kDefaultAlignment = 32;

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

struct GgufPart {
  uint32_t version = 0;
  std::vector<GgufEntry> entries;
  std::vector<uint32_t> by_key;  // indices into entries, sorted by key
  std::vector<GgufTensor> tensors;

  const GgufValue* find(std::string_view key) const;
};

struct GgufDirectory {
  std::string path;
  std::vector<std::shared_ptr<MappedFile>> files;
  std::vector<std::span<const std::byte>> bytes;  // of each part
  GgufPart first;                                 // without its tensors
  std::vector<GgufTensor> tensors;                // of all parts
  std::vector<uint32_t> by_name;                  // indices into tensors, sorted by name
};

// Fills `part` from the bytes of one file; tensors get `index` as their part. Messages lack the
// file's name.
Status parse_part(std::span<const std::byte> bytes, uint32_t index, GgufPart* part);

// Sorts indices by name; on a duplicate names it ("two tensors are named 'x'").
Status index_tensors(const std::vector<GgufTensor>& tensors, std::vector<uint32_t>* by_name);

// Bytes of a scalar of this type; 0 for strings and arrays, whose size is in their bytes.
constexpr size_t scalar_size(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

}  // namespace lmn::formats

// The C++ types that numbers of the metadata are read as, for explicit instantiation.
#define LMN_GGUF_NUMBERS(X) \
  X(uint8_t)                \
  X(int8_t) X(uint16_t) X(int16_t) X(uint32_t) X(int32_t) X(uint64_t) X(int64_t) X(float) X(double)
