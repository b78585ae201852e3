// SPDX-License-Identifier: Apache-2.0
//
// Inside the room: the files of a model's external data. A location is what a hostile file says, so
// it is held to the folder of the model, links resolved.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "formats/mapped_file.h"

namespace lmn::formats {

// Thread-safe.
class ExternalFiles {
 public:
  // `model_path` may be empty for a model in memory, `folder` then too.
  ExternalFiles(std::string folder, std::string model_path, ReadMode mode)
      : folder_(std::move(folder)), model_path_(std::move(model_path)), mode_(mode) {}

  // The file at `location`, mapped at its first use. It lies in the folder, or, since caches keep
  // models as links to files elsewhere, in the one where the model's own file really is.
  // Messages name the location.
  Result<std::shared_ptr<MappedFile>> open(std::string_view location);
  std::vector<std::shared_ptr<MappedFile>> files() const;  // so far

 private:
  Result<std::string> resolve(std::string_view location) const;

  const std::string folder_;
  const std::string model_path_;
  const ReadMode mode_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<MappedFile>> files_;  // by resolved path
};

// The folder part of a path; "." when it has none.
std::string folder_of(const std::string& path);

}  // namespace lmn::formats
