// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/ml.def: encoders, which look elements up in a table, and maps.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "cpu/tensor/ml.h"
#include "cpu/tensor/values.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// Places of keys in a list; of a key that occurs twice, the last. Numbers are found by their value:
// every NaN is one key, and so are both zeros.
class KeyTable {
 public:
  template <typename T>
  void add(const T& key, int64_t place) {
    if constexpr (std::is_same_v<T, std::string>) {
      texts_.insert_or_assign(key, place);
    } else {
      numbers_.insert_or_assign(bits_of(key), place);
    }
  }
  template <typename T>
  int64_t find(const T& key) const {  // -1: it is not there
    if constexpr (std::is_same_v<T, std::string>) {
      const auto found = texts_.find(key);
      return found == texts_.end() ? -1 : found->second;
    } else {
      const auto found = numbers_.find(bits_of(key));
      return found == numbers_.end() ? -1 : found->second;
    }
  }

 private:
  template <typename T>
  static uint64_t bits_of(T key) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<uint64_t>(static_cast<int64_t>(key));
    } else {
      const auto wide = static_cast<double>(key);
      return std::isnan(wide) ? ~uint64_t{0} : std::bit_cast<uint64_t>(wide == 0 ? 0.0 : wide);
    }
  }

  std::unordered_map<std::string, int64_t> texts_;
  std::unordered_map<uint64_t, int64_t> numbers_;
};

// f(TypeTag<T>) for the types of keys and values.
template <typename F>
Status with_label(const ops::TensorNode& node, DType dtype, F&& f) {
  if (dtype == DType::kString) return f(TypeTag<std::string>{});
  if (dtype == DType::kI16) return f(TypeTag<int16_t>{});
  return with_ml_number(node, dtype, f);
}

// y[i] = values[place of x[i]], or `otherwise`.
template <typename Key, typename Value>
void set_lookup(const Binding& b, const KeyTable& table, const std::vector<Value>& values,
                const Value& otherwise) {
  const int64_t count = b.outputs[0].shape.elements();
  b.kernel.splits = true;
  b.kernel.set([=](const Operands& io, const Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t place = table.find(io.input<Key>(0)[i]);
      io.output<Value>(0)[i] = place < 0 ? otherwise : values[static_cast<size_t>(place)];
    }
  });
}

// The list of LabelEncoder that has elements of type T: `kind` is "keys" or "values".
template <typename T>
std::vector<T> label_list(const ops::TensorNode& node, const std::string& kind) {
  if (const Tensor* tensor = node.tensor(kind + "_tensor")) {
    return {tensor->as<T>(), tensor->as<T>() + tensor->shape.elements()};
  }
  if constexpr (std::is_same_v<T, float>) {
    return *node.numbers(kind + "_floats");
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return *node.integers(kind + "_int64s");
  } else if constexpr (std::is_same_v<T, std::string>) {
    return *node.texts(kind + "_strings");
  } else {
    return {};
  }
}

template <typename T>
T label_default(const ops::TensorNode& node) {
  const Tensor* tensor = node.tensor("default_tensor");
  if (tensor != nullptr) return *tensor->as<T>();
  if constexpr (std::is_same_v<T, std::string>) {
    return std::string(node.text("default_string", "_Unused"));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(node.integer("default_int64", -1));
  } else {
    return static_cast<T>(node.number("default_float", -0.0f));
  }
}

}  // namespace

Status bind_LabelEncoder(const Binding& b) {
  return with_label(b.node, b.node.dtype(0), [&](auto key_tag) -> Status {
    using Key = typename decltype(key_tag)::type;
    KeyTable table;
    const std::vector<Key> keys = label_list<Key>(b.node, "keys");
    for (size_t i = 0; i < keys.size(); ++i) table.add(keys[i], static_cast<int64_t>(i));
    return with_label(b.node, b.outputs[0].dtype, [&](auto value_tag) -> Status {
      using Value = typename decltype(value_tag)::type;
      set_lookup<Key, Value>(b, table, label_list<Value>(b.node, "values"),
                             label_default<Value>(b.node));
      return {};
    });
  });
}

Status bind_CategoryMapper(const Binding& b) {
  ops::Ints integers;
  ops::Strings strings;
  if (b.node.integers("cats_int64s") != nullptr) integers = *b.node.integers("cats_int64s");
  if (b.node.texts("cats_strings") != nullptr) strings = *b.node.texts("cats_strings");
  const bool from_strings = b.node.dtype(0) == DType::kString;
  KeyTable table;
  for (size_t i = 0; i < integers.size(); ++i) {
    if (from_strings) {
      table.add(strings[i], static_cast<int64_t>(i));
    } else {
      table.add(integers[i], static_cast<int64_t>(i));
    }
  }
  if (from_strings) {
    set_lookup<std::string, int64_t>(b, table, integers, b.node.integer("default_int64", -1));
  } else {
    set_lookup<int64_t, std::string>(b, table, strings,
                                     std::string(b.node.text("default_string", "_Unused")));
  }
  return {};
}

// Floats are cut to integers first.
Status bind_OneHotEncoder(const Binding& b) {
  KeyTable table;
  int64_t width = 0;
  if (const ops::Ints* integers = b.node.integers("cats_int64s")) {
    for (const int64_t category : *integers) table.add(category, width++);
  }
  if (const ops::Strings* strings = b.node.texts("cats_strings")) {
    for (const std::string& category : *strings) table.add(category, width++);
  }
  const int64_t count = b.node.shape(0).elements();
  const bool zeros = b.node.integer("zeros", 1) != 0;
  b.kernel.splits = true;
  const auto set = [&](auto tag) -> Status {
    using T = typename decltype(tag)::type;
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      const auto [begin, end] = ops::share_of(count, worker);
      for (int64_t i = begin; i < end; ++i) {
        const T& x = io.input<T>(0)[i];
        int64_t place = -1;
        if constexpr (std::is_floating_point_v<T>) {
          if (std::abs(x) < T(0x1p62)) place = table.find(static_cast<int64_t>(x));
        } else if constexpr (std::is_integral_v<T>) {
          place = table.find(int64_t{x});
        } else {
          place = table.find(x);
        }
        if (place < 0 && !zeros) io.fail("OneHotEncoder: an element is none of the categories");
        float* out = io.output<float>(0) + i * width;
        std::fill_n(out, width, 0.0f);
        if (place >= 0) out[place] = 1;
      }
    });
    return {};
  };
  if (b.node.dtype(0) == DType::kString) return set(TypeTag<std::string>{});
  return with_ml_number(b.node, b.node.dtype(0), set);
}

namespace {

// One element of a CastMap as the type that is wanted. False: it is no number.
bool cast(float value, float* out) { return *out = value, true; }
bool cast(float value, int64_t* out) {
  if (!(std::abs(value) < 0x1p62f)) return false;
  return *out = static_cast<int64_t>(value), true;
}
bool cast(float value, std::string* out) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return out->assign(text, end), true;
}
template <typename Number>
bool cast(const std::string& value, Number* out) {
  const char* end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, *out);
  return result.ec == std::errc() && result.ptr == end;
}
bool cast(const std::string& value, std::string* out) { return *out = value, true; }

template <typename From, typename To>
Status cast_map(const ops::TensorNode& node, const ops::EvaluateContext& context, DType dtype) {
  const std::vector<ops::RuntimeValue>& items = context.input(0).items;
  const int64_t *keys = items[0].tensor.as<int64_t>(), count = items[0].tensor.shape.elements();
  const bool sparse = node.text("map_form", "DENSE") == "SPARSE";
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
  std::sort(order.begin(), order.end(), [keys](int64_t a, int64_t b) { return keys[a] < keys[b]; });
  const int64_t length = sparse ? node.integer("max_map", 1) : count;
  LMN_ASSIGN_OR_RETURN(To* const out, context.make<To>(0, dtype, {1, length}));
  To zero{};
  if constexpr (std::is_same_v<To, std::string>) zero = "0";
  std::fill_n(out, length, zero);
  int64_t next = 0;
  for (const int64_t i : order) {
    const int64_t place = sparse ? keys[i] : next++;
    if (place < 0 || place >= length) {
      return node.fail("a key is not between 0 and max_map - 1");
    }
    if (!cast(items[1].tensor.as<From>()[i], out + place)) {
      return node.fail("a value is not a number that the output can hold");
    }
  }
  return {};
}

// A map has a tensor of keys of `dtype` and one of values, of one length.
Status expect_map(const ops::TensorNode& node, const ops::RuntimeValue& map, DType keys,
                  DType values) {
  if (map.items.size() == 2 && map.items[0].tensor.dtype == keys &&
      map.items[1].tensor.dtype == values &&
      map.items[0].tensor.shape.elements() == map.items[1].tensor.shape.elements()) {
    return {};
  }
  return node.fail("the map is not one of %s to %s", std::string(info(keys).name).c_str(),
                   std::string(info(values).name).c_str());
}

}  // namespace

Status evaluate_CastMap(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  LMN_RETURN_IF_ERROR(expect_map(node, context.input(0), DType::kI64, node.dtype(0)));
  const std::string_view to = node.text("cast_to", "TO_FLOAT");
  const auto from = [&](auto tag) -> Status {
    using From = typename decltype(tag)::type;
    if (to == "TO_FLOAT") return cast_map<From, float>(node, context, DType::kF32);
    if (to == "TO_INT64") return cast_map<From, int64_t>(node, context, DType::kI64);
    return cast_map<From, std::string>(node, context, DType::kString);
  };
  return node.dtype(0) == DType::kString ? from(TypeTag<std::string>{}) : from(TypeTag<float>{});
}

// One row, as ONNX Runtime makes it, so that linear models can follow.
Status evaluate_DictVectorizer(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const ops::Strings* words = node.texts("string_vocabulary");
  const bool are_strings = words != nullptr && !words->empty();
  LMN_RETURN_IF_ERROR(expect_map(node, context.input(0), are_strings ? DType::kString : DType::kI64,
                                 node.dtype(0)));
  const Tensor &keys = context.input(0).items[0].tensor, &values = context.input(0).items[1].tensor;
  const int64_t count = keys.shape.elements();
  KeyTable table;
  for (int64_t i = 0; i < count; ++i) {
    if (are_strings) {
      table.add(keys.as<std::string>()[i], i);
    } else {
      table.add(keys.as<int64_t>()[i], i);
    }
  }
  const ops::Ints* numbers = node.integers("int64_vocabulary");
  const auto width = static_cast<int64_t>(are_strings ? words->size() : numbers->size());
  LMN_ASSIGN_OR_RETURN(const Tensor y, context.allocate(values.dtype, Shape{1, width}));
  context.output(0).tensor = y;
  if (values.dtype != DType::kString) {
    std::fill_n(y.data, width * info(values.dtype).block_bytes, std::byte{0});
  }
  for (int64_t i = 0; i < width; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t place = are_strings ? table.find((*words)[at]) : table.find((*numbers)[at]);
    if (place >= 0) copy_elements(values, place, 1, y, i);
  }
  return {};
}

// All maps share one tensor of keys.
Status evaluate_ZipMap(const ops::TensorNode& node, const ops::EvaluateContext& context) {
  const ops::Strings* strings = node.texts("classlabels_strings");
  const ops::Ints* integers = node.integers("classlabels_int64s");
  const Tensor& x = context.tensor(0);
  const int64_t columns = x.shape.last(), rows = x.shape.rank == 1 ? 1 : x.shape[0];
  ops::RuntimeValue keys;
  if (strings != nullptr && !strings->empty()) {
    LMN_ASSIGN_OR_RETURN(keys.tensor, context.allocate(DType::kString, Shape{columns}));
    std::copy(strings->begin(), strings->end(), keys.tensor.as<std::string>());
  } else {
    LMN_ASSIGN_OR_RETURN(keys.tensor, context.allocate(DType::kI64, Shape{columns}));
    std::copy(integers->begin(), integers->end(), keys.tensor.as<int64_t>());
  }
  ops::RuntimeValue& out = context.output(0);
  out.kind = ops::ValueKind::kSequence;
  out.tensor.dtype = DType::kF32;
  for (int64_t row = 0; row < rows; ++row) {
    ops::RuntimeValue map, values;
    LMN_ASSIGN_OR_RETURN(values.tensor, context.allocate(DType::kF32, Shape{columns}));
    copy_elements(x, row * columns, columns, values.tensor, 0);
    map.kind = ops::ValueKind::kMap;
    map.tensor.dtype = DType::kF32;
    map.items.push_back(keys);
    map.items.push_back(std::move(values));
    out.items.push_back(std::move(map));
  }
  return {};
}

}  // namespace lmn::cpu
