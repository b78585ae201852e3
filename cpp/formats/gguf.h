// SPDX-License-Identifier: Apache-2.0
//
// GGUF, versions 2 and 3, little endian
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): a directory of metadata and tensors
// over the bytes of one file, or of all parts of a split one. Opening reads and checks the whole
// directory: every offset, count, length and product against the file, so that nothing handed out
// here can point outside it. It copies no weight and no string, and does not interpret keys beyond
// general.alignment and split.*; architectures belong to models/, vocabularies to text/.
//
// Lifetime: everything handed out (keys, strings, arrays, tensor data) points into the file's
// bytes, which live as long as any copy of the GgufModel or its owner() does. Thread rule:
// immutable after open; any thread may read. mapped_file.h says what happens when the file itself
// changes meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"
#include "formats/mapped_file.h"

namespace lmn::formats {

enum class GgufType : uint32_t {  // numbers of the specification
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
std::string_view to_string(GgufType type);  // "u8" … "f64", "bool", "string", "array"

// The strings of a string array, in order: `for (std::string_view s : strings)`. Bytes as they are,
// not checked UTF-8.
class GgufStrings {
 public:
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    iterator() = default;
    explicit iterator(const std::byte* at) : at_(at) {}
    std::string_view operator*() const;
    iterator& operator++();
    iterator operator++(int) {
      iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const iterator& other) const = default;

   private:
    const std::byte* at_ = nullptr;
  };

  GgufStrings() = default;
  GgufStrings(const std::byte* begin, const std::byte* end, size_t size)
      : begin_(begin), end_(end), size_(size) {}
  size_t size() const { return size_; }
  iterator begin() const { return iterator(begin_); }
  iterator end() const { return iterator(end_); }
  std::vector<std::string_view> index() const;  // one pass; then any element in O(1), 16 bytes each

 private:
  const std::byte* begin_ = nullptr;
  const std::byte* end_ = nullptr;
  size_t size_ = 0;
};

class GgufArray;

// One metadata value. Copy it freely: it is a type and two pointers. Conversions report CORRUPT
// with the expected and the actual type; GgufModel::get puts the file and the key in front.
class GgufValue {
 public:
  GgufValue() = default;
  GgufValue(GgufType type, const std::byte* begin, const std::byte* end)
      : type_(type), begin_(begin), end_(end) {}

  GgufType type() const { return type_; }
  // T: [u]int{8,16,32,64}_t from any integer type when the value fits; float, double from f32, f64
  // (rounded to float when it is in range) and integers up to 2^24 or 2^53 in magnitude; bool from
  // bool; std::string_view from string.
  template <typename T>
  Result<T> get() const;
  Result<GgufArray> array() const;

 private:
  GgufType type_ = GgufType::kU8;
  const std::byte* begin_ = nullptr;
  const std::byte* end_ = nullptr;
};

class GgufArray {
 public:
  GgufArray() = default;
  GgufArray(GgufType element, size_t size, const std::byte* begin, const std::byte* end)
      : element_(element), size_(size), begin_(begin), end_(end) {}

  GgufType element_type() const { return element_; }
  size_t size() const { return size_; }
  // i < size(). O(1), except O(i) in an array of strings or arrays.
  GgufValue at(size_t i) const;
  // All elements by the rules of GgufValue::get. T: as there, without bool and std::string_view.
  template <typename T>
  Result<std::vector<T>> numbers() const;
  Result<GgufStrings> strings() const;

 private:
  GgufType element_ = GgufType::kU8;
  size_t size_ = 0;
  const std::byte* begin_ = nullptr;
  const std::byte* end_ = nullptr;
};

// A tensor of the directory. Listed whatever its type; only view() asks that this build can compute
// with it.
struct GgufTensor {
  std::string_view name;
  uint32_t ggml_type = 0;
  std::string_view type_name;  // "q4_1"; for types this build supports, the name of the DType
  bool supported = false;
  Shape shape;  // rank 1 to 4, every dimension positive; GGUF's ne[0] is the last
  uint64_t offset =
      0;  // of the data in the bytes of part `part`; a multiple of that part's alignment
  uint64_t bytes = 0;
  uint32_t part = 0;  // which file of a split one, from 0
};

struct GgufOptions {
  ReadMode mode = ReadMode::kMap;
  ReadProgress progress;  // bytes of all parts together
};

struct GgufDirectory;  // gguf_directory.h, for this room only

// Copies share one directory and the mappings; a moved-from model may only be assigned to or
// destroyed.
class GgufModel {
 public:
  // A split model opens by any of its parts (NAME-00001-of-00003.gguf), which lie in one folder.
  // Errors: those of MappedFile::open; CORRUPT, and UNSUPPORTED for big-endian files and other
  // versions; each names the file.
  static Result<GgufModel> open(const std::string& path, const GgufOptions& options = {});
  // Over bytes the caller keeps alive and unchanged, 8-byte aligned at the front; `name` stands in
  // messages. A part of a split model stands alone.
  static Result<GgufModel> parse(std::span<const std::byte> bytes, std::string_view name);

  const std::string& path() const;  // as given to open, or the name given to parse
  uint32_t version() const;         // of the first part

  // Metadata of the first part, in the order of the file. i < size().
  size_t size() const;
  std::string_view key(size_t i) const;
  const GgufValue& value(size_t i) const;
  const GgufValue* find(std::string_view key) const;  // null when absent

  // The value of a key, by the rules of GgufValue::get. NOT_FOUND when absent; get_or then returns
  // the fallback.
  template <typename T>
  Result<T> get(std::string_view key) const;
  template <typename T>
  Result<T> get_or(std::string_view key, T fallback) const;
  template <typename T>
  Result<std::vector<T>> get_numbers(std::string_view key) const;
  Result<GgufArray> get_array(std::string_view key) const;
  Result<GgufStrings> get_strings(std::string_view key) const;

  // All tensors of all parts, in the order of the files. i < tensor_count().
  size_t tensor_count() const;
  const GgufTensor& tensor(size_t i) const;
  const GgufTensor* find_tensor(std::string_view name) const;  // null when absent

  // The data of a tensor of this model (`tensor` comes from it), aligned to at least 8 bytes.
  // UNSUPPORTED for types this build cannot compute with; NOT_FOUND for an absent name.
  Result<TensorView> view(const GgufTensor& tensor) const;
  Result<TensorView> view(std::string_view name) const;

  // The files of the parts; none for a model of parse().
  std::span<const std::shared_ptr<MappedFile>> files() const;
  Status check_unchanged() const;  // of every file; see MappedFile
  // Keeps everything handed out alive, except the bytes given to parse().
  std::shared_ptr<const void> owner() const;

 private:
  explicit GgufModel(std::shared_ptr<const GgufDirectory> directory)
      : directory_(std::move(directory)) {}
  // A Status about a metadata key, with the file and the key in front.
  Status about(std::string_view key, Status status) const;
  Status missing(std::string_view key) const;

  std::shared_ptr<const GgufDirectory> directory_;
};

}  // namespace lmn::formats
