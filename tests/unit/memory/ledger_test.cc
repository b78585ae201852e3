// SPDX-License-Identifier: Apache-2.0
#include "memory/ledger.h"

#include <thread>
#include <utility>
#include <vector>

#include "testing.h"

namespace lmn::memory {
namespace {

TEST(current_and_peak_per_owner_and_in_total) {
  Ledger ledger;
  ledger.add(Owner::kKv, 100);
  ledger.add(Owner::kArena, 30);
  ledger.subtract(Owner::kKv, 60);
  ledger.add(Owner::kArena, 5);
  const auto now = ledger.snapshot();
  EXPECT_EQ(now[Owner::kKv].current, 40);
  EXPECT_EQ(now[Owner::kKv].peak, 100);
  EXPECT_EQ(now[Owner::kArena].current, 35);
  EXPECT_EQ(now[Owner::kArena].peak, 35);
  EXPECT_EQ(now[Owner::kMapped].peak, 0);
  EXPECT_EQ(now.total.current, 75);
  EXPECT_EQ(now.total.peak, 130);  // the peaks sum to 135, but were never reached together
}

TEST(entries_give_back_once) {
  Ledger ledger;
  {
    LedgerEntry a(&ledger, Owner::kRequests, 10);
    LedgerEntry b(&ledger, Owner::kRequests, 7);
    LedgerEntry c = std::move(a);
    EXPECT_EQ(ledger.snapshot()[Owner::kRequests].current, 17);
    b = std::move(c);
    EXPECT_EQ(ledger.snapshot()[Owner::kRequests].current, 10);
    b.release();
    b.release();
    EXPECT_EQ(ledger.snapshot()[Owner::kRequests].current, 0);
    LedgerEntry nobody(nullptr, Owner::kKv, 5);
  }
  EXPECT_EQ(ledger.snapshot().total.current, 0);
}

TEST(threads_add_up) {
  Ledger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) {
        ledger.add(Owner::kRequests, 3);
        ledger.subtract(Owner::kRequests, 2);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto now = ledger.snapshot();
  EXPECT_EQ(now[Owner::kRequests].current, 40'000);
  EXPECT(now[Owner::kRequests].peak >= 40'000 && now[Owner::kRequests].peak <= 40'000 + 4 * 3);
}

TEST(every_owner_has_a_name) {
  EXPECT_EQ(kOwnerNames[static_cast<int>(Owner::kPackedWeights)], "packed_weights");
  EXPECT_EQ(kOwnerNames[kOwnerCount - 1], "trace");
}

}  // namespace
}  // namespace lmn::memory
