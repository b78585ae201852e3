// SPDX-License-Identifier: Apache-2.0
//
// How many CPUs this process may really use: the affinity mask, lowered by the CPU quota of its
// control group (v1 or v2, the tightest on the way to the root). A guest in a container takes what
// it was given, not what the machine has.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"

namespace lmn::parallel {

// CPUs in sched_getaffinity's mask; at least 1.
int affinity_cpu_count();

// The quota in CPUs (1.5 = 150 ms of CPU time in each 100 ms), or nothing where there is no limit
// or no such file. `root` is "" in production; tests give a folder that holds proc/ and sys/.
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

// affinity_cpu_count() lowered to the quota, rounded up; at least 1.
int usable_cpu_count(const std::string& root = "");

// What `threads = 0` means: usable_cpu_count(), at most kMaxDefaultThreads.
int default_thread_count(const std::string& root = "");
// Beyond this, one fork-join team over one memory system stops gaining for decode, which is bound
// by bandwidth.
inline constexpr int kMaxDefaultThreads = 32;

// The text of the files, parsed; exposed for tests.
std::optional<double> parse_cpu_max(std::string_view text);  // v2 cpu.max: "150000 100000"
std::optional<double> parse_cfs(std::string_view quota,
                                std::string_view period);  // v1 cpu.cfs_{quota,period}_us
// Path of the group in /proc/self/cgroup: for v2 ("0::/path") or for a v1 controller; nothing
// where not listed.
std::optional<std::string> parse_cgroup_path(std::string_view text, bool v2,
                                             std::string_view controller = "cpu");

}  // namespace lmn::parallel
