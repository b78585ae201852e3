// SPDX-License-Identifier: Apache-2.0
//
// Reads everything a GgufModel hands out, as damage tests and the fuzz target do after any
// successful open: a pointer outside the file shows as a crash or a sanitizer report, a lookup that
// fails as a std::logic_error.
#pragma once

#include <stdexcept>

#include "formats/gguf.h"

namespace gguf_test {

inline uint64_t walk(const lmn::formats::GgufValue& value) {
  using lmn::formats::GgufType;
  uint64_t sum = 0;
  if (value.type() == GgufType::kString) {
    for (const char c : *value.get<std::string_view>()) sum += static_cast<unsigned char>(c);
    return sum;
  }
  if (value.type() != GgufType::kArray) {
    return value.get<double>().ok() + value.get<float>().ok() + value.get<uint8_t>().ok() +
           value.get<int64_t>().ok() + value.get<bool>().ok();
  }
  const lmn::formats::GgufArray array = *value.array();
  if (const auto strings = array.strings(); strings.ok()) {
    for (const std::string_view s : *strings) {
      sum += s.empty() ? 0 : static_cast<unsigned char>(s.front() ^ s.back());
    }
  } else if (array.element_type() == GgufType::kArray) {
    // at(i) walks from the front: in a wide array only the ends, so that the cost stays linear.
    for (size_t i = 0; i < array.size() && i < 16; ++i) sum += walk(array.at(i));
    if (array.size() > 16) sum += walk(array.at(array.size() - 1));
  } else if (const auto numbers = array.numbers<double>(); numbers.ok()) {
    sum += numbers->size() + array.numbers<int32_t>().ok();
  } else if (array.size() > 0) {
    sum += walk(array.at(array.size() - 1));
  }
  return sum + array.size();
}

inline uint64_t walk(const lmn::formats::GgufModel& model) {
  uint64_t sum = model.version();
  for (size_t i = 0; i < model.size(); ++i) {
    sum += walk(model.value(i));
    if (model.find(model.key(i)) != &model.value(i)) throw std::logic_error("find lost a key");
  }
  for (size_t i = 0; i < model.tensor_count(); ++i) {
    const auto& tensor = model.tensor(i);
    if (model.find_tensor(tensor.name) != &tensor) throw std::logic_error("find lost a tensor");
    const auto view = model.view(tensor);
    if (view.ok() != tensor.supported) throw std::logic_error("view and supported disagree");
    if (!view.ok()) continue;
    if (static_cast<uint64_t>(view->bytes()) != tensor.bytes) {
      throw std::logic_error("sizes disagree");
    }
    sum +=
        static_cast<uint64_t>(view->data[0]) + static_cast<uint64_t>(view->data[tensor.bytes - 1]);
  }
  return sum;
}

}  // namespace gguf_test
