// SPDX-License-Identifier: Apache-2.0
//
// What this process may still take: files of the kernel's documented formats (proc(5), cgroup v1
// memory.txt, cgroup-v2.rst), and folders that stand for a machine.
#include "capi/available_memory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "testing.h"

using namespace lmn;        // NOLINT: tests
using namespace lmn::capi;  // NOLINT

namespace {

class Machine {
 public:
  Machine() {
    const char* base = std::getenv("TMPDIR");
    root_ = std::string(base != nullptr ? base : "/tmp") + "/lmnative_machine_XXXXXX";
    if (mkdtemp(root_.data()) == nullptr) testing::skip("no folder for temporary files");
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine& file(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
    return *this;
  }
  int64_t available() const { return available_memory(root_).value_or(-1); }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

constexpr char kMeminfo[] =
    "MemTotal:       16384000 kB\nMemFree:          100 kB\nMemAvailable:    8192000 kB\n";

}  // namespace

TEST(numbers_of_the_kernels_files) {
  EXPECT_EQ(parse_mem_available(kMeminfo).value_or(0), int64_t{8192000} * 1024);
  EXPECT(!parse_mem_available("MemTotal: 1 kB\n"));
  EXPECT(!parse_mem_available("MemAvailable:"));
  EXPECT(!parse_mem_available("MemAvailable: x kB"));
  EXPECT(!parse_mem_available("MemAvailable: 9223372036854775807 kB"));
  EXPECT_EQ(parse_bytes("1073741824\n").value_or(0), int64_t{1} << 30);
  EXPECT(!parse_bytes("max\n"));
  EXPECT(!parse_bytes("-1"));
  EXPECT(!parse_bytes(""));
  EXPECT_EQ(parse_file_cache("anon 5\nfile 9\ninactive_file 3\nactive_file 4\n", true), int64_t{7});
  EXPECT_EQ(parse_file_cache("active_file 1\ntotal_inactive_file 3\ntotal_active_file 4\n", false),
            int64_t{7});
  EXPECT_EQ(parse_file_cache("", true), int64_t{0});
}

TEST(the_least_of_the_machine_and_all_groups) {
  EXPECT_EQ(Machine().available(), int64_t{-1});  // nobody says
  Machine m;
  m.file("/proc/meminfo", kMeminfo);
  EXPECT_EQ(m.available(), int64_t{8192000} * 1024);
  m.file("/proc/self/cgroup", "0::/a/b\n");
  m.file("/sys/fs/cgroup/a/b/memory.max", "max\n").file("/sys/fs/cgroup/a/b/memory.current", "9\n");
  EXPECT_EQ(m.available(), int64_t{8192000} * 1024);
  m.file("/sys/fs/cgroup/a/memory.max", "1000\n").file("/sys/fs/cgroup/a/memory.current", "700\n");
  EXPECT_EQ(m.available(), int64_t{300});
  m.file("/sys/fs/cgroup/a/memory.stat", "inactive_file 100\nactive_file 50\n");
  EXPECT_EQ(m.available(), int64_t{450});
  m.file("/sys/fs/cgroup/memory.max", "10\n").file("/sys/fs/cgroup/memory.current", "11\n");
  EXPECT_EQ(m.available(), int64_t{0});
}

TEST(groups_of_version_one) {
  Machine m;
  m.file("/proc/self/cgroup", "5:cpu,cpuacct:/c\n4:memory:/docker/abc\n");
  // The host's path does not exist in the container; its own group is the mount's root.
  m.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  m.file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000\n");
  EXPECT_EQ(m.available(), int64_t{3000});
}

TEST(what_does_not_fit_is_refused_with_both_figures) {
  Machine m;
  m.file("/proc/meminfo", "MemAvailable:    102400 kB\n");  // 100 MiB
  EXPECT(check_fits(100 << 20, "x", "y", m.root()).ok());
  const Status refused = check_fits((100 << 20) + 1, "the logits", "score fewer", m.root());
  EXPECT_EQ(refused.code(), Code::kOutOfMemory);
  EXPECT_EQ(refused.message(),
            "the logits: needs 100.0 MiB and 100.0 MiB are available; score fewer");
  EXPECT(check_fits(INT64_MAX, "x", "y", Machine().root()).ok());  // nobody says
}

TEST(a_pool_reserves_less_on_a_small_machine) {
  EXPECT_EQ(default_block_bytes("/nonexistent"), uint64_t{256} << 20);
  Machine machine;
  const auto with = [&](const std::string& kibibytes) {
    machine.file("/proc/meminfo", "MemAvailable: " + kibibytes + " kB\n");
    return default_block_bytes(machine.root());
  };
  EXPECT_EQ(with("8192000"), uint64_t{256} << 20);
  EXPECT_EQ(with("2097152"), uint64_t{256} << 20);  // 2 GiB
  EXPECT_EQ(with("2097151"), uint64_t{128} << 20);
  EXPECT_EQ(with("204800"), uint64_t{16} << 20);  // 200 MiB: 25 MiB would be an eighth
  EXPECT_EQ(with("1000"), uint64_t{4} << 20);
}
