// Random numbers of GRAPH_JSON.md: a pure function of Seed, Offset and the logical index.
#include <cmath>

#include "lower/lower.hpp"
#include "reference/bounded_math.hpp"
#include "reference/job.hpp"
#include "reference/philox.hpp"

namespace sinter::reference {
namespace {

using Lanes = std::array<std::uint32_t, 4>;

double unit(std::uint32_t x) { return (static_cast<double>(x) + 0.5) * 0x1p-32; }

template <class A>
Bounded<A> uniform(std::uint32_t x) {  // a kernel rounds it to A
  const double u = unit(x);
  return {u, distance(static_cast<double>(static_cast<A>(u)), u)};
}

// Box and Muller, of the lanes (0, 1) and (2, 3): the cosine first.
double normal(const Lanes& x, int lane) {
  const int pair = lane & 2;
  const double radius = std::sqrt(-2 * std::log(unit(x[static_cast<std::size_t>(pair)])));
  const double angle = 6.283185307179586476925 * unit(x[static_cast<std::size_t>(pair) + 1]);
  return radius * (lane & 1 ? std::sin(angle) : std::cos(angle));
}

template <class A>
Bounded<A> bounded_normal(const Lanes& x, int lane) {
  using B = Bounded<A>;
  const auto pair = static_cast<std::size_t>(lane & 2);
  // A uniform number never rounds above 1, so the square of the radius is never negative.
  const B square = B(-2.0f) * log(uniform<A>(x[pair]));
  B radius = sqrt(square);
  if (!radius.trusted()) radius = {std::sqrt(square.v), std::sqrt(square.v + square.e)};
  B angle = B(6.283185307179586476925) * uniform<A>(x[pair + 1]);
  // The reference's own angle is rounded, a kernel may take the exact one (cospi): near a zero of
  // the cosine that is the whole error.
  angle.e = std::max(angle.e, 0x1p-51 * angle.v);
  return radius * (lane & 1 ? sin(angle) : cos(angle));
}

template <class A>
Judged judged(const RngAttributes& a, const Lanes& x, int lane) {
  using B = Bounded<A>;
  B r;
  if (a.distribution == Distribution::bernoulli)
    return {unit(x[static_cast<std::size_t>(lane)]) < a.probability ? 1.0 : 0.0, 0};
  if (a.distribution == Distribution::uniform)
    r = B(a.minimum) +
        (B(a.maximum) - B(a.minimum)) * uniform<A>(x[static_cast<std::size_t>(lane)]);
  else
    r = B(a.mean) + B(a.stddev) * bounded_normal<A>(x, lane);
  return {r.v, r.e};
}

double value(const RngAttributes& a, const Lanes& x, int lane) {
  const double u = unit(x[static_cast<std::size_t>(lane)]);
  switch (a.distribution) {
    case Distribution::bernoulli:
      return u < a.probability;
    case Distribution::uniform:
      return a.minimum + (a.maximum - a.minimum) * u;
    default:
      return a.mean + a.stddev * normal(x, lane);
  }
}

}  // namespace

void evaluate_rng(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e) {
  const auto& a = job.attributes<RngAttributes>();
  const bool in_double = e && random_arithmetic(*job.graph, *job.node) == DataType::f64;
  std::uint64_t last_counter = 0;
  Lanes lanes = philox(job.seed, job.offset);
  for_runs(job.box, begin, end, [&](const Dims& at, std::int64_t n, std::int64_t position) {
    const std::int64_t index = row_major(at, job.dim);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto counter = static_cast<std::uint64_t>(index + i) / 4;
      const int lane = static_cast<int>((index + i) % 4);
      if (counter != last_counter) lanes = philox(job.seed, job.offset + counter);
      last_counter = counter;
      if (!e) {
        v[position + i] = value(a, lanes, lane);
        continue;
      }
      const Judged r = in_double ? judged<double>(a, lanes, lane) : judged<float>(a, lanes, lane);
      v[position + i] = r.value;
      e[position + i] = r.error;
    }
  });
}

}  // namespace sinter::reference
