// SPDX-License-Identifier: Apache-2.0
//
// Every interleaving of EventFd's flag and of NewsList in small programs: no wake-up is lost, and
// every object comes once for its news.
#include <memory>
#include <vector>

#include "interleaving.h"
#include "parallel/event_fd.h"
#include "parallel/news_list.h"
#include "testing.h"

namespace lmn::parallel {
namespace {

#if LMN_HAVE_FIBRES

constexpr auto kOrder = std::memory_order_seq_cst;

// `signallers` threads make news once or twice each; a consumer clears and takes twice at any
// moment. At rest: what it has not taken, the descriptor announces. `read_first` false is the wrong
// order of clear().
bool a_wake_up_is_lost(int signallers, int each, bool read_first) {
  struct Program {
    ModelAtomic<int> news{0};
    ModelAtomic<int> readable{0};  // the descriptor's count
    CoalescedSignal<ModelAtomic> signal;
    ModelAtomic<bool> wrong{false};
    int taken = 0;
  };
  std::unique_ptr<Program> program;
  bool lost = false;
  Explorer explorer;
  const int64_t schedules = explorer.explore(
      [&] {
        program = std::make_unique<Program>();
        std::vector<std::function<void()>> bodies;
        for (int s = 0; s < signallers; ++s) {
          bodies.push_back([&, each, read_first] {
            Program& p = *program;
            const auto write = [&p] { p.readable.store(1, kOrder); };
            for (int i = 0; i < each; ++i) {
              p.news.fetch_add(1, kOrder);
              if (read_first) {
                p.signal.signal(write);
              } else if (!p.wrong.exchange(true, kOrder)) {
                write();
              }
            }
          });
        }
        bodies.push_back([&, read_first] {
          Program& p = *program;
          const auto read = [&p] { p.readable.exchange(0, kOrder); };
          for (int i = 0; i < 2; ++i) {
            if (read_first) {
              p.signal.clear(read);
            } else {
              p.wrong.exchange(false, kOrder);
              read();
            }
            p.taken = p.news.load(kOrder);
          }
        });
        return bodies;
      },
      [&] {
        Program& p = *program;
        lost = lost || (p.taken != signallers * each && p.readable.load(kOrder) == 0);
      });
  EXPECT(schedules > 50);
  return lost;
}
TEST(a_signal_is_never_lost) {
  EXPECT(!a_wake_up_is_lost(1, 1, true));
  EXPECT(!a_wake_up_is_lost(1, 2, true));
  EXPECT(!a_wake_up_is_lost(2, 1, true));
  // Both orders were told apart by this test.
  EXPECT(a_wake_up_is_lost(1, 2, false));
}

struct Owner : NewsNode<Owner, ModelAtomic> {
  explicit Owner(int which) : id(which) {}
  int id;
  int made = 0, seen = 0;
};
using ModelList = NewsList<Owner, ModelAtomic>;

// Each announcer makes news of the objects of its list, in turn; the taker takes `takes` times.
int64_t explore_news(const std::vector<std::vector<int>>& announcers, int takes, int objects) {
  std::unique_ptr<ModelList> list;
  std::vector<std::shared_ptr<Owner>> object;
  std::vector<int> entered, taken;  // in order
  bool ok = true;
  Explorer explorer;
  const auto take = [&] {
    const std::shared_ptr<Owner> got = list->take();
    if (got == nullptr) return false;
    taken.push_back(got->id);
    got->seen = got->made;
    return true;
  };
  const int64_t schedules = explorer.explore(
      [&] {
        list = std::make_unique<ModelList>();
        object.clear();
        for (int i = 0; i < objects; ++i) object.push_back(std::make_shared<Owner>(i));
        entered.clear();
        taken.clear();
        std::vector<std::function<void()>> bodies;
        for (const auto& which : announcers) {
          bodies.push_back([&] {
            for (const int i : which) {
              ++object[static_cast<size_t>(i)]->made;
              // No other fibre runs between the compare-exchange that enters it and here.
              if (list->announce(object[static_cast<size_t>(i)])) entered.push_back(i);
            }
          });
        }
        bodies.push_back([&] {
          for (int i = 0; i < takes; ++i) take();
        });
        return bodies;
      },
      [&] {
        while (take()) {
        }
        ok = ok && list->empty() && taken == entered;
        for (const auto& o : object) ok = ok && o->seen == o->made && o.use_count() == 1;
      });
  EXPECT(ok);
  return schedules;
}
TEST(every_interleaving_of_announcers_and_the_taker) {
  int64_t schedules = explore_news({{0}, {1}}, 2, 2);
  schedules += explore_news({{0}, {0}}, 2, 1);
  schedules += explore_news({{0, 1, 0}}, 3, 2);
  schedules += explore_news({{0, 0}, {0}}, 1, 1);
  schedules += explore_news({{0, 1}, {1, 0}}, 1, 2);
  schedules += explore_news({{0}, {1}, {0}}, 1, 2);
  std::printf("     %lld schedules\n", static_cast<long long>(schedules));
  EXPECT(schedules > 5'000);
}

#endif

}  // namespace
}  // namespace lmn::parallel
