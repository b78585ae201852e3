// SPDX-License-Identifier: Apache-2.0
#include "memory/os_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace lmn::memory {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;  // of x86-64 and of ARM64 with 4 KiB pages

size_t rounded_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Result<OsBlock> OsBlock::create(size_t bytes, const char* purpose) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const bool huge = bytes >= kHugePage;
  if (bytes == 0 || bytes > SIZE_MAX - page - kHugePage) {
    return error(Code::kInvalidArgument, "%s: cannot map %zu bytes", purpose, bytes);
  }
  const size_t size = rounded_up(bytes, page);
  const size_t slack = huge ? kHugePage - page : 0;  // to cut an aligned block out of
  void* mapped = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return error(Code::kOutOfMemory, "%s: the system refused %zu bytes (%.1f MiB): %s", purpose,
                 bytes, static_cast<double>(bytes) / 1048576.0, std::strerror(errno));
  }
  auto* begin = static_cast<std::byte*>(mapped);
  if (huge) {
    const size_t skip = rounded_up(reinterpret_cast<uintptr_t>(begin), kHugePage) -
                        reinterpret_cast<uintptr_t>(begin);
    if (skip > 0) munmap(begin, skip);
    if (slack > skip) munmap(begin + skip + size, slack - skip);
    begin += skip;
    (void)madvise(begin, size,
                  MADV_HUGEPAGE);  // advice: a kernel without huge pages is not an error
  }
  OsBlock block;
  block.data_ = begin;
  block.size_ = size;
  return block;
}

OsBlock::OsBlock(OsBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

OsBlock& OsBlock::operator=(OsBlock&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

OsBlock::~OsBlock() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace lmn::memory
