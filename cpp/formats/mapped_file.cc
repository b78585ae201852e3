// SPDX-License-Identifier: Apache-2.0
#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace lmn::formats {
namespace {

// Bytes between two progress calls: long enough to cost nothing, short enough for a bar that moves
// on a network disk.
constexpr uint64_t kStep = 16u << 20;

// Linux 5.14. Older C library headers lack the name; the number is the kernel's ABI.
#ifdef MADV_POPULATE_READ
constexpr int kMadvPopulateRead = MADV_POPULATE_READ;
#else
constexpr int kMadvPopulateRead = 22;
#endif

uint64_t page_bytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

std::string reason(int error_number) { return std::system_category().message(error_number); }

Status system_error(const std::string& path, const char* what, int error_number) {
  return error(error_number == ENOMEM ? Code::kOutOfMemory : Code::kIo, "%s: %s: %s", path.c_str(),
               what, reason(error_number).c_str());
}

Status open_error(const std::string& path, int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return error(Code::kNotFound, "%s: no such file: check the path", path.c_str());
    case EACCES:
    case EPERM:
      return error(Code::kIo,
                   "%s: no permission to read it: %s; check the rights of the file and its folders",
                   path.c_str(), reason(error_number).c_str());
    default:
      return system_error(path, "cannot open it", error_number);
  }
}

Status cancelled(const std::string& path) {
  return error(Code::kCancelled, "%s: reading was cancelled by the progress callback",
               path.c_str());
}

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path, ReadMode mode,
                                                     const ReadProgress& progress) {
  if (path.empty()) return error(Code::kInvalidArgument, "the path of the file is empty");
  if (path.find('\0') != std::string::npos) {
    return error(Code::kInvalidArgument, "%s…: the path contains a NUL byte", path.c_str());
  }
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path_ = path;
  file->mode_ = mode;
  do {
    // O_NONBLOCK: opening a FIFO by mistake must fail below and not wait for a writer. Regular
    // files ignore it.
    file->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (file->fd_ < 0 && errno == EINTR);
  if (file->fd_ < 0) return open_error(path, errno);

  struct stat info {};
  if (::fstat(file->fd_, &info) != 0) return system_error(path, "cannot examine it", errno);
  if (S_ISDIR(info.st_mode)) {
    return error(Code::kInvalidArgument, "%s: is a directory: give the path of the file inside it",
                 path.c_str());
  }
  if (!S_ISREG(info.st_mode)) {
    return error(Code::kInvalidArgument, "%s: is not a regular file: copy its content to one first",
                 path.c_str());
  }
  if (info.st_size == 0) {
    return error(Code::kCorrupt, "%s: the file is empty: download or copy it again", path.c_str());
  }
  file->size_ = static_cast<size_t>(info.st_size);
  file->mtime_seconds_ = info.st_mtim.tv_sec;
  file->mtime_nanoseconds_ = info.st_mtim.tv_nsec;
  LMN_RETURN_IF_ERROR(mode == ReadMode::kCopy ? file->copy(progress) : file->map(progress));
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (fd_ >= 0) ::close(fd_);
}

Status MappedFile::map(const ReadProgress& progress) {
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (address == MAP_FAILED) {
    if (errno == ENODEV) {
      return error(Code::kIo, "%s: its file system cannot map files: open it in the copy mode",
                   path_.c_str());
    }
    return system_error(path_, "cannot map it", errno);
  }
  data_ = static_cast<std::byte*>(address);
  if (mode_ != ReadMode::kMapPopulate) return {};
  for (uint64_t done = 0; done < size_;) {
    const uint64_t step = std::min<uint64_t>(kStep, size_ - done);
    while (::madvise(data_ + done, step, kMadvPopulateRead) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      if (errno == EINVAL) {  // a kernel before 5.14
        ::madvise(data_ + done, step, MADV_WILLNEED);
        break;
      }
      return system_error(path_, "cannot read it in", errno);
    }
    done += step;
    if (progress && !progress(done, size_)) return cancelled(path_);
  }
  return {};
}

Status MappedFile::copy(const ReadProgress& progress) {
  void* address =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return error(errno == ENOMEM ? Code::kOutOfMemory : Code::kIo,
                 "%s: cannot allocate %zu bytes for a copy of it (%s): open it mapped, which needs "
                 "no memory of its own",
                 path_.c_str(), size_, reason(errno).c_str());
  }
  data_ = static_cast<std::byte*>(address);
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  uint64_t next_report = kStep;
  for (uint64_t done = 0; done < size_;) {
    const uint64_t step = std::min<uint64_t>(kStep, size_ - done);
    const ssize_t got = ::pread(fd_, data_ + done, step, static_cast<off_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return system_error(path_, "cannot read it", errno);
    }
    if (got == 0) {
      return error(Code::kIo,
                   "%s: became shorter while it was read (%llu of %zu bytes): open it again once "
                   "it is complete",
                   path_.c_str(), static_cast<unsigned long long>(done), size_);
    }
    done += static_cast<uint64_t>(got);
    if (progress && (done >= next_report || done == size_)) {
      if (!progress(done, size_)) return cancelled(path_);
      next_report = done + kStep;
    }
  }
  LMN_RETURN_IF_ERROR(check_unchanged());
  ::mprotect(data_, size_, PROT_READ);
  ::close(fd_);
  fd_ = -1;
  return {};
}

Status MappedFile::check_unchanged() const {
  if (fd_ < 0) return {};
  struct stat now {};
  if (::fstat(fd_, &now) != 0) return system_error(path_, "cannot examine it", errno);
  const uint64_t size = static_cast<uint64_t>(now.st_size);
  if (size != size_) {
    return error(Code::kIo,
                 "%s: the file %s from %zu to %llu bytes after it was opened: open it again once "
                 "it is complete, or use "
                 "the copy mode, which later changes do not reach",
                 path_.c_str(), size < size_ ? "shrank" : "grew", size_,
                 static_cast<unsigned long long>(size));
  }
  if (now.st_mtim.tv_sec != mtime_seconds_ || now.st_mtim.tv_nsec != mtime_nanoseconds_) {
    return error(Code::kIo,
                 "%s: the file was written to after it was opened: open it again, or use the copy "
                 "mode, which later "
                 "changes do not reach",
                 path_.c_str());
  }
  return {};
}

void MappedFile::advise_will_need(uint64_t offset, uint64_t length) const {
  if (mode_ == ReadMode::kCopy || offset >= size_) return;
  const uint64_t first = offset / page_bytes() * page_bytes();
  ::madvise(data_ + first, offset - first + std::min<uint64_t>(length, size_ - offset),
            MADV_WILLNEED);
}

void MappedFile::advise_dont_need(uint64_t offset, uint64_t length) const {
  if (mode_ == ReadMode::kCopy || offset >= size_) return;
  const uint64_t page = page_bytes();
  const uint64_t end = offset + std::min<uint64_t>(length, size_ - offset);
  const uint64_t first = (offset + page - 1) / page * page;
  // The last page of the file is whole even though the file ends inside it.
  const uint64_t last = end == size_ ? end : end / page * page;
  if (first < last) ::madvise(data_ + first, last - first, MADV_DONTNEED);
}

}  // namespace lmn::formats
