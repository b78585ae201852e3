// SPDX-License-Identifier: Apache-2.0
//
// How much memory this process may still touch: blocks from the system are reserved without being
// backed (memory/os_block.h), so a request that the machine can never fill succeeds, and the
// system's OOM killer answers later. Asked before an engine or a large buffer is made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"

namespace lmn::capi {

// The least of what the machine has left (MemAvailable) and of what the process's control group and
// the groups above it may still take (v1 and v2; the page cache counts as free, since it gives
// way). Nothing where the system does not say. `root` is "" in production; tests give a folder that
// holds proc/ and sys/.
std::optional<int64_t> available_memory(const std::string& root = "");

// OUT_OF_MEMORY when `bytes` are more than are available: names `what` needs them, both figures and
// the remedy. Small needs are not looked up.
Status check_fits(int64_t bytes, const char* what, const char* remedy,
                  const std::string& root = "");

// How much a memory pool reserves at once when its caller does not say: 256 MiB, but no more than
// an eighth of what is available, as a power of two; 4 MiB at least. Bytes.
uint64_t default_block_bytes(const std::string& root = "");

constexpr double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

// The text of the files, parsed; exposed for tests. Bytes.
std::optional<int64_t> parse_mem_available(std::string_view meminfo);  // of /proc/meminfo
std::optional<int64_t> parse_bytes(std::string_view text);  // of memory.max, memory.current, …
// Of memory.stat: file pages of the group and those below it, which are reclaimed before anybody is
// killed.
int64_t parse_file_cache(std::string_view memory_stat, bool v2);

}  // namespace lmn::capi
