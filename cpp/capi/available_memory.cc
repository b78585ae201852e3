// SPDX-License-Identifier: Apache-2.0
#include "capi/available_memory.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "parallel/cpu_topology.h"

namespace lmn::capi {
namespace {

// Below this a look at the files of the system costs more than it can save.
constexpr int64_t kSmall = 16 << 20;

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// The number behind `name` in lines of "name number …".
std::optional<int64_t> field(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(name) || line.size() == name.size() || line[name.size()] != ' ') continue;
    std::string_view number = line.substr(name.size());
    number.remove_prefix(std::min(number.size(), number.find_first_not_of(' ')));
    return parse_bytes(number.substr(0, number.find(' ')));
  }
  return std::nullopt;
}

struct Names {
  const char *mount, *limit, *current;
};
constexpr Names kV2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current"};
constexpr Names kV1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes"};

// What the group in `folder` may still take, when it has a limit.
std::optional<int64_t> left_in(const std::string& folder, const Names& names, bool v2) {
  const auto limit = parse_bytes(read_text(folder + names.limit).value_or(""));
  const auto current = parse_bytes(read_text(folder + names.current).value_or(""));
  if (!limit || !current) return std::nullopt;
  const int64_t cache = parse_file_cache(read_text(folder + "/memory.stat").value_or(""), v2);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *current - cache));
}

}  // namespace

std::optional<int64_t> parse_bytes(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_mem_available(std::string_view meminfo) {
  const auto kibibytes = field(meminfo, "MemAvailable:");
  if (!kibibytes || *kibibytes > (INT64_MAX >> 10)) return std::nullopt;
  return *kibibytes << 10;
}

int64_t parse_file_cache(std::string_view memory_stat, bool v2) {
  const int64_t inactive =
      field(memory_stat, v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  const int64_t active = field(memory_stat, v2 ? "active_file" : "total_active_file").value_or(0);
  int64_t sum = 0;
  return __builtin_add_overflow(inactive, active, &sum) ? 0 : sum;
}

std::optional<int64_t> available_memory(const std::string& root) {
  std::optional<int64_t> least =
      parse_mem_available(read_text(root + "/proc/meminfo").value_or(""));
  const std::string groups = read_text(root + "/proc/self/cgroup").value_or("");
  for (const bool v2 : {true, false}) {
    std::optional<std::string> path = parallel::parse_cgroup_path(groups, v2, "memory");
    const Names& names = v2 ? kV2 : kV1;
    while (path) {  // from the group up to the mount's root, which a container sees as its own
      while (!path->empty() && path->back() == '/') path->pop_back();
      if (const auto left = left_in(root + names.mount + *path, names, v2)) {
        least = std::min(least.value_or(*left), *left);
      }
      if (path->empty()) break;
      const size_t slash = path->find_last_of('/');
      path->erase(slash == std::string::npos ? 0 : slash);
    }
  }
  return least;
}

uint64_t default_block_bytes(const std::string& root) {
  constexpr uint64_t kMost = uint64_t{256} << 20, kLeast = uint64_t{4} << 20;
  const std::optional<int64_t> available = available_memory(root);
  if (!available) return kMost;
  return std::clamp(std::bit_floor(static_cast<uint64_t>(*available) / 8), kLeast, kMost);
}

Status check_fits(int64_t bytes, const char* what, const char* remedy, const std::string& root) {
  if (bytes < kSmall) return {};
  const std::optional<int64_t> available = available_memory(root);
  if (!available || bytes <= *available) return {};
  return error(Code::kOutOfMemory, "%s: needs %.1f MiB and %.1f MiB are available; %s", what,
               mebibytes(bytes), mebibytes(*available), remedy);
}

}  // namespace lmn::capi
