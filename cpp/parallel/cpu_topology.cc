// SPDX-License-Identifier: Apache-2.0
#include "parallel/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

namespace lmn::parallel {
namespace {

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<int64_t> parse_integer(std::string_view text) {
  text = trimmed(text);
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ratio(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// The tightest quota of the group and of all groups above it: each limits what is below. In a
// container the path is often the host's and does not exist here; the walk then ends at the mount's
// root, which is the container's own group.
template <typename Read>
std::optional<double> tightest(const std::string& mount, std::string path, const Read& read) {
  std::optional<double> least;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    if (const std::optional<double> quota = read(mount + path))
      least = std::min(least.value_or(*quota), *quota);
    if (path.empty()) return least;
    path.erase(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

}  // namespace

std::optional<double> parse_cpu_max(std::string_view text) {
  text = trimmed(text);
  const auto space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return ratio(parse_integer(text.substr(0, space)),
               parse_integer(text.substr(space)));  // "max" is no integer
}

std::optional<double> parse_cfs(std::string_view quota, std::string_view period) {
  return ratio(parse_integer(quota), parse_integer(period));  // -1: no limit
}

std::optional<std::string> parse_cgroup_path(std::string_view text, bool v2,
                                             std::string_view controller) {
  const std::string wanted = v2 ? ",," : "," + std::string(controller) + ",";
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto first = line.find(':');
    const auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const bool matches = v2 ? controllers == wanted : controllers.find(wanted) != std::string::npos;
    if (matches) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

int affinity_cpu_count() {
  // Grown until it fits: the kernel refuses a mask smaller than its own.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  const std::optional<std::string> groups = read_text(root + "/proc/self/cgroup");
  if (!groups) return std::nullopt;
  std::optional<double> least;
  const auto take = [&least](std::optional<double> quota) {
    if (quota) least = std::min(least.value_or(*quota), *quota);
  };
  if (const auto path = parse_cgroup_path(*groups, true)) {
    take(tightest(root + "/sys/fs/cgroup", *path, [](const std::string& folder) {
      return parse_cpu_max(read_text(folder + "/cpu.max").value_or(""));
    }));
  }
  if (const auto path = parse_cgroup_path(*groups, false)) {
    for (const char* mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
      take(tightest(root + mount, *path, [](const std::string& folder) {
        return parse_cfs(read_text(folder + "/cpu.cfs_quota_us").value_or(""),
                         read_text(folder + "/cpu.cfs_period_us").value_or(""));
      }));
    }
  }
  return least;
}

int usable_cpu_count(const std::string& root) {
  const int cpus = affinity_cpu_count();
  const std::optional<double> quota = cgroup_cpu_quota(root);
  if (!quota) return cpus;
  return std::clamp(static_cast<int>(std::ceil(std::min(*quota, 1e6))), 1, cpus);
}

int default_thread_count(const std::string& root) {
  return std::min(usable_cpu_count(root), kMaxDefaultThreads);
}

}  // namespace lmn::parallel
