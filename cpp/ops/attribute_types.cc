// SPDX-License-Identifier: Apache-2.0
#include "ops/attribute_types.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace lmn::ops {
namespace {

struct NamesOfType {
  AttributeType type;
  std::string_view names;
};
// All names of tensor_ops.def and of what is rewritten to that, in ONNX and in Microsoft's domain.
constexpr NamesOfType kNamesOfTypes[] = {
    {AttributeType::kInteger,
     "K N accuracy_level align_corners allowzero antialias axis batch_axis batch_dims bits "
     "block_size blocksize captures ceil_mode center_point_box channels_last chunk_size "
     "count_include_pad default_int64 detect_negative detect_positive do_rotary dtype end "
     "exclude_outside exclusive fmod group hidden_size ignore_index input_forget interleaved "
     "inverse is_case_sensitive is_causal is_packed_batching k keepdims kv_cache_bit_width "
     "kv_num_heads largest layout left_window_size linear_before_reset local_window_size "
     "mask_index_type max_gram_length max_map max_skip_count maxsplit min_gram_length "
     "multi_class n_supports n_targets new_axis noop_with_empty_axes num_groups num_heads "
     "num_outputs num_scan_inputs offset_group one_class onesided output_datatype output_dtype "
     "output_height output_width p past_present_share_buffer periodic precision q_num_heads "
     "qk_matmul_output_mode qk_output replaced_value_int64 reverse right_window_size "
     "rotary_embedding_dim rotary_interleaved sample_size sampling_ratio saturate "
     "select_last_index sequence size smooth_softmax softmax_precision sorted start stash_type "
     "storage_order targets time_axis to training_mode transA transB transBatchA transBatchB "
     "transposed type unidirectional upper weight_prepacked zeros"},
    {AttributeType::kNumber,
     "activation_gamma alpha beta bias clip cubic_coeff_a decay_factor default_float epsilon "
     "extrapolation_value gamma high lambd low mask_filter_value mean momentum "
     "norm_coefficient norm_coefficient_post replaced_value_float softcap spatial_scale "
     "threshold"},
    {AttributeType::kText,
     "activation approximate auto_pad case_change_action cast_to "
     "coordinate_transformation_mode default_string delimiter direction equation k_quant_type "
     "keep_aspect_ratio_policy kernel_type locale map_form mode nearest_mode norm padding_mode "
     "pattern reduction round_mode update_rule v_quant_type"},
    {AttributeType::kIntegers,
     "axes cats_int64s class_ids class_nodeids class_treeids classlabels_int64s "
     "classlabels_ints dilations imputed_value_int64s inputdimensions int64_vocabulary k_perm "
     "kernel_shape keys_int64s leaf_targetids ngram_counts ngram_indexes nodes_falseleafs "
     "nodes_falsenodeids nodes_featureids nodes_missing_value_tracks_true nodes_nodeids "
     "nodes_treeids nodes_trueleafs nodes_truenodeids output_padding output_shape pads perm "
     "pool_int64s pooled_shape q_perm qkv_hidden_sizes scan_input_axes scan_input_directions "
     "scan_output_axes scan_output_directions shape strides target_ids target_nodeids "
     "target_treeids tree_roots v_perm values_int64s vectors_per_class y_perm"},
    {AttributeType::kNumbers,
     "activation_params base_values class_weights coefficients imputed_value_floats intercepts "
     "kernel_params keys_floats nodes_values offset prob_a prob_b rho support_vectors "
     "target_weights values_floats weights"},
    {AttributeType::kTexts,
     "activations cats_strings classlabels_strings keys_strings pool_strings steps stopwords "
     "string_vocabulary values_strings"},
    {AttributeType::kTensor,
     "base_values_as_tensor class_weights_as_tensor default_tensor keys_tensor leaf_weights "
     "membership_values nodes_hitrates_as_tensor nodes_splits nodes_values_as_tensor "
     "target_weights_as_tensor value values_tensor"},
    {AttributeType::kGraph, "body else_branch then_branch"},
    {AttributeType::kSeveral,
     "activation_alpha activation_beta aggregate_function nodes_hitrates nodes_modes "
     "post_transform scale seed"},
};

struct TypeOfName {
  std::string_view name;
  AttributeType type;
};
constexpr size_t kTypesOfNamesCount = [] {
  size_t count = 0;
  for (const NamesOfType& list : kNamesOfTypes)
    count += 1 + static_cast<size_t>(std::count(list.names.begin(), list.names.end(), ' '));
  return count;
}();
constexpr bool by_name(const TypeOfName& a, const TypeOfName& b) { return a.name < b.name; }
constexpr std::array<TypeOfName, kTypesOfNamesCount> kTypesOfNames = [] {
  std::array<TypeOfName, kTypesOfNamesCount> out{};
  size_t at = 0;
  for (NamesOfType list : kNamesOfTypes) {
    while (!list.names.empty()) {
      const size_t end = std::min(list.names.find(' '), list.names.size());
      out[at++] = {list.names.substr(0, end), list.type};
      list.names.remove_prefix(std::min(end + 1, list.names.size()));
    }
  }
  std::sort(out.begin(), out.end(), by_name);
  return out;
}();
static_assert(std::adjacent_find(kTypesOfNames.begin(), kTypesOfNames.end(),
                                 [](const TypeOfName& a, const TypeOfName& b) {
                                   return a.name == b.name;
                                 }) == kTypesOfNames.end());

// By type.
constexpr const char* kTypeTexts[] = {
    "an integer",        "a number",          "a string", "a list of integers",
    "a list of numbers", "a list of strings", "a tensor", "a graph"};
static_assert(std::size(kTypeTexts) == std::variant_size_v<Attribute> &&
              std::size(kTypeTexts) == static_cast<size_t>(AttributeType::kSeveral));

}  // namespace

std::optional<AttributeType> attribute_type(std::string_view name) {
  const auto* at =
      std::lower_bound(kTypesOfNames.begin(), kTypesOfNames.end(), TypeOfName{name, {}}, by_name);
  if (at == kTypesOfNames.end() || at->name != name) return std::nullopt;
  return at->type;
}

Status check_attribute_types(const Attributes& attributes, std::string_view op,
                             std::string_view node_name, OperatorSets sets) {
  for (const auto& [key, value] : attributes.entries()) {
    const AttributeType type = attribute_type(key).value_or(AttributeType::kSeveral);
    const auto index = static_cast<size_t>(type);
    if (type == AttributeType::kSeveral || index == value.index()) continue;
    if (sets == OperatorSets::kAll && key == "value") continue;  // Pad before set 11: a number
    return error(Code::kInvalidArgument, "%s '%s': attribute '%s' is %s; it takes %s",
                 std::string(op).c_str(), std::string(node_name).c_str(), key.c_str(),
                 kTypeTexts[value.index()], kTypeTexts[index]);
  }
  return {};
}

}  // namespace lmn::ops
