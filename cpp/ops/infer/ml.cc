// SPDX-License-Identifier: Apache-2.0
//
// Types of tensor_ops/ml.def: features, encoders, maps.
#include "ops/infer/ml.h"

#include <cinttypes>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

// A list of `length` numbers, one for every feature, or one for all of them.
Status expect_per_feature(const TensorNode& node, const char* key, int64_t length) {
  if (length <= 1 || !node.ranked()) return {};
  const int64_t features = node.shape(0).last();
  if (features < 0 || features == length) return {};
  return node.fail("%s has %" PRId64 " entries, and the input %" PRId64 " features", key, length,
                   features);
}

// The types that the lists of LabelEncoder stand for: `kind` is "keys" or "values".
Status label_type(const TensorNode& node, const std::string& kind, DType* dtype, int64_t* count) {
  int given = 0;
  const auto take = [&](DType type, int64_t length) {
    if (length == 0) return;
    ++given;
    *dtype = type;
    *count = length;
  };
  take(DType::kF32, length_of(node.numbers(kind + "_floats")));
  take(DType::kI64, length_of(node.integers(kind + "_int64s")));
  take(DType::kString, length_of(node.texts(kind + "_strings")));
  if (const Tensor* tensor = node.tensor(kind + "_tensor")) {
    take(tensor->dtype, tensor->shape.elements());
  }
  if (given == 1) return {};
  return node.fail("one of %s_floats, _int64s, _strings and _tensor is to be given", kind.c_str());
}

}  // namespace

Status expect_ml_number(const TensorNode& node, int i) {
  return node.expect_dtype(i, {DType::kF32, DType::kF64, DType::kI32, DType::kI64});
}

Status rows_of(const TensorNode& node, int64_t* rows, int64_t* features) {
  const Shape& x = node.shape(0);
  if (x.rank != 1 && x.rank != 2) {
    return node.fail("the input is %s; it is [features] or [rows, features]",
                     x.to_string().c_str());
  }
  *rows = x.rank == 1 ? 1 : x[0];
  *features = x.last();
  return {};
}

Status infer_ArrayFeatureExtractor(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  LMN_RETURN_IF_ERROR(node.expect_dtype(1, {DType::kI64}));
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  Shape out = node.shape(0);
  if (out.rank == 0) return node.fail("the input is a scalar");
  if (out.rank == 1) out = Shape{1, out[0]};
  const int64_t features = node.shape(0).last(),
                count = size_product(node.shape(1), 0, node.rank(1));
  if (node.knows(1) && features >= 0) {
    for (const int64_t index : node.integers(1)) {
      if (index < 0 || index >= features) {
        return node.fail("index %" PRId64 " of %" PRId64 " features", index, features);
      }
    }
  }
  out[out.rank - 1] = count;
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_Binarizer(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  return same_as_input(node, outputs);
}

// Input i gives inputdimensions[i] columns: cut, or filled up with zeros.
Status infer_FeatureVectorizer(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(std::max(1, node.inputs()), node.inputs()));
  outputs[0].dtype = DType::kF32;
  const Ints* sizes = node.integers("inputdimensions");
  if (sizes != nullptr && static_cast<int>(sizes->size()) != node.inputs()) {
    return node.fail("inputdimensions has %zu entries for %d inputs", sizes->size(), node.inputs());
  }
  for (int i = 0; i < node.inputs(); ++i) {
    LMN_RETURN_IF_ERROR(expect_ml_number(node, i));
    const int64_t size = sizes == nullptr ? 0 : (*sizes)[static_cast<size_t>(i)];
    if (size < 0 || size > kMaxElements) return node.fail("an input's size is %" PRId64, size);
  }
  if (!node.ranked()) return {};
  Shape out{kUnknownSize, 0};
  for (int i = 0; i < node.inputs(); ++i) {
    const Shape& x = node.shape(i);
    if (x.rank != 1 && x.rank != 2) {
      return node.fail("input %d is %s; it is [features] or [rows, features]", i,
                       x.to_string().c_str());
    }
    if (!same_size(out[0], x.rank == 1 ? 1 : x[0], &out[0])) {
      return node.fail("input %d has %" PRId64 " rows, and others %" PRId64, i, x[0], out[0]);
    }
    const int64_t size = sizes == nullptr ? x.last() : (*sizes)[static_cast<size_t>(i)];
    out[1] = size < 0 || out[1] < 0 ? kUnknownSize : out[1] + size;
    if (out[1] > kMaxElements) return node.fail("more than 2^40 columns");
  }
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_Imputer(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  const bool integer = node.dtype(0) == DType::kI32 || node.dtype(0) == DType::kI64;
  const char* key = integer ? "imputed_value_int64s" : "imputed_value_floats";
  const int64_t length = integer ? length_of(node.integers(key)) : length_of(node.numbers(key));
  if (length == 0) return node.fail("%s is to be given", key);
  LMN_RETURN_IF_ERROR(expect_per_feature(node, key, length));
  return same_as_input(node, outputs);
}

Status infer_Normalizer(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  const std::string_view norm = node.text("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2") return node.fail("norm is MAX, L1 or L2");
  outputs[0].dtype = DType::kF32;
  outputs[0].shape = node.shape(0);
  if (!node.ranked()) return {};
  int64_t rows, features;
  return rows_of(node, &rows, &features);
}

Status infer_Scaler(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(expect_ml_number(node, 0));
  for (const char* key : {"offset", "scale"}) {
    LMN_RETURN_IF_ERROR(expect_per_feature(node, key, length_of(node.numbers(key))));
  }
  outputs[0].dtype = DType::kF32;
  outputs[0].shape = node.shape(0);
  return {};
}

Status infer_CategoryMapper(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kI64, DType::kString}));
  const int64_t integers = length_of(node.integers("cats_int64s")),
                strings = length_of(node.texts("cats_strings"));
  if (integers != strings) {
    return node.fail("%" PRId64 " cats_int64s and %" PRId64 " cats_strings", integers, strings);
  }
  outputs[0].dtype = node.dtype(0) == DType::kI64 ? DType::kString : DType::kI64;
  outputs[0].shape = node.shape(0);
  return {};
}

Status infer_LabelEncoder(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  DType key, value;
  int64_t keys, values;
  LMN_RETURN_IF_ERROR(label_type(node, "keys", &key, &keys));
  LMN_RETURN_IF_ERROR(label_type(node, "values", &value, &values));
  if (keys != values) return node.fail("%" PRId64 " keys and %" PRId64 " values", keys, values);
  for (const DType type : {key, value}) {
    if (type == DType::kF32 || type == DType::kF64 || type == DType::kI16 || type == DType::kI32 ||
        type == DType::kI64 || type == DType::kString) {
      continue;
    }
    return node.unsupported("keys or values of %s", std::string(info(type).name).c_str());
  }
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {key}));
  const Tensor* otherwise = node.tensor("default_tensor");
  if (otherwise != nullptr && (otherwise->dtype != value || otherwise->shape.elements() != 1)) {
    return node.fail("default_tensor is not one value of the type of the values");
  }
  outputs[0].dtype = value;
  outputs[0].shape = node.shape(0);
  return {};
}

Status infer_OneHotEncoder(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  const int64_t integers = length_of(node.integers("cats_int64s")),
                strings = length_of(node.texts("cats_strings"));
  if ((integers == 0) == (strings == 0)) {
    return node.fail("one of cats_int64s and cats_strings is to be given");
  }
  LMN_RETURN_IF_ERROR(strings != 0 ? node.expect_dtype(0, {DType::kString})
                                   : expect_ml_number(node, 0));
  outputs[0].dtype = DType::kF32;
  if (!node.ranked()) return {};
  Shape out = node.shape(0);
  if (out.rank == kMaxRank) return node.unsupported("rank above %d", kMaxRank);
  out[out.rank++] = integers + strings;
  outputs[0].shape = out;
  return check_elements(node, out);
}

Status infer_CastMap(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  if (node.type(0).kind != ValueKind::kMap) return node.fail("the input is no map");
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32, DType::kString}));
  const std::string_view to = node.text("cast_to", "TO_FLOAT"),
                         form = node.text("map_form", "DENSE");
  if (to != "TO_FLOAT" && to != "TO_STRING" && to != "TO_INT64") {
    return node.fail("cast_to is TO_FLOAT, TO_STRING or TO_INT64");
  }
  if (form != "DENSE" && form != "SPARSE") return node.fail("map_form is DENSE or SPARSE");
  const int64_t length = node.integer("max_map", 1);
  if (form == "SPARSE" && (length < 1 || length > kMaxElements)) {
    return node.fail("max_map is %" PRId64, length);
  }
  outputs[0].dtype = to == "TO_FLOAT"    ? DType::kF32
                     : to == "TO_STRING" ? DType::kString
                                         : DType::kI64;
  outputs[0].shape = Shape{1, form == "SPARSE" ? length : kUnknownSize};
  return {};
}

Status infer_DictVectorizer(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  if (node.type(0).kind != ValueKind::kMap) return node.fail("the input is no map");
  LMN_RETURN_IF_ERROR(
      node.expect_dtype(0, {DType::kF32, DType::kF64, DType::kI64, DType::kString}));
  int64_t count;
  bool are_strings;
  LMN_RETURN_IF_ERROR(
      read_labels(node, "int64_vocabulary", "string_vocabulary", &count, &are_strings));
  outputs[0].dtype = node.dtype(0);
  outputs[0].shape = Shape{1, count};
  return {};
}

Status infer_ZipMap(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 1));
  LMN_RETURN_IF_ERROR(node.expect_dtype(0, {DType::kF32}));
  int64_t count;
  bool are_strings;
  LMN_RETURN_IF_ERROR(
      read_labels(node, "classlabels_int64s", "classlabels_strings", &count, &are_strings));
  outputs[0] = TensorType{DType::kF32, unknown_shape(), ValueKind::kSequence, ValueKind::kMap};
  if (!node.ranked()) return {};
  int64_t rows, columns;
  LMN_RETURN_IF_ERROR(rows_of(node, &rows, &columns));
  if (columns < 0 || columns == count) return {};
  return node.fail("%" PRId64 " columns and %" PRId64 " labels", columns, count);
}

}  // namespace lmn::ops
