// SPDX-License-Identifier: Apache-2.0
//
// Attributes: the named, typed constants of a node, in the order of their names. A schema or an
// operator's inference says which an operator has. Read when shapes are inferred and kernels are
// bound, never while a kernel runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/check.h"
#include "core/tensor.h"

namespace lmn::graph {
struct Graph;  // a subgraph of a control operator; only pointed at
}

namespace lmn::ops {

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
using Strings = std::vector<std::string>;
using Attribute = std::variant<int64_t, float, std::string, Ints, Floats, Strings,
                               std::shared_ptr<const Tensor>, std::shared_ptr<const graph::Graph>>;

class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> entries) {
    for (const auto& [key, value] : entries) set(key, value);
  }
  void set(std::string_view key, Attribute value) {
    const auto at =
        std::lower_bound(entries_.begin(), entries_.end(), key,
                         [](const auto& entry, std::string_view k) { return entry.first < k; });
    if (at != entries_.end() && at->first == key) {
      at->second = std::move(value);
    } else {
      entries_.insert(at, {std::string(key), std::move(value)});
    }
  }
  void erase(std::string_view key) {
    std::erase_if(entries_, [key](const auto& entry) { return entry.first == key; });
  }
  const Attribute* find(std::string_view key) const {  // null: absent
    for (const auto& [name, value] : entries_) {
      if (name == key) return &value;
    }
    return nullptr;
  }
  // Null when absent or of another type.
  template <typename T>
  const T* find_as(std::string_view key) const {
    const Attribute* found = find(key);
    return found == nullptr ? nullptr : std::get_if<T>(found);
  }
  // The attribute must exist and be a T: verify() has seen to it.
  template <typename T>
  const T& get(std::string_view key) const {
    const T* found = find_as<T>(key);
    LMN_CHECK(found != nullptr);
    return *found;
  }
  template <typename T>
  T get_or(std::string_view key, T fallback) const {
    return find(key) == nullptr ? fallback : get<T>(key);
  }
  const std::vector<std::pair<std::string, Attribute>>& entries() const { return entries_; }
  bool operator==(const Attributes&) const = default;

 private:
  std::vector<std::pair<std::string, Attribute>> entries_;
};

}  // namespace lmn::ops
