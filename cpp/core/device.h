// SPDX-License-Identifier: Apache-2.0
//
// Device: what a chip has to offer so that a plan can run on it: memory, copies, and one table of
// kernels (ops/kernel.h). A new chip implements this and fills a table, nothing else. core knows no
// operator, so the table is an opaque type here.
#pragma once

#include <cstddef>
#include <string>

#include "core/status.h"

namespace lmn {

namespace ops {
struct KernelTable;
}

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // "cpu", "cuda:0"
  virtual std::string target()
      const = 0;  // instruction set or architecture in use: "avx2", "sm_90"

  // Memory the kernels read and write, zeroed, aligned to 64 bytes at least. OUT_OF_MEMORY names
  // the size.
  virtual Result<std::byte*> allocate(size_t bytes) = 0;
  // The same, not zeroed where that saves time.
  virtual Result<std::byte*> allocate_uninitialized(size_t bytes) { return allocate(bytes); }
  virtual void release(std::byte* data, size_t bytes) = 0;
  virtual Status copy_from_host(std::byte* device, const void* host, size_t bytes) = 0;
  virtual Status copy_to_host(void* host, const std::byte* device, size_t bytes) = 0;
  // Within the device; the ranges do not overlap.
  virtual Status copy(std::byte* to, const std::byte* from, size_t bytes) = 0;

  virtual const ops::KernelTable& kernels() const = 0;
};

}  // namespace lmn
