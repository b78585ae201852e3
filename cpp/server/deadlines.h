// SPDX-License-Identifier: Apache-2.0
//
// Deadlines: what a thread's connections wait for, and until when. All waits of a kind take the
// same time, so a list in the order of arrival is in the order of the ends: setting, clearing and
// looking are constant work, whatever the number of connections. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace lmn::server {

enum class Wait : uint8_t { kNone, kIdle, kHeader, kBody, kWrite, kLinger };

// Something that has at most one deadline.
struct Timed {
  Timed* before = nullptr;
  Timed* after = nullptr;
  int64_t ends_ns = 0;
  Wait wait = Wait::kNone;
};

class Deadlines {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  static constexpr size_t kKinds = 6;

  // How long each Wait takes, ns.
  explicit Deadlines(const std::array<int64_t, kKinds>& durations) : durations_(durations) {}

  void set(Timed* timed, Wait wait, int64_t now) {
    clear(timed);
    if (wait == Wait::kNone) return;
    timed->wait = wait;
    timed->ends_ns = now + durations_[index(wait)];
    List& list = lists_[index(wait)];
    timed->before = list.last;
    (list.last == nullptr ? list.first : list.last->after) = timed;
    list.last = timed;
  }
  void clear(Timed* timed) {
    if (timed->wait == Wait::kNone) return;
    List& list = lists_[index(timed->wait)];
    (timed->before == nullptr ? list.first : timed->before->after) = timed->after;
    (timed->after == nullptr ? list.last : timed->after->before) = timed->before;
    timed->before = timed->after = nullptr;
    timed->wait = Wait::kNone;
  }
  int64_t next() const {
    int64_t earliest = kNever;
    for (const List& list : lists_) {
      if (list.first != nullptr && list.first->ends_ns < earliest) earliest = list.first->ends_ns;
    }
    return earliest;
  }
  // One whose time has come, or null.
  Timed* expired(int64_t now) const {
    for (const List& list : lists_) {
      if (list.first != nullptr && list.first->ends_ns <= now) return list.first;
    }
    return nullptr;
  }

 private:
  struct List {
    Timed* first = nullptr;
    Timed* last = nullptr;
  };
  static constexpr size_t index(Wait wait) { return static_cast<size_t>(wait); }

  const std::array<int64_t, kKinds> durations_;
  std::array<List, kKinds> lists_;
};

}  // namespace lmn::server
