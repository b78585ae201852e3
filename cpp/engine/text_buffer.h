// SPDX-License-Identifier: Apache-2.0
//
// TextBuffer: append-only text, written by the engine thread and read by clients without a lock.
// Bytes never move: the buffer is a list of segments, each twice as large as the last, so a view
// stays valid as long as the buffer. Offsets count the bytes of the text; a piece that does not fit
// goes to the next segment as a whole.
//
// The writer appends and then publishes the new size elsewhere (Sequence::progress_, release); a
// reader passes offsets up to a size it has read there (acquire). `begins_` may show a segment that
// is not published yet: its begin is then not below the published size, so a reader does not look
// into it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

namespace lmn::engine {

class TextBuffer {
 public:
  // False: no memory for so large a first segment.
  bool reserve(uint32_t bytes) { return bytes == 0 || add_segment(bytes); }

  // Writer. False: no memory; the text is unchanged.
  bool append(std::string_view piece) {
    if (piece.empty()) return true;
    if (piece.size() > room_ &&
        !add_segment(piece.size() > 2 * last_bytes_ ? piece.size() : 2 * last_bytes_))
      return false;
    std::memcpy(end_, piece.data(), piece.size());
    end_ += piece.size();
    room_ -= piece.size();
    size_ += static_cast<uint32_t>(piece.size());
    return true;
  }
  uint32_t size() const { return size_; }  // writer

  // Reader. The text from `begin` up to `end`, or up to the end of begin's segment.
  std::string_view view(uint32_t begin, uint32_t end) const {
    if (begin == end) return {};
    size_t i = 0;
    while (i + 1 < kSegments && begins_[i + 1].load(std::memory_order_relaxed) <= begin) ++i;
    const uint32_t next =
        i + 1 < kSegments ? begins_[i + 1].load(std::memory_order_relaxed) : kNone;
    const uint32_t first = begins_[i].load(std::memory_order_relaxed);
    return {segments_[i].get() + (begin - first), (next < end ? next : end) - begin};
  }

 private:
  // Segments double from a few hundred bytes on: 32 of them exceed what 32-bit offsets can address.
  static constexpr size_t kSegments = 32;
  static constexpr uint32_t kNone = UINT32_MAX;

  bool add_segment(size_t bytes) {
    if (count_ == kSegments || bytes > kNone - size_) return false;
    std::unique_ptr<char[]> segment(new (std::nothrow) char[bytes]);
    if (segment == nullptr) return false;
    end_ = segment.get();
    room_ = last_bytes_ = bytes;
    segments_[count_] = std::move(segment);
    begins_[count_].store(size_, std::memory_order_relaxed);
    ++count_;
    return true;
  }

  static std::array<std::atomic<uint32_t>, kSegments> no_segments() {
    return []<size_t... I>(std::index_sequence<I...>) {
      return std::array<std::atomic<uint32_t>, kSegments>{((void)I, kNone)...};
    }
    (std::make_index_sequence<kSegments>());
  }

  std::array<std::unique_ptr<char[]>, kSegments> segments_;
  // Offset of a segment's first byte.
  std::array<std::atomic<uint32_t>, kSegments> begins_ = no_segments();
  size_t count_ = 0;
  char* end_ = nullptr;  // of the text, in the last segment
  size_t room_ = 0;      // after it
  size_t last_bytes_ = 128;
  uint32_t size_ = 0;
};

}  // namespace lmn::engine
