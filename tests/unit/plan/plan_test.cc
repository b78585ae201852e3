// SPDX-License-Identifier: Apache-2.0
//
// Building and running plans: what is refused, what is packed, who reads the file when, and that
// nothing points into it afterwards.
#include "plan/plan.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <latch>
#include <map>
#include <memory>
#include <mutex>

#include "core/float16.h"
#include "graph/builder.h"
#include "plan/plan_fixture.h"
#include "plan/split_kernels.h"

using namespace lmn;
using namespace lmn::graph;
using namespace plan_test;

namespace {

// Bytes that a test can look at and wipe.
struct File {
  std::vector<std::shared_ptr<std::vector<std::byte>>> blocks;

  Piece floats(const std::string& name, const Shape& shape, float first, float step) {
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + step * static_cast<float>(i);
    return piece(name, DType::kF32, shape, values.data(), values.size() * sizeof(float));
  }
  Piece piece(const std::string& name, DType type, const Shape& shape, const void* data,
              size_t bytes) {
    auto block = std::make_shared<std::vector<std::byte>>(bytes);
    std::memcpy(block->data(), data, bytes);
    blocks.push_back(block);
    TensorView view;
    view.dtype = type;
    view.shape = shape;
    view.data = block->data();
    return {name, view, block};
  }
  void wipe() {
    for (auto& block : blocks) std::fill(block->begin(), block->end(), std::byte{0xFF});
  }
};

Graph finished(Builder& b) {
  auto graph = b.finish();
  ASSERT_OK(graph);
  return std::move(graph).value();
}

// y = norm(x) W^T + bias, [tokens, 4] -> [tokens, 3]
Graph small_graph(File* file) {
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 4}));
  const ValueId norm = b.rms_norm(x, b.constant(file->floats("norm.weight", {4}, 1, 0)), 0, "norm");
  const ValueId w = b.constant(file->floats("out.weight", {3, 4}, 0, 1));
  b.output(b.linear(norm, w, b.constant(file->floats("out.bias", {3}, 100, 100)), false, "out"),
           "y");
  return finished(b);
}

bool begins_one_of(const std::vector<std::span<const std::byte>>& ranges,
                   std::span<const std::byte> range) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](auto other) { return other.data() == range.data(); });
}

void expect_error(const Result<std::unique_ptr<plan::Plan>>& plan, Code code,
                  const std::string& want) {
  ASSERT(!plan.ok());
  EXPECT_EQ(static_cast<int>(plan.status().code()), static_cast<int>(code));
  EXPECT_EQ(std::string(plan.status().message()), want);
}

}  // namespace

TEST(a_plan_computes_by_hand_what_the_graph_says) {
  File file;
  HostDevice device;
  auto team = make_team(1);
  auto plan = make_plan(small_graph(&file), device, *team, plan_options(8));
  auto* x = plan->input<float>("x");
  ASSERT(x != nullptr);
  EXPECT(plan->input<int32_t>("x") == nullptr);  // another type
  EXPECT(plan->input<float>("z") == nullptr);
  EXPECT(plan->output("z") == nullptr);
  const float rows[] = {3, 3, 3, 3, 0, 0, 0, 8};  // norms 1 1 1 1 and 0 0 0 2
  std::memcpy(x, rows, sizeof(rows));
  plan->set_symbol("tokens", 2);
  EXPECT(plan->run(*team).ok());
  const float* y = plan->output("y");
  const float want[] = {106, 222, 338, 106, 214, 322};  // rows of W: 0 1 2 3, 4 5 6 7, 8 9 10 11
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(y[i], want[i]);
  EXPECT_EQ(plan->kv_layers(), 0);
  EXPECT_EQ(plan->kv_heads(), 0);
  EXPECT_EQ(plan->head_dim(), 0);
}

TEST(rows_beyond_the_symbol_are_not_computed) {
  File file;
  HostDevice device;
  auto team = make_team(1);
  auto plan = make_plan(small_graph(&file), device, *team, plan_options(8));
  std::fill_n(plan->input<float>("x"), 32, 1.0f);
  EXPECT(plan->run(*team).ok());  // no symbol was set: no rows
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(plan->output("y")[i], 0.0f);
  plan->set_symbol("tokens", 1);
  EXPECT(plan->run(*team).ok());
  EXPECT_EQ(plan->output("y")[0], 106.0f);
  EXPECT_EQ(plan->output("y")[3], 0.0f);
}

TEST(nothing_points_into_the_file_after_build) {
  File file;
  HostDevice device;
  auto team = make_team(1);
  auto graph = std::make_unique<Graph>(small_graph(&file));
  std::weak_ptr<std::vector<std::byte>> watch = file.blocks[0];
  auto plan = make_plan(*graph, device, *team, plan_options(8));
  graph.reset();
  file.wipe();
  file.blocks.clear();
  EXPECT(watch.expired());
  std::fill_n(plan->input<float>("x"), 4, 1.0f);
  plan->set_symbol("tokens", 1);
  EXPECT(plan->run(*team).ok());
  EXPECT_EQ(plan->output("y")[2], 338.0f);
  EXPECT(plan->dump().find("linear") != std::string::npos);
}

TEST(all_memory_returns_to_the_device) {
  HostDevice device;
  auto team = make_team(2);
  {
    File file;
    auto plan = make_plan(small_graph(&file), device, *team, plan_options(8));
    const plan::PlanMemory& memory = plan->memory();
    EXPECT(memory.packed >= (12 + 3 + 4) * 4);
    EXPECT(memory.arena >= 8 * 4 * 4);
    EXPECT_EQ(memory.pinned, int64_t{0});
    EXPECT_EQ(device.allocated, static_cast<size_t>(memory.packed + memory.arena));
  }
  EXPECT_EQ(device.allocated, size_t{0});
}

TEST(weights_are_read_in_order_between_check_and_release) {
  File file;
  HostDevice device;
  auto team = make_team(1);
  const Graph graph = small_graph(&file);
  std::vector<std::string> log;
  plan::PlanOptions options = plan_options(8);
  const auto name = [&](const TensorView& view) {
    for (const Value& value : graph.values) {
      if (value.constant != nullptr && value.constant->pieces[0].view.data == view.data)
        return value.name;
    }
    return std::string("?");
  };
  options.before_read = [&](const TensorView& view) {
    log.push_back("+" + name(view));
    return Status();
  };
  options.file_use = [&](std::span<const std::byte> bytes, plan::FileUse use) {
    TensorView view;
    view.data = bytes.data();
    const std::string entry = (use == plan::FileUse::kOver ? "-" : "?") + name(view);
    if (log.empty() || log.back() != entry) log.push_back(entry);
  };
  int64_t last = 0, total = 0;
  options.progress = [&](int64_t done, int64_t all) {
    EXPECT(done >= last && done <= all);
    last = done;
    total = all;
  };
  auto plan = make_plan(graph, device, *team, options);
  EXPECT(log == (std::vector<std::string>{"+norm.weight", "-norm.weight", "+out.bias", "-out.bias",
                                          "?out.weight", "+out.weight", "-out.weight"}));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, plan->memory().packed);
}

// A matrix of 10 MiB and a merged pair of 5 MiB each: 10 slices, of which the disk is asked for 8
// before any is read, and for the others while those are.
TEST(large_weights_are_read_in_slices) {
  constexpr int64_t kColumns = 512, kRows[] = {5120, 2560, 2560};
  constexpr size_t kAhead = size_t{8} * 2 << 20;
  for (const int threads : {1, 3}) {
    File file;
    Builder b;
    const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", kColumns}));
    std::vector<Piece> pieces;
    for (const int64_t rows : kRows)
      pieces.push_back(file.floats("w" + std::to_string(rows), {rows, kColumns}, 0, 1));
    b.output(b.linear(x, b.constant(pieces[0]), kNone, false, "one"), "y");
    b.output(b.linear(x, b.constant(Constant{{pieces[1], pieces[2]}}), kNone, false, "two"), "z");
    std::mutex mutex;
    std::map<plan::FileUse, std::vector<std::span<const std::byte>>> told;
    size_t soon_bytes = 0;
    plan::PlanOptions options = plan_options(8);
    options.file_use = [&](std::span<const std::byte> bytes, plan::FileUse use) {
      const std::lock_guard lock(mutex);
      if (use == plan::FileUse::kSoon) {
        soon_bytes += bytes.size();
      } else {
        EXPECT(soon_bytes >= kAhead);
        // A member alone asks the disk before it reads; of several, one may be late for another.
        if (threads == 1) EXPECT(begins_one_of(told[plan::FileUse::kSoon], bytes));
      }
      told[use].push_back(bytes);
    };
    HostDevice device;
    auto team = make_team(threads);
    auto plan = make_plan(finished(b), device, *team, options);
    for (const auto& bytes : told[plan::FileUse::kOver])
      EXPECT(begins_one_of(told[plan::FileUse::kSoon], bytes));
    for (auto& [use, ranges] : told) {
      for (const Piece& piece : pieces) {
        const size_t bytes = static_cast<size_t>(piece.view.bytes());
        // Every byte once; at the end, all of the tensor once more.
        std::vector<uint8_t> times(bytes);
        for (const std::span<const std::byte> range : ranges) {
          if (range.data() < piece.view.data || range.data() >= piece.view.data + bytes) continue;
          ASSERT(range.size() <= size_t{4} << 20 || range.size() == bytes);
          const auto first = range.data() - piece.view.data;
          for (size_t i = 0; i < range.size(); ++i) ++times[static_cast<size_t>(first) + i];
        }
        const uint8_t want = use == plan::FileUse::kOver ? 2 : 1;
        EXPECT(std::all_of(times.begin(), times.end(), [&](uint8_t n) { return n == want; }));
      }
    }
    // Column 1 alone: y[row] is w[row][1].
    plan->set_symbol("tokens", 1);
    std::fill_n(plan->input<float>("x"), kColumns, 0.0f);
    plan->input<float>("x")[1] = 1;
    EXPECT(plan->run(*team).ok());
    for (int64_t row = 0; row < kRows[0]; ++row)
      EXPECT_EQ(plan->output("y")[row], static_cast<float>(row * kColumns + 1));
    for (int64_t row = 0; row < 2 * kRows[1]; ++row)
      EXPECT_EQ(plan->output("z")[row], static_cast<float>(row % kRows[1] * kColumns + 1));
  }
}

TEST(a_file_that_changed_ends_the_build) {
  File file;
  HostDevice device;
  auto team = make_team(1);
  plan::PlanOptions options = plan_options(8);
  options.before_read = [](const TensorView& view) {
    return view.shape.rank == 2 ? error(Code::kIo, "the file has changed") : Status();
  };
  expect_error(plan::Plan::build(small_graph(&file), device, *team, options), Code::kIo,
               "out.weight: the file has changed");
  EXPECT_EQ(device.allocated, size_t{0});
}

// In a matrix of 6 slices, after 3 of them, for all members at once.
TEST(a_file_that_changes_inside_a_matrix_ends_the_build) {
  constexpr int64_t kRows = 6144, kColumns = 512;
  for (const int threads : {1, 3}) {
    File file;
    Builder b;
    const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", kColumns}));
    const Piece weight = file.floats("w", {kRows, kColumns}, 0, 0);
    b.output(b.linear(x, b.constant(weight), kNone, false, "out"), "y");
    std::atomic<int> calls{0};
    std::latch everybody(threads);
    plan::PlanOptions options = plan_options(1);
    options.before_read = [&](const TensorView&) {
      if (++calls <= 3) return Status();
      everybody.arrive_and_wait();
      return error(Code::kIo, "the file has changed");
    };
    HostDevice device;
    auto team = make_team(threads);
    expect_error(plan::Plan::build(finished(b), device, *team, options), Code::kIo,
                 "w: the file has changed");
    EXPECT_EQ(calls.load(), 3 + threads);  // whoever fails takes no other slice
    EXPECT_EQ(device.allocated, size_t{0});
  }
}

TEST(memory_can_be_refused_before_it_is_asked_for) {
  File file;
  HostDevice device;
  auto team = make_team(1);
  plan::PlanOptions options = plan_options(8);
  plan::PlanMemory told;
  options.before_allocation = [&](const plan::PlanMemory& memory) {
    EXPECT_EQ(device.allocated, size_t{0});
    told = memory;
    return Status();
  };
  {
    auto plan = make_plan(small_graph(&file), device, *team, options);
    EXPECT(told.packed > 0 && told.arena > 0);
    EXPECT_EQ(told.packed, plan->memory().packed);
    EXPECT_EQ(told.arena, plan->memory().arena);
  }
  options.before_allocation = [](const plan::PlanMemory&) {
    return error(Code::kOutOfMemory, "too much");
  };
  device.limit = 0;  // an allocation would fail with another message
  expect_error(plan::Plan::build(small_graph(&file), device, *team, options), Code::kOutOfMemory,
               "too much");
}

TEST(a_missing_kernel_is_named_with_the_device) {
  File file;
  ops::KernelTable table = ops::reference_kernels();
  table.run[static_cast<int>(ops::Op::kRmsNorm)] = nullptr;
  HostDevice device(table);
  auto team = make_team(1);
  expect_error(plan::Plan::build(small_graph(&file), device, *team, plan_options(8)),
               Code::kUnsupported,
               "device test (reference) has no kernel for rms_norm, which 'norm' needs");
}

TEST(bounds_are_checked) {
  File file;
  HostDevice device;
  auto team = make_team(1);
  plan::PlanOptions options = plan_options(8);
  options.max_outputs = 0;
  expect_error(plan::Plan::build(small_graph(&file), device, *team, options),
               Code::kInvalidArgument, "a plan for at most 0 outputs: expected 1 to 2147483647");
}

TEST(memory_that_is_not_there_is_reported) {
  File file;
  HostDevice device;
  auto team = make_team(1);
  device.limit = 100;
  expect_error(plan::Plan::build(small_graph(&file), device, *team, plan_options(8)),
               Code::kOutOfMemory, "arena of intermediate values: 384 bytes");
  device.limit = 191;
  expect_error(plan::Plan::build(small_graph(&file), device, *team, plan_options(1)),
               Code::kOutOfMemory, "arena of intermediate values: 192 bytes");
  device.limit = 192;  // the arena fits; the weights of a larger graph do not
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 4}));
  b.output(b.linear(x, b.constant(file.floats("w", {16, 4}, 0, 1)), kNone, false, "out"), "y");
  expect_error(plan::Plan::build(finished(b), device, *team, plan_options(1)), Code::kOutOfMemory,
               "packed weights: 256 bytes");
  EXPECT_EQ(device.allocated, size_t{0});
}

TEST(symbols_beyond_their_bounds_are_broken_invariants) {
  File file;
  HostDevice device;
  auto team = make_team(1), other = make_team(2);
  auto plan = make_plan(small_graph(&file), device, *team, plan_options(8));
  const auto throws = [](auto&& f) {
    try {
      f();
    } catch (const BrokenInvariant&) {
      return true;
    }
    return false;
  };
  EXPECT(throws([&] { plan->set_symbol("tokens", 9); }));
  EXPECT(throws([&] { plan->set_symbol("tokens", -1); }));
  EXPECT(throws([&] { plan->set_symbol("pages", 1); }));
  EXPECT(throws([&] { plan->set_symbol("patches", 1); }));
  EXPECT(throws([&] { (void)plan->run(*other); }));  // of another size
}

TEST(a_linear_that_was_not_lowered_is_refused) {
  File file;
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 32}));
  const std::vector<std::byte> zeros(3 * 34);
  const ValueId w = b.constant(file.piece("w", DType::kQ8_0, {3, 32}, zeros.data(), zeros.size()));
  b.output(b.linear(x, w, kNone, false, "out"), "y");
  const Graph graph = finished(b);
  HostDevice device;
  auto team = make_team(1);
  const auto plan = plan::Plan::build(graph, device, *team, plan_options(8));
  ASSERT(!plan.ok());
  EXPECT_EQ(std::string(plan.status().message()).substr(0, 3), std::string("w: "));
  (void)make_plan(optimized(graph, device), device, *team, plan_options(8));
}

TEST(a_table_that_is_also_the_head_is_packed_once) {
  const auto bytes_with = [](bool tied) {
    File file;
    Builder b;
    const ValueId ids = b.input("ids", tensor(DType::kI32, {"tokens"}));
    const Piece table = file.floats("table", {64, 16}, 0, 1);
    const ValueId x = b.embedding(ids, b.constant(table), "embed");
    const ValueId head = b.constant(tied ? table : file.floats("head", {64, 16}, 0, 1));
    b.output(b.linear(x, head, kNone, true, "head"), "y");
    HostDevice device;
    auto team = make_team(1);
    return make_plan(finished(b), device, *team, plan_options(8))->memory().packed;
  };
  EXPECT_EQ(bytes_with(true), 64 * 16 * 4);
  EXPECT_EQ(bytes_with(false), 2 * 64 * 16 * 4);
}

TEST(vectors_may_be_stored_in_halves) {
  const uint16_t halves[] = {f32_to_f16(2), f32_to_f16(3)};
  const uint16_t brains[] = {f32_to_bf16(2), f32_to_bf16(3)};
  for (DType type : {DType::kF16, DType::kBF16}) {
    File file;
    Builder b;
    const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 2}));
    const Piece weight = file.piece("w", type, {2}, type == DType::kF16 ? halves : brains, 4);
    b.output(b.rms_norm(x, b.constant(weight), 0, "norm"), "y");
    HostDevice device;
    auto team = make_team(1);
    auto plan = make_plan(finished(b), device, *team, plan_options(1));
    plan->input<float>("x")[0] = plan->input<float>("x")[1] = 7;
    plan->set_symbol("tokens", 1);
    EXPECT(plan->run(*team).ok());
    EXPECT_EQ(plan->output("y")[0], 2.0f);
    EXPECT_EQ(plan->output("y")[1], 3.0f);
  }
}

TEST(views_reach_only_kernels_that_take_strides) {
  const auto columns = [](Builder& b, ValueId x, int64_t begin) {
    return b.node(Op::kColumns, {x}, {{"begin", begin}, {"count", int64_t{2}}}, "view");
  };
  HostDevice device;
  auto team = make_team(1);
  {
    Builder b;
    const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 4}));
    b.output(b.silu_mul(columns(b, x, 0), columns(b, x, 2), "mix"), "y");
    auto plan = make_plan(finished(b), device, *team, plan_options(2));
    const float rows[] = {0, 1, 5, 6, 100, -100, 2, 3};
    std::memcpy(plan->input<float>("x"), rows, sizeof(rows));
    plan->set_symbol("tokens", 2);
    EXPECT(plan->run(*team).ok());
    const float* y = plan->output("y");
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_NEAR(y[1], 6 / (1 + std::exp(-1.0)), 1e-6);
    EXPECT_EQ(y[2], 200.0f);
    EXPECT_NEAR(y[3], 0, 1e-30);
  }
  Builder b;
  const ValueId x = b.input("x", tensor(DType::kF32, {"tokens", 4}));
  b.output(b.add(columns(b, x, 0), columns(b, x, 2), "sum"), "y");
  expect_error(plan::Plan::build(finished(b), device, *team, plan_options(2)), Code::kUnsupported,
               "residual_add 'sum' reads whole rows, and its operand a is a view of some columns");
  Builder view;
  const ValueId z = view.input("x", tensor(DType::kF32, {"tokens", 4}));
  view.output(columns(view, z, 0), "y");
  expect_error(plan::Plan::build(finished(view), device, *team, plan_options(2)),
               Code::kUnsupported, "output 'y' is not a matrix of f32 with rows of its own");
}

TEST(caches_are_checked_when_they_are_bound) {
  Builder b;
  const ValueId k = b.input("k", tensor(DType::kF32, {"tokens", 32}));
  const ValueId slots = b.input("slots", tensor(DType::kI32, {"tokens"}));
  for (const char* name : {"kv.0", "kv.1"})
    b.kv_write(k, k, slots, b.input(name, kv_cache(2, 16)), "write");
  HostDevice device;
  auto team = make_team(1);
  auto plan = make_plan(finished(b), device, *team, plan_options(2));
  EXPECT_EQ(plan->kv_layers(), 2);
  EXPECT_EQ(plan->kv_heads(), 2);
  EXPECT_EQ(plan->head_dim(), 16);
  std::vector<float> memory(2 * 16 * 16);
  auto* bytes = reinterpret_cast<std::byte*>(memory.data());
  const ops::KvLayer good{bytes, bytes, DType::kF32, 16, 2, 16};
  const auto bind = [&](auto change) {
    std::vector<ops::KvLayer> layers{good, good};
    change(layers);
    const Status status = plan->bind_kv(layers);
    return status.ok() ? std::string("ok") : std::string(status.message());
  };
  EXPECT_EQ(bind([](auto& l) { l.pop_back(); }),
            std::string("1 KV caches for a model of 2 layers"));
  const std::string expected =
      "; expected 2 heads of 16 f16 or f32, or q8_0 where heads are a multiple of 32, in pages of "
      "a multiple of 16 tokens";
  EXPECT_EQ(bind([](auto& l) { l[1].kv_heads = 1; }),
            "KV cache of layer 1: 1 heads of 16 f32 in pages of 16 tokens" + expected);
  EXPECT_EQ(bind([](auto& l) { l[0].page_tokens = 8; }),
            "KV cache of layer 0: 2 heads of 16 f32 in pages of 8 tokens" + expected);
  EXPECT_EQ(bind([](auto& l) { l[0].dtype = DType::kQ8_0; }),
            "KV cache of layer 0: 2 heads of 16 q8_0 in pages of 16 tokens" + expected);
  EXPECT(bind([](auto& l) { l[0].k = nullptr; }) != "ok");
  bool thrown = false;
  try {
    EXPECT(plan->run(*team).ok());  // nothing was bound
  } catch (const BrokenInvariant&) {
    thrown = true;
  }
  EXPECT(thrown);
  EXPECT_EQ(bind([](auto&) {}), std::string("ok"));
  EXPECT(plan->run(*team).ok());
}

TEST(caches_of_different_shapes_are_refused) {
  Builder b;
  const ValueId slots = b.input("slots", tensor(DType::kI32, {"tokens"}));
  for (int64_t heads : {2, 3}) {
    const ValueId k =
        b.input("k" + std::to_string(heads), tensor(DType::kF32, {"tokens", heads * 16}));
    b.kv_write(k, k, slots, b.input("kv." + std::to_string(heads), kv_cache(heads, 16)), "write");
  }
  HostDevice device;
  auto team = make_team(1);
  expect_error(plan::Plan::build(finished(b), device, *team, plan_options(2)), Code::kUnsupported,
               "cache 'kv.3' is kv[3, 16] and differs from the first layer's; plans have caches of "
               "one shape");
}

TEST(profiles_count_calls_time_bytes_and_operations) {
  File file;
  HostDevice device;
  auto team = make_team(2);
  auto plan = make_plan(small_graph(&file), device, *team, plan_options(8));
  plan->set_symbol("tokens", 3);
  EXPECT(plan->run(*team).ok());  // before there are any
  plan->set_profiles(2);
  for (int i = 0; i < 5; ++i) EXPECT(plan->run(*team).ok());
  plan->set_symbol("tokens", 1);
  plan->select_profile(1);
  EXPECT(plan->run(*team).ok());
  const std::vector<plan::ProfileEntry> profile = plan->profile(0), other = plan->profile(1);
  ASSERT(profile.size() == 3 && other.size() == 3);
  EXPECT_EQ(profile[0].op, std::string_view("team"));
  EXPECT_EQ(profile[1].op, std::string_view("rms_norm"));
  EXPECT_EQ(profile[2].name, std::string_view("out"));
  for (const plan::ProfileEntry& entry : profile) {
    EXPECT_EQ(entry.calls, 5);
    EXPECT(entry.run_ns > 0);
  }
  for (const plan::ProfileEntry& entry : other) EXPECT_EQ(entry.calls, 1);
  // Rows of 4 floats in and out, and the weight. Then rows of 4 in and 3 out, a panel of 4
  // rows of weights and the bias, in floats.
  EXPECT_EQ(profile[1].bytes, 5 * (3 * 32 + 16));
  EXPECT_EQ(other[1].bytes, 32 + 16);
  EXPECT_EQ(profile[2].bytes, 5 * (3 * 28 + 64 + 12));
  EXPECT_EQ(other[2].bytes, 28 + 64 + 12);
  EXPECT_EQ(profile[2].operations, 5 * 3 * 2 * 12);
  EXPECT_EQ(profile[0].bytes + profile[0].operations, 0);
  plan->set_profiles(1);  // which forgets
  EXPECT_EQ(plan->profile(0)[1].calls, 0);
  EXPECT(plan->run(*team).ok());
  EXPECT_EQ(plan->profile(0)[1].calls, 1);
  plan->set_profiles(0);
  EXPECT(plan->run(*team).ok());
}

TEST(dump_shows_stages_barriers_and_offsets) {
  File file;
  HostDevice device;
  auto team = make_team(2);
  auto plan = make_plan(small_graph(&file), device, *team, plan_options(8));
  plan->set_symbol("tokens", 3);
  EXPECT_EQ(plan->barriers(), 1);
  EXPECT_EQ(plan->dump(),
            std::string(
                "plan on test (reference): 2 stages, 1 barriers, 2 workers, 192 bytes of weights, "
                "384 bytes of arena\n"
                "tokens = 3 of 8, outputs = 0 of 8, sequences = 0 of 2, pages = 8 of 8\n"
                "0 rms_norm b0@0, norm.weight -> b1@128  # norm\n"
                "---\n"
                "1 linear b1@128, out.weight, out.bias -> b2@256  # out\n"));
}
