// SPDX-License-Identifier: Apache-2.0
#include "capi/graph_attributes.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "capi/graph_object.h"
#include "capi/guard.h"
#include "capi/session_value.h"

namespace lmn::capi {
namespace {

constexpr int32_t kAnyKind = 0;  // names of which operators make different things
constexpr const char* kKindNames[] = {
    "",        "a float", "an int", "a string", "a tensor",
    "a graph", "floats",  "ints",   "strings"};  // by LMN_ATTRIBUTE_*

// Names of attributes by kind, between blanks, of all operators of tensor_ops.def; all others are
// integers.
struct NamesOfKind {
  int32_t kind;
  std::string_view names;
};
constexpr NamesOfKind kNames[] = {
    {LMN_ATTRIBUTE_STRING,
     " activation approximate auto_pad case_change_action cast_to"
     " coordinate_transformation_mode default_string delimiter direction equation"
     " k_quant_type keep_aspect_ratio_policy kernel_type locale map_form mode"
     " nearest_mode norm padding_mode pattern reduction round_mode update_rule"
     " v_quant_type "},
    {LMN_ATTRIBUTE_FLOAT,
     " activation_gamma alpha beta bias clip cubic_coeff_a decay_factor default_float"
     " epsilon extrapolation_value gamma high lambd low mask_filter_value mean momentum"
     " norm_coefficient norm_coefficient_post replaced_value_float softcap"
     " spatial_scale threshold "},
    {LMN_ATTRIBUTE_FLOATS,
     " activation_alpha activation_beta activation_params base_values class_weights"
     " coefficients imputed_value_floats intercepts kernel_params keys_floats"
     " nodes_values offset prob_a prob_b rho support_vectors target_weights"
     " values_floats weights "},
    {LMN_ATTRIBUTE_INTS,
     " axes cats_int64s class_ids class_nodeids class_treeids classlabels_int64s"
     " classlabels_ints dilations imputed_value_int64s inputdimensions int64_vocabulary"
     " kernel_shape keys_int64s leaf_targetids ngram_counts ngram_indexes"
     " nodes_falseleafs nodes_falsenodeids nodes_featureids"
     " nodes_missing_value_tracks_true nodes_nodeids nodes_treeids nodes_trueleafs"
     " nodes_truenodeids output_padding output_shape pads perm pool_int64s pooled_shape"
     " qkv_hidden_sizes scan_input_axes scan_input_directions scan_output_axes"
     " scan_output_directions shape strides target_ids target_nodeids target_treeids"
     " tree_roots values_int64s vectors_per_class "},
    {LMN_ATTRIBUTE_STRINGS,
     " activations cats_strings classlabels_strings keys_strings pool_strings stopwords"
     " string_vocabulary values_strings "},
    {LMN_ATTRIBUTE_TENSOR,
     " base_values_as_tensor class_weights_as_tensor default_tensor keys_tensor"
     " leaf_weights membership_values nodes_hitrates_as_tensor nodes_splits"
     " nodes_values_as_tensor target_weights_as_tensor value values_tensor "},
    {LMN_ATTRIBUTE_GRAPH, " body else_branch then_branch "},
    {kAnyKind, " aggregate_function nodes_hitrates nodes_modes post_transform scale seed "},
};

int32_t kind_of(std::string_view name) {
  const std::string key = " " + std::string(name) + " ";
  for (const NamesOfKind& list : kNames) {
    if (list.names.find(key) != std::string_view::npos) return list.kind;
  }
  return LMN_ATTRIBUTE_INT;
}

Result<Tensor> read_tensor(const lmn_session_value* value, const char* name) {
  if (value->object.kind != ops::ValueKind::kTensor)
    return error(Code::kInvalidArgument, "attribute '%s' is not a tensor", name);
  return value->object.tensor;
}

template <typename T>
Result<std::span<const T>> read_array(const lmn_attribute& given) {
  if (given.data == nullptr && given.count > 0)
    return error(Code::kInvalidArgument, "attribute '%s': data is NULL", given.name);
  return std::span<const T>(static_cast<const T*>(given.data), given.count);
}

Result<ops::Attribute> read_attribute(const lmn_attribute& given) {
  switch (given.kind) {
    case LMN_ATTRIBUTE_FLOAT:
      return ops::Attribute(given.f);
    case LMN_ATTRIBUTE_INT:
      return ops::Attribute(given.i);
    case LMN_ATTRIBUTE_STRING: {
      LMN_ASSIGN_OR_RETURN(const auto text, read_array<char>(given));
      return ops::Attribute(std::string(text.begin(), text.end()));
    }
    case LMN_ATTRIBUTE_FLOATS: {
      LMN_ASSIGN_OR_RETURN(const auto list, read_array<float>(given));
      return ops::Attribute(ops::Floats(list.begin(), list.end()));
    }
    case LMN_ATTRIBUTE_INTS: {
      LMN_ASSIGN_OR_RETURN(const auto list, read_array<int64_t>(given));
      return ops::Attribute(ops::Ints(list.begin(), list.end()));
    }
    case LMN_ATTRIBUTE_STRINGS: {
      LMN_ASSIGN_OR_RETURN(const auto list, read_array<const char*>(given));
      if (std::find(list.begin(), list.end(), nullptr) != list.end())
        return error(Code::kInvalidArgument, "attribute '%s': a string is NULL", given.name);
      return ops::Attribute(ops::Strings(list.begin(), list.end()));
    }
    case LMN_ATTRIBUTE_TENSOR: {
      LMN_RETURN_IF_ERROR(require(given.data, given.name));
      LMN_ASSIGN_OR_RETURN(
          Tensor tensor,
          read_tensor(static_cast<const lmn_session_value*>(given.data), given.name));
      return ops::Attribute(
          std::shared_ptr<const Tensor>(std::make_shared<Tensor>(std::move(tensor))));
    }
    case LMN_ATTRIBUTE_GRAPH: {
      LMN_RETURN_IF_ERROR(require(given.data, given.name));
      const graph::Graph& graph = static_cast<const lmn_graph*>(given.data)->object;
      return ops::Attribute(
          std::shared_ptr<const graph::Graph>(std::make_shared<graph::Graph>(graph)));
    }
    default:
      return error(Code::kInvalidArgument, "attribute '%s': kind is %d; it is a LMN_ATTRIBUTE_*",
                   given.name, given.kind);
  }
}

// `value` as an attribute of kind `kind`: itself, or integers as floats, or no integers as nothing
// of another kind.
ops::Attribute convert(ops::Attribute value, int32_t kind) {
  if (const auto* i = std::get_if<int64_t>(&value); i != nullptr && kind == LMN_ATTRIBUTE_FLOAT)
    return static_cast<float>(*i);
  const auto* list = std::get_if<ops::Ints>(&value);
  if (list != nullptr && list->empty() && kind == LMN_ATTRIBUTE_STRINGS) return ops::Strings();
  if (list != nullptr && kind == LMN_ATTRIBUTE_FLOATS) {
    ops::Floats floats;
    for (const int64_t i : *list) floats.push_back(static_cast<float>(i));
    return floats;
  }
  return value;
}

Result<ops::Attribute> read_checked(const lmn_attribute& given) {
  LMN_ASSIGN_OR_RETURN(ops::Attribute value, read_attribute(given));
  const int32_t kind = kind_of(given.name);
  value = convert(std::move(value), kind);
  // An attribute's alternatives are in the order int, float, string, ints, floats, strings, tensor,
  // graph.
  constexpr int32_t kKinds[] = {LMN_ATTRIBUTE_INT,    LMN_ATTRIBUTE_FLOAT,  LMN_ATTRIBUTE_STRING,
                                LMN_ATTRIBUTE_INTS,   LMN_ATTRIBUTE_FLOATS, LMN_ATTRIBUTE_STRINGS,
                                LMN_ATTRIBUTE_TENSOR, LMN_ATTRIBUTE_GRAPH};
  const int32_t is = kKinds[value.index()];
  if (kind == kAnyKind || kind == is) return value;
  return error(Code::kInvalidArgument, "attribute '%s' is %s where %s belongs", given.name,
               kKindNames[is], kKindNames[kind]);
}

}  // namespace

Result<ops::Attributes> read_attributes(const char* op, const lmn_attribute* given, size_t count) {
  ops::Attributes out;
  for (size_t i = 0; i < count; ++i) {
    if (given[i].name == nullptr)
      return error(Code::kInvalidArgument, "%s: attributes[%zu].name is NULL", op, i);
    Result<ops::Attribute> one = read_checked(given[i]);
    if (!one.ok()) return std::move(one).status().with_context(op);
    out.set(given[i].name, *std::move(one));
  }
  return out;
}

}  // namespace lmn::capi
