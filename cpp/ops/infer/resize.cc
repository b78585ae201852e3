// SPDX-License-Identifier: Apache-2.0
#include "ops/infer/resize.h"

#include <cinttypes>
#include <cmath>

#include "core/float16.h"
#include "ops/infer/axes.h"
#include "ops/infer/infer.h"

namespace lmn::ops {
namespace {

constexpr double kMaxOutput = 2147483648.0;

template <typename E>
struct Choice {
  std::string_view name;
  E value;
};

template <typename E, size_t kCount>
Status choose(const TensorNode& node, const char* key, std::string_view fallback,
              const Choice<E> (&choices)[kCount], E* value) {
  const std::string_view given = node.text(key, fallback);
  for (const Choice<E>& choice : choices) {
    if (choice.name != given) continue;
    *value = choice.value;
    return {};
  }
  return node.fail("%s '%.40s' is not known", key, std::string(given).c_str());
}

constexpr Choice<ResizeMode> kModes[] = {{"nearest", ResizeMode::kNearest},
                                         {"linear", ResizeMode::kLinear},
                                         {"bilinear", ResizeMode::kLinear},
                                         {"cubic", ResizeMode::kCubic}};
constexpr Choice<Coordinates> kCoordinates[] = {
    {"half_pixel", Coordinates::kHalfPixel},
    {"half_pixel_symmetric", Coordinates::kHalfPixelSymmetric},
    {"pytorch_half_pixel", Coordinates::kPytorchHalfPixel},
    {"align_corners", Coordinates::kAlignCorners},
    {"asymmetric", Coordinates::kAsymmetric},
    {"tf_crop_and_resize", Coordinates::kCrop}};
constexpr Choice<NearestMode> kNearest[] = {{"round_prefer_floor", NearestMode::kPreferFloor},
                                            {"round_prefer_ceil", NearestMode::kPreferCeil},
                                            {"floor", NearestMode::kFloor},
                                            {"ceil", NearestMode::kCeil}};

// A dimension scaled by a factor from the file.
Status scaled_size(const TensorNode& node, int64_t size, double scale, int64_t* out) {
  if (!(scale > 0) || scale > kMaxOutput) return node.fail("a scale is %g; it is above 0", scale);
  if (size < 0) {
    *out = scale == 1.0 ? size : kUnknownSize;
    return {};
  }
  const double scaled = std::floor(static_cast<double>(size) * scale);
  if (scaled > kMaxOutput) return node.fail("%" PRId64 " times %g is too large", size, scale);
  *out = static_cast<int64_t>(scaled);
  return {};
}

Status read_scales(const TensorNode& node, int input, std::span<const int> axes, Resizing* r) {
  const Shape& x = node.shape(0);
  std::vector<double> scales;
  LMN_RETURN_IF_ERROR(float_values(node, input, &scales));
  if (scales.size() != axes.size()) {
    return node.fail("there are %zu scales for %zu axes", scales.size(), axes.size());
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axes[i];
    r->scale[static_cast<size_t>(axis)] = scales[i];
    LMN_RETURN_IF_ERROR(scaled_size(node, x[axis], scales[i], &r->out[axis]));
  }
  return {};
}

Status read_target(const TensorNode& node, std::span<const int> axes, Resizing* r) {
  const Shape& x = node.shape(0);
  const std::vector<int64_t> sizes = node.integers(3);
  if (sizes.size() != axes.size()) {
    return node.fail("there are %zu sizes for %zu axes", sizes.size(), axes.size());
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (sizes[i] < 0 || static_cast<double>(sizes[i]) > kMaxOutput)
      return node.fail("sizes[%zu] is %" PRId64, i, sizes[i]);
  }
  const std::string_view policy = node.text("keep_aspect_ratio_policy", "stretch");
  const bool not_larger = policy == "not_larger";
  if (!not_larger && policy != "not_smaller" && policy != "stretch") {
    return node.fail("keep_aspect_ratio_policy '%.40s' is not known", std::string(policy).c_str());
  }
  double common = 0;
  bool known = true;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = axes[i];
    const auto d = static_cast<size_t>(axis);
    if (x[axis] < 0) {
      known = false;
      r->out[axis] = sizes[i];
      continue;
    }
    if (x[axis] == 0 && sizes[i] != 0)
      return node.fail("dimension %d is 0 and cannot become %" PRId64, axis, sizes[i]);
    r->scale[d] = x[axis] == 0 ? 1.0 : static_cast<double>(sizes[i]) / static_cast<double>(x[axis]);
    r->out[axis] = sizes[i];
    common = i == 0 ? r->scale[d]
                    : (not_larger ? std::min(common, r->scale[d]) : std::max(common, r->scale[d]));
  }
  if (policy == "stretch") return {};
  for (int axis : axes) {
    r->scale[static_cast<size_t>(axis)] = common;
    r->out[axis] = !known ? kUnknownSize
                          : static_cast<int64_t>(
                                std::min(common * static_cast<double>(x[axis]) + 0.5, kMaxOutput));
  }
  return {};
}

}  // namespace

Status float_values(const TensorNode& node, int i, std::vector<double>* values) {
  const int64_t count = node.shape(i).elements();
  for (int64_t k = 0; k < count; ++k) {
    switch (node.dtype(i)) {
      case DType::kF32:
        values->push_back(static_cast<double>(node.data<float>(i)[k]));
        break;
      case DType::kF64:
        values->push_back(node.data<double>(i)[k]);
        break;
      case DType::kF16:
        values->push_back(static_cast<double>(f16_to_f32(node.data<uint16_t>(i)[k])));
        break;
      case DType::kBF16:
        values->push_back(static_cast<double>(bf16_to_f32(node.data<uint16_t>(i)[k])));
        break;
      default:
        return node.fail("input %d is not of a float type", i);
    }
  }
  return {};
}

Status read_resize(const TensorNode& node, Resizing* resizing) {
  Resizing r;
  const Shape& x = node.shape(0);
  r.out = x;
  r.scale.fill(1.0);
  r.end.fill(1.0);
  LMN_RETURN_IF_ERROR(choose(node, "mode", "nearest", kModes, &r.mode));
  std::vector<int> axes;
  for (int i = 0; i < x.rank; ++i) axes.push_back(i);
  if (node.op() == TensorOp::kUpsample) {
    r.coordinates = Coordinates::kAsymmetric;
    r.nearest = NearestMode::kFloor;
    if (node.knows(1)) {
      LMN_RETURN_IF_ERROR(read_scales(node, 1, axes, &r));
    } else {
      r.out = unknown_sizes(x.rank);
      r.complete = false;
    }
    *resizing = r;
    return {};
  }
  LMN_RETURN_IF_ERROR(
      choose(node, "coordinate_transformation_mode", "half_pixel", kCoordinates, &r.coordinates));
  LMN_RETURN_IF_ERROR(choose(node, "nearest_mode", "round_prefer_floor", kNearest, &r.nearest));
  r.antialias = node.integer("antialias", 0) != 0 && r.mode != ResizeMode::kNearest;
  r.exclude_outside = node.integer("exclude_outside", 0) != 0;
  r.cubic = node.number("cubic_coeff_a", -0.75f);
  r.extrapolation = node.number("extrapolation_value", 0);
  if (const Ints* given = node.integers("axes")) {
    uint32_t bits = 0;
    LMN_RETURN_IF_ERROR(axis_bits(node, *given, x.rank, &bits));
    axes.clear();
    for (int64_t axis : *given) axes.push_back(static_cast<int>(axis < 0 ? axis + x.rank : axis));
  }
  const auto gives = [&](int i) {
    return node.has(i) && !(node.type(i).is_known() && node.shape(i).elements() == 0);
  };
  if (gives(2) == gives(3)) return node.fail("it needs either scales or sizes");
  const int target = gives(2) ? 2 : 3;
  const bool crops = r.coordinates == Coordinates::kCrop;
  if (crops && !gives(1)) return node.fail("tf_crop_and_resize needs a roi");
  if (!node.knows(target) || (crops && !node.knows(1))) {
    for (int axis : axes) r.out[axis] = kUnknownSize;
    r.complete = false;
    *resizing = r;
    return {};
  }
  if (target == 2) {
    LMN_RETURN_IF_ERROR(read_scales(node, 2, axes, &r));
  } else {
    LMN_RETURN_IF_ERROR(read_target(node, axes, &r));
  }
  if (crops) {
    std::vector<double> roi;
    LMN_RETURN_IF_ERROR(float_values(node, 1, &roi));
    if (roi.size() != 2 * axes.size())
      return node.fail("roi has %zu numbers for %zu axes", roi.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      r.begin[static_cast<size_t>(axes[i])] = roi[i];
      r.end[static_cast<size_t>(axes[i])] = roi[axes.size() + i];
    }
  }
  *resizing = r;
  return {};
}

namespace {

Status infer_resizing(const TensorNode& node, TensorTypes outputs) {
  outputs[0].dtype = node.dtype(0);
  if (!node.ranked()) return {};
  Resizing r;
  LMN_RETURN_IF_ERROR(read_resize(node, &r));
  if (r.mode != ResizeMode::kNearest && node.dtype(0) == DType::kString)
    return node.unsupported("strings are resized in mode nearest only");
  for (int i = 0; i < r.out.rank; ++i) {
    if (node.shape(0)[i] == 0 && r.out[i] > 0)
      return node.fail("dimension %d is 0 and cannot become %" PRId64, i, r.out[i]);
  }
  outputs[0].shape = r.out;
  return check_elements(node, r.out);
}

}  // namespace

Status infer_Resize(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(1, 4));
  LMN_RETURN_IF_ERROR(node.expect_dtype(3, {DType::kI64}));
  return infer_resizing(node, outputs);
}
Status infer_Upsample(const TensorNode& node, TensorTypes outputs) {
  LMN_RETURN_IF_ERROR(node.expect_inputs(2, 2));
  return infer_resizing(node, outputs);
}

}  // namespace lmn::ops
