// SPDX-License-Identifier: Apache-2.0
//
// Inside the room: one message of onnx.proto each → its struct of onnx.h. Message::get and add call
// these for sub-messages.
#pragma once

#include "formats/onnx/onnx.h"
#include "formats/onnx/wire.h"

namespace lmn::formats {

Status parse(Message& message, OnnxModel* model);
Status parse(Message& message, OnnxFunction* function);
Status parse(Message& message, OnnxGraph* graph);
Status parse(Message& message, OnnxNode* node);
Status parse(Message& message, OnnxAttribute* attribute);
Status parse(Message& message, OnnxValueInfo* info);
Status parse(Message& message, OnnxType* type);
Status parse(Message& message, OnnxDim* dim);
Status parse(Message& message, OnnxSparseTensor* tensor);
Status parse(Message& message, OnnxTensor* tensor);
Status parse(Message& message, OnnxOpset* opset);
Status parse(Message& message, OnnxEntry* entry);

}  // namespace lmn::formats
