// SPDX-License-Identifier: Apache-2.0
//
// OnnxFile: opening, what a file that is not ONNX looks like, and the data of tensors.
#include <algorithm>
#include <new>

#include "formats/bytes.h"
#include "formats/onnx/external.h"
#include "formats/onnx/parse.h"

namespace lmn::formats {

struct OnnxFileState {
  OnnxFileState(std::string name, std::string folder, std::string model_path, ReadMode mode)
      : path(std::move(name)), external(std::move(folder), std::move(model_path), mode) {}

  std::string path;
  std::shared_ptr<const void> owner;  // of the bytes
  std::shared_ptr<MappedFile> file;   // null for a model in memory
  OnnxModel model;
  ExternalFiles external;

  static const std::shared_ptr<OnnxFileState>& of(const OnnxFile& file) { return file.state_; }
};

namespace {

using ull = unsigned long long;

// What a file that cannot be read as ONNX is instead; null when it looks like none of these.
const char* looks_like(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 512));
  const auto at = [&](size_t offset, std::string_view magic) {
    return start.size() >= offset && start.substr(offset).starts_with(magic);
  };
  if (at(0, "version https://git-lfs")) {
    return "a Git LFS pointer: run `git lfs pull`, or download the file itself";
  }
  if (at(0, "GGUF")) return "a GGUF model: open it as one";
  if (at(0, "PK\x03\x04")) {
    return "a zip archive, such as PyTorch (.pt) and Keras write: export that model to ONNX, or "
           "unpack the archive";
  }
  if (at(0, "\x80\x02") || at(0, "\x80\x04")) {
    return "a Python pickle, such as old PyTorch checkpoints: export that model to ONNX";
  }
  if (at(0, "\x89HDF")) return "an HDF5 file, such as Keras writes: export that model to ONNX";
  if (at(8, "{\"")) return "a safetensors file: it holds weights without a graph";
  if (at(4, "TFL3")) return "a TensorFlow Lite model: convert it to ONNX";
  if (at(4, "ORTM"))
    return "a model in ONNX Runtime's own format: give the .onnx file it came from";
  if (at(0, "\x1F\x8B")) return "a gzip archive: unpack it first";
  if (at(0, "<!") || at(0, "<html") || at(0, "<HTML")) {
    return "a web page: the download went wrong, or needs a login";
  }
  if (std::all_of(start.begin(), start.end(), [](char c) {
        return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\r' || c == '\t';
      })) {
    return "text: give the binary .onnx file";
  }
  return nullptr;
}

Status parse_model(std::span<const std::byte> bytes, const OnnxOptions& options, OnnxModel* model) {
  if (bytes.empty()) return error(Code::kCorrupt, "there are no bytes: download or copy it again");
  Input input;
  input.bytes = bytes;
  input.memory_limit = options.memory_limit != 0
                           ? options.memory_limit
                           : (uint64_t{64} << 20) + 32 * uint64_t{bytes.size()};
  Message message(&input, bytes, nullptr, nullptr, 0);
  Status status = parse(message, model);
  if (status.code() != Code::kCorrupt) return status;
  if (const char* other = looks_like(bytes)) {
    return error(Code::kCorrupt, "is not an ONNX model but looks like %s", other);
  }
  return status;
}

// Elements of a shape, and the bytes they take when the type has a size.
Status measure(const OnnxTensor& tensor, const OnnxDataType& type, uint64_t* elements,
               uint64_t* bytes) {
  *elements = 1;
  bool fits = true;
  bool empty = false;
  for (const int64_t dim : tensor.dims) {
    if (dim < 0) {
      return error(Code::kCorrupt, "has a dimension of %lld", static_cast<long long>(dim));
    }
    empty = empty || dim == 0;
    fits = fits && !__builtin_mul_overflow(*elements, static_cast<uint64_t>(dim), elements);
  }
  if (empty) {  // however large the others are
    *elements = 0;
    *bytes = 0;
    return {};
  }
  uint64_t bits = 0;
  fits = fits && !__builtin_mul_overflow(*elements, uint64_t{type.bits}, &bits);
  if (!fits) return error(Code::kCorrupt, "has dimensions too large to exist");
  *bytes = bits / 8 + (bits % 8 != 0);
  return {};
}

Status wrong_size(const char* what, uint64_t got, uint64_t want, const char* unit) {
  return error(Code::kCorrupt,
               "has %llu %s of %s, and its shape and type need %llu: the file is damaged, download "
               "or export it again",
               ull{got}, unit, what, ull{want});
}

Result<std::span<const std::byte>> external_bytes(ExternalFiles* files, const OnnxExternal& where,
                                                  uint64_t size) {
  if (where.length && *where.length != size) {
    return wrong_size("external data", *where.length, size, "bytes");
  }
  if (size == 0) return std::span<const std::byte>();
  LMN_ASSIGN_OR_RETURN(const auto file, files->open(where.location));
  const std::span<const std::byte> all = file->bytes();
  if (where.offset > all.size() || size > all.size() - where.offset) {
    return error(Code::kCorrupt,
                 "needs %llu bytes at offset %llu of its external data, and %s ends at %zu: "
                 "download or copy that file again",
                 ull{size}, ull{where.offset}, file->path().c_str(), all.size());
  }
  return all.subspan(where.offset, size);
}

Status fill(ExternalFiles* files, const OnnxTensor& tensor, OnnxTensorBytes* out) {
  using Data = OnnxTensor::Data;
  const OnnxDataType* type = find_onnx_data_type(tensor.data_type);
  if (type == nullptr) {
    return error(Code::kUnsupported,
                 "has data type %d, which this build does not know: the file is damaged, or needs "
                 "a newer release",
                 tensor.data_type);
  }
  uint64_t bytes = 0;
  LMN_RETURN_IF_ERROR(measure(tensor, *type, &out->elements, &bytes));
  if (tensor.data_type == OnnxDataType::STRING) {
    if (tensor.data != Data::kStrings && out->elements != 0) {
      return error(Code::kCorrupt,
                   "is of strings, which only string_data may hold: export the model again");
    }
    if (tensor.strings.size() != out->elements) {
      return wrong_size("string_data", tensor.strings.size(), out->elements, "elements");
    }
    out->strings = tensor.strings;
    return {};
  }
  const char* what = "raw_data";
  switch (tensor.data) {
    case Data::kExternal: {
      LMN_ASSIGN_OR_RETURN(out->bytes, external_bytes(files, tensor.external, bytes));
      return {};
    }
    case Data::kTyped:
      out->bytes = tensor.typed;
      what = "typed data";
      break;
    case Data::kRaw:
      out->bytes = tensor.raw;
      break;
    case Data::kNone:
    case Data::kStrings:
      what = "data";
      break;
  }
  if (out->bytes.size() == bytes) return {};
  return wrong_size(what, out->bytes.size(), bytes, "bytes");
}

}  // namespace

Result<OnnxFile> open_onnx(const std::string& path, const OnnxOptions& options) try {
  LMN_ASSIGN_OR_RETURN(auto file, MappedFile::open(path, options.mode, options.progress));
  auto state = std::make_shared<OnnxFileState>(path, folder_of(path), path, options.mode);
  state->file = std::move(file);
  Status status = parse_model(state->file->bytes(), options, &state->model);
  if (!status.ok()) return std::move(status).with_context(path);
  return OnnxFile(std::move(state));
} catch (const std::bad_alloc&) {
  return error(Code::kOutOfMemory, "%s: no memory for the structure of an ONNX file", path.c_str());
}

Result<OnnxFile> parse_onnx(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                            const std::string& base_folder, const OnnxOptions& options) try {
  auto state =
      std::make_shared<OnnxFileState>(options.name, base_folder, std::string(), options.mode);
  state->owner = std::move(owner);
  Status status = parse_model(bytes, options, &state->model);
  if (!status.ok()) return std::move(status).with_context(options.name);
  return OnnxFile(std::move(state));
} catch (const std::bad_alloc&) {
  return error(Code::kOutOfMemory, "%s: no memory for the structure of an ONNX file",
               options.name.c_str());
}

const std::string& OnnxFile::path() const { return state_->path; }
const OnnxModel& OnnxFile::model() const { return state_->model; }

std::vector<std::shared_ptr<MappedFile>> OnnxFile::files() const {
  std::vector<std::shared_ptr<MappedFile>> files = state_->external.files();
  if (state_->file != nullptr) files.insert(files.begin(), state_->file);
  return files;
}

Status OnnxFile::check_unchanged() const {
  for (const auto& file : files()) LMN_RETURN_IF_ERROR(file->check_unchanged());
  return {};
}

std::shared_ptr<const void> OnnxFile::owner() const { return state_; }

Result<OnnxTensorBytes> tensor_bytes(const OnnxFile& file, const OnnxTensor& tensor) try {
  const auto& state = OnnxFileState::of(file);
  OnnxTensorBytes out;
  out.data_type = tensor.data_type;
  out.dims = tensor.dims;
  Status status = fill(&state->external, tensor, &out);
  if (status.ok()) return out;
  return std::move(status).with_context(state->path + ": tensor " + quoted(tensor.name));
} catch (const std::bad_alloc&) {
  return error(Code::kOutOfMemory, "no memory for the strings of a tensor");
}

}  // namespace lmn::formats
