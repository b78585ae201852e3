// SPDX-License-Identifier: Apache-2.0
//
// Damage at random places, seeded: an ONNX file cut short, and one with bytes changed. Whatever
// happens, reading either succeeds, and then everything it hands out can be read, or fails with a
// message.
#include <random>

#include "formats/onnx/onnx.h"
#include "formats/onnx_walk.h"
#include "formats/onnx_writer.h"
#include "testing.h"

namespace {

using namespace onnx_test;
using lmn::formats::parse_onnx;

// From exact-size heap memory. Whether it could be read.
bool survives(const std::string& file, uint64_t* sink) {
  const std::vector<char> exact(file.begin(), file.end());
  const auto model = parse_onnx(std::as_bytes(std::span(exact)), nullptr, "");
  if (model.ok()) {
    *sink += Walk(*model).sum();
    return true;
  }
  if (model.status().message().size() <= std::string_view("model: ").size()) {
    testing::report_failure(__FILE__, __LINE__, "an error without a message");
  }
  return false;
}

TEST(onnx_cut_anywhere) {
  const std::string file = sample();
  uint64_t sink = 0;
  // The graph is last and its length is known: no shorter file is whole.
  for (size_t size = 0; size < file.size(); ++size) EXPECT(!survives(file.substr(0, size), &sink));
  EXPECT(survives(file, &sink));
}

TEST(onnx_with_bytes_changed) {
  const std::string file = sample();
  std::mt19937 random(5);
  const auto below = [&](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end - 1)(random);
  };
  uint64_t sink = 0;
  int read = 0;
  constexpr int kTries = 4000;
  for (int i = 0; i < kTries; ++i) {
    std::string bytes = file;
    const size_t at = below(bytes.size());
    const auto byte = static_cast<char>(1 + below(255));
    switch (i % 8) {
      case 0:
        bytes.insert(at, 1, byte);
        break;
      case 1:
        bytes.erase(at, 1);
        break;
      case 2:  // two at once
        bytes[below(bytes.size())] ^= byte;
        [[fallthrough]];
      default:
        bytes[at] ^= byte;
    }
    read += survives(bytes, &sink);
  }
  // Both outcomes occur: characters of names are harmless, lengths are not.
  EXPECT(read > kTries / 10);
  EXPECT(read < kTries * 9 / 10);
}

}  // namespace
