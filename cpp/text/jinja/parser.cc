// SPDX-License-Identifier: Apache-2.0
//
// Recursive descent by the grammar of Jinja2 3.1. From weakest to strongest: `if else`, or, and,
// not, comparisons, + -,
// ~, * // %, unary -, then . [] () and, after all of these, | and is.
#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja/lexer.h"

namespace lmn::text {
namespace {

using Node = TemplateNode;
using Token = TemplateToken;

// Every parse function returns the index of its node, or a Status.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<TemplateTree> run() {
    LMN_ASSIGN_OR_RETURN(const int root, body({}));
    tree_.root = root;
    return std::move(tree_);
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(Token::Kind kind, std::string_view text) const {
    return now().kind == kind && now().text == text;
  }
  bool is_word(std::string_view word) const { return is(Token::kName, word); }
  bool is_op(std::string_view op) const { return is(Token::kOperator, op); }
  bool take_word(std::string_view word) { return is_word(word) && (++at_, true); }
  bool take_op(std::string_view op) { return is_op(op) && (++at_, true); }

  Status unexpected(const char* wanted) const {
    static constexpr const char* kKinds[] = {"text", "{%",       "%}",       "{{", "}}",
                                             "",     "a string", "a number", "",   "the end"};
    const std::string got =
        now().text.empty() || now().kind == Token::kText ? kKinds[now().kind] : now().text;
    return unsupported_template(now().line, got + " where it wants " + wanted);
  }
  Status expect_op(const char* op) { return take_op(op) ? Status() : unexpected(op); }
  Status expect(Token::Kind kind, const char* name) {
    if (now().kind != kind) return unexpected(name);
    ++at_;
    return {};
  }

  Result<int> add(Node node) {
    int depth = 0;
    for (const int child : {node.a, node.b, node.c, node.d}) {
      if (child >= 0) depth = std::max(depth, tree_.nodes[static_cast<size_t>(child)].depth);
    }
    for (const int child : node.children)
      depth = std::max(depth, tree_.nodes[static_cast<size_t>(child)].depth);
    node.depth = depth + 1;
    if (node.line == 0) node.line = now().line;
    if (node.depth > kMaxTemplateDepth) return unsupported_template(node.line, "nesting this deep");
    tree_.nodes.push_back(std::move(node));
    return static_cast<int>(tree_.nodes.size() - 1);
  }
  static Node make(Node::Op op, int a = -1, int b = -1, int c = -1) {
    Node node{};
    node.op = op;
    node.a = a;
    node.b = b;
    node.c = c;
    return node;
  }
  static Node make_text(Node::Op op, std::string text, int a = -1) {
    Node node = make(op, a);
    node.text = std::move(text);
    return node;
  }

  // Bounds the recursion of the parser itself.
  struct Nesting {
    explicit Nesting(int& count) : count_(count) { ++count_; }
    ~Nesting() { --count_; }
    int& count_;
  };

  // Statements up to a block that starts with one of `ends` (not consumed beyond "{%"), or to the
  // end of the source.
  Result<int> body(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(nesting_);
    if (nesting_ > kMaxTemplateDepth) return unsupported_template(now().line, "nesting this deep");
    Node out = make(Node::kBody);
    for (;;) {
      int child = -1;
      if (now().kind == Token::kEnd) {
        if (ends.size() > 0) return unexpected(std::string(*ends.begin()).c_str());
        break;
      }
      if (now().kind == Token::kText) {
        LMN_ASSIGN_OR_RETURN(child, add(make_text(Node::kText, now().text)));
        ++at_;
      } else if (now().kind == Token::kOutputBegin) {
        ++at_;
        LMN_ASSIGN_OR_RETURN(const int value, tuple_or_expression());
        LMN_ASSIGN_OR_RETURN(child, add(make(Node::kOutput, value)));
        LMN_RETURN_IF_ERROR(expect(Token::kOutputEnd, "}}"));
      } else {
        LMN_RETURN_IF_ERROR(expect(Token::kBlockBegin, "{%"));
        if (std::any_of(ends.begin(), ends.end(),
                        [this](std::string_view end) { return is_word(end); }))
          break;
        LMN_ASSIGN_OR_RETURN(child, statement());
      }
      out.children.push_back(child);
    }
    return add(std::move(out));
  }

  Status block_end() { return expect(Token::kBlockEnd, "%}"); }

  Result<int> statement() {
    if (take_word("if")) return if_statement();
    if (take_word("for")) return for_statement();
    if (take_word("set")) return set_statement();
    return unsupported_template(now().line, "the statement '" + now().text + "'");
  }

  Result<int> if_statement() {
    Node out = make(Node::kIf);
    for (;;) {
      LMN_ASSIGN_OR_RETURN(const int test, or_expression());
      LMN_RETURN_IF_ERROR(block_end());
      LMN_ASSIGN_OR_RETURN(const int then, body({"elif", "else", "endif"}));
      out.children.insert(out.children.end(), {test, then});
      if (take_word("elif")) continue;
      if (take_word("else")) {
        LMN_RETURN_IF_ERROR(block_end());
        LMN_ASSIGN_OR_RETURN(const int otherwise, body({"endif"}));
        out.children.push_back(otherwise);
      }
      ++at_;  // endif
      LMN_RETURN_IF_ERROR(block_end());
      return add(std::move(out));
    }
  }

  Result<int> for_statement() {
    Node out = make(Node::kFor);
    out.text = now().text;
    LMN_RETURN_IF_ERROR(expect(Token::kName, "a variable"));
    bool pair = false;
    while (take_op(",")) {
      pair = true;
      LMN_RETURN_IF_ERROR(expect(Token::kName, "a variable"));
    }
    if (!take_word("in")) return unexpected("in");
    LMN_ASSIGN_OR_RETURN(out.a, or_expression());
    if (pair) {
      LMN_ASSIGN_OR_RETURN(out.a, add(make_text(Node::kUnsupported, "a loop over pairs")));
    }
    if (take_word("if")) {
      LMN_ASSIGN_OR_RETURN(out.b, expression());
    }
    LMN_RETURN_IF_ERROR(block_end());
    LMN_ASSIGN_OR_RETURN(out.c, body({"endfor", "else"}));
    if (take_word("else")) {
      LMN_RETURN_IF_ERROR(block_end());
      LMN_ASSIGN_OR_RETURN(out.d, body({"endfor"}));
    }
    ++at_;  // endfor
    LMN_RETURN_IF_ERROR(block_end());
    return add(std::move(out));
  }

  Result<int> set_statement() {
    Node out = make_text(Node::kSet, now().text);
    LMN_RETURN_IF_ERROR(expect(Token::kName, "a variable"));
    if (take_op(".")) {
      out.op = Node::kSetAttribute;
      out.name = now().text;
      LMN_RETURN_IF_ERROR(expect(Token::kName, "an attribute"));
    }
    if (!take_op("=")) return unsupported_template(now().line, "this form of set");
    LMN_ASSIGN_OR_RETURN(out.a, tuple_or_expression());
    LMN_RETURN_IF_ERROR(block_end());
    return add(std::move(out));
  }

  Result<int> tuple_or_expression() {
    LMN_ASSIGN_OR_RETURN(const int first, expression());
    if (is_op(",")) return unsupported_template(now().line, "tuples");
    return first;
  }

  Result<int> expression() {
    const Nesting nesting(nesting_);
    if (nesting_ > kMaxTemplateDepth) return unsupported_template(now().line, "nesting this deep");
    LMN_ASSIGN_OR_RETURN(int left, or_expression());
    while (take_word("if")) {
      LMN_ASSIGN_OR_RETURN(const int test, or_expression());
      int otherwise = -1;
      if (take_word("else")) {
        LMN_ASSIGN_OR_RETURN(otherwise, expression());
      }
      LMN_ASSIGN_OR_RETURN(left, add(make(Node::kConditional, test, left, otherwise)));
    }
    return left;
  }

  Result<int> or_expression() {
    LMN_ASSIGN_OR_RETURN(int left, and_expression());
    while (take_word("or")) {
      LMN_ASSIGN_OR_RETURN(const int right, and_expression());
      LMN_ASSIGN_OR_RETURN(left, add(make(Node::kOr, left, right)));
    }
    return left;
  }

  Result<int> and_expression() {
    LMN_ASSIGN_OR_RETURN(int left, not_expression());
    while (take_word("and")) {
      LMN_ASSIGN_OR_RETURN(const int right, not_expression());
      LMN_ASSIGN_OR_RETURN(left, add(make(Node::kAnd, left, right)));
    }
    return left;
  }

  Result<int> not_expression() {
    int count = 0;
    while (take_word("not")) ++count;
    LMN_ASSIGN_OR_RETURN(int value, comparison());
    for (; count > 0; --count) {
      LMN_ASSIGN_OR_RETURN(value, add(make(Node::kNot, value)));
    }
    return value;
  }

  // The comparison that starts here, consumed; kUnsupported when none does.
  Node::Op take_comparison() {
    static constexpr std::pair<std::string_view, Node::Op> kOps[] = {
        {"==", Node::kEqual},     {"!=", Node::kNotEqual}, {"<", Node::kLess},
        {"<=", Node::kLessEqual}, {">", Node::kGreater},   {">=", Node::kGreaterEqual}};
    for (const auto& [text, op] : kOps) {
      if (take_op(text)) return op;
    }
    if (take_word("in")) return Node::kIn;
    if (is_word("not") && after().kind == Token::kName && after().text == "in") {
      at_ += 2;
      return Node::kNotIn;
    }
    return Node::kUnsupported;
  }

  Result<int> comparison() {
    LMN_ASSIGN_OR_RETURN(int left, sum());
    const Node::Op op = take_comparison();
    if (op == Node::kUnsupported) return left;
    LMN_ASSIGN_OR_RETURN(const int right, sum());
    LMN_ASSIGN_OR_RETURN(left, add(make(op, left, right)));
    if (take_comparison() != Node::kUnsupported)
      return unsupported_template(now().line, "chained comparisons");
    return left;
  }

  Result<int> sum() {
    LMN_ASSIGN_OR_RETURN(int left, concat());
    while (is_op("+") || is_op("-")) {
      const Node::Op op = is_op("+") ? Node::kAdd : Node::kSubtract;
      ++at_;
      LMN_ASSIGN_OR_RETURN(const int right, concat());
      LMN_ASSIGN_OR_RETURN(left, add(make(op, left, right)));
    }
    return left;
  }

  Result<int> concat() {
    LMN_ASSIGN_OR_RETURN(int left, product());
    while (take_op("~")) {
      LMN_ASSIGN_OR_RETURN(const int right, product());
      LMN_ASSIGN_OR_RETURN(left, add(make(Node::kConcat, left, right)));
    }
    return left;
  }

  Result<int> product() {
    LMN_ASSIGN_OR_RETURN(int left, unary(true));
    for (;;) {
      Node::Op op = Node::kMultiply;
      if (is_op("**") || is_op("/"))
        return unsupported_template(now().line, "the operator " + now().text);
      if (is_op("//"))
        op = Node::kFloorDivide;
      else if (is_op("%"))
        op = Node::kModulo;
      else if (!is_op("*"))
        return left;
      ++at_;
      LMN_ASSIGN_OR_RETURN(const int right, unary(true));
      LMN_ASSIGN_OR_RETURN(left, add(make(op, left, right)));
    }
  }

  Result<int> unary(bool with_filters) {
    const Nesting nesting(nesting_);
    if (nesting_ > kMaxTemplateDepth) return unsupported_template(now().line, "nesting this deep");
    int value = -1;
    if (take_op("-")) {
      LMN_ASSIGN_OR_RETURN(const int inner, unary(false));
      LMN_ASSIGN_OR_RETURN(value, add(make(Node::kNegate, inner)));
    } else {
      LMN_ASSIGN_OR_RETURN(value, primary());
    }
    for (;;) {
      if (take_op(".")) {
        const std::string name = now().text;
        LMN_RETURN_IF_ERROR(expect(Token::kName, "an attribute"));
        LMN_ASSIGN_OR_RETURN(value, add(make_text(Node::kAttribute, name, value)));
      } else if (take_op("[")) {
        LMN_ASSIGN_OR_RETURN(value, subscript(value));
      } else if (is_op("(")) {
        LMN_ASSIGN_OR_RETURN(value, arguments(make(Node::kCall, value)));
      } else if (with_filters && take_op("|")) {
        LMN_ASSIGN_OR_RETURN(value, filter(value));
        if (is_op(".") || is_op("[")) return unexpected("an operator");
      } else if (with_filters && take_word("is")) {
        LMN_ASSIGN_OR_RETURN(value, test(value));
        if (is_op(".") || is_op("[")) return unexpected("an operator");
      } else {
        return value;
      }
    }
  }

  Result<int> primary() {
    const Token token = now();
    switch (token.kind) {
      case Token::kName:
        ++at_;
        if (token.text == "true" || token.text == "True" || token.text == "false" ||
            token.text == "False") {
          Node node = make(Node::kBool);
          node.number = token.text == "true" || token.text == "True";
          return add(std::move(node));
        }
        if (token.text == "none" || token.text == "None") return add(make(Node::kNone));
        return add(make_text(Node::kName, token.text));
      case Token::kString: {
        std::string value;
        for (; now().kind == Token::kString; ++at_) value += now().text;  // neighbours join
        return add(make_text(Node::kString, std::move(value)));
      }
      case Token::kInteger: {
        ++at_;
        Node node = make(Node::kInteger);
        node.number = token.number;
        return add(std::move(node));
      }
      default:
        break;
    }
    if (take_op("(")) {
      LMN_ASSIGN_OR_RETURN(const int value, tuple_or_expression());
      LMN_RETURN_IF_ERROR(expect_op(")"));
      return value;
    }
    if (take_op("[")) {
      Node out = make(Node::kList);
      while (!take_op("]")) {
        if (!out.children.empty()) {
          LMN_RETURN_IF_ERROR(expect_op(","));
          if (take_op("]")) break;
        }
        LMN_ASSIGN_OR_RETURN(const int item, expression());
        out.children.push_back(item);
      }
      return add(std::move(out));
    }
    if (is_op("{")) return unsupported_template(token.line, "dictionaries");
    return unexpected("an expression");
  }

  Result<int> subscript(int value) {  // after "["
    Node out = make(Node::kItem, value);
    int* parts[] = {&out.b, &out.c, &out.d};
    for (size_t part = 0;; ++part) {
      if (!is_op(":") && !is_op("]")) {
        LMN_ASSIGN_OR_RETURN(*parts[part], expression());
      }
      if (take_op("]")) break;
      if (part == 2) return unexpected("]");
      LMN_RETURN_IF_ERROR(expect_op(":"));
      out.op = Node::kSlice;
    }
    if (out.op == Node::kItem && out.b < 0) return unexpected("an index");
    return add(std::move(out));
  }

  Result<int> arguments(Node out) {
    LMN_RETURN_IF_ERROR(expect_op("("));
    while (!take_op(")")) {
      if (!out.children.empty()) {
        LMN_RETURN_IF_ERROR(expect_op(","));
        if (take_op(")")) break;
      }
      if (now().kind == Token::kName && after().kind == Token::kOperator && after().text == "=") {
        out.names.push_back(now().text);
        at_ += 2;
      } else if (!out.names.empty()) {
        return unexpected("a keyword argument");
      }
      LMN_ASSIGN_OR_RETURN(const int value, expression());
      out.children.push_back(value);
    }
    return add(std::move(out));
  }

  Result<int> filter(int value) {  // after "|"
    const std::string name = now().text;
    LMN_RETURN_IF_ERROR(expect(Token::kName, "a filter"));
    Node out = make_text(Node::kFilter, name, value);
    return is_op("(") ? arguments(std::move(out)) : add(std::move(out));
  }

  Result<int> test(int value) {  // after "is"
    const bool negated = take_word("not");
    const std::string name = now().text;
    LMN_RETURN_IF_ERROR(expect(Token::kName, "a test"));
    LMN_ASSIGN_OR_RETURN(int out, add(make_text(Node::kTest, name, value)));
    // Jinja takes what could be an operand here as the argument of the test, even the words if and
    // not.
    const bool word =
        now().kind == Token::kName && !is_word("else") && !is_word("or") && !is_word("and");
    if (word || now().kind == Token::kString || now().kind == Token::kInteger || is_op("(") ||
        is_op("[") || is_op("{")) {
      return unsupported_template(now().line, "a test with an argument");
    }
    if (negated) {
      LMN_ASSIGN_OR_RETURN(out, add(make(Node::kNot, out)));
    }
    return out;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  TemplateTree tree_;
};

}  // namespace

Result<TemplateTree> parse_template(std::string_view source) {
  constexpr size_t kMaxBytes = 1 << 20;
  if (source.size() > kMaxBytes) return unsupported_template(1, "templates larger than 1 MiB");
  LMN_ASSIGN_OR_RETURN(std::vector<Token> tokens, lex_template(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace lmn::text
