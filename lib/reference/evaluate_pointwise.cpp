// Pointwise operations: operands are gathered a run at a time, so that neither the mode nor the
// operands' types are looked at once an element.
#include <cmath>
#include <limits>

#include "reference/apply.hpp"
#include "reference/job.hpp"

namespace sinter::reference {
namespace {

constexpr std::int64_t kRun = 512;  // elements gathered at a time: their lines stay in the cache

template <class T>
T make(double v, double e) {
  if constexpr (std::is_same_v<T, double>)
    return v;
  else
    return T(v, e);
}
template <class T>
void put(const T& x, double* v, double* e) {
  if constexpr (std::is_same_v<T, double>) {
    *v = x;
  } else {
    *v = x.v;
    *e = x.e;
  }
}

// What exp(s - m) of attention's softmax may be off by, in its argument. Its kernels take it as
// exp2(fma(s, c, -round(m c))) with c = log2(e), times the scale where nothing stands between the
// scale and the softmax (the usual form, FlashAttention's too). The multiply-add rounds once, by
// its small result, which the subtraction's own bound covers; the product m c is rounded by
// |m c| 2^-24, which is |m| 2^-24 before the factor. A row's weights and their sum share the factor
// 2^that, but weights are rounded to 16 bits for the second product, which may lose it, and the
// sum is not: a row of one key gives 1 / (1 + |m| 2^-24). So no more is lost than by that rounding,
// whatever m is: `most`, in the units of m.
double error_of_scaling(double m, double most) {
  return std::isfinite(m) ? std::fmin(std::fabs(m), most) * 0x1p-24 : 0;
}

template <class T>
void run_formula(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e) {
  const auto& attributes = job.attributes<PointwiseAttributes>();
  const auto mode = info(attributes.mode);
  View views[3];
  for (int i = 0; i < mode.arity; ++i)
    views[i] = job.in[static_cast<std::size_t>(i)].view.broadcast(
        job.in[static_cast<std::size_t>(i)].dim, job.dim.size());
  T params[3] = {};
  for (int i = 0; i < mode.params; ++i) params[i] = T(attributes.*mode.param[i]);
  const int axis = run_axis(job.box);
  with_formula(attributes.mode, [&]<class Formula>(Formula) {
    Line lines[Formula::arity];
    for_runs(
        job.box, axis, begin, end, [&](const Dims& at, std::int64_t length, std::int64_t position) {
          Dims c = at;
          for (std::int64_t done = 0; done < length; done += kRun, c[axis] += kRun) {
            const std::int64_t n = std::min(kRun, length - done);
            for (int k = 0; k < Formula::arity; ++k) views[k].line(c, axis, n, lines[k]);
            double *pv = v + position + done, *pe = e ? e + position + done : nullptr;
            for (std::int64_t i = 0; i < n; ++i) {
              const auto j = static_cast<std::size_t>(i);
              T operands[Formula::arity];
              for (int k = 0; k < Formula::arity; ++k)
                operands[k] = make<T>(lines[k].v[j], lines[k].e.empty() ? 0 : lines[k].e[j]);
              put(apply<Formula>(operands, params), pv + i, pe ? pe + i : nullptr);
              if (job.scaled_first > 0)
                pe[i] += error_of_scaling(lines[Formula::arity - 1].v[j], job.scaled_first);
              // Zero is allowed, and no more than that: the kernels' one instruction for an
              // exponential gives it for results below the normal numbers.
              if (job.exponential_of_attention && pv[i] - pe[i] < std::numeric_limits<float>::min())
                pe[i] = std::fmax(pe[i], pv[i]);
            }
          }
        });
  });
}

void generate_index(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e) {
  const auto& attributes = job.attributes<PointwiseAttributes>();
  const int rank = job.dim.size(), last = rank - 1;
  const int axis =
      static_cast<int>(*attributes.axis < 0 ? *attributes.axis + rank : *attributes.axis);
  for_runs(job.box, begin, end, [&](const Dims& at, std::int64_t n, std::int64_t position) {
    for (std::int64_t i = 0; i < n; ++i) {
      v[position + i] = static_cast<double>(at[axis] + (axis == last ? i : 0));
      if (e) e[position + i] = 0;
    }
  });
}

}  // namespace

void evaluate_pointwise(const Job& job, std::int64_t begin, std::int64_t end, double* v,
                        double* e) {
  if (job.attributes<PointwiseAttributes>().mode == PointwiseMode::gen_index)
    return generate_index(job, begin, end, v, e);
  if (!job.judging) return run_formula<double>(job, begin, end, v, e);
  if (job.arithmetic == DataType::f64) return run_formula<Bounded<double>>(job, begin, end, v, e);
  return run_formula<Bounded<float>>(job, begin, end, v, e);
}

}  // namespace sinter::reference
