// SPDX-License-Identifier: Apache-2.0
#include "formats/onnx/external.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "formats/bytes.h"

namespace lmn::formats {
namespace {

// Absolute, without links; "" and errno when it does not exist.
std::string real_path(const std::string& path) {
  std::unique_ptr<char, decltype(&::free)> real(::realpath(path.c_str(), nullptr), &::free);
  return real == nullptr ? "" : real.get();
}

bool is_below(const std::string& path, const std::string& folder) {
  if (folder.empty()) return false;
  const size_t length = folder == "/" ? 0 : folder.size();
  return path.size() > length + 1 && path.compare(0, length, folder, 0, length) == 0 &&
         path[length] == '/';
}

bool has_dot_dot(std::string_view location) {
  for (size_t at = 0; at <= location.size();) {
    const size_t end = std::min(location.find('/', at), location.size());
    if (location.substr(at, end - at) == "..") return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::string> ExternalFiles::resolve(std::string_view location) const {
  const std::string name = quoted(location);
  if (location.empty()) {
    return error(Code::kCorrupt, "its external data names no file: export the model again");
  }
  if (location.front() == '/' || has_dot_dot(location)) {
    return error(Code::kCorrupt,
                 "its external data is in %s, which is not inside the model's folder: do not trust "
                 "this file, or export the model again",
                 name.c_str());
  }
  if (folder_.empty()) {
    return error(Code::kInvalidArgument,
                 "its external data is in the file %s, and a model in memory has no folder: give "
                 "one, or open the model by its path",
                 name.c_str());
  }
  const std::string path = folder_ + "/" + std::string(location);
  const std::string real = real_path(path);
  if (real.empty()) {
    const int reason = errno;
    if (reason == ENOENT || reason == ENOTDIR) {
      return error(Code::kNotFound,
                   "its external data is in the file %s, which is absent: put that file beside the "
                   "model, under this name",
                   quoted(path).c_str());
    }
    return error(Code::kIo, "its external data is in the file %s, which cannot be found: %s",
                 quoted(path).c_str(), std::system_category().message(reason).c_str());
  }
  if (is_below(real, real_path(folder_))) return real;
  if (!model_path_.empty() && is_below(real, folder_of(real_path(model_path_)))) return real;
  return error(Code::kCorrupt,
               "its external data is in %s, a link to %s outside the model's folder: put a copy of "
               "that file in its place if you trust the model",
               name.c_str(), quoted(real).c_str());
}

Result<std::shared_ptr<MappedFile>> ExternalFiles::open(std::string_view location) {
  LMN_ASSIGN_OR_RETURN(const std::string path, resolve(location));
  const std::lock_guard lock(mutex_);
  std::shared_ptr<MappedFile>& file = files_[path];
  if (file == nullptr) {
    auto opened = MappedFile::open(path, mode_);
    if (!opened.ok()) {
      files_.erase(path);
      return std::move(opened).status().with_context("external data");
    }
    file = *std::move(opened);
  }
  return file;
}

std::vector<std::shared_ptr<MappedFile>> ExternalFiles::files() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<MappedFile>> files;
  for (const auto& [path, file] : files_) files.push_back(file);
  return files;
}

}  // namespace lmn::formats
