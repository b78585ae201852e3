// SPDX-License-Identifier: Apache-2.0
//
// A column view has no bytes of its own: its root is the value that it looks at, and reading the
// view is reading the root, whenever the view was written down. An operator may work in place on a
// value if nobody reads the columns that it changes, through whatever view, at that stage or later.
#include "plan/layout.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/check.h"
#include "graph/schema.h"
#include "plan/plan.h"

namespace lmn::plan {
namespace {

using graph::kNone;
using graph::Node;
using graph::ValueId;

constexpr int kForever = std::numeric_limits<int>::max();

struct View {
  ValueId value;
  int64_t begin, end;  // columns of the root
  int last_use;        // stage; -1: never
  int alive;           // to the end of which stage its bytes are kept
};

bool is_activation_format(DType type) { return type == DType::kQA8 || type == DType::kQA16; }

class LayoutMaker {
 public:
  LayoutMaker(const graph::Graph& graph, const Bounds& bounds, int workers, bool fuse_quantize)
      : graph_(graph), bounds_(bounds), workers_(workers), fuse_quantize_(fuse_quantize) {}

  Result<Layout> make() {
    LMN_RETURN_IF_ERROR(check_types());
    find_stages();
    find_views();
    layout_.places.resize(graph_.values.size());
    for (ValueId id : graph_.inputs) {
      if (graph_.value(id).type.kind == graph::Kind::kTensor) add_buffer(id, 0);
    }
    inputs_ = layout_.buffers.size();
    int stage = 0;
    for (const Node& node : graph_.nodes) {
      if (!graph::kernel_of(node.op)) {
        place_view(node);
      } else {
        layout_.fused.push_back(is_fused(node, stage));
        LMN_RETURN_IF_ERROR(place_outputs(node, stage));
        ++stage;
      }
    }
    finish();
    return std::move(layout_);
  }

 private:
  Status check_types() const {
    for (const graph::Value& value : graph_.values) {
      if (value.constant != nullptr || value.type.kind != graph::Kind::kTensor) continue;
      if (value.type.dims.empty() || value.type.dims.size() > 2) {
        return error(Code::kUnsupported, "'%s' is %s; plans hold vectors and matrices",
                     value.name.c_str(), value.type.to_string().c_str());
      }
      for (const graph::Dim& dim : value.type.dims) {
        if (dim.is_constant() || symbol_index(dim.symbol) >= 0) continue;
        return error(Code::kUnsupported,
                     "'%s' has the dimension '%s'; plans know tokens, outputs, sequences and pages",
                     value.name.c_str(), dim.symbol.c_str());
      }
    }
    return {};
  }

  void find_stages() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (graph::kernel_of(graph_.nodes[n].op))
        layout_.stages.push_back(static_cast<graph::NodeId>(n));
    }
  }

  // views_[root]: everything through which the root is read, itself included.
  void find_views() {
    const size_t count = graph_.values.size();
    std::vector<int> last_use(count, -1);
    for (size_t s = 0; s < layout_.stages.size(); ++s) {
      for (ValueId id : graph_.node(layout_.stages[s]).inputs) {
        if (id != kNone) last_use[static_cast<size_t>(id)] = static_cast<int>(s);
      }
    }
    for (const graph::Output& output : graph_.outputs)
      last_use[static_cast<size_t>(output.value)] = kForever;
    // While workers quantise for themselves, one may still read x when another is in the Linear
    // that follows; if that wrote where x was, it would have to wait.
    std::vector<int> alive = last_use;
    for (size_t s = 0; s < layout_.stages.size(); ++s) {
      const Node& node = graph_.node(layout_.stages[s]);
      if (!is_activation_format(graph_.value(node.outputs[0]).type.dtype)) continue;
      int& end = alive[static_cast<size_t>(node.inputs[0])];
      end = std::max(end, static_cast<int>(s) + 1);
    }

    root_.resize(count);
    begin_.assign(count, 0);
    views_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const auto id = static_cast<ValueId>(i);
      const Node* producer = graph_.producer(id);
      root_[i] = id;
      if (producer != nullptr && producer->op == graph::Op::kColumns) {
        const auto x = static_cast<size_t>(producer->inputs[0]);
        root_[i] = root_[x];
        begin_[i] = begin_[x] + producer->attributes.get<int64_t>("begin");
      }
      views_[static_cast<size_t>(root_[i])].push_back(
          {id, begin_[i], begin_[i] + width(id), last_use[i], alive[i]});
    }
  }

  int64_t width(ValueId id) const {
    const graph::Dims& dims = graph_.value(id).type.dims;
    if (dims.size() < 2) return 1;
    return dims[1].is_constant() ? dims[1].size
                                 : bounds_[static_cast<size_t>(symbol_index(dims[1].symbol))];
  }

  void add_buffer(ValueId id, int stage) {
    const graph::ValueType& type = graph_.value(id).type;
    Buffer buffer;
    buffer.dtype = type.dtype;
    buffer.symbol = type.dims[0].is_constant() ? -1 : symbol_index(type.dims[0].symbol);
    buffer.max_rows =
        buffer.symbol < 0 ? type.dims[0].size : bounds_[static_cast<size_t>(buffer.symbol)];
    buffer.columns = width(id);
    const int64_t row = row_bytes(type.dtype, buffer.columns);
    buffer.interval.bytes = buffer.max_rows * row;
    if (is_activation_format(type.dtype)) {
      buffer.copy_bytes = align_up(std::min(kReplicateRows, buffer.max_rows) * row);
      buffer.interval.bytes = std::max(buffer.interval.bytes, buffer.copy_bytes * workers_);
    }
    buffer.interval.first = buffer.interval.last = stage;
    layout_.places[static_cast<size_t>(id)] = {static_cast<int>(layout_.buffers.size()), 0,
                                               buffer.columns};
    layout_.buffers.push_back(buffer);
    members_.push_back({});
    join(id, stage);
  }

  // `id`, placed in its buffer, is alive from `stage` to its last use.
  void join(ValueId id, int stage) {
    const int buffer = layout_.place(id).buffer;
    members_[static_cast<size_t>(buffer)].push_back(id);
    Interval& interval = layout_.buffers[static_cast<size_t>(buffer)].interval;
    interval.last = std::max(interval.last, stage);
    for (const View& view : views_[static_cast<size_t>(id)])
      interval.last = std::max(interval.last, view.alive);
  }

  void place_view(const Node& node) {
    Place place = layout_.place(node.inputs[0]);
    place.column += node.attributes.get<int64_t>("begin");
    place.columns = node.attributes.get<int64_t>("count");
    layout_.places[static_cast<size_t>(node.outputs[0])] = place;
  }

  Status place_outputs(const Node& node, int stage) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId id = node.outputs[i];
      if (graph_.value(id).type.kind != graph::Kind::kTensor) continue;
      ValueId onto = kNone;
      if (i == 0 && graph::schema(node.op).in_place) {
        onto = node.inputs[0];
        LMN_RETURN_IF_ERROR(require_changeable(node, onto, stage));
      } else if (i == 0) {
        onto = place_to_reuse(node, stage);
      }
      if (onto == kNone) {
        // What the stage before writes must not lie where that still reads.
        add_buffer(id, layout_.fused.back() ? stage - 1 : stage);
      } else {
        layout_.places[static_cast<size_t>(id)] = layout_.place(onto);
        join(id, stage);
      }
    }
    return {};
  }

  bool is_fused(const Node& node, int stage) const {
    if (!fuse_quantize_ || node.op != graph::Op::kQuantize || stage == 0) return false;
    const Node& before = graph_.node(layout_.stages[static_cast<size_t>(stage) - 1]);
    return (before.op == graph::Op::kLinear || before.op == graph::Op::kPagedAttention) &&
           before.outputs[0] == node.inputs[0];
  }

  Status require_changeable(const Node& node, ValueId x, int stage) const {
    if (layout_.place(x).buffer >= 0 && may_change(node, x, stage)) return {};
    return error(
        Code::kUnsupported,
        "%s '%s' works in place on a value that is read again, or is an input of the graph",
        std::string(graph::name(node.op)).c_str(), node.name.c_str());
  }

  // The operand whose bytes the output may take over, where the kernel allows it (ops/op_args.h
  // says "may be").
  ValueId place_to_reuse(const Node& node, int stage) const {
    std::array<ValueId, 2> allowed{kNone, kNone};
    if (node.op == graph::Op::kLinear) allowed[0] = node.input(3);
    if (node.op == graph::Op::kRmsNorm) allowed[0] = node.inputs[0];
    if (node.op == graph::Op::kResidualAdd) allowed = {node.inputs[0], node.inputs[1]};
    for (ValueId id : allowed) {
      if (id == kNone || layout_.place(id).buffer < 0) continue;
      const bool whole_rows = layout_.place(id).columns == layout_.buffer_of(id).columns;
      if (whole_rows && may_change(node, id, stage)) return id;
    }
    return kNone;
  }

  // Whether the bytes of `x` may be overwritten at `stage` by the node that reads it there.
  bool may_change(const Node& node, ValueId x, int stage) const {
    const Place& place = layout_.place(x);
    if (static_cast<size_t>(place.buffer) < inputs_) return false;
    if (std::count(node.inputs.begin(), node.inputs.end(), x) != 1) return false;
    for (ValueId member : members_[static_cast<size_t>(place.buffer)]) {
      const int64_t origin = layout_.place(member).column;
      for (const View& view : views_[static_cast<size_t>(member)]) {
        const bool apart = origin + view.end <= place.column ||
                           origin + view.begin >= place.column + place.columns;
        const bool done = view.last_use < stage || (view.value == x && view.last_use == stage);
        if (!apart && !done) return false;
      }
    }
    return true;
  }

  void finish() {
    const int end = static_cast<int>(layout_.stages.size());
    place_inputs(end);
    std::vector<Interval> intervals;
    for (size_t i = inputs_; i < layout_.buffers.size(); ++i) {
      Interval& interval = layout_.buffers[i].interval;
      interval.last = std::min(interval.last, end);
      intervals.push_back(interval);
    }
    layout_.arena_bytes = layout_.input_bytes + assign_offsets(intervals);
    LMN_DCHECK(is_valid_assignment(intervals, layout_.arena_bytes - layout_.input_bytes));
    for (size_t i = inputs_; i < layout_.buffers.size(); ++i) {
      layout_.buffers[i].interval = intervals[i - inputs_];
      layout_.buffers[i].interval.offset += layout_.input_bytes;
    }
  }

  // Alive all the time, so their order costs nothing: what a device is sent for a step lies
  // together.
  void place_inputs(int end) {
    std::vector<Buffer*> inputs;
    for (size_t i = 0; i < inputs_; ++i) inputs.push_back(&layout_.buffers[i]);
    std::stable_sort(inputs.begin(), inputs.end(), [](const Buffer* a, const Buffer* b) {
      return a->interval.bytes < b->interval.bytes;
    });
    for (Buffer* buffer : inputs) {
      buffer->interval.last = end;
      buffer->interval.offset = layout_.input_bytes;
      layout_.input_bytes += align_up(buffer->interval.bytes);
    }
  }

  const graph::Graph& graph_;
  const Bounds& bounds_;
  const int workers_;
  const bool fuse_quantize_;
  Layout layout_;
  size_t inputs_ =
      std::numeric_limits<size_t>::max();  // buffers below are inputs: the caller's, never changed
  std::vector<ValueId> root_;
  std::vector<int64_t> begin_;
  std::vector<std::vector<View>> views_;
  std::vector<std::vector<ValueId>> members_;  // of each buffer: the roots that live in it
};

}  // namespace

int symbol_index(std::string_view name) {
  const auto found = std::find(kSymbols.begin(), kSymbols.end(), name);
  return found == kSymbols.end() ? -1 : static_cast<int>(found - kSymbols.begin());
}

std::vector<std::string> describe_operands(const graph::Graph& graph, const Layout& layout,
                                           const std::vector<int>& kv_layer) {
  const auto describe = [&](ValueId id) -> std::string {
    if (id == kNone) return "-";
    if (const int layer = kv_layer[static_cast<size_t>(id)]; layer >= 0)
      return "kv." + std::to_string(layer);
    const Place& place = layout.place(id);
    if (place.buffer < 0) return graph.value(id).name;
    const Buffer& buffer = layout.buffer_of(id);
    std::string out = "b" + std::to_string(place.buffer);
    if (place.columns != buffer.columns) {
      out += "[" + std::to_string(place.column) + ":" +
             std::to_string(place.column + place.columns) + "]";
    }
    return out + "@" + std::to_string(buffer.interval.offset);
  };
  const auto list = [&](const std::vector<ValueId>& ids) {
    std::string out;
    for (ValueId id : ids) out += (out.empty() ? "" : ", ") + describe(id);
    return out;
  };
  std::vector<std::string> out;
  for (graph::NodeId n : layout.stages) {
    out.push_back(list(graph.node(n).inputs) + " -> " + list(graph.node(n).outputs));
  }
  return out;
}

Result<Layout> make_layout(const graph::Graph& graph, const Bounds& bounds, int workers,
                           bool fuse_quantize) {
  return LayoutMaker(graph, bounds, workers, fuse_quantize).make();
}

}  // namespace lmn::plan
