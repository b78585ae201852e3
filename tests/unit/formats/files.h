// SPDX-License-Identifier: Apache-2.0
//
// A temporary folder for a test's files, removed with everything in it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

class TempDir {
 public:
  TempDir() {
    std::string form = (std::filesystem::temp_directory_path() / "lmn-test-XXXXXX").string();
    if (::mkdtemp(form.data()) == nullptr) {
      throw std::runtime_error("cannot create a temporary folder");
    }
    root_ = form;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  std::string root() const { return root_.string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::string file = path(name);
    std::FILE* f = std::fopen(file.c_str(), "wb");
    if (f == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), f) != bytes.size() ||
        std::fclose(f) != 0) {
      throw std::runtime_error("cannot write " + file);
    }
    return file;
  }

 private:
  std::filesystem::path root_;
};
