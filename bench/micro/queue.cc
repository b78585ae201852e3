// SPDX-License-Identifier: Apache-2.0
//
// queue: what it costs to hand work to the engine thread.
//   queue contenders                               names and versions that were built in
//   queue throughput CONTENDER PRODUCERS VALUES    prints million values per second
//   queue spread CONTENDER PRODUCERS VALUES        the same; every producer goes round the levels
//   queue wake CONTENDER MODE ROUNDS               prints the median of µs from push to pop; MODE:
//       polling: both are awake. parked: both sleep, as between two requests from a socket.
//       parked.awake: the consumer sleeps, its producer never does
// Values carry producer, level and number. Every value must arrive once, and those of one producer
// (and level, where a queue has levels) in order; otherwise nothing is printed and the exit is 1.
//
// All contenders run in the same loops: who finds a queue full or empty pauses some 200 ns, and
// gives its CPU away when that goes on. Ours has kLevels levels: producer p sends at level p (as a
// client has a priority), or, in "spread", each value at the next level. The peers have no order
// but FIFO. A peer is built in when its header is found. "futex" is the bare system call, the floor
// of "parked".
//
// The floor of throughput: a value travels with its share of a cache line, which moves from the
// producer's core to the consumer's and, once a lap, back: two transfers for eight values of 8
// bytes. On two cores of a virtual Zen 4 machine that was seen to take 125 ns, so 64 million values
// per second, where transfers do not overlap.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "parallel/clock.h"
#include "parallel/event_count.h"
#include "parallel/priority_ring.h"

#if __has_include(<concurrentqueue/concurrentqueue.h>)
#define HAVE_MOODYCAMEL 1
#include <concurrentqueue/blockingconcurrentqueue.h>
#include <concurrentqueue/concurrentqueue.h>
#endif
#if __has_include(<boost/lockfree/queue.hpp>)
#define HAVE_BOOST 1
#include <boost/lockfree/queue.hpp>
#include <boost/version.hpp>
#endif

namespace {

using lmn::parallel::cpu_pause;
using lmn::parallel::EventCount;
using lmn::parallel::now_ns;

constexpr int kLevels = 4;
constexpr size_t kCapacity = 32768;  // of a level, or of a peer
constexpr int kPauses = 8;
constexpr int kWaitsBeforeYield = 64;
constexpr int kProducerShift = 40;  // a value is producer << 40 | number

bool spread = false;

// --- contenders: one object a run, a Producer a producing thread, a Consumer
// -----------------------

struct Ours {
  static constexpr const char* kName = "lmnative";
  static std::string version() { return "this"; }
  static int orders() { return spread ? kLevels : 1; }  // FIFO holds in each of so many
  lmn::parallel::PriorityRing<uint64_t> ring{kLevels, kCapacity};
  EventCount wake;

  struct Producer {
    explicit Producer(Ours& q) : queue(q) {}
    bool push(uint64_t value) {
      const uint64_t level = (spread ? value : value >> kProducerShift) % kLevels;
      return queue.ring.try_push(static_cast<int>(level), value);
    }
    Ours& queue;
  };
  struct Consumer {
    explicit Consumer(Ours& q) : queue(q) {}
    bool pop(uint64_t* value) { return queue.ring.pop(value); }
    Ours& queue;
  };
  void push_and_wake(Producer& producer, uint64_t value) {
    producer.push(value);
    wake.advance();
  }
  void wait_pop(Consumer& consumer, uint64_t* value) {
    for (;;) {
      const uint32_t seen = wake.value();
      if (consumer.pop(value)) return;
      wake.wait(seen, 0);
    }
  }
};

#if HAVE_MOODYCAMEL
std::string moodycamel_version() { return "?"; }  // its headers do not say

// As its README first shows it.
struct Moodycamel {
  static constexpr const char* kName = "moodycamel";
  static std::string version() { return moodycamel_version(); }
  static int orders() { return 1; }
  struct NoSpin : moodycamel::ConcurrentQueueDefaultTraits {
    static constexpr int MAX_SEMA_SPINS = 0;  // so that "parked" is
  };
  moodycamel::ConcurrentQueue<uint64_t> queue{kCapacity};
  moodycamel::BlockingConcurrentQueue<uint64_t, NoSpin> blocking{kCapacity};

  struct Producer {
    explicit Producer(Moodycamel& q) : queue(q) {}
    bool push(uint64_t value) { return queue.queue.enqueue(value); }
    Moodycamel& queue;
  };
  struct Consumer {
    explicit Consumer(Moodycamel& q) : queue(q) {}
    bool pop(uint64_t* value) { return queue.queue.try_dequeue(*value); }
    Moodycamel& queue;
  };
  void push_and_wake(Producer&, uint64_t value) { blocking.enqueue(value); }
  void wait_pop(Consumer&, uint64_t* value) { blocking.wait_dequeue(*value); }
};

// With a token for each producer and the consumer, its fastest use one value at a time.
struct MoodycamelTokens {
  static constexpr const char* kName = "moodycamel.tokens";
  static std::string version() { return moodycamel_version(); }
  static int orders() { return 1; }
  moodycamel::ConcurrentQueue<uint64_t> queue{kCapacity};

  struct Producer {
    explicit Producer(MoodycamelTokens& q) : queue(q.queue), token(q.queue) {}
    bool push(uint64_t value) { return queue.enqueue(token, value); }
    moodycamel::ConcurrentQueue<uint64_t>& queue;
    moodycamel::ProducerToken token;
  };
  struct Consumer {
    explicit Consumer(MoodycamelTokens& q) : queue(q.queue), token(q.queue) {}
    bool pop(uint64_t* value) { return queue.try_dequeue(token, *value); }
    moodycamel::ConcurrentQueue<uint64_t>& queue;
    moodycamel::ConsumerToken token;
  };
};
#endif

#if HAVE_BOOST
struct Boost {
  static constexpr const char* kName = "boost.lockfree";
  static std::string version() {
    return std::to_string(BOOST_VERSION / 100000) + "." +
           std::to_string(BOOST_VERSION / 100 % 1000);
  }
  static int orders() { return 1; }
  boost::lockfree::queue<uint64_t, boost::lockfree::fixed_sized<true>> queue{kCapacity};

  struct Producer {
    explicit Producer(Boost& q) : queue(q) {}
    bool push(uint64_t value) { return queue.queue.push(value); }
    Boost& queue;
  };
  struct Consumer {
    explicit Consumer(Boost& q) : queue(q) {}
    bool pop(uint64_t* value) { return queue.queue.pop(*value); }
    Boost& queue;
  };
};
#endif

// One word instead of a queue.
struct Futex {
  static constexpr const char* kName = "futex";
  static std::string version() { return "floor"; }
  static int orders() { return 1; }
  std::atomic<uint32_t> word{0};  // value + 1

  struct Producer {
    explicit Producer(Futex& q) : queue(q) {}
    bool push(uint64_t value) {
      queue.word.store(static_cast<uint32_t>(value + 1), std::memory_order_release);
      return true;
    }
    Futex& queue;
  };
  struct Consumer {
    explicit Consumer(Futex& q) : queue(q) {}
    bool pop(uint64_t* value) {
      const uint32_t word = queue.word.load(std::memory_order_acquire);
      if (word == taken) return false;
      *value = word - 1;
      taken = word;
      return true;
    }
    Futex& queue;
    uint32_t taken = 0;
  };
  void push_and_wake(Producer& producer, uint64_t value) {
    producer.push(value);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void wait_pop(Consumer& consumer, uint64_t* value) {
    while (!consumer.pop(value))
      syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, consumer.taken, nullptr, nullptr, 0);
  }
};

// --- measurements
// ---------------------------------------------------------------------------------

// The consumer has the first usable CPU and the producers share the others, as far as there are
// any: two threads that take turns on one CPU hand over nothing between cores.
void pin(int thread) {
  static cpu_set_t usable = [] {
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    return set;
  }();
  const int cpus = CPU_COUNT(&usable);
  if (cpus < 2) return;
  int skip = thread == 0 ? 0 : 1 + (thread - 1) % (cpus - 1);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

class Patience {
 public:
  void wait() {
    for (int i = 0; i < kPauses; ++i) cpu_pause();
    if (++waits_ % kWaitsBeforeYield == 0) sched_yield();
  }

 private:
  int waits_ = 0;
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "queue: check failed: %s\n", what);
  std::exit(1);
}

template <typename Queue>
void check(const std::vector<uint64_t>& values, int producers, uint64_t each) {
  const auto orders = static_cast<uint64_t>(Queue::orders());
  std::vector<uint64_t> next(static_cast<uint64_t>(producers) * orders);
  for (size_t i = 0; i < next.size(); ++i) next[i] = i % orders;
  for (const uint64_t value : values) {
    const uint64_t producer = value >> kProducerShift;
    const uint64_t number = value & ((uint64_t{1} << kProducerShift) - 1);
    if (producer >= static_cast<uint64_t>(producers) || number >= each)
      fail("a value that nobody sent");
    uint64_t& want = next[producer * orders + number % orders];
    if (number != want) fail("a value lost, doubled or out of order");
    want += orders;
  }
}

template <typename Queue>
int throughput(int producers, uint64_t total) {
  const uint64_t each = total / static_cast<uint64_t>(producers) / kLevels * kLevels;
  total = each * static_cast<uint64_t>(producers);
  auto queue = std::make_unique<Queue>();
  std::vector<uint64_t> received(total, 1);  // touched before the clock starts
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int p = 0; p < producers; ++p) {
    threads.emplace_back([&, p] {
      pin(p + 1);
      typename Queue::Producer producer(*queue);
      const uint64_t base = static_cast<uint64_t>(p) << kProducerShift;
      ready.fetch_add(1);
      while (!go.load(std::memory_order_acquire)) sched_yield();
      for (uint64_t i = 0; i < each; ++i) {
        Patience patience;
        while (!producer.push(base | i)) patience.wait();
      }
    });
  }
  pin(0);
  typename Queue::Consumer consumer(*queue);
  while (ready.load() != producers) sched_yield();
  const int64_t start = now_ns();
  go.store(true, std::memory_order_release);
  for (uint64_t i = 0; i < total; ++i) {
    Patience patience;
    while (!consumer.pop(&received[i])) patience.wait();
  }
  const int64_t end = now_ns();
  for (auto& thread : threads) thread.join();
  uint64_t extra = 0;
  if (consumer.pop(&extra)) fail("a value too many");
  check<Queue>(received, producers, each);
  std::printf("%.4f\n", 1e3 * static_cast<double>(total) / static_cast<double>(end - start));
  return 0;
}

// The producer pushes 200 µs after the consumer took the value before: the consumer is idle (and
// parked, if it parks) by then. A producer that slept in between finds the consumer on its own CPU,
// which is awake; one that never sleeps has an idle CPU woken, which takes a virtual machine some
// 20 µs.
template <typename Queue>
int wake(const std::string& mode, int rounds) {
  constexpr int64_t kIdleNs = 200'000;
  const bool parked = mode != "polling";
  auto queue = std::make_unique<Queue>();
  std::vector<int64_t> taken(static_cast<size_t>(rounds)), ns;
  std::atomic<int> done{0};
  std::thread thread([&] {
    typename Queue::Consumer consumer(*queue);
    for (int i = 0; i < rounds; ++i) {
      uint64_t value = 0;
      if constexpr (requires(typename Queue::Consumer c) { queue->wait_pop(c, &value); }) {
        if (parked) queue->wait_pop(consumer, &value);
      }
      if (!parked) {
        while (!consumer.pop(&value)) cpu_pause();
      }
      taken[static_cast<size_t>(i)] = now_ns();
      if (value != static_cast<uint64_t>(i)) fail("not the value that was pushed");
      done.store(i + 1, std::memory_order_release);
    }
  });
  typename Queue::Producer producer(*queue);
  for (int i = 0; i < rounds; ++i) {
    if (mode == "parked") {
      const timespec idle{0, kIdleNs};
      nanosleep(&idle, nullptr);
    } else {
      const int64_t until = now_ns() + kIdleNs;
      while (now_ns() < until) cpu_pause();
    }
    const int64_t start = now_ns();
    if constexpr (requires { queue->push_and_wake(producer, uint64_t{}); }) {
      if (parked) queue->push_and_wake(producer, static_cast<uint64_t>(i));
    }
    if (!parked) producer.push(static_cast<uint64_t>(i));
    Patience patience;
    while (done.load(std::memory_order_acquire) != i + 1) patience.wait();
    ns.push_back(taken[static_cast<size_t>(i)] - start);
  }
  thread.join();
  std::nth_element(ns.begin(), ns.begin() + rounds / 2, ns.end());
  std::printf("%.4f\n", 1e-3 * static_cast<double>(ns[ns.size() / 2]));
  return 0;
}

template <typename Queue>
int run(int argc, char** argv) {
  const std::string mode = argv[1];
  spread = mode == "spread";
  if ((spread || mode == "throughput") && argc == 5)
    return throughput<Queue>(std::atoi(argv[3]), std::strtoull(argv[4], nullptr, 10));
  if (mode == "wake" && argc == 5) return wake<Queue>(argv[3], std::atoi(argv[4]));
  return 2;
}

template <typename... Queues>
int select(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "contenders") {
    (std::printf("%s %s\n", Queues::kName, Queues::version().c_str()), ...);
    return 0;
  }
  int result = 2;
  if (argc >= 3)
    (void)((std::string(argv[2]) == Queues::kName && (result = run<Queues>(argc, argv), true)) ||
           ...);
  if (result == 2) {
    std::fprintf(stderr,
                 "usage: queue contenders | throughput|spread CONTENDER PRODUCERS VALUES | "
                 "wake CONTENDER polling|parked|parked.awake ROUNDS\n");
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  return select<Ours, Futex
#if HAVE_MOODYCAMEL
                ,
                Moodycamel, MoodycamelTokens
#endif
#if HAVE_BOOST
                ,
                Boost
#endif
                >(argc, argv);
}
