// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/elementwise.def: Cast, CastLike, BitCast. Numbers go through a chunk of a
// type that holds them exactly (convert.h); strings are read and written one by one, without
// looking at the locale.
#include <charconv>
#include <cstring>

#include "cpu/tensor/convert.h"
#include "cpu/tensor/elementwise.h"

namespace lmn::cpu {
namespace {

template <typename I>
void bind_through(const Binding& b, DType to, const Narrowing& narrowing) {
  const DType from = b.node.dtype(0);
  const int64_t count = b.outputs[0].shape.elements();
  const int64_t in_bytes = info(from).block_bytes, out_bytes = info(to).block_bytes;
  const auto decode = decoder<I>(from);
  const auto encode = encoder<I>(to);
  constexpr DType kThrough = std::is_same_v<I, float>    ? DType::kF32
                             : std::is_same_v<I, double> ? DType::kF64
                                                         : DType::kI64;
  b.kernel.splits = true;
  b.kernel.set([=](const ops::Operands& io, const ops::Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    const std::byte* x = io.input<std::byte>(0);
    std::byte* y = io.output<std::byte>(0);
    if (from == kThrough) {
      encode(reinterpret_cast<const I*>(x) + begin, y + begin * out_bytes, end - begin, narrowing);
    } else if (to == kThrough) {
      decode(x + begin * in_bytes, reinterpret_cast<I*>(y) + begin, end - begin);
    } else {
      for (int64_t at = begin; at < end; at += kChunk) {
        const int64_t n = std::min(kChunk, end - at);
        I values[kChunk];
        decode(x + at * in_bytes, values, n);
        encode(values, y + at * out_bytes, n, narrowing);
      }
    }
  });
}

bool is_integer(DType dtype) { return decoder<int64_t>(dtype) != nullptr; }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Whether the whole text is a number (inf and nan, of any case, among them).
template <typename N>
bool parse(std::string_view text, N* value) {
  text = trimmed(text);
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  if (text.empty() || text[0] == '+') return false;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (error == std::errc::result_out_of_range && std::is_floating_point_v<N>) {
    const size_t e = text.find_first_of("eE");
    const bool tiny = e != std::string_view::npos && e + 1 < text.size() && text[e + 1] == '-';
    const N magnitude = tiny ? N(0) : static_cast<N>(HUGE_VAL);
    *value = text[0] == '-' ? -magnitude : magnitude;
    return stop == end;
  }
  return error == std::errc() && stop == end;
}

void bind_from_strings(const Binding& b, DType to, const Narrowing& narrowing) {
  const int64_t count = b.outputs[0].shape.elements();
  const auto encode = encoder<double>(to);
  const auto encode_whole = is_integer(to) ? encoder<int64_t>(to) : nullptr;
  const int64_t bytes = info(to).block_bytes;
  b.kernel.set([=](const ops::Operands& io, const ops::Worker&) {
    const std::string* x = io.input<std::string>(0);
    std::byte* y = io.output<std::byte>(0);
    for (int64_t i = 0; i < count; ++i) {
      int64_t whole = 0;
      double value = 0;
      if (encode_whole != nullptr && parse(x[i], &whole)) {
        encode_whole(&whole, y + i * bytes, 1, narrowing);
        continue;
      }
      if (!parse(x[i], &value)) io.fail("Cast: a string is not a number");
      encode(&value, y + i * bytes, 1, narrowing);
    }
  });
}

// The shortest decimal number that reads back as this element; of whole floats with ".0".
std::string text_of(double value, DType dtype, const std::byte* element) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "INF" : "-INF";
  const auto encode = encoder<double>(dtype);
  const size_t bytes = info(dtype).block_bytes;
  char text[64];
  double shortest = value;
  for (int digits = 0; digits < 17; ++digits) {
    const auto end =
        std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, digits).ptr;
    std::from_chars(text, end, shortest);
    std::byte back[8];
    encode(&shortest, back, 1, {});
    if (std::memcmp(back, element, bytes) == 0) break;
  }
  const double magnitude = std::abs(shortest);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto end = std::to_chars(text, text + sizeof text, shortest,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific)
                       .ptr;
  std::string result(text, end);
  if (plain && result.find('.') == std::string::npos) result += ".0";
  return result;
}

void bind_to_strings(const Binding& b) {
  const int64_t count = b.outputs[0].shape.elements();
  const DType from = b.node.dtype(0);
  const int64_t bytes = info(from).block_bytes;
  const auto whole_of = decoder<int64_t>(from);
  const auto number_of = decoder<double>(from);
  b.kernel.set([=](const ops::Operands& io, const ops::Worker&) {
    const std::byte* x = io.input<std::byte>(0);
    std::string* y = io.output<std::string>(0);
    for (int64_t i = 0; i < count; ++i, x += bytes) {
      if (from == DType::kBool) {
        y[i] = *x != std::byte{0} ? "True" : "False";
      } else if (whole_of != nullptr) {
        int64_t value;
        whole_of(x, &value, 1);
        y[i] = from == DType::kU64 ? std::to_string(static_cast<uint64_t>(value))
                                   : std::to_string(value);
      } else {
        double value;
        number_of(x, &value, 1);
        y[i] = text_of(value, from, x);
      }
    }
  });
}

Status bind_cast(const Binding& b) {
  const DType from = b.node.dtype(0), to = b.outputs[0].dtype;
  const int64_t count = b.outputs[0].shape.elements();
  Narrowing narrowing;
  narrowing.saturate = b.node.integer("saturate", 1) != 0;
  const std::string_view rounding = b.node.text("round_mode", "up");
  narrowing.rounding = rounding == "down"      ? PowerRounding::kDown
                       : rounding == "nearest" ? PowerRounding::kNearest
                                               : PowerRounding::kUp;
  if (from == to && from == DType::kString) {
    b.kernel.set([count](const ops::Operands& io, const ops::Worker&) {
      std::copy_n(io.input<std::string>(0), count, io.output<std::string>(0));
    });
  } else if (from == to) {
    const int64_t bytes = count * info(from).block_bytes;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([bytes](const ops::Operands& io, const ops::Worker& worker) {
      const auto [begin, end] = ops::share_of(bytes, worker);
      const std::byte* x = io.input<std::byte>(0);
      std::byte* y = io.output<std::byte>(0);
      if (x != y) std::copy(x + begin, x + end, y + begin);
    });
  } else if (from == DType::kString) {
    bind_from_strings(b, to, narrowing);
  } else if (to == DType::kString) {
    bind_to_strings(b);
  } else if (decoder<float>(from) != nullptr && (!is_integer(from) || to == DType::kF32)) {
    bind_through<float>(b, to, narrowing);
  } else if (is_integer(from) && (from != DType::kU64 || is_integer(to))) {
    bind_through<int64_t>(b, to, narrowing);
  } else {
    bind_through<double>(b, to, narrowing);
  }
  return {};
}

}  // namespace

Status bind_Cast(const Binding& b) { return bind_cast(b); }
Status bind_CastLike(const Binding& b) { return bind_cast(b); }

// Types narrower than a byte keep the form that an element of the output's type has.
Status bind_BitCast(const Binding& b) {
  const DType to = b.outputs[0].dtype;
  const int64_t count = b.outputs[0].shape.elements() * info(to).block_bytes;
  const int bits = to == DType::kI4 || to == DType::kU4 || to == DType::kF4E2M1 ? 4
                   : to == DType::kI2 || to == DType::kU2                       ? 2
                                                                                : 8;
  const bool is_signed = to == DType::kI4 || to == DType::kI2;
  b.kernel.splits = true;
  b.kernel.in_place = b.node.dtype(0) == to ? 0 : -1;
  b.kernel.set([=](const ops::Operands& io, const ops::Worker& worker) {
    const auto [begin, end] = ops::share_of(count, worker);
    const uint8_t* x = io.input<uint8_t>(0);
    uint8_t* y = io.output<uint8_t>(0);
    if (bits == 8) {
      if (x != y) std::copy(x + begin, x + end, y + begin);
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      const int low = x[i] & ((1 << bits) - 1);
      const int extended = is_signed && (low >> (bits - 1)) != 0 ? low - (1 << bits) : low;
      y[i] = static_cast<uint8_t>(extended);
    }
  });
  return {};
}

}  // namespace lmn::cpu
