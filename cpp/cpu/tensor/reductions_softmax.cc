// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/reductions.def that normalise along one axis, and the losses of classes.
#include "cpu/tensor/float_math.h"
#include "cpu/tensor/indices.h"
#include "cpu/tensor/reduce.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

Result<ReducePlan> plan_of_axis(const Binding& b, int64_t axis) {
  const Shape& x = b.node.shape(0);
  LMN_RETURN_IF_ERROR(b.node.normalize_axis(axis, x.rank, &axis));
  return ReducePlan(x, 1u << axis);
}

// e^(x - m) / sum, or the logarithm of that, m the largest x of the lane.
template <bool kLog, typename C>
void softmax(const ReducePlan& plan, const Source<C>& x, const Sink<C>& y, const Worker& worker) {
  plan.for_each_output(worker, [&](int64_t, int64_t base, int64_t width) {
    C most[ReducePlan::kColumns], sum[ReducePlan::kColumns];
    plan.accumulate<MaxOp<C>, C>(x, base, width, most);
    const bool store = !kLog && stored_as<C>(y.dtype);
    plan.accumulate_of<SumOp<C>, C>(
        x, base, width, sum, [&](int64_t at, const C* values, int64_t count, C* buffer, auto of) {
          C* powers = store ? y.begin(at, buffer) : buffer;
          LMN_VECTOR_LOOP
          for (int64_t i = 0; i < count; ++i) powers[i] = fast_exp(values[i] - of(most, i));
          return powers;
        });
    for (int64_t i = 0; i < width; ++i) sum[i] = kLog ? std::log(sum[i]) : C(1) / sum[i];
    C buffer[kFloatChunk];
    plan.for_each_run(base, width, [&](int64_t at, int64_t count, auto of) {
      C* out = y.begin(at, buffer);
      if (store) {
        LMN_VECTOR_LOOP
        for (int64_t i = 0; i < count; ++i) out[i] *= of(sum, i);
        return;
      }
      const C* values = x.read(at, count, buffer);
      LMN_VECTOR_LOOP
      for (int64_t i = 0; i < count; ++i) {
        const C shifted = values[i] - of(most, i);
        out[i] = kLog ? shifted - of(sum, i) : fast_exp(shifted) * of(sum, i);
      }
      y.put(at, count, out);
    });
  });
}

template <bool kLog>
Status bind_softmax(const Binding& b) {
  LMN_ASSIGN_OR_RETURN(const ReducePlan plan, plan_of_axis(b, b.node.integer("axis", -1)));
  const DType dtype = b.node.dtype(0);
  return with_computed(b.node, dtype, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.cost = 2.0 * static_cast<double>(b.node.shape(0).elements());
    b.kernel.set([plan, dtype](const Operands& io, const Worker& worker) {
      softmax<kLog>(plan, Source<C>{io.input<std::byte>(0), dtype},
                    Sink<C>{io.output<std::byte>(0), dtype}, worker);
    });
    return {};
  });
}

// A loss: what its node says. Elements of scores are [sample][class][place].
struct Loss {
  int64_t samples = 1, classes = 1, places = 1, ignored = 0;
  bool ignores = false, narrow = false, weighted = false, each = false, mean = false;
  const char* error = "";

  Loss(const ops::TensorNode& node, const char* what) : error(what) {
    const Shape& x = node.shape(0);
    samples = x[0];
    classes = x[1];
    for (int i = 2; i < x.rank; ++i) places *= x[i];
    ignores = node.attributes().find("ignore_index") != nullptr;
    ignored = node.integer("ignore_index", 0);
    narrow = node.dtype(1) == DType::kI32;
    weighted = node.has(2);
    const std::string_view reduction = node.text("reduction", "mean");
    each = reduction == "none";
    mean = reduction == "mean";
  }

  // `log_probability(sample, class, place)`; what it gives for the classes is summed in order.
  template <typename C, typename F>
  void run(const Operands& io, DType dtype, F&& log_probability) const {
    const Indices targets(io, 1, narrow);
    const Source<C> weights{io.input<std::byte>(2), dtype};
    const Sink<C> out{io.output<std::byte>(0), dtype};
    C sum = 0, total_weight = 0;
    for (int64_t i = 0; i < samples * places; ++i) {
      const int64_t target = targets[i];
      C loss = 0, weight = 0;
      if (!ignores || target != ignored) {
        if (target < 0 || target >= classes) {
          io.fail(error);
          continue;
        }
        weight = weighted ? weights.at(target) : C(1);
        loss = -log_probability(i / places, target, i % places) * weight;
      }
      sum += loss;
      total_weight += weight;
      if (each) out.put(i, loss);
    }
    if (!each) out.put(0, mean ? sum / total_weight : sum);
  }
};

}  // namespace

Status bind_Softmax(const Binding& b) { return bind_softmax<false>(b); }
Status bind_LogSoftmax(const Binding& b) { return bind_softmax<true>(b); }

// x over the sum of |x|, or over the root of the sum of squares, of its lane; 0 where that is 0.
Status bind_LpNormalization(const Binding& b) {
  LMN_ASSIGN_OR_RETURN(const ReducePlan plan, plan_of_axis(b, b.node.integer("axis", -1)));
  const DType dtype = b.node.dtype(0);
  const bool squares = b.node.integer("p", 2) == 2;
  return with_computed(b.node, dtype, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.in_place = 0;
    b.kernel.set([plan, dtype, squares](const Operands& io, const Worker& worker) {
      const Source<C> x{io.input<std::byte>(0), dtype};
      const Sink<C> y{io.output<std::byte>(0), dtype};
      plan.for_each_output(worker, [&](int64_t, int64_t base, int64_t width) {
        C norm[ReducePlan::kColumns], buffer[kFloatChunk];
        if (squares) {
          plan.accumulate<SquareOp<C>, C>(x, base, width, norm);
        } else {
          plan.accumulate<AbsoluteOp<C>, C>(x, base, width, norm);
        }
        for (int64_t i = 0; i < width; ++i) {
          if (squares) norm[i] = std::sqrt(norm[i]);
          if (norm[i] == C(0)) norm[i] = std::numeric_limits<C>::infinity();  // all x are 0
        }
        plan.for_each_run(base, width, [&](int64_t at, int64_t count, auto of) {
          const C* values = x.read(at, count, buffer);
          C* out = y.begin(at, buffer);
          LMN_VECTOR_LOOP
          for (int64_t i = 0; i < count; ++i) out[i] = values[i] / of(norm, i);
          y.put(at, count, out);
        });
      });
    });
    return {};
  });
}

Status bind_NegativeLogLikelihoodLoss(const Binding& b) {
  const Loss loss(b.node, "NegativeLogLikelihoodLoss: a class is out of range");
  const DType dtype = b.node.dtype(0);
  return with_computed(b.node, dtype, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    b.kernel.set([loss, dtype](const Operands& io, const Worker&) {
      const Source<C> x{io.input<std::byte>(0), dtype};
      loss.run<C>(io, dtype, [&](int64_t sample, int64_t c, int64_t place) {
        return x.at((sample * loss.classes + c) * loss.places + place);
      });
    });
    return {};
  });
}

Status bind_SoftmaxCrossEntropyLoss(const Binding& b) {
  const Loss loss(b.node, "SoftmaxCrossEntropyLoss: a class is out of range");
  const DType dtype = b.node.dtype(0);
  const ReducePlan plan(Shape{loss.samples, loss.classes, loss.places}, 2u);
  return with_computed(b.node, dtype, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    // Logarithms of probabilities, in C.
    const int64_t elements = b.node.shape(0).elements();
    const bool wants_logs = b.node.outputs() > 1;
    b.kernel.scratch_bytes = static_cast<size_t>(elements) * sizeof(C);
    b.kernel.set([=](const Operands& io, const Worker& worker) {
      constexpr DType kComputed = std::is_same_v<C, double> ? DType::kF64 : DType::kF32;
      softmax<true>(plan, Source<C>{io.input<std::byte>(0), dtype},
                    Sink<C>{worker.scratch, kComputed}, Worker{});
      const C* logs = reinterpret_cast<const C*>(worker.scratch);
      if (wants_logs && io.output<std::byte>(1) != nullptr)
        Sink<C>{io.output<std::byte>(1), dtype}.put(0, elements, logs);
      if (io.output<std::byte>(0) == nullptr) return;
      loss.run<C>(io, dtype, [&](int64_t sample, int64_t c, int64_t place) {
        return logs[(sample * loss.classes + c) * loss.places + place];
      });
    });
    return {};
  });
}

}  // namespace lmn::cpu
