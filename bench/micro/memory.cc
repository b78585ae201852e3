// SPDX-License-Identifier: Apache-2.0
//
// memory_bench: what allocating and freeing costs, for this project's pool and for peers in turn.
//   memory_bench ROUNDS LLM_TRACE ENGINE_TRACE [c_abi=LIBRARY] [mimalloc=LIBRARY] [malloc]
// Prints one JSON object: {"name": {"contender": [ns, …]}, …}. Every contender's memory is written
// and read back in full before anything is timed; a wrong byte ends the program with 1.
//
// Times are processor time of the threads involved, so that other processes count less. What is
// measured:
//   pair.SIZE   free the oldest of 16 live objects and allocate one, in one thread
//   cross.SIZE  one thread allocates, another frees: both sides' time for an object, in batches
//   trace       all events of a recorded run, with a write at each allocation and a read at each
//               free; ns for an event
//   floor       the pair with an array of 16 addresses as the allocator: what the loop itself costs
//               and no allocator can go below
#include <dlfcn.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lmnative/pool.h"
#include "memory/pool.h"

namespace {

using lmn::memory::Pool;

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "memory_bench: %s\n", message.c_str());
  std::exit(1);
}

double now_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
}

// Contenders -----------------------------------------------------------------------------------

struct Ours {
  Pool* pool;
  void* allocate(size_t bytes) const { return pool->try_allocate(bytes); }
  void free(void* data) const {
    if (!pool->free(data).ok()) fail("the pool refused a free");
  }
};
struct CAbi {
  lmn_pool* pool;
  decltype(&lmn_pool_alloc) alloc_function;
  decltype(&lmn_pool_free) free_function;
  void* allocate(size_t bytes) const {
    void* data = nullptr;
    return alloc_function(pool, bytes, &data, nullptr) == LMN_OK ? data : nullptr;
  }
  void free(void* data) const {
    if (free_function(pool, data, nullptr) != LMN_OK) fail("lmn_pool_free failed");
  }
};
struct CLibrary {
  void* allocate(size_t bytes) const { return std::malloc(bytes); }
  void free(void* data) const { std::free(data); }
};
struct Mimalloc {
  void* (*malloc_function)(size_t);
  void (*free_function)(void*);
  void* allocate(size_t bytes) const { return malloc_function(bytes); }
  void free(void* data) const { free_function(data); }
};
// The last freed address is handed out next: 16 live objects need no more.
struct Floor {
  mutable void* free_ones[64] = {};
  mutable size_t count = 0;
  char* base = nullptr;
  void* allocate(size_t) const { return count > 0 ? free_ones[--count] : base; }
  void free(void* data) const { free_ones[count++] = data; }
};

template <typename Function>
Function find(void* library, const char* name) {
  auto* function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) fail(std::string(name) + " is not in the library");
  return function;
}

void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  return library;
}

// Measurements ---------------------------------------------------------------------------------

constexpr int kLive = 16;

template <typename Allocator>
double pair_ns(const Allocator& allocator, size_t bytes, int pairs) {
  void* live[kLive];
  for (void*& data : live) data = allocator.allocate(bytes);
  const double start = now_ns();
  for (int i = 0; i < pairs; ++i) {
    void*& data = live[i % kLive];
    allocator.free(data);
    data = allocator.allocate(bytes);
    asm volatile("" : : "r"(data) : "memory");
  }
  const double ns = (now_ns() - start) / pairs;
  for (void* data : live) allocator.free(data);
  return ns;
}

// Two threads take turns: one allocates a batch, the other frees it.
template <typename Allocator>
double cross_ns(const Allocator& allocator, size_t bytes, int batches) {
  constexpr int kBatch = 256;
  std::vector<void*> batch(kBatch);
  std::mutex lock;
  std::condition_variable changed;
  bool full = false;
  double freeing = 0, allocating = 0;
  const auto wait_for = [&](bool state) {
    std::unique_lock<std::mutex> hold(lock);
    changed.wait(hold, [&] { return full == state; });
  };
  const auto set = [&](bool state) {
    const std::lock_guard<std::mutex> hold(lock);
    full = state;
    changed.notify_one();
  };
  std::thread other([&] {
    for (int i = 0; i < batches; ++i) {
      wait_for(true);
      const double start = now_ns();
      for (void* data : batch) allocator.free(data);
      freeing += now_ns() - start;
      set(false);
    }
  });
  for (int i = 0; i < batches; ++i) {
    wait_for(false);
    const double start = now_ns();
    for (void*& data : batch) data = allocator.allocate(bytes);
    allocating += now_ns() - start;
    for (void* data : batch) std::memcpy(data, &data, sizeof data);
    set(true);
  }
  other.join();
  return (freeing + allocating) / (static_cast<double>(batches) * kBatch);
}

// A trace: one number an event, 7 bits a byte, the last byte below 128. Even: an allocation of
// number / 2 bytes. Odd: a free of the allocation number / 2 allocations before this event, 1 being
// the last. memory_recorder.c writes it.
struct Event {
  size_t bytes = 0;  // 0: a free
  size_t number = 0;
};
struct Trace {
  std::vector<Event> events;
  size_t allocations = 0;
};

Trace read_trace(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) fail(std::string("cannot open ") + path);
  Trace trace;
  std::vector<bool> live;
  for (int byte; (byte = std::fgetc(file)) != EOF;) {
    uint64_t value = static_cast<uint64_t>(byte) & 127;
    for (int shift = 7; byte >= 128 && shift < 64; shift += 7) {
      byte = std::fgetc(file);
      value |= (static_cast<uint64_t>(byte) & 127) << shift;
    }
    if (value % 2 == 0) {
      trace.events.push_back({std::max<size_t>(value / 2, 1), trace.allocations++});
      live.push_back(true);
    } else {
      const size_t number = trace.allocations - value / 2;
      if (number >= live.size() || !live[number]) fail("the trace frees what is not live");
      live[number] = false;
      trace.events.push_back({0, number});
    }
  }
  std::fclose(file);
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i]) trace.events.push_back({0, i});
  }
  return trace;
}

template <typename Allocator>
double trace_ns(const Allocator& allocator, const Trace& trace, std::vector<void*>& live) {
  live.resize(trace.allocations);
  const double start = now_ns();
  for (const Event& event : trace.events) {
    void*& data = live[event.number];
    if (event.bytes != 0) {
      data = allocator.allocate(event.bytes);
      *static_cast<volatile unsigned char*>(data) = static_cast<unsigned char>(event.number);
    } else {
      if (*static_cast<volatile unsigned char*>(data) != static_cast<unsigned char>(event.number)) {
        fail("an object of the trace was overwritten");
      }
      allocator.free(data);
    }
  }
  return (now_ns() - start) / static_cast<double>(trace.events.size());
}

// Every byte of every object, those above 1 MiB at both ends.
template <typename Allocator>
void check(const Allocator& allocator, const std::vector<Trace>& traces,
           const std::vector<size_t>& sizes) {
  struct Object {
    unsigned char* data;
    size_t bytes;
    unsigned char value;
  };
  constexpr size_t kMost = 1 << 20;
  const auto take = [&](size_t bytes, size_t number) {
    Object object{static_cast<unsigned char*>(allocator.allocate(bytes)), bytes,
                  static_cast<unsigned char>(number * 31 + 1)};
    if (object.data == nullptr) fail("an allocation was refused");
    const size_t part = std::min(bytes, kMost);
    std::memset(object.data, object.value, part);
    std::memset(object.data + bytes - part, object.value, part);
    return object;
  };
  const auto give = [&](const Object& object) {
    const size_t part = std::min(object.bytes, kMost);
    const auto right = [&](unsigned char byte) { return byte == object.value; };
    if (!std::all_of(object.data, object.data + part, right) ||
        !std::all_of(object.data + object.bytes - part, object.data + object.bytes, right)) {
      fail("an object was overwritten");
    }
    allocator.free(object.data);
  };
  for (const size_t bytes : sizes) {
    std::vector<Object> live;
    for (size_t i = 0; i < kLive; ++i) live.push_back(take(bytes, i));
    for (size_t i = 0; i < 10 * kLive; ++i) {
      give(live[i % kLive]);
      live[i % kLive] = take(bytes, i);
    }
    std::thread([&] { std::for_each(live.begin(), live.end(), give); }).join();
  }
  for (const Trace& trace : traces) {
    std::vector<Object> objects(trace.allocations);
    for (const Event& event : trace.events) {
      if (event.bytes != 0) {
        objects[event.number] = take(event.bytes, event.number);
      } else {
        give(objects[event.number]);
      }
    }
  }
}

using Results = std::map<std::string, std::map<std::string, std::vector<double>>>;

template <typename Allocator>
std::function<void(Results&)> contender(const char* name, const Allocator& allocator,
                                        const std::vector<Trace>& traces) {
  const std::vector<size_t> sizes = {256, 4096, 65536, 1 << 20};
  check(allocator, traces, sizes);
  return [name, &allocator, &traces, sizes, live = std::vector<void*>()](Results& out) mutable {
    for (const size_t bytes : sizes) {
      out["memory.pair." + std::to_string(bytes)][name].push_back(
          pair_ns(allocator, bytes, bytes > 65536 ? 20'000 : 200'000));
    }
    out["memory.cross.4096"][name].push_back(cross_ns(allocator, 4096, 100));
    out["memory.trace"][name].push_back(trace_ns(allocator, traces[0], live));
    out["memory.trace.engine"][name].push_back(trace_ns(allocator, traces[1], live));
  };
}

// Internal fragmentation of a pool that has served the trace and nothing else: of what allocations
// got, the part that they did not ask for.
double fragmentation_percent(const Trace& trace) {
  const auto pool = Pool::create().value();
  const Ours ours{pool.get()};
  std::vector<void*> live;
  (void)trace_ns(ours, trace, live);
  if (pool->stats().in_use != 0) fail("the pool has memory in use after the trace");
  if (!pool->check().ok()) fail(std::string(pool->check().message()));
  return 100 * pool->stats().internal_fragmentation();
}

void print(const Results& results) {
  std::printf("{");
  const char* before = "";
  for (const auto& [name, contenders] : results) {
    std::printf("%s\"%s\": {", std::exchange(before, ", "), name.c_str());
    const char* comma = "";
    for (const auto& [contender, values] : contenders) {
      std::printf("%s\"%s\": [", std::exchange(comma, ", "), contender.c_str());
      for (size_t i = 0; i < values.size(); ++i) {
        std::printf("%s%.3f", i > 0 ? ", " : "", values[i]);
      }
      std::printf("]");
    }
    std::printf("}");
  }
  std::printf("}\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) fail("usage: memory_bench ROUNDS LLM_TRACE ENGINE_TRACE [peers]");
  const int rounds = std::atoi(argv[1]);
  const std::vector<Trace> traces = {read_trace(argv[2]), read_trace(argv[3])};
  const auto pool = Pool::create().value();
  const Ours ours{pool.get()};
  const CLibrary c_library;
  Mimalloc mimalloc{};
  CAbi c_abi{};
  char base = 0;
  Floor floor;
  floor.base = &base;

  Results results;
  std::vector<std::function<void(Results&)>> contenders;
  contenders.push_back(contender("lmnative", ours, traces));
  contenders.push_back(
      [&](Results& out) { out["floor"]["lmnative"].push_back(pair_ns(floor, 256, 200'000)); });
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i], path = word.substr(word.find('=') + 1);
    if (word == "malloc") {
      contenders.push_back(contender("malloc", c_library, traces));
    } else if (word.starts_with("mimalloc=")) {
      void* library = open_library(path);
      mimalloc = {find<decltype(Mimalloc::malloc_function)>(library, "mi_malloc"),
                  find<decltype(Mimalloc::free_function)>(library, "mi_free")};
      contenders.push_back(contender("mimalloc", mimalloc, traces));
    } else if (word.starts_with("c_abi=")) {
      void* library = open_library(path);
      c_abi = {nullptr, find<decltype(&lmn_pool_alloc)>(library, "lmn_pool_alloc"),
               find<decltype(&lmn_pool_free)>(library, "lmn_pool_free")};
      if (find<decltype(&lmn_pool_create)>(library, "lmn_pool_create")(nullptr, &c_abi.pool,
                                                                       nullptr) != LMN_OK) {
        fail("lmn_pool_create failed");
      }
      contenders.push_back([&](Results& out) {
        out["memory.pair.256.c_abi"]["lmnative"].push_back(pair_ns(c_abi, 256, 200'000));
      });
    } else {
      fail("unknown argument " + word);
    }
  }
  for (int round = -1; round < rounds; ++round) {
    Results warm_up;
    Results& out = round < 0 ? warm_up : results;
    if (round % 2 == 0) {
      for (auto& run : contenders) run(out);
    } else {
      for (auto run = contenders.rbegin(); run != contenders.rend(); ++run) (*run)(out);
    }
  }
  results["memory.trace.fragmentation"]["lmnative"] = {fragmentation_percent(traces[0])};
  print(results);
  return 0;
}
