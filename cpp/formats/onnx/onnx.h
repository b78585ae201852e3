// SPDX-License-Identifier: Apache-2.0
//
// ONNX models (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto, IR versions up to 14): the
// messages of the protobuf file as plain structs over its bytes. Reading checks every length,
// count, wire type and nesting against the file, and interprets nothing: operators, opsets,
// attributes and shapes belong to whoever builds a graph from them. Fields nobody computes with
// are skipped as unknown ones are: documentation, training, device configurations, quantisation
// annotations.
//
// Lifetime: strings and raw data point into the file's bytes, decoded data and all structs into the
// OnnxFile; both live as long as any copy of the OnnxFile or its owner() does. Thread rule:
// immutable after open; any thread may read and call tensor_bytes. mapped_file.h says what happens
// when a file itself changes meanwhile.
//
// Strings are valid UTF-8 without NUL, except what the format calls bytes: string attributes and
// the elements of string tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "formats/mapped_file.h"

namespace lmn::formats {

// TensorProto.DataType: X(name, number, bits of one element; 0 has no fixed size).
#define LMN_ONNX_DATA_TYPES(X) \
  X(UNDEFINED, 0, 0)           \
  X(FLOAT, 1, 32)              \
  X(UINT8, 2, 8)               \
  X(INT8, 3, 8)                \
  X(UINT16, 4, 16)             \
  X(INT16, 5, 16)              \
  X(INT32, 6, 32)              \
  X(INT64, 7, 64)              \
  X(STRING, 8, 0)              \
  X(BOOL, 9, 8)                \
  X(FLOAT16, 10, 16)           \
  X(DOUBLE, 11, 64)            \
  X(UINT32, 12, 32)            \
  X(UINT64, 13, 64)            \
  X(COMPLEX64, 14, 64)         \
  X(COMPLEX128, 15, 128)       \
  X(BFLOAT16, 16, 16)          \
  X(FLOAT8E4M3FN, 17, 8)       \
  X(FLOAT8E4M3FNUZ, 18, 8)     \
  X(FLOAT8E5M2, 19, 8)         \
  X(FLOAT8E5M2FNUZ, 20, 8)     \
  X(UINT4, 21, 4)              \
  X(INT4, 22, 4)               \
  X(FLOAT4E2M1, 23, 4)         \
  X(FLOAT8E8M0, 24, 8)         \
  X(UINT2, 25, 2)              \
  X(INT2, 26, 2)               \
  X(FLOAT6E2M3, 27, 6)         \
  X(FLOAT6E3M2, 28, 6)

struct OnnxDataType {
  enum : int32_t {
#define X(name, number, bits) name = number,
    LMN_ONNX_DATA_TYPES(X)
#undef X
  };
  std::string_view name;  // "FLOAT"
  uint32_t bits = 0;
};
// Indexed by the number.
inline constexpr OnnxDataType kOnnxDataTypes[] = {
#define X(name, number, bits) {#name, bits},
    LMN_ONNX_DATA_TYPES(X)
#undef X
};
// Null for numbers the table does not have.
const OnnxDataType* find_onnx_data_type(int32_t number);

struct OnnxEntry {  // StringStringEntryProto
  std::string_view key;
  std::string_view value;
};

struct OnnxOpset {
  std::string_view domain;  // "" and "ai.onnx" are the same one
  int64_t version = 0;
};

struct OnnxExternal {
  std::string_view location;  // relative to the model's folder
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

struct OnnxTensor {
  enum class Data : uint8_t {
    kNone,      // no data field: right only for a tensor without elements
    kRaw,       // `raw`
    kTyped,     // `typed`: float_data, int32_data, int64_data, double_data, uint64_data
    kStrings,   // `strings`
    kExternal,  // `external`
  };

  std::string_view name;
  int32_t data_type = 0;      // an OnnxDataType number, or one that is not in the table
  Data data = Data::kNone;    // tensor_bytes() reads all of them alike
  std::vector<int64_t> dims;  // as in the file; tensor_bytes() checks them
  std::span<const std::byte> raw;
  std::vector<std::byte> typed;  // what raw data would have been, decoded
  std::vector<std::string_view> strings;
  OnnxExternal external;
};

struct OnnxSparseTensor {
  OnnxTensor values;   // [NNZ]; its name is that of the sparse tensor
  OnnxTensor indices;  // INT64 [NNZ] linear, or [NNZ, rank]
  std::vector<int64_t> dims;
};

struct OnnxDim {
  std::optional<int64_t> value;  // never negative: old exporters write -1 for an unknown one
  std::string_view param;        // the symbol; "" with no value is an unknown dimension
};

struct OnnxType {  // TypeProto
  enum class Kind : uint8_t { kUnset, kTensor, kSparseTensor, kSequence, kOptional, kMap, kOpaque };

  Kind kind = Kind::kUnset;
  bool has_shape = false;         // tensors; without it even the rank is unknown
  int32_t elem_type = 0;          // tensors; of a map, the type of its keys
  std::vector<OnnxDim> shape;     // tensors
  std::vector<OnnxType> element;  // sequence, optional, map (its values): one, or none when absent
  std::string_view opaque_domain;
  std::string_view opaque_name;
};

struct OnnxValueInfo {
  std::string_view name;
  OnnxType type;
};

struct OnnxGraph;

struct OnnxAttribute {
  enum Type : int32_t {  // AttributeProto.AttributeType
    UNDEFINED = 0,
    FLOAT = 1,
    INT = 2,
    STRING = 3,
    TENSOR = 4,
    GRAPH = 5,
    FLOATS = 6,
    INTS = 7,
    STRINGS = 8,
    TENSORS = 9,
    GRAPHS = 10,
    SPARSE_TENSOR = 11,
    SPARSE_TENSORS = 12,
    TYPE_PROTO = 13,
    TYPE_PROTOS = 14,
  };

  std::string_view name;
  std::string_view ref_attr_name;  // in a function: the attribute of it that stands here
  // As in the file. Where the file has none (IR version 1), that of the field that is set;
  // UNDEFINED when several are, or none. Pointers and lists of other types may be empty.
  int32_t type = UNDEFINED;
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::unique_ptr<OnnxTensor> t;
  std::unique_ptr<OnnxGraph> g;
  std::unique_ptr<OnnxSparseTensor> sparse_tensor;
  std::unique_ptr<OnnxType> type_proto;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  std::vector<OnnxTensor> tensors;
  std::vector<OnnxGraph> graphs;
  std::vector<OnnxSparseTensor> sparse_tensors;
  std::vector<OnnxType> type_protos;
};

struct OnnxNode {
  std::string_view name;
  std::string_view op_type;
  std::string_view domain;
  std::string_view overload;
  std::vector<std::string_view> inputs;  // "" is an input that is left out
  std::vector<std::string_view> outputs;
  std::vector<OnnxAttribute> attributes;
};

struct OnnxGraph {
  std::string_view name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<OnnxSparseTensor> sparse_initializers;
  std::vector<OnnxValueInfo> inputs;
  std::vector<OnnxValueInfo> outputs;
  std::vector<OnnxValueInfo> value_infos;
  std::vector<OnnxEntry> metadata;
};

struct OnnxFunction {
  std::string_view name;
  std::string_view domain;
  std::string_view overload;
  std::vector<std::string_view> inputs;
  std::vector<std::string_view> outputs;
  std::vector<std::string_view> attributes;     // without a default
  std::vector<OnnxAttribute> attribute_protos;  // with one
  std::vector<OnnxNode> nodes;
  std::vector<OnnxOpset> opset_imports;
  std::vector<OnnxValueInfo> value_infos;
};

struct OnnxModel {
  int64_t ir_version = 0;
  std::vector<OnnxOpset> opset_imports;
  std::string_view producer_name;
  std::string_view producer_version;
  std::string_view domain;
  int64_t model_version = 0;
  std::string_view doc_string;
  OnnxGraph graph;
  std::vector<OnnxFunction> functions;
  std::vector<OnnxEntry> metadata;
};

struct OnnxOptions {
  ReadMode mode = ReadMode::kMap;  // of the model and of its external data
  ReadProgress progress;           // of the model's file
  // Bytes that the structs and decoded data may take; 0 is 64 MiB and 32 times the model's size,
  // above what the shortest names and attributes of a real model come to. More is OUT_OF_MEMORY.
  uint64_t memory_limit = 0;
  std::string name = "model";  // in messages of parse_onnx
};

struct OnnxFileState;  // file.cc

// Copies share one model and its mappings; a moved-from file may only be assigned to or destroyed.
class OnnxFile {
 public:
  const std::string& path() const;  // as given to open_onnx, or OnnxOptions::name
  const OnnxModel& model() const;
  // The model's file and the external data that was asked for so far; for parse_onnx the latter.
  std::vector<std::shared_ptr<MappedFile>> files() const;
  Status check_unchanged() const;  // of every file of files(); see MappedFile
  // Keeps everything handed out alive, and the owner given to parse_onnx.
  std::shared_ptr<const void> owner() const;

 private:
  friend Result<OnnxFile> open_onnx(const std::string& path, const OnnxOptions& options);
  friend Result<OnnxFile> parse_onnx(std::span<const std::byte> bytes,
                                     std::shared_ptr<const void> owner,
                                     const std::string& base_folder, const OnnxOptions& options);
  friend struct OnnxFileState;
  explicit OnnxFile(std::shared_ptr<OnnxFileState> state) : state_(std::move(state)) {}

  std::shared_ptr<OnnxFileState> state_;
};

// Errors: those of MappedFile::open; CORRUPT for damage and for what is no ONNX file, OUT_OF_MEMORY
// beyond the limit. Messages name the file, the field ("graph.node[12].attribute[3]"), the byte,
// and the remedy. External data is not opened yet.
Result<OnnxFile> open_onnx(const std::string& path, const OnnxOptions& options = {});

// Over bytes that `owner` keeps alive and unchanged (null: the caller does). External data lies
// relative to `base_folder`; without one it is refused.
Result<OnnxFile> parse_onnx(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                            const std::string& base_folder, const OnnxOptions& options = {});

// The data of a tensor, wherever it lies. Nothing is copied.
struct OnnxTensorBytes {
  int32_t data_type = 0;  // an OnnxDataType number
  std::span<const int64_t> dims;
  uint64_t elements = 0;
  // Little endian, exactly ceil(elements * bits / 8) bytes: types below 8 bits are packed from the
  // lowest bit on, and a BOOL byte is as in the file. `bytes` of raw and external data may begin at
  // any address: not 64-byte aligned, and not even for the element type. Empty for STRING.
  std::span<const std::byte> bytes;
  std::vector<std::string_view> strings;  // STRING: `elements` of them
};

// `tensor` comes from `file`. External files are mapped when they are first asked for, once each.
// Errors: CORRUPT when dims, type and size contradict each other, and for external data outside the
// model's folder or its file; UNSUPPORTED for an unknown type; NOT_FOUND for an absent external
// file, and those of MappedFile::open. Messages name the model, the tensor, the file, the remedy.
Result<OnnxTensorBytes> tensor_bytes(const OnnxFile& file, const OnnxTensor& tensor);

}  // namespace lmn::formats
