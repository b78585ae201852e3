// SPDX-License-Identifier: Apache-2.0
//
// GgufModel: opening (one file or all parts of a split one) and looking things up. gguf_parse.cc
// reads one file.
#include "formats/gguf.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <new>

#include "core/check.h"
#include "formats/ggml_types.h"
#include "formats/gguf_directory.h"

namespace lmn::formats {
namespace {

// NAME-00002-of-00003.gguf, the naming of split files.
struct SplitName {
  std::string prefix;   // up to and including "NAME"
  uint32_t number = 0;  // from 1
  uint32_t count = 0;

  std::string part(uint32_t n) const {
    char suffix[32];
    std::snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", n, count);
    return prefix + suffix;
  }
};

// Of a path that is not named as a part of several, count is 0.
SplitName split_name(const std::string& path) {
  constexpr std::string_view kForm = "-00001-of-00003.gguf";
  if (path.size() <= kForm.size()) return {};
  const std::string_view tail = std::string_view(path).substr(path.size() - kForm.size());
  SplitName name;
  const auto digits = [&](size_t at, uint32_t* value) {
    const char* end = tail.data() + at + 5;
    return std::from_chars(tail.data() + at, end, *value).ptr == end;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" ||
      !digits(1, &name.number) || !digits(10, &name.count) || name.number < 1 ||
      name.number > name.count || name.count < 2) {
    return {};
  }
  name.prefix = path.substr(0, path.size() - kForm.size());
  return name;
}

template <typename T>
Result<T> split_key(const GgufPart& part, const char* key) {
  const GgufValue* value = part.find(key);
  if (value == nullptr) {
    return error(Code::kCorrupt, "is named as a part of a split model but has no metadata key '%s'",
                 key);
  }
  Result<T> result = value->get<T>();
  if (!result.ok()) {
    return std::move(result).status().with_context(std::string("metadata key '") + key + "'");
  }
  return result;
}

Status check_split(const GgufPart& part, const SplitName& name, uint32_t index) {
  LMN_ASSIGN_OR_RETURN(const uint32_t number, split_key<uint32_t>(part, "split.no"));
  LMN_ASSIGN_OR_RETURN(const uint32_t count, split_key<uint32_t>(part, "split.count"));
  if (number == index && count == name.count) return {};
  return error(Code::kCorrupt,
               "its metadata calls it part %llu of %u and its name part %u of %u: the files were "
               "mixed up or renamed",
               static_cast<unsigned long long>(number) + 1, count, index + 1, name.count);
}

// A part that was renamed would otherwise load as a model that lacks most of its tensors.
Status check_whole(const GgufPart& part) {
  const GgufValue* value = part.find("split.count");
  if (value == nullptr) return {};
  Result<uint32_t> count = value->get<uint32_t>();
  if (!count.ok()) return std::move(count).status().with_context("metadata key 'split.count'");
  if (*count < 2) return {};
  return error(
      Code::kCorrupt,
      "is one of %u parts of a split model but not named as such: give the parts their names back, "
      "NAME-00001-of-%05u.gguf and so on",
      *count, *count);
}

Status open_parts(const std::string& path, const GgufOptions& options, GgufDirectory* directory) {
  const SplitName name = split_name(path);
  const uint32_t count = name.count == 0 ? 1 : name.count;
  const auto part_path = [&](uint32_t i) { return name.count == 0 ? path : name.part(i + 1); };
  uint64_t total = 0;
  for (uint32_t i = 0; i < name.count; ++i) {
    struct stat info {};
    if (::stat(part_path(i).c_str(), &info) != 0) {
      return error(Code::kNotFound,
                   "%s: part %u of %u is missing: put all parts of the model in one folder",
                   part_path(i).c_str(), i + 1, count);
    }
    total += static_cast<uint64_t>(info.st_size);
  }
  uint64_t before = 0;
  uint64_t promised_tensors = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const ReadProgress progress = [&](uint64_t done, uint64_t all) {
      return options.progress(before + done, name.count == 0 ? all : total);
    };
    LMN_ASSIGN_OR_RETURN(auto file, MappedFile::open(part_path(i), options.mode,
                                                     options.progress ? progress : ReadProgress()));
    before += file->bytes().size();
    GgufPart part;
    const auto parse = [&]() -> Status {
      LMN_RETURN_IF_ERROR(parse_part(file->bytes(), i, &part));
      if (name.count == 0) return check_whole(part);
      LMN_RETURN_IF_ERROR(check_split(part, name, i));
      if (i > 0) return {};
      LMN_ASSIGN_OR_RETURN(promised_tensors, split_key<uint64_t>(part, "split.tensors.count"));
      return {};
    };
    Status status = parse();
    if (!status.ok()) return std::move(status).with_context(part_path(i));
    directory->bytes.push_back(file->bytes());
    directory->files.push_back(std::move(file));
    directory->tensors.insert(directory->tensors.end(), part.tensors.begin(), part.tensors.end());
    if (i == 0) {
      part.tensors = {};
      directory->first = std::move(part);
    }
  }
  if (name.count != 0 && directory->tensors.size() != promised_tensors) {
    return error(
        Code::kCorrupt,
        "%s: split.tensors.count promises %llu tensors and the %u parts have %zu: the files "
        "belong to different models",
        part_path(0).c_str(), static_cast<unsigned long long>(promised_tensors), count,
        directory->tensors.size());
  }
  return {};
}

}  // namespace

Result<GgufModel> GgufModel::open(const std::string& path, const GgufOptions& options) try {
  auto directory = std::make_shared<GgufDirectory>();
  directory->path = path;
  LMN_RETURN_IF_ERROR(open_parts(path, options, directory.get()));
  Status status = index_tensors(directory->tensors, &directory->by_name);
  if (!status.ok()) return std::move(status).with_context(path);
  return GgufModel(std::move(directory));
} catch (const std::bad_alloc&) {
  return error(Code::kOutOfMemory, "no memory for the directory of a GGUF file");
}

Result<GgufModel> GgufModel::parse(std::span<const std::byte> bytes, std::string_view name) try {
  auto directory = std::make_shared<GgufDirectory>();
  directory->path = name;
  directory->bytes.push_back(bytes);
  Status status = parse_part(bytes, 0, &directory->first);
  if (status.ok()) {
    directory->tensors = std::move(directory->first.tensors);
    status = index_tensors(directory->tensors, &directory->by_name);
  }
  if (!status.ok()) return std::move(status).with_context(name);
  return GgufModel(std::move(directory));
} catch (const std::bad_alloc&) {
  return error(Code::kOutOfMemory, "no memory for the directory of a GGUF file");
}

const std::string& GgufModel::path() const { return directory_->path; }
uint32_t GgufModel::version() const { return directory_->first.version; }

size_t GgufModel::size() const { return directory_->first.entries.size(); }

std::string_view GgufModel::key(size_t i) const {
  LMN_CHECK(i < size());
  return directory_->first.entries[i].key;
}

const GgufValue& GgufModel::value(size_t i) const {
  LMN_CHECK(i < size());
  return directory_->first.entries[i].value;
}

const GgufValue* GgufModel::find(std::string_view key) const { return directory_->first.find(key); }

Status GgufModel::about(std::string_view key, Status status) const {
  return std::move(status).with_context(path() + ": metadata key " + quoted(key));
}

Status GgufModel::missing(std::string_view key) const {
  return error(
      Code::kNotFound,
      "%s: metadata key %s is missing: the model was converted incompletely, or for another use",
      path().c_str(), quoted(key).c_str());
}

template <typename T>
Result<T> GgufModel::get(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key);
  Result<T> result = value->get<T>();
  if (!result.ok()) return about(key, std::move(result).status());
  return result;
}

template <typename T>
Result<T> GgufModel::get_or(std::string_view key, T fallback) const {
  if (find(key) == nullptr) return fallback;
  return get<T>(key);
}

Result<GgufArray> GgufModel::get_array(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return missing(key);
  Result<GgufArray> result = value->array();
  if (!result.ok()) return about(key, std::move(result).status());
  return result;
}

template <typename T>
Result<std::vector<T>> GgufModel::get_numbers(std::string_view key) const {
  LMN_ASSIGN_OR_RETURN(const GgufArray array, get_array(key));
  Result<std::vector<T>> result = array.numbers<T>();
  if (!result.ok()) return about(key, std::move(result).status());
  return result;
}

Result<GgufStrings> GgufModel::get_strings(std::string_view key) const {
  LMN_ASSIGN_OR_RETURN(const GgufArray array, get_array(key));
  Result<GgufStrings> result = array.strings();
  if (!result.ok()) return about(key, std::move(result).status());
  return result;
}

size_t GgufModel::tensor_count() const { return directory_->tensors.size(); }

const GgufTensor& GgufModel::tensor(size_t i) const {
  LMN_CHECK(i < tensor_count());
  return directory_->tensors[i];
}

const GgufTensor* GgufModel::find_tensor(std::string_view name) const {
  const auto& tensors = directory_->tensors;
  const auto& by_name = directory_->by_name;
  const auto at =
      std::lower_bound(by_name.begin(), by_name.end(), name,
                       [&](uint32_t i, std::string_view n) { return tensors[i].name < n; });
  return at != by_name.end() && tensors[*at].name == name ? &tensors[*at] : nullptr;
}

Result<TensorView> GgufModel::view(const GgufTensor& tensor) const {
  LMN_CHECK(tensor.part < directory_->bytes.size());
  const GgmlType* type = find_ggml_type(tensor.ggml_type);
  LMN_CHECK(type != nullptr);
  if (!type->dtype) {
    return error(Code::kUnsupported,
                 "%s: tensor %s has type %s, which this build does not compute with: re-quantise "
                 "the model to one of %s",
                 path().c_str(), quoted(tensor.name).c_str(), type->name.data(),
                 weight_ggml_types().c_str());
  }
  TensorView view;
  view.dtype = *type->dtype;
  view.shape = tensor.shape;
  view.data = directory_->bytes[tensor.part].data() + tensor.offset;
  return view;
}

Result<TensorView> GgufModel::view(std::string_view name) const {
  const GgufTensor* tensor = find_tensor(name);
  if (tensor != nullptr) return view(*tensor);
  return error(Code::kNotFound,
               "%s: tensor %s is missing: the model is incomplete, or of another architecture",
               path().c_str(), quoted(name).c_str());
}

std::span<const std::shared_ptr<MappedFile>> GgufModel::files() const { return directory_->files; }

Status GgufModel::check_unchanged() const {
  for (const auto& file : directory_->files) LMN_RETURN_IF_ERROR(file->check_unchanged());
  return {};
}

std::shared_ptr<const void> GgufModel::owner() const { return directory_; }

#define X(T)                                                        \
  template Result<T> GgufModel::get<T>(std::string_view key) const; \
  template Result<T> GgufModel::get_or<T>(std::string_view key, T fallback) const;
LMN_GGUF_NUMBERS(X)
X(bool)
X(std::string_view)
#undef X
#define X(T) template Result<std::vector<T>> GgufModel::get_numbers<T>(std::string_view key) const;
LMN_GGUF_NUMBERS(X)
#undef X

}  // namespace lmn::formats
