// SPDX-License-Identifier: Apache-2.0
//
// Texts as Linux writes them: Documentation/admin-guide/cgroup-v2.rst (cpu.max), cgroup-v1/ and
// sched-bwc.rst (cfs files), proc(5) and cgroups(7) (/proc/self/cgroup).
#include "parallel/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "testing.h"

namespace lmn::parallel {
namespace {

TEST(cpu_max_text) {
  EXPECT_EQ(parse_cpu_max("150000 100000\n").value_or(-1), 1.5);
  EXPECT_EQ(parse_cpu_max("50000 100000").value_or(-1), 0.5);
  EXPECT(!parse_cpu_max("max 100000\n"));
  EXPECT(!parse_cpu_max(""));
  EXPECT(!parse_cpu_max("max"));
  EXPECT(!parse_cpu_max("100000 0"));
  EXPECT(!parse_cpu_max("-5 100000"));
  EXPECT(!parse_cpu_max("1e5 100000"));
  EXPECT(!parse_cpu_max("99999999999999999999 100000"));  // more than an int64 holds
}

TEST(cfs_text) {
  EXPECT_EQ(parse_cfs("200000\n", "100000\n").value_or(-1), 2.0);
  EXPECT(!parse_cfs("-1\n", "100000\n"));
  EXPECT(!parse_cfs("", ""));
}

TEST(cgroup_path_text) {
  EXPECT_EQ(parse_cgroup_path("0::/user.slice/a b\n", true).value_or("none"), "/user.slice/a b");
  EXPECT(!parse_cgroup_path("0::/x\n", false));
  const char* v1 = "12:cpuset:/set\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/init\n";
  EXPECT_EQ(parse_cgroup_path(v1, false).value_or("none"), "/docker/abc");
  EXPECT(!parse_cgroup_path(v1, true));
  EXPECT(!parse_cgroup_path("garbage\n:\n", false));
  EXPECT(!parse_cgroup_path("", true));
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/lmn_topology_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
    std::ofstream(path_ + file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(quota_is_the_tightest_on_the_way_to_the_root) {
  Folder root;
  root.write("/proc/self/cgroup", "0::/a/b/c\n");
  root.write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  root.write("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
  root.write("/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()).value_or(-1), 3.0);
}

TEST(quota_where_the_path_is_the_hosts) {
  Folder root;
  root.write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  root.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()).value_or(-1), 1.5);
}

TEST(no_quota) {
  Folder root;
  EXPECT(!cgroup_cpu_quota(root.path()));
  root.write("/proc/self/cgroup", "0::/\n");
  EXPECT(!cgroup_cpu_quota(root.path()));
}

TEST(quota_limits_the_default_count) {
  const int cpus = affinity_cpu_count();
  for (const bool v2 : {true, false}) {
    const auto threads = [&](const std::string& quota) {
      Folder root;
      root.write("/proc/self/cgroup", v2 ? "0::/a\n" : "3:cpu:/a\n");
      if (v2) {
        root.write("/sys/fs/cgroup/a/cpu.max", quota + " 100000\n");
      } else {
        root.write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", quota + "\n");
        root.write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
      }
      return default_thread_count(root.path());
    };
    EXPECT_EQ(threads("10000"), 1);                   // a tenth of a CPU is still one thread
    EXPECT_EQ(threads("100001"), std::min(cpus, 2));  // rounded up
    EXPECT_EQ(threads("100000000"), std::min(cpus, kMaxDefaultThreads));
    EXPECT_EQ(threads(v2 ? "max" : "-1"), std::min(cpus, kMaxDefaultThreads));
  }
}

TEST(affinity_limits_the_count) {
  cpu_set_t before;
  ASSERT(sched_getaffinity(0, sizeof(before), &before) == 0);
  EXPECT_EQ(affinity_cpu_count(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT(sched_setaffinity(0, sizeof(one), &one) == 0);
  EXPECT_EQ(affinity_cpu_count(), 1);
  EXPECT_EQ(default_thread_count(), 1);
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace
}  // namespace lmn::parallel
