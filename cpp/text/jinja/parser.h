// SPDX-License-Identifier: Apache-2.0
//
// The syntax tree of a chat template: nodes in one array that name each other by index, so that
// neither building nor destroying it recurses over the input. What is syntactically Jinja but
// unknown here becomes a kUnsupported node, which fails only when it is reached: templates carry
// branches for tools that plain messages never enter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lmn::text {

struct TemplateNode {
  enum Op : uint8_t {
    // Statements
    kBody,          // children
    kText,          // text
    kOutput,        // a
    kIf,            // children: test, body, test, body, ..., [else body]
    kFor,           // text: variable; a: items; b: filter or -1; c: body; d: else body or -1
    kSet,           // text = a
    kSetAttribute,  // text.name = a
    // Expressions
    kString,   // text
    kInteger,  // number
    kBool,     // number
    kNone,
    kName,       // text
    kList,       // children
    kAttribute,  // a.text
    kItem,       // a[b]
    kSlice,      // a[b:c:d], each -1 when absent
    kCall,       // a(children); the last names.size() of them are keyword arguments
    kFilter,     // a | text(children)
    kTest,       // a is text
    // Operators: of a
    kNot,
    kNegate,
    // Operators: of a and b
    kAnd,
    kOr,
    kAdd,
    kSubtract,
    kMultiply,
    kFloorDivide,
    kModulo,
    kConcat,
    kEqual,
    kNotEqual,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kIn,
    kNotIn,
    kConditional,  // b if a else c (-1: undefined)
    kUnsupported,  // text: what it is
  };
  Op op;
  int line = 0;
  int depth = 1;  // of the tree below, this node included
  int a = -1, b = -1, c = -1, d = -1;
  int64_t number = 0;
  std::string text;
  std::string name;
  std::vector<int> children;
  std::vector<std::string> names;
};

struct TemplateTree {
  std::vector<TemplateNode> nodes;
  int root = -1;  // a kBody
};

// UNSUPPORTED: see lexer.h. The tree is at most kMaxTemplateDepth deep.
inline constexpr int kMaxTemplateDepth = 200;
Result<TemplateTree> parse_template(std::string_view source);

}  // namespace lmn::text
