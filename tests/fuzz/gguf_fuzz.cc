// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as a GGUF file. Opening must end in a model whose every part can be
// read, or in an error with a message. Build and run: cmake/fuzz.cmake.
#include "formats/gguf_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = lmn::formats::GgufModel::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (model.ok()) {
    gguf_test::walk(*model);
  } else if (model.status().message().size() <= 6) {  // more than "fuzz: "
    __builtin_trap();
  }
  return 0;
}
