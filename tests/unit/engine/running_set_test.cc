// SPDX-License-Identifier: Apache-2.0
//
// RunningSet against a plain list that is sorted and summed anew for every question.
#include "engine/running_set.h"

#include <algorithm>
#include <random>

#include "engine/kv_cache.h"
#include "engine/request_core.h"
#include "fake_model.h"
#include "testing.h"

namespace lmn::engine {
namespace {

std::shared_ptr<Sequence> make_sequence(int32_t prompt_tokens) {
  RequestCore::Fixed fixed;
  fixed.prompt_tokens = prompt_tokens;
  fixed.max_tokens = 100;
  fixed.options.prompt.assign(static_cast<size_t>(prompt_tokens), 1);
  fixed.signals = std::make_shared<EngineSignals>();
  fixed.signals->ledger = std::make_shared<memory::Ledger>();
  const auto core = std::make_shared<RequestCore>(std::move(fixed));
  core->allocate();
  return {core, &core->sequence(0)};
}

int32_t needed(const Sequence& sequence) {
  return sequence.known_tokens() - sequence.cache.computed;
}

// The members in order of precedence.
struct Model {
  std::vector<Sequence*> members;

  void add(Sequence* sequence) {
    const auto behind = std::find_if(members.begin(), members.end(), [&](const Sequence* other) {
      return other->level < sequence->level;
    });
    members.insert(behind, sequence);
  }
  void remove(Sequence* sequence) { std::erase(members, sequence); }

  void expect_same(const RunningSet& set, int64_t now) const {
    std::vector<Sequence*> order, ready, all;
    set.for_each([&](Sequence& sequence) { order.push_back(&sequence); });
    EXPECT(order == members);
    EXPECT_EQ(set.size(), members.size());
    EXPECT(set.last() == (members.empty() ? nullptr : members.back()));
    int64_t due = parallel::kNoDeadline;
    for (const bool answers : {true, false}) {
      for (Sequence* sequence : members) {
        if (sequence->wake_ns <= now && (needed(*sequence) == 1) == answers)
          ready.push_back(sequence);
      }
    }
    for (const Sequence* sequence : members) {
      if (sequence->wake_ns > now) due = std::min(due, sequence->wake_ns);
    }
    set.list_ready(members.size() + 1, all);
    EXPECT(std::is_permutation(all.begin(), all.end(), ready.begin(), ready.end()));
    EXPECT(std::is_sorted(all.begin(), all.end(), [](const Sequence* a, const Sequence* b) {
      return std::pair(needed(*a) != 1, -a->level) < std::pair(needed(*b) != 1, -b->level);
    }));
    EXPECT_EQ(set.ready(), !ready.empty());
    EXPECT_EQ(set.next_due(), due);
    for (int level = 0; level < kPriorityLevels; ++level) {
      int64_t needs = 0, pages = 0;
      size_t count = 0;
      for (const Sequence* sequence : members) {
        const auto held = static_cast<int64_t>(sequence->cache.pages.size());
        if (sequence->level < level) {
          pages += held;
          ++count;
        } else {
          needs += std::max<int64_t>(0, kv_pages(sequence->known_tokens()) - held) + 1;
        }
      }
      EXPECT_EQ(set.needs(level), needs);
      EXPECT_EQ(set.pages_below(level), pages);
      EXPECT_EQ(set.count_below(level), count);
    }
  }
};

TEST(running_set_agrees_with_a_sorted_list) {
  std::mt19937 random(7);
  std::vector<std::shared_ptr<Sequence>> sequences;
  for (int i = 0; i < 40; ++i) sequences.push_back(make_sequence(1 + i * 3));
  RunningSet set;
  Model model;
  int64_t now = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::shared_ptr<Sequence>& sequence = sequences[random() % sequences.size()];
    if (!sequence->running()) {
      sequence->level = static_cast<int>(random() % kPriorityLevels);
      set.add(sequence);
      model.add(sequence.get());
      continue;
    }
    switch (random() % 6) {
      case 0: {
        EXPECT(set.remove(*sequence) == sequence);
        model.remove(sequence.get());
        break;
      }
      case 1: {
        const int level = static_cast<int>(random() % kPriorityLevels);
        model.remove(sequence.get());
        set.move(*sequence, level);
        model.add(sequence.get());
        break;
      }
      case 2:
        now += static_cast<int64_t>(random() % 50);
        set.wake(now);
        break;
      case 3:
        sequence->wake_ns = now + static_cast<int64_t>(random() % 200);
        set.update(*sequence);
        break;
      case 4:
        sequence->cache.computed =
            static_cast<int32_t>(random()) & 1
                ? sequence->known_tokens() - 1
                : static_cast<int32_t>(random() % static_cast<uint32_t>(sequence->known_tokens()));
        set.update(*sequence);
        break;
      default:
        sequence->cache.pages.resize(random() % 5);
        set.update(*sequence);
    }
    if (round % 7 == 0) model.expect_same(set, now);
  }
  set.clear();
  EXPECT(set.empty() && !set.ready());
  for (const auto& sequence : sequences) EXPECT(!sequence->running());
}

TEST(who_had_a_turn_goes_behind_the_others_of_its_level) {
  RunningSet set;
  std::vector<std::shared_ptr<Sequence>> sequences;
  for (int i = 0; i < 4; ++i) {
    sequences.push_back(make_sequence(1));
    sequences.back()->level = i == 3 ? 1 : 2;
    set.add(sequences.back());
  }
  const auto at = [&](size_t i) { return sequences[i].get(); };
  std::vector<Sequence*> members;
  set.list_ready(2, members);
  EXPECT((members == std::vector<Sequence*>{at(0), at(1)}));
  set.end_turn(*at(0));
  set.end_turn(*at(1));
  set.list_ready(4, members);
  EXPECT((members == std::vector<Sequence*>{at(2), at(0), at(1), at(3)}));
  EXPECT(set.last() == at(3));  // precedence is another matter
}

}  // namespace
}  // namespace lmn::engine
