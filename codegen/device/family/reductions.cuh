// Running reductions, as one thread sees them. A generated struct R names a reduction: its `mode`,
// the type Value it computes in, the `phase` that accumulates it and, where it is finished here,
// its `length`. A norm2 of floats is summed in double, because the squares may leave the range of
// float where the result does not. R::Kept, where R has it, is the type in which running results
// stay: integers are compared as such, and converted when all is done.
#pragma once
#include "sinter/device/core/math.cuh"
#include "sinter/device/core/pack.cuh"

namespace sinter {

enum class ReductionMode { add, mul, min, max, amax, avg, norm1, norm2, mul_no_zeros };

template <ReductionMode mode, class Value>
struct PartialType {
  using Type = Value;
};
template <>
struct PartialType<ReductionMode::norm2, float> {
  using Type = double;
};
template <class R>
struct TermsOf {
  using Term = typename R::Value;
  using Partial = typename PartialType<R::mode, Term>::Type;
};
template <class R>
requires requires { typename R::Kept; }
struct TermsOf<R> {
  using Term = typename R::Kept;
  using Partial = Term;
};

template <class R>
struct Reduction {
  using Mode = ReductionMode;
  using Value = typename R::Value;
  using Term = typename TermsOf<R>::Term;
  using Partial = typename TermsOf<R>::Partial;
  Partial partial;  // of the elements since the last `fold_partials`
  Partial folded;
  Value result;

  SINTER_DEVICE void start() { partial = folded = identity(); }
  // Keeps runs of additions short, so that rounding errors of like terms cannot pile up.
  SINTER_DEVICE void fold_partials() {
    folded = combine(folded, partial);
    partial = identity();
  }
  // What the elements since `start` make, where all are of one run, or after `fold_partials`.
  SINTER_DEVICE Partial unfinished(bool one_run) const { return one_run ? partial : folded; }

  static SINTER_DEVICE Partial identity() {
    switch (R::mode) {
      case Mode::min:
        return math::upper_end(Partial());
      case Mode::max:
        return math::lower_end(Partial());
      case Mode::mul:
      case Mode::mul_no_zeros:
        return Partial(1);
      default:
        return Partial(-0.0f);  // unlike +0, the compiler sees that adding it changes nothing
    }
  }
  static SINTER_DEVICE Partial combine(Partial a, Partial b) {
    switch (R::mode) {
      case Mode::min:
        return math::minimum(a, b);
      case Mode::max:
      case Mode::amax:
        return math::maximum(a, b);
      case Mode::mul:
      case Mode::mul_no_zeros:
        return a * b;
      default:
        return a + b;
    }
  }
  SINTER_DEVICE void accumulate(Term x) {
    Partial term = static_cast<Partial>(x);
    if constexpr (R::mode == Mode::amax || R::mode == Mode::norm1) term = math::abs(term);
    if (R::mode == Mode::norm2) term = term * term;
    if (R::mode == Mode::mul_no_zeros && term == Partial(0)) term = Partial(1);
    partial = combine(partial, term);
  }
  // The term a * b of a sum, rounded once with it.
  SINTER_DEVICE void accumulate_product(Value a, Value b) {
    static_assert(R::mode == Mode::add || R::mode == Mode::avg);
    partial = math::fma(a, b, partial);
  }
  SINTER_DEVICE void finish(Partial total) {
    if (identity() == Partial(0)) total += Partial(0);  // a sum of nothing but -0 is +0
    folded = total;
    if constexpr (R::mode == Mode::norm2) total = math::sqrt(total);
    if constexpr (R::mode == Mode::avg)  // over nothing: NaN
      total = math::divide_by_constant(total, static_cast<Partial>(R::length));
    result = static_cast<Value>(total);
  }
};

// Those of the reductions `Rs` that a phase accumulates, behind `Found`.
template <int phase, class Found, class... Rs>
struct OfPhase {
  using Type = Found;
};
template <int phase, class... Found, class R, class... Rs>
struct OfPhase<phase, List<Found...>, R, Rs...>
    : OfPhase<phase, Choice<R::phase == phase, List<Found..., R>, List<Found...>>, Rs...> {};

// All reductions of a kernel, by name. What is done with each of several is a fold over their list:
// the compiler takes its time for every function, and a lambda that is called for each makes many.
template <class... Rs>
struct Reductions : Reduction<Rs>... {
  static constexpr int count = sizeof...(Rs);
  using All = List<Rs...>;
  template <int phase>
  using Of = typename OfPhase<phase, List<>, Rs...>::Type;
  template <class... Some>
  SINTER_DEVICE void start(List<Some...>) {
    (Reduction<Some>::start(), ...);
  }
  template <class... Some>
  SINTER_DEVICE void fold_partials(List<Some...>) {
    (Reduction<Some>::fold_partials(), ...);
  }
  template <class R, class T>
  SINTER_DEVICE void accumulate(T x) {
    Reduction<R>::accumulate(static_cast<typename Reduction<R>::Term>(x));
  }
  template <class R, class T>
  SINTER_DEVICE void accumulate(T x, bool inside) {
    if (inside) accumulate<R>(x);
  }
  template <class R>
  SINTER_DEVICE void accumulate_product(typename R::Value a, typename R::Value b,
                                        bool inside = true) {
    if (inside) Reduction<R>::accumulate_product(a, b);
  }
  template <class R>
  SINTER_DEVICE typename R::Value result() const {
    return Reduction<R>::result;
  }
  // What other parts of the same reduction are combined with.
  template <class R>
  SINTER_DEVICE auto partial() const {
    return Reduction<R>::folded;
  }
};

// Writes the partial results of neighbouring columns.
template <class Access, class R, int width, class Element, class Coord, class Column>
SINTER_DEVICE void store_partials(Element* base, const Coord& c, const Column* columns) {
  Pack<Element, width> pack;
#pragma unroll
  for (int e = 0; e < width; ++e) put(pack, e, columns[e].template partial<R>());
  flush<Access>(base, c, pack);
}

// Two threads side by side exchange halves of their places: the first then has the first halves of
// both, as the first and the second half of its own.
template <class R, int width, class Columns>
SINTER_DEVICE void exchange_halves(Columns (&of)[width]) {
  const bool second = threadIdx.x % 2 != 0;
#pragma unroll
  for (int e = 0; e < width / 2; ++e) {
    auto &low = of[e].Reduction<R>::folded, &high = of[e + width / 2].Reduction<R>::folded;
    const auto other = __shfl_xor_sync(0xffffffffu, second ? low : high, 1);
    second ? low = other : high = other;
  }
}

// Calls f with a pointer of the type of each.
template <class F, class... Rs>
SINTER_DEVICE void for_reductions(const Reductions<Rs...>&, const F& f) {
  (f(static_cast<Rs*>(nullptr)), ...);
}

}  // namespace sinter
