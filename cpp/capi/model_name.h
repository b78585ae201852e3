// SPDX-License-Identifier: Apache-2.0
//
// Known model names: names that stand for a file which a package of the Python Package Index
// installs. Only the file system is asked: no Python is started and no package imported.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace lmn::capi {

// The file to open: `path` itself unless it is a known name and no file. NOT_FOUND carries the
// command that installs it.
Result<std::string> resolve_model_path(const std::string& path);

bool is_file(const std::string& path);  // an existing regular file

// "" or words to add to a not-found error: "did you mean the model name 'smollm2-135m'?"
std::string suggest_model_name(std::string_view path);

// Where packages are looked for, in this order: the Python environment that holds this library,
// $VIRTUAL_ENV, the user's site-packages, the system's. Only folders that exist; each once.
std::vector<std::string> site_packages_folders();

}  // namespace lmn::capi
