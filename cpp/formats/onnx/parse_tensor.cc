// SPDX-License-Identifier: Apache-2.0
//
// TensorProto and SparseTensorProto. The numbers are those of onnx.proto. A tensor's typed data may
// stand before its type, so a first walk finds and counts it, and a second one decodes it into the
// bytes that raw_data would have.
#include <charconv>
#include <cstring>
#include <iterator>

#include "formats/bytes.h"
#include "formats/onnx/parse.h"

namespace lmn::formats {
namespace {

enum : uint32_t {  // fields of typed data
  kFloatData = 4,
  kInt32Data = 5,
  kStringData = 6,
  kInt64Data = 7,
  kDoubleData = 10,
  kUint64Data = 11,
};

const char* data_name(uint32_t field) {
  switch (field) {
    case kFloatData:
      return "float_data";
    case kInt32Data:
      return "int32_data";
    case kStringData:
      return "string_data";
    case kInt64Data:
      return "int64_data";
    case kDoubleData:
      return "double_data";
    case kUint64Data:
      return "uint64_data";
    default:
      return "raw_data";
  }
}

// The field that holds typed data of this type.
uint32_t data_field(int32_t type) {
  switch (type) {
    case OnnxDataType::FLOAT:
    case OnnxDataType::COMPLEX64:
      return kFloatData;
    case OnnxDataType::STRING:
      return kStringData;
    case OnnxDataType::INT64:
      return kInt64Data;
    case OnnxDataType::DOUBLE:
    case OnnxDataType::COMPLEX128:
      return kDoubleData;
    case OnnxDataType::UINT32:
    case OnnxDataType::UINT64:
      return kUint64Data;
    default:
      return find_onnx_data_type(type) != nullptr ? uint32_t{kInt32Data} : 0;
  }
}

// What a walk over a tensor's fields finds.
struct Found {
  uint32_t field = 0;                     // of the typed data; 0: none
  uint64_t count = 0;                     // of its entries
  const std::byte* at = nullptr;          // its first one
  bool raw = false;                       // raw_data is there
  bool external = false;                  // data_location says so
  std::vector<OnnxEntry> entries;         // of external_data
  const std::byte* entries_at = nullptr;  // the last of them
};

// Bytes of an entry of float_data and double_data; 0 for the varints of the others.
size_t entry_size(uint32_t field) { return field == kFloatData ? 4 : field == kDoubleData ? 8 : 0; }

// One field of typed data: only one of them may be there.
Status note_field(const Message& message, const Field& field, Found* found) {
  if (found->field != 0 && found->field != field.number) {
    return message.damaged(field.at, "it has both %s and %s", data_name(found->field),
                           data_name(field.number));
  }
  if (found->field == 0) found->at = field.at;
  found->field = field.number;
  return {};
}

Status count_entries(const Message& message, const Field& field, Found* found) {
  if (field.wire == Wire::kBytes && field.bytes.empty()) return {};
  LMN_RETURN_IF_ERROR(note_field(message, field, found));
  const size_t size = entry_size(field.number);
  if (field.wire != Wire::kBytes) {
    ++found->count;
    return message.expect(field, data_name(field.number),
                          size == 4   ? Wire::kFixed32
                          : size == 8 ? Wire::kFixed64
                                      : Wire::kVarint);
  }
  if (size == 0) {
    found->count += count_varints(field.bytes);
  } else if (field.bytes.size() % size == 0) {
    found->count += field.bytes.size() / size;
  } else {
    return message.damaged(field.at, "%s has %zu bytes, no multiple of %zu",
                           data_name(field.number), field.bytes.size(), size);
  }
  return {};
}

// Where entries of typed data go: one after the other into `out`, which is zero at the start and
// long enough for all of them.
class Packer {
 public:
  Packer(int32_t type, std::byte* out) : type_(type), bits_(kOnnxDataTypes[type].bits), out_(out) {}

  // False when an entry is out of the type's range.
  bool put(uint64_t entry) {
    const auto value = static_cast<int64_t>(entry);
    switch (type_) {
      case OnnxDataType::INT64:
      case OnnxDataType::UINT64:
        return store(&entry, 8);
      case OnnxDataType::UINT32:
        return entry <= UINT32_MAX && store(&entry, 4);
      case OnnxDataType::INT32:  // also as the 32 bits of a negative number
        return value >= INT32_MIN && value <= UINT32_MAX && store(&entry, 4);
      case OnnxDataType::BOOL:
        entry = entry != 0;
        return store(&entry, 1);
      case OnnxDataType::FLOAT6E2M3:
      case OnnxDataType::FLOAT6E3M2:
        return entry < 64 && store_six(entry);
      default:
        break;
    }
    // 16 bits, 8, or a byte of several smaller ones: signed or not, since the type decides what the
    // bits mean.
    const int64_t end = bits_ == 16 ? 1 << 16 : 1 << 8;
    return value >= -end / 2 && value < end && store(&entry, bits_ == 16 ? 2 : 1);
  }
  bool store(const void* value, size_t size) {
    std::memcpy(out_, value, size);
    out_ += size;
    return true;
  }

 private:
  bool store_six(uint64_t value) {
    out_[0] |= static_cast<std::byte>(value << shift_);
    if (shift_ > 2) out_[1] |= static_cast<std::byte>(value >> (8 - shift_));
    if (shift_ >= 2) ++out_;
    shift_ = (shift_ + 6) % 8;
    return true;
  }

  int32_t type_;
  uint32_t bits_;
  std::byte* out_;
  unsigned shift_ = 0;  // bits that are taken of *out_, for the types of six
};

uint64_t typed_bytes(int32_t type, uint32_t field, uint64_t count) {
  if (const size_t size = entry_size(field)) return count * size;
  const uint32_t bits = kOnnxDataTypes[type].bits;
  return bits == 6 ? (count * bits + 7) / 8 : bits < 8 ? count : count * (bits / 8);
}

// Typed data agrees with the tensor's type.
Status check_field(const Message& message, const Found& found, const OnnxTensor& tensor) {
  const char* name = data_name(found.field);
  if (find_onnx_data_type(tensor.data_type) == nullptr) {
    return message.damaged(found.at, "it has %s of the unknown data type %d", name,
                           tensor.data_type);
  }
  if (data_field(tensor.data_type) != found.field) {
    return message.damaged(found.at, "it has %s, which is not for data of type %s", name,
                           kOnnxDataTypes[tensor.data_type].name.data());
  }
  return {};
}

Status decode(Message& message, const Found& found, OnnxTensor* tensor) {
  const char* name = data_name(found.field);
  const uint64_t size = typed_bytes(tensor->data_type, found.field, found.count);
  LMN_RETURN_IF_ERROR(message.input()->charge(1, size));
  tensor->typed.resize(size);
  Packer packer(tensor->data_type, tensor->typed.data());
  return message.each([&](const Field& field) -> Status {
    if (field.number != found.field) return {};
    const size_t fixed = entry_size(field.number);
    if (field.wire == Wire::kBytes && fixed != 0) {
      if (!field.bytes.empty()) packer.store(field.bytes.data(), field.bytes.size());
      return {};
    }
    if (fixed != 0) {
      packer.store(&field.value, fixed);
      return {};
    }
    const auto put = [&](const std::byte* at, uint64_t value) -> Status {
      if (packer.put(value)) return {};
      return message.damaged(at, "%s has the entry %lld, out of range for %s", name,
                             static_cast<long long>(value),
                             kOnnxDataTypes[tensor->data_type].name.data());
    };
    if (field.wire == Wire::kVarint) return put(field.at, field.value);
    const std::byte* at = field.bytes.data();
    for (const std::byte* end = at + field.bytes.size(); at != end;) {
      const std::byte* start = at;
      uint64_t value = 0;
      if (const char* wrong = read_varint(&at, end, &value)) {
        return message.damaged(start, "%s: %s", name, wrong);
      }
      LMN_RETURN_IF_ERROR(put(start, value));
    }
    return {};
  });
}

Status read_external(const Message& message, const Found& found, OnnxTensor* tensor) {
  const auto number = [&](const OnnxEntry& entry, uint64_t* value) -> Status {
    const char* begin = entry.value.data();
    const char* end = begin + entry.value.size();
    const auto [at, problem] = std::from_chars(begin, end, *value);
    if (problem == std::errc() && at == end) return {};
    return message.damaged(found.entries_at,
                           "the %s of the external data is %s, no number of bytes",
                           std::string(entry.key).c_str(), quoted(entry.value).c_str());
  };
  for (const OnnxEntry& entry : found.entries) {
    uint64_t value = 0;
    if (entry.key == "location") {
      tensor->external.location = entry.value;
    } else if (entry.key == "offset") {
      LMN_RETURN_IF_ERROR(number(entry, &tensor->external.offset));
    } else if (entry.key == "length") {
      LMN_RETURN_IF_ERROR(number(entry, &value));
      tensor->external.length = value;
    }
  }
  return {};
}

}  // namespace

const OnnxDataType* find_onnx_data_type(int32_t number) {
  return number > 0 && number < std::ssize(kOnnxDataTypes) ? &kOnnxDataTypes[number] : nullptr;
}

Status parse(Message& message, OnnxTensor* tensor) {
  Found found;
  Status status = message.each([&](const Field& field) -> Status {
    int32_t location = 0;
    switch (field.number) {
      case 1:
        return message.add(field, "dims", &tensor->dims);
      case 2:
        return message.get(field, "data_type", &tensor->data_type);
      case 3:
        return message.damaged(field.at, "it is a segment of a tensor, which no tool writes");
      case kFloatData:
      case kInt32Data:
      case kInt64Data:
      case kDoubleData:
      case kUint64Data:
        return count_entries(message, field, &found);
      case kStringData:
        LMN_RETURN_IF_ERROR(note_field(message, field, &found));
        return message.add_bytes(field, "string_data", &tensor->strings);
      case 8:
        return message.get(field, "name", &tensor->name);
      case 9:
        found.raw = true;
        return message.get_bytes(field, "raw_data", &tensor->raw);
      case 13:
        found.entries_at = field.at;
        return message.add(field, "external_data", &found.entries);
      case 14:
        LMN_RETURN_IF_ERROR(message.get(field, "data_location", &location));
        found.external = location == 1;
        if (location == 0 || location == 1) return {};
        return message.damaged(field.at, "data_location is %d, neither 0 nor 1", location);
      default:
        return {};
    }
  });
  if (!status.ok()) return status;
  if (found.field != 0 && (!tensor->raw.empty() || found.external)) {
    return message.damaged(found.at, "it has %s and %s", data_name(found.field),
                           found.external ? "external data" : "raw_data");
  }
  if (found.external) {
    tensor->data = OnnxTensor::Data::kExternal;
    return read_external(message, found, tensor);
  }
  if (found.field != 0) LMN_RETURN_IF_ERROR(check_field(message, found, *tensor));
  if (found.field == kStringData) {
    tensor->data = OnnxTensor::Data::kStrings;
  } else if (found.field != 0) {
    tensor->data = OnnxTensor::Data::kTyped;
    return decode(message, found, tensor);
  } else if (found.raw) {
    tensor->data = OnnxTensor::Data::kRaw;
  }
  return {};
}

Status parse(Message& message, OnnxSparseTensor* tensor) {
  bool has_values = false;
  bool has_indices = false;
  return message.each([&](const Field& field) -> Status {
    switch (field.number) {
      case 1:
        if (has_values) return message.twice(field, "values");
        has_values = true;
        return message.get(field, "values", &tensor->values);
      case 2:
        if (has_indices) return message.twice(field, "indices");
        has_indices = true;
        return message.get(field, "indices", &tensor->indices);
      case 3:
        return message.add(field, "dims", &tensor->dims);
      default:
        return {};
    }
  });
}

}  // namespace lmn::formats
