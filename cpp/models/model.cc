// SPDX-License-Identifier: Apache-2.0
#include "models/model.h"

#include <array>

#include "models/llama.h"
#include "models/model_file.h"

namespace lmn::models {
namespace {

struct Architecture {
  std::string_view name;  // general.architecture
  Result<LanguageModel> (*build)(ModelFile file);
};

// The registry.
constexpr Architecture kArchitectures[] = {
    {"llama", build_llama},
    {"qwen2", build_qwen2},
};

}  // namespace

std::span<const std::string_view> supported_architectures() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, std::size(kArchitectures)> names;
    for (size_t i = 0; i < names.size(); ++i) names[i] = kArchitectures[i].name;
    return names;
  }();
  return kNames;
}

Result<LanguageModel> build(const formats::GgufModel& file, std::shared_ptr<const void> owner) {
  LMN_ASSIGN_OR_RETURN(const std::string_view name,
                       file.get<std::string_view>("general.architecture"));
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name)
      return architecture.build(ModelFile(file, std::move(owner), std::string(name)));
  }
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return error(Code::kUnsupported, "%s: architecture '%s' is not supported; supported are: %s",
               file.path().c_str(), std::string(name).c_str(), known.c_str());
}

}  // namespace lmn::models
