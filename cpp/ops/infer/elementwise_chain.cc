// SPDX-License-Identifier: Apache-2.0
#include "ops/infer/elementwise_chain.h"

#include <charconv>

#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

constexpr ChainOpInfo kChainOps[] = {
#define LMN_CHAIN_INFO(e, name, operands, numbers) {name, operands, numbers},
    LMN_CHAIN_OPS(LMN_CHAIN_INFO)
#undef LMN_CHAIN_INFO
};

// The next word of a text, words being separated by one blank.
std::string_view next_word(std::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

template <typename T>
bool read_number(std::string_view word, T* value) {
  const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), *value);
  return failed == std::errc() && end == word.data() + word.size();
}

bool read_operand(std::string_view word, int inputs, int steps, ChainOperand* operand) {
  if (word.empty() || (word[0] != 'x' && word[0] != 't')) return false;
  operand->is_input = word[0] == 'x';
  return read_number(word.substr(1), &operand->index) && operand->index >= 0 &&
         operand->index < (operand->is_input ? inputs : steps);
}

bool read_step(std::string_view text, int inputs, int steps, ChainStep* step) {
  const std::string_view name = next_word(&text);
  int op = 0;
  for (const ChainOpInfo& candidate : kChainOps) {
    if (candidate.name == name) break;
    ++op;
  }
  if (op == static_cast<int>(std::size(kChainOps))) return false;
  step->op = static_cast<ChainOp>(op);
  for (int i = 0; i < info(step->op).operands; ++i) {
    if (!read_operand(next_word(&text), inputs, steps, &step->operands[i])) return false;
  }
  for (int i = 0; i < info(step->op).numbers; ++i) {
    if (!read_number(next_word(&text), &step->numbers[i])) return false;
  }
  return text.empty();
}

}  // namespace

const ChainOpInfo& info(ChainOp op) { return kChainOps[static_cast<size_t>(op)]; }

std::string to_text(const ChainStep& step) {
  const ChainOpInfo& op = info(step.op);
  std::string out(op.name);
  for (int i = 0; i < op.operands; ++i) {
    const ChainOperand& operand = step.operands[i];
    out += (operand.is_input ? " x" : " t") + std::to_string(operand.index);
  }
  for (int i = 0; i < op.numbers; ++i) {
    char buffer[32];
    const auto result = std::to_chars(buffer, buffer + sizeof buffer, step.numbers[i]);
    out += " " + std::string(buffer, result.ptr);
  }
  return out;
}

Status read_chain(const TensorNode& node, std::vector<ChainStep>* steps) {
  const Strings* texts = node.texts("steps");
  if (texts == nullptr || texts->empty() || texts->size() > kMaxChainSteps)
    return node.fail("it has %zu steps; 1 to %d are possible", texts == nullptr ? 0 : texts->size(),
                     kMaxChainSteps);
  for (const std::string& text : *texts) {
    ChainStep step;
    if (!read_step(text, node.inputs(), static_cast<int>(steps->size()), &step)) {
      return node.fail("'%.60s' is no step over %d inputs and %zu steps", text.c_str(),
                       node.inputs(), steps->size());
    }
    steps->push_back(step);
  }
  return {};
}

Status infer_ElementwiseChain(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, kMaxChainInputs));
  for (int i = 0; i < node.inputs(); ++i) {
    if (!node.has(i)) return node.fail("input %d is missing", i);
    LMN_RETURN_IF_ERROR(node.expect_dtype(i, {DType::kF32}));
  }
  std::vector<ChainStep> steps;
  LMN_RETURN_IF_ERROR(read_chain(node, &steps));
  outputs[0].dtype = DType::kF32;
  if (!node.ranked()) return {};
  LMN_RETURN_IF_ERROR(broadcast_all(node, &outputs[0].shape));
  return check_elements(node, outputs[0].shape);
}

}  // namespace lmn::ops
