// SPDX-License-Identifier: Apache-2.0
//
// Kernels of tensor_ops/reductions.def that reduce axes to one element.
#include "cpu/tensor/float_math.h"
#include "cpu/tensor/reduce.h"
#include "ops/infer/axes.h"

namespace lmn::cpu {
namespace {

using ops::Operands;
using ops::Worker;

// What becomes of the accumulator of `count` elements.
struct Keep {
  template <typename C, typename Acc>
  static C finish(Acc a, int64_t) {
    return static_cast<C>(a);
  }
};
// Integers that were summed modulo 2^64, as numbers.
template <typename C, typename Acc>
auto as_number(Acc a) {
  if constexpr (!std::is_integral_v<C>) {
    return a;
  } else if constexpr (std::is_signed_v<C>) {
    return static_cast<double>(static_cast<int64_t>(a));
  } else {
    return static_cast<double>(a);
  }
}
// A number as C; what C has no value for (a NaN or an infinity of integers) becomes 0.
template <typename C, typename Number>
C from_number(Number x) {
  if constexpr (std::is_integral_v<C>) {
    const bool fits = x > static_cast<double>(std::numeric_limits<C>::lowest()) - 1 &&
                      x < static_cast<double>(std::numeric_limits<C>::max());
    return fits ? static_cast<C>(x) : C{0};
  } else {
    return static_cast<C>(x);
  }
}
struct Mean {
  template <typename C, typename Acc>
  static C finish(Acc a, int64_t count) {
    const auto sum = as_number<C>(a);
    return from_number<C>(sum / static_cast<decltype(sum)>(count));
  }
};
struct Root {
  template <typename C, typename Acc>
  static C finish(Acc a, int64_t) {
    return from_number<C>(std::sqrt(as_number<C>(a)));
  }
};
struct Log {
  template <typename C, typename Acc>
  static C finish(Acc a, int64_t) {
    return from_number<C>(std::log(as_number<C>(a)));
  }
};

template <typename Op, typename Finish, typename C>
Status bind_as(const Binding& b, TypeTag<C>) {
  uint32_t bits;
  LMN_RETURN_IF_ERROR(ops::reduced_axes(b.node, &bits));
  const ReducePlan plan(b.node.shape(0), bits);
  const DType dtype = b.node.dtype(0);
  b.kernel.splits = true;
  b.kernel.set([plan, dtype](const Operands& io, const Worker& worker) {
    const Source<C> x{io.input<std::byte>(0), dtype};
    const Sink<C> y{io.output<std::byte>(0), dtype};
    plan.for_each_output(worker, [&](int64_t o, int64_t base, int64_t width) {
      typename Op::Acc acc[ReducePlan::kColumns];
      C results[ReducePlan::kColumns];
      plan.accumulate<Op, C>(x, base, width, acc);
      for (int64_t i = 0; i < width; ++i)
        results[i] = Finish::template finish<C>(acc[i], plan.terms);
      y.put(o, width, results);
    });
  });
  return {};
}

// Sums and what is made of them, of floats and of integers of 32 and 64 bits.
template <template <typename> typename Op, typename Finish>
Status bind_sum(const Binding& b) {
  switch (b.node.dtype(0)) {
    case DType::kI32:
      return bind_as<Op<int32_t>, Finish>(b, TypeTag<int32_t>{});
    case DType::kI64:
      return bind_as<Op<int64_t>, Finish>(b, TypeTag<int64_t>{});
    case DType::kU32:
      return bind_as<Op<uint32_t>, Finish>(b, TypeTag<uint32_t>{});
    case DType::kU64:
      return bind_as<Op<uint64_t>, Finish>(b, TypeTag<uint64_t>{});
    default:
      return with_computed(b.node, b.node.dtype(0), [&](auto tag) {
        return bind_as<Op<typename decltype(tag)::type>, Finish>(b, tag);
      });
  }
}

template <template <typename> typename Op>
Status bind_extreme(const Binding& b) {
  const auto bind = [&](auto tag) {
    return bind_as<Op<typename decltype(tag)::type>, Keep>(b, tag);
  };
  switch (b.node.dtype(0)) {
    case DType::kBool:
      return bind(TypeTag<bool>{});
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
    case DType::kBF16:
      return with_computed(b.node, b.node.dtype(0), bind);
    default:
      return with_integer(b.node, b.node.dtype(0), bind);
  }
}

}  // namespace

Status bind_ReduceSum(const Binding& b) { return bind_sum<SumOp, Keep>(b); }
Status bind_ReduceMean(const Binding& b) { return bind_sum<SumOp, Mean>(b); }
Status bind_ReduceLogSum(const Binding& b) { return bind_sum<SumOp, Log>(b); }
Status bind_ReduceSumSquare(const Binding& b) { return bind_sum<SquareOp, Keep>(b); }
Status bind_ReduceL2(const Binding& b) { return bind_sum<SquareOp, Root>(b); }
Status bind_ReduceL1(const Binding& b) { return bind_sum<AbsoluteOp, Keep>(b); }
Status bind_ReduceProd(const Binding& b) { return bind_sum<ProductOp, Keep>(b); }
Status bind_ReduceMax(const Binding& b) { return bind_extreme<MaxOp>(b); }
Status bind_ReduceMin(const Binding& b) { return bind_extreme<MinOp>(b); }

// log(sum(e^x)) = m + log(sum(e^(x - m))), m the largest x where that is a number.
Status bind_ReduceLogSumExp(const Binding& b) {
  uint32_t bits;
  LMN_RETURN_IF_ERROR(ops::reduced_axes(b.node, &bits));
  const ReducePlan plan(b.node.shape(0), bits);
  const DType dtype = b.node.dtype(0);
  return with_computed(b.node, dtype, [&](auto tag) -> Status {
    using C = typename decltype(tag)::type;
    b.kernel.splits = true;
    b.kernel.set([plan, dtype](const Operands& io, const Worker& worker) {
      const Source<C> x{io.input<std::byte>(0), dtype};
      const Sink<C> y{io.output<std::byte>(0), dtype};
      plan.for_each_output(worker, [&](int64_t o, int64_t base, int64_t width) {
        C most[ReducePlan::kColumns], sum[ReducePlan::kColumns];
        plan.accumulate<MaxOp<C>, C>(x, base, width, most);
        for (int64_t i = 0; i < width; ++i) most[i] = std::isfinite(most[i]) ? most[i] : C(0);
        plan.accumulate_of<SumOp<C>, C>(
            x, base, width, sum, [&](int64_t, const C* values, int64_t count, C* powers, auto of) {
              LMN_VECTOR_LOOP
              for (int64_t i = 0; i < count; ++i) powers[i] = fast_exp(values[i] - of(most, i));
              return powers;
            });
        for (int64_t i = 0; i < width; ++i) sum[i] = most[i] + std::log(sum[i]);
        y.put(o, width, sum);
      });
    });
    return {};
  });
}

}  // namespace lmn::cpu
