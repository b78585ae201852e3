// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as an ONNX file. Reading must end in a model whose every part can be
// read, or in an error with a message. Build and run: cmake/fuzz.cmake.
#include "formats/onnx_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lmn::formats::OnnxOptions options;
  options.name = "fuzz";
  options.memory_limit = 16 << 20;
  const auto file =
      lmn::formats::parse_onnx(std::as_bytes(std::span(data, size)), nullptr, "/nowhere", options);
  if (file.ok()) {
    onnx_test::Walk walk(*file);
  } else if (file.status().message().size() <= 6) {  // more than "fuzz: "
    __builtin_trap();
  }
  return 0;
}
