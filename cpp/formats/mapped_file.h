// SPDX-License-Identifier: Apache-2.0
//
// MappedFile: the bytes of one regular file, read-only, from open to the last reference. It knows
// nothing of what the bytes mean.
//
// The hazard of mapping: kMap and kMapPopulate show the file itself. If another program shortens
// the file, touching a byte past the new end raises SIGBUS, which a library cannot turn into a
// status without taking the host's signal handlers. check_unchanged() makes that window small (call
// it before a long read, such as packing weights), but cannot close it; what is written in place
// shows up in the bytes too. kCopy is immune to both: it reads the file once into memory of its
// own. Replacing a file by rename, as downloaders and package managers do, is harmless in every
// mode, since the old inode lives as long as the mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/status.h"

namespace lmn::formats {

enum class ReadMode {
  kMap,          // pages are read when they are touched
  kMapPopulate,  // mapped, and read in before open returns (only started, on Linux before 5.14)
  kCopy,  // read into anonymous memory: for network disks, and for files that others may change
};

// Called with bytes done and bytes in all while kMapPopulate and kCopy read, about every 16 MiB and
// at the end. Returning false ends the reading with CANCELLED. Must not throw.
using ReadProgress = std::function<bool(uint64_t done, uint64_t total)>;

// Immutable after open; every member may be called from any thread.
class MappedFile {
 public:
  // Errors: INVALID_ARGUMENT (a directory or another non-regular file, an unusable path),
  // NOT_FOUND, IO (no permission, read errors, a file that changes while it is read), CORRUPT
  // (empty), OUT_OF_MEMORY, CANCELLED.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path,
                                                  ReadMode mode = ReadMode::kMap,
                                                  const ReadProgress& progress = {});
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  ReadMode mode() const { return mode_; }
  // Page-aligned at the front, never empty; valid while this object lives.
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // IO when the file's size or modification time is no longer what it was at open. Always OK for
  // kCopy.
  Status check_unchanged() const;

  // Hints about bytes [offset, offset + length), clamped to the file; what can be read never
  // changes, refusals of the system are ignored, and for kCopy, whose bytes exist nowhere else,
  // nothing happens.
  //   will_need   the system begins to read the bytes from the disk
  //   dont_need   unmaps the whole pages inside the range; they are mapped again when touched
  void advise_will_need(uint64_t offset, uint64_t length) const;
  void advise_dont_need(uint64_t offset, uint64_t length) const;

 private:
  MappedFile() = default;
  Status map(const ReadProgress& progress);
  Status copy(const ReadProgress& progress);

  std::string path_;
  ReadMode mode_ = ReadMode::kMap;
  int fd_ = -1;  // open as long as check_unchanged needs it: never for kCopy
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t mtime_seconds_ = 0;
  int64_t mtime_nanoseconds_ = 0;
};

}  // namespace lmn::formats
