// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_device.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "cpu/cpu_features.h"
#include "cpu/cpu_kernels.h"
#include "memory/pool.h"

namespace lmn::cpu {
namespace {

struct Target {
  std::string_view name;
  const ops::KernelTable& (*table)();
  bool available;
};

// Slowest first, behind those that are never the default.
std::vector<Target> targets() {
  std::vector<Target> all;
  [[maybe_unused]] const CpuFeatures features = cpu_features();
#if defined(LMN_EMULATED_TARGETS)  // slower than any other, so never the default
#if defined(__x86_64__)
  all.push_back({"amx_emulated", amx_emulated_table, features.avx512});
#endif
  all.push_back({"scalar_tiles", scalar_tiles_table, true});
#endif
#if defined(__x86_64__)
  // Right on a processor that has it, and no faster there so far: it is asked for by name.
  all.push_back({"amx", amx_table, features.amx});
#endif
  all.push_back({"scalar", scalar_table, true});
#if defined(__x86_64__)
  all.push_back({"avx2", avx2_table, features.avx2});
  all.push_back({"avx512", avx512_table, features.avx512});
#elif defined(__aarch64__)
  all.push_back({"neon", neon_table, features.neon});
  all.push_back({"neon_dotprod", neon_dotprod_table, features.neon_dotprod});
  all.push_back({"neon_i8mm", neon_i8mm_table, features.neon_i8mm});
#endif
  return all;
}

std::string joined(const std::vector<std::string_view>& names) {
  std::string out;
  for (std::string_view name : names) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

class CpuDevice final : public Device {
 public:
  CpuDevice(const Target& target, std::shared_ptr<memory::Pool> pool)
      : target_(target.name), kernels_(target.table()), pool_(std::move(pool)) {}

  std::string name() const override { return "cpu"; }
  std::string target() const override { return target_; }
  const ops::KernelTable& kernels() const override { return kernels_; }

  Result<std::byte*> allocate(size_t bytes) override { return pool_->allocate_zeroed(bytes); }
  Result<std::byte*> allocate_uninitialized(size_t bytes) override {
    return pool_->allocate(bytes);
  }
  void release(std::byte* data, size_t) override {
    (void)pool_->try_free(
        data);  // called by destructors: nobody to tell of memory that is not ours
  }
  Status copy_from_host(std::byte* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
    return {};
  }
  Status copy_to_host(void* host, const std::byte* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
    return {};
  }
  Status copy(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }

 private:
  const std::string target_;
  const ops::KernelTable& kernels_;
  const std::shared_ptr<memory::Pool> pool_;
};

}  // namespace

std::vector<std::string_view> known_targets() {
  std::vector<std::string_view> names;
  for (const Target& t : targets()) names.push_back(t.name);
  return names;
}

std::vector<std::string_view> available_targets() {
  std::vector<std::string_view> names;
  for (const Target& t : targets()) {
    if (t.available) names.push_back(t.name);
  }
  return names;
}

Result<std::unique_ptr<Device>> create_cpu_device(std::string_view target) {
  const char* variable = std::getenv("LMN_CPU_TARGET");
  std::string wanted(target);
  const bool from_environment = wanted.empty() && variable != nullptr && *variable != '\0';
  if (from_environment) wanted = variable;
  if (wanted.empty()) wanted = available_targets().back();
  const char* what = from_environment ? "LMN_CPU_TARGET" : "CPU target";
  for (const Target& t : targets()) {
    if (t.name != wanted) continue;
    if (!t.available) {
      return error(Code::kUnsupported,
                   "%s \"%s\": this CPU or its operating system lacks it; available here: %s", what,
                   wanted.c_str(), joined(available_targets()).c_str());
    }
    // What an engine lets go of returns to the system: the next one has other sizes.
    LMN_ASSIGN_OR_RETURN(std::shared_ptr<memory::Pool> pool,
                         memory::Pool::create({.keep_large_bytes = 0}));
    return std::unique_ptr<Device>(std::make_unique<CpuDevice>(t, std::move(pool)));
  }
  return error(Code::kInvalidArgument, "%s \"%s\" is unknown; known: %s; available here: %s", what,
               wanted.c_str(), joined(known_targets()).c_str(),
               joined(available_targets()).c_str());
}

}  // namespace lmn::cpu
