// SPDX-License-Identifier: Apache-2.0
//
// The bytes of one GGUF file → GgufPart. The bytes are hostile: every read is bounded, every count
// is compared with the bytes that are left before anything is allocated for it, every sum and
// product is checked.
#include <algorithm>
#include <bit>
#include <numeric>

#include "formats/ggml_types.h"
#include "formats/gguf_directory.h"

namespace lmn::formats {
namespace {

using ull = unsigned long long;

// The shortest entry: name length, one character, then type and one byte; or rank, one dimension,
// type and offset.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }
  const std::byte* here() const { return bytes_.data() + position_; }

  Status need(uint64_t bytes) const {
    if (bytes <= remaining()) return {};
    return error(Code::kCorrupt,
                 "truncated: %llu bytes are needed at offset %llu and the file ends at %zu: "
                 "download or copy it again",
                 ull{bytes}, ull{position_}, bytes_.size());
  }
  template <typename T>
  Status read(T* value) {
    LMN_RETURN_IF_ERROR(need(sizeof(T)));
    *value = load<T>(here());
    position_ += sizeof(T);
    return {};
  }
  Status skip(uint64_t bytes) {
    LMN_RETURN_IF_ERROR(need(bytes));
    position_ += bytes;
    return {};
  }
  Status read_string(std::string_view* value) {
    uint64_t length = 0;
    LMN_RETURN_IF_ERROR(read(&length));
    LMN_RETURN_IF_ERROR(need(length));
    *value = {reinterpret_cast<const char*>(here()), static_cast<size_t>(length)};
    position_ += length;
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

// Names reach C strings, terminals and Python str, so they are held to more than values are.
Status check_name(const char* what, std::string_view name, size_t limit, uint64_t position) {
  if (name.empty()) {
    return error(Code::kCorrupt, "the %s at offset %llu is empty", what, ull{position});
  }
  if (name.size() > limit) {
    return error(Code::kCorrupt, "the %s at offset %llu has %zu bytes, more than the %zu allowed",
                 what, ull{position}, name.size(), limit);
  }
  if (!is_printable_utf8(name)) {
    return error(Code::kCorrupt, "the %s %s at offset %llu is not printable UTF-8", what,
                 quoted(name).c_str(), ull{position});
  }
  return {};
}

Status check_bools(const std::byte* at, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = load<uint8_t>(at + i);
    if (value > 1) return error(Code::kCorrupt, "a bool is %u, neither 0 nor 1", unsigned{value});
  }
  return {};
}

Status check_type(uint32_t type) {
  if (type <= static_cast<uint32_t>(GgufType::kF64)) return {};
  return error(Code::kCorrupt, "unknown value type %u (the known ones are 0 to 12)", type);
}

// Moves over one value. `depth` is the number of arrays around it.
Status skip_value(Reader& reader, GgufType type, int depth) {
  if (const size_t size = scalar_size(type)) {
    LMN_RETURN_IF_ERROR(reader.need(size));
    if (type == GgufType::kBool) LMN_RETURN_IF_ERROR(check_bools(reader.here(), 1));
    return reader.skip(size);
  }
  if (type == GgufType::kString) {
    std::string_view ignored;
    return reader.read_string(&ignored);
  }
  if (depth == kMaxArrayDepth) {
    return error(Code::kUnsupported, "arrays nested deeper than %d", kMaxArrayDepth);
  }
  uint32_t number = 0;
  uint64_t count = 0;
  LMN_RETURN_IF_ERROR(reader.read(&number));
  LMN_RETURN_IF_ERROR(check_type(number));
  LMN_RETURN_IF_ERROR(reader.read(&count));
  const auto element = static_cast<GgufType>(number);
  // A string has at least its length, an array its type and length.
  const uint64_t least = scalar_size(element) != 0      ? scalar_size(element)
                         : element == GgufType::kString ? 8
                                                        : 12;
  if (count > reader.remaining() / least) {
    return error(Code::kCorrupt,
                 "an array of %llu elements of type %s at offset %llu does not fit in the file, "
                 "which ends at %llu: "
                 "download or copy it again",
                 ull{count}, to_string(element).data(), ull{reader.position()},
                 ull{reader.position() + reader.remaining()});
  }
  if (scalar_size(element) != 0) {
    if (element == GgufType::kBool) LMN_RETURN_IF_ERROR(check_bools(reader.here(), count));
    return reader.skip(count * scalar_size(element));
  }
  for (uint64_t i = 0; i < count; ++i) LMN_RETURN_IF_ERROR(skip_value(reader, element, depth + 1));
  return {};
}

Status read_header(Reader& reader, uint32_t* version, uint64_t* tensor_count, uint64_t* key_count) {
  constexpr std::string_view kLfs = "version https://git-lfs";
  const std::string_view start(reinterpret_cast<const char*>(reader.here()),
                               std::min<uint64_t>(reader.remaining(), kLfs.size()));
  if (start == kLfs) {
    return error(
        Code::kCorrupt,
        "is a Git LFS pointer and not the file itself: run `git lfs pull`, or download the file");
  }
  const std::string_view magic = start.substr(0, 4);
  if (magic != std::string_view("GGUF").substr(0, magic.size())) {
    const bool may_be_onnx = magic.starts_with('\x08');  // its version of the format comes first
    return error(Code::kCorrupt, "is not a GGUF file: it begins with %s, not with 'GGUF'%s",
                 quoted(magic).c_str(),
                 may_be_onnx ? " (an ONNX model is opened by a session: lmnative.Session, "
                               "lmn_session_create, `lmnative inspect --graph`)"
                             : "");
  }
  LMN_RETURN_IF_ERROR(reader.skip(4));
  LMN_RETURN_IF_ERROR(reader.read(version));
  if ((*version & 0xFFFFu) == 0 && *version != 0) {
    return error(
        Code::kUnsupported,
        "is a big-endian GGUF file: convert it to little endian, as most published files are");
  }
  if (*version != 2 && *version != 3) {
    return error(Code::kUnsupported,
                 "is GGUF version %u, this build reads 2 and 3: convert the model again%s",
                 *version, *version > 3 ? ", or use a newer release" : " with current tools");
  }
  LMN_RETURN_IF_ERROR(reader.read(tensor_count));
  LMN_RETURN_IF_ERROR(reader.read(key_count));
  const uint64_t left = reader.remaining();
  if (*key_count > std::min(left / kMinKeyBytes, kMaxEntries)) {
    return error(Code::kCorrupt,
                 "claims %llu metadata keys, more than the file or a model can hold",
                 ull{*key_count});
  }
  if (*tensor_count > std::min(left / kMinTensorBytes, kMaxEntries)) {
    return error(Code::kCorrupt, "claims %llu tensors, more than the file or a model can hold",
                 ull{*tensor_count});
  }
  return {};
}

Status read_entries(Reader& reader, uint64_t count, GgufPart* part) {
  part->entries.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    GgufEntry entry;
    const uint64_t position = reader.position();
    LMN_RETURN_IF_ERROR(reader.read_string(&entry.key));
    LMN_RETURN_IF_ERROR(check_name("metadata key", entry.key, kMaxKeyLength, position));
    const auto read = [&]() -> Status {
      uint32_t number = 0;
      LMN_RETURN_IF_ERROR(reader.read(&number));
      LMN_RETURN_IF_ERROR(check_type(number));
      const auto type = static_cast<GgufType>(number);
      const std::byte* begin = reader.here();
      LMN_RETURN_IF_ERROR(skip_value(reader, type, 0));
      entry.value = GgufValue(type, begin, reader.here());
      return {};
    };
    Status status = read();
    if (!status.ok()) return std::move(status).with_context("metadata key " + quoted(entry.key));
    part->entries.push_back(entry);
  }
  part->by_key.resize(part->entries.size());
  std::iota(part->by_key.begin(), part->by_key.end(), 0u);
  std::sort(part->by_key.begin(), part->by_key.end(),
            [&](uint32_t a, uint32_t b) { return part->entries[a].key < part->entries[b].key; });
  for (size_t i = 1; i < part->by_key.size(); ++i) {
    const std::string_view key = part->entries[part->by_key[i]].key;
    if (key == part->entries[part->by_key[i - 1]].key) {
      return error(Code::kCorrupt, "metadata key %s occurs twice", quoted(key).c_str());
    }
  }
  return {};
}

Status read_alignment(const GgufPart& part, uint64_t* alignment) {
  *alignment = kDefaultAlignment;
  const GgufValue* value = part.find("general.alignment");
  if (value == nullptr) return {};
  Result<uint64_t> given = value->get<uint64_t>();
  if (!given.ok()) {
    return std::move(given).status().with_context("metadata key 'general.alignment'");
  }
  *alignment = *given;
  // The specification: a multiple of 8. All tools: a power of two.
  if (!std::has_single_bit(*alignment) || *alignment < 8) {
    return error(Code::kCorrupt, "general.alignment is %llu, not a power of two of at least 8",
                 ull{*alignment});
  }
  return {};
}

// Reads the entry of one tensor behind its name. `offset` is still relative to the data section.
Status read_tensor(Reader& reader, GgufTensor* tensor) {
  uint32_t rank = 0;
  LMN_RETURN_IF_ERROR(reader.read(&rank));
  if (rank < 1 || rank > kMaxTensorRank) {
    return error(Code::kCorrupt, "has %u dimensions, expected 1 to %d", rank, kMaxTensorRank);
  }
  tensor->shape.rank = static_cast<int32_t>(rank);
  for (int i = static_cast<int>(rank) - 1; i >= 0; --i) {
    uint64_t dim = 0;
    LMN_RETURN_IF_ERROR(reader.read(&dim));
    if (dim == 0 || dim > static_cast<uint64_t>(INT64_MAX)) {
      return error(Code::kCorrupt, "has a dimension of %llu", ull{dim});
    }
    tensor->shape[i] = static_cast<int64_t>(dim);
  }
  LMN_RETURN_IF_ERROR(reader.read(&tensor->ggml_type));
  const GgmlType* type = find_ggml_type(tensor->ggml_type);
  if (type == nullptr) {
    return error(Code::kCorrupt,
                 "has unknown type number %u: the file is damaged, or newer than this build",
                 tensor->ggml_type);
  }
  tensor->type_name = type->name;
  tensor->supported = type->dtype.has_value();
  LMN_RETURN_IF_ERROR(reader.read(&tensor->offset));

  const Shape& shape = tensor->shape;
  int64_t elements = 1;
  int64_t bytes = 0;
  bool fits = true;
  for (int i = 0; i < shape.rank; ++i) {
    fits = fits && !__builtin_mul_overflow(elements, shape[i], &elements);
  }
  if (shape.last() % type->block_elements != 0) {
    return error(Code::kCorrupt,
                 "has rows of %lld elements, not a multiple of the %u in a block of %s",
                 static_cast<long long>(shape.last()), type->block_elements, type->name.data());
  }
  fits = fits && !__builtin_mul_overflow(elements / type->block_elements,
                                         int64_t{type->block_bytes}, &bytes);
  if (!fits) {
    return error(Code::kCorrupt, "has shape %s, too large to exist", shape.to_string().c_str());
  }
  tensor->bytes = static_cast<uint64_t>(bytes);
  return {};
}

// `size` and `start`: of the file, and of its data section. Makes the offset absolute.
Status place_tensor(uint64_t size, uint64_t start, uint64_t alignment, GgufTensor* tensor) {
  if (tensor->offset % alignment != 0) {
    return error(Code::kCorrupt, "begins at %llu, not a multiple of the alignment %llu",
                 ull{tensor->offset}, ull{alignment});
  }
  if (start > size || tensor->offset > size - start ||
      tensor->bytes > size - start - tensor->offset) {
    return error(Code::kCorrupt,
                 "needs %llu bytes at offset %llu of the data section (which begins at %llu) and "
                 "the file ends at %llu: "
                 "download or copy it again",
                 ull{tensor->bytes}, ull{tensor->offset}, ull{start}, ull{size});
  }
  tensor->offset += start;
  return {};
}

Status check_overlaps(const std::vector<GgufTensor>& tensors) {
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].offset < tensors[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = tensors[order[i - 1]];
    const GgufTensor& next = tensors[order[i]];
    if (before.offset + before.bytes > next.offset) {
      return error(Code::kCorrupt, "the data of tensors %s and %s overlap",
                   quoted(before.name).c_str(), quoted(next.name).c_str());
    }
  }
  return {};
}

}  // namespace

const GgufValue* GgufPart::find(std::string_view key) const {
  const auto at =
      std::lower_bound(by_key.begin(), by_key.end(), key,
                       [&](uint32_t i, std::string_view k) { return entries[i].key < k; });
  return at != by_key.end() && entries[*at].key == key ? &entries[*at].value : nullptr;
}

Status index_tensors(const std::vector<GgufTensor>& tensors, std::vector<uint32_t>* by_name) {
  by_name->resize(tensors.size());
  std::iota(by_name->begin(), by_name->end(), 0u);
  std::sort(by_name->begin(), by_name->end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  for (size_t i = 1; i < by_name->size(); ++i) {
    const std::string_view name = tensors[(*by_name)[i]].name;
    if (name == tensors[(*by_name)[i - 1]].name) {
      return error(Code::kCorrupt, "two tensors are named %s", quoted(name).c_str());
    }
  }
  return {};
}

Status parse_part(std::span<const std::byte> bytes, uint32_t index, GgufPart* part) {
  Reader reader(bytes);
  uint64_t tensor_count = 0;
  uint64_t key_count = 0;
  uint64_t alignment = 0;
  LMN_RETURN_IF_ERROR(read_header(reader, &part->version, &tensor_count, &key_count));
  LMN_RETURN_IF_ERROR(read_entries(reader, key_count, part));
  LMN_RETURN_IF_ERROR(read_alignment(*part, &alignment));
  part->tensors.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    GgufTensor tensor;
    tensor.part = index;
    const uint64_t position = reader.position();
    LMN_RETURN_IF_ERROR(reader.read_string(&tensor.name));
    LMN_RETURN_IF_ERROR(check_name("tensor name", tensor.name, kMaxTensorNameLength, position));
    Status status = read_tensor(reader, &tensor);
    if (!status.ok()) return std::move(status).with_context("tensor " + quoted(tensor.name));
    part->tensors.push_back(tensor);
  }
  // No sum overflows: the position is a size in memory and the alignment at most 2^63.
  const uint64_t start = (reader.position() + alignment - 1) & ~(alignment - 1);
  for (GgufTensor& tensor : part->tensors) {
    Status status = place_tensor(bytes.size(), start, alignment, &tensor);
    if (!status.ok()) return std::move(status).with_context("tensor " + quoted(tensor.name));
  }
  return check_overlaps(part->tensors);
}

}  // namespace lmn::formats
