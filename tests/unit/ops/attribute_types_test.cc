// SPDX-License-Identifier: Apache-2.0
//
// Attributes of the types that the ONNX specification gives them.
#include "ops/attribute_types.h"

#include <cstdio>
#include <sstream>

#include "ops/tensor_op.h"
#include "testing.h"

namespace {

using namespace lmn;
using ops::Attributes;

std::string message(const Attributes& attributes) {
  return std::string(
      ops::check_attribute_types(attributes, "Op", "n", ops::OperatorSets::kNewest).message());
}

TEST(attribute_types_are_those_of_onnx) {
  const Attributes right{{"axis", int64_t{1}},
                         {"epsilon", 1e-5f},
                         {"mode", std::string("linear")},
                         {"pads", ops::Ints{0, 1}},
                         {"coefficients", ops::Floats{1}},
                         {"activations", ops::Strings{"Tanh"}}};
  EXPECT_EQ(message(right), "");
  EXPECT_EQ(message({{"axis", 1.0f}}), "Op 'n': attribute 'axis' is a number; it takes an integer");
  EXPECT_EQ(message({{"pads", int64_t{1}}}),
            "Op 'n': attribute 'pads' is an integer; it takes a list of integers");
  EXPECT_EQ(message({{"epsilon", int64_t{0}}}),
            "Op 'n': attribute 'epsilon' is an integer; it takes a number");
  EXPECT_EQ(message({{"mode", std::shared_ptr<const Tensor>()}}),
            "Op 'n': attribute 'mode' is a tensor; it takes a string");
}

TEST(attribute_types_that_differ_by_operator_may_be_either) {
  EXPECT_EQ(message({{"scale", 1.0f}}), "");                  // Attention
  EXPECT_EQ(message({{"scale", ops::Floats{1}}}), "");        // Scaler
  EXPECT_EQ(message({{"a_new_attribute", int64_t{1}}}), "");  // check_attributes() refuses it
}

TEST(attribute_types_of_older_operator_sets_may_be_other) {
  const Attributes pad{{"value", 1.0f}};
  EXPECT_EQ(message(pad), "Op 'n': attribute 'value' is a number; it takes a tensor");
  EXPECT(ops::check_attribute_types(pad, "Pad", "n", ops::OperatorSets::kAll).ok());
}

TEST(attribute_types_of_all_operators_are_known) {
  for (int op = 0; op < ops::kTensorOpCount; ++op) {
    std::istringstream names{std::string(ops::attribute_names(static_cast<ops::TensorOp>(op)))};
    for (std::string name; names >> name;) {
      if (!ops::attribute_type(name).has_value()) std::printf("     no type: %s\n", name.c_str());
      EXPECT(ops::attribute_type(name).has_value());
    }
  }
}

TEST(attribute_types_are_checked_with_their_names) {
  EXPECT(ops::check_attributes(ops::TensorOp::kSoftmax, {{"axis", int64_t{0}}}, "n").ok());
  EXPECT(ops::check_attributes(ops::TensorOp::kSoftmax, {{"axis", 0.0f}}, "n").code() ==
         Code::kInvalidArgument);
}

}  // namespace
