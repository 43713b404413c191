// Pooling and interpolation, forward and backward. Elements are gathered one by one: windows are
// small. A padded position holds -inf, 0 or the nearest element, as padding_mode says, and takes
// part like any other; the first of equal maxima wins, a NaN before all.
#include <cmath>

#include "reference/job.hpp"
#include "reference/resample_axis.hpp"

namespace sinter::reference {
namespace {

using Axes = std::vector<ResampleAxis>;

class Resample {
 public:
  explicit Resample(const Job& job)
      : job_(job), attributes_(job.attributes<ResampleAttributes>()), mode_(*attributes_.mode) {
    const Dims &x = forward() ? job.in[0].dim : job.dim, &y = forward() ? job.dim : job.in[0].dim;
    for (int i = 2; i < x.size(); ++i) axes_.emplace_back(attributes_, x.size(), i, x[i], y[i]);
    for (const auto& a : axes_) {
      window_.first.push_back(0);
      window_.size.push_back(a.window);
    }
    padding_ = axes_.front().padding;
  }

  Judged element(const Dims& at) const {
    if (mode_ == ResampleMode::maxpool) return forward() ? maximum(at) : max_gradient(at);
    return forward() ? weighted(at) : gradient(at);
  }

 private:
  bool forward() const { return job_.node->op == OpKind::resample; }
  int spatial() const { return static_cast<int>(axes_.size()); }
  const ResampleAxis& axis(int i) const { return axes_[static_cast<std::size_t>(i)]; }

  // The element of x at tap t of window o. False: the tap lies in padding that holds no element;
  // c is then not meaningful.
  bool tap(const Dims& o, const Dims& t, Dims& c) const {
    bool inside = true;
    for (int i = 0; i < spatial(); ++i) {
      const std::int64_t p = axis(i).tap(o[i + 2], t[i]);
      inside &= axis(i).inside(p);
      c[i + 2] = axis(i).clamp(p);
    }
    return inside || (padding_ == PaddingMode::edge_val_pad && job_exists());
  }
  bool job_exists() const {  // an image without elements has no edge either
    for (const auto& a : axes_)
      if (a.x == 0) return false;
    return true;
  }
  double padding_value() const {
    return padding_ == PaddingMode::neg_inf_pad ? -std::numeric_limits<double>::infinity() : 0;
  }

  Judged maximum(const Dims& at) const;
  Judged weighted(const Dims& at) const;
  Judged gradient(const Dims& at) const;
  Judged max_gradient(const Dims& at) const;

  // What an average divides by.
  double divisor(const Dims& o) const {
    double n = 1;
    for (int i = 0; i < spatial(); ++i) {
      std::int64_t taps = 0;
      for (std::int64_t t = 0; t < axis(i).window; ++t)
        taps += mode_ == ResampleMode::avgpool_include_padding ||
                axis(i).inside(axis(i).tap(o[i + 2], t));
      n *= static_cast<double>(taps);
    }
    return n;
  }
  // The weight of x's element c in output o of an interpolation.
  double weight(const Dims& o, const Dims& c) const {
    double w = 1;
    for (int i = 0; i < spatial(); ++i) {
      const auto& a = axis(i);
      if (mode_ == ResampleMode::nearest) {
        w *= a.nearest(o[i + 2]) == c[i + 2];
        continue;
      }
      const auto l = a.linear(o[i + 2]);
      w *= (l.low == c[i + 2] ? 1 - l.fraction : 0) + (l.low + 1 == c[i + 2] ? l.fraction : 0);
    }
    return w;
  }
  // Adds w * x. A weight is at most 1 and made of a few roundings an axis, among them 1 - fraction,
  // unless it is a short binary fraction.
  void add(Sums& sum, double w, const Judged& x) const {
    if (w == 0) return;
    const double product = w * x.value;
    const bool exact = w / kWeightUnit == std::rint(w / kWeightUnit);
    const double own = exact ? 0 : 4.0 * spatial() * job_.precision.u;
    sum.v += product;
    sum.s += std::fabs(product);
    sum.q += product * product;
    if (x.error > 0 || own > 0) sum.p += w * x.error + own * (std::fabs(x.value) + x.error);
  }
  Judged finish(const Sums& sum, std::int64_t terms) const {
    return finish_sum(sum, summation_growth(sum, terms) + 1, job_.in[0].numbers.unit * kWeightUnit,
                      job_.precision);
  }
  static constexpr double kWeightUnit = 0x1p-16;

  const Job& job_;
  const ResampleAttributes& attributes_;
  ResampleMode mode_;
  Axes axes_;
  Box window_;
  PaddingMode padding_;
};

Judged Resample::maximum(const Dims& at) const {
  double v = -std::numeric_limits<double>::infinity(), low = v, high = v;
  std::int64_t index = 0, position = 0;
  bool nan = false, open = false, first = true, tie = false;
  double runner_up = v;  // upper end of all but the one taken
  for_each(window_, [&](const Dims& t) {
    Dims c = at;
    const bool there = tap(at, t, c);
    const Judged x = there ? job_.in[0].view.element(c) : Judged{padding_value(), 0};
    if (!nan && x.value != x.value) {
      index = position;
      nan = true;
    }
    open |= !(x.error < kUntrusted);
    const double top = x.value + x.error;
    if (first || x.value > v) {
      if (!nan) index = position;
      runner_up = std::max(runner_up, first ? runner_up : high);
      tie = x.error > 0;
      v = x.value;
      low = std::max(low, x.value - x.error);
    } else {
      runner_up = std::max(runner_up, top);
      low = std::max(low, x.value - x.error);
    }
    high = std::max(high, top);
    first = false;
    ++position;
  });
  if (job_.output == 0) {
    if (nan && !open) return {std::numeric_limits<double>::quiet_NaN(), 0};
    return {v, open ? kUntrusted : std::max(distance(v, low), distance(high, v))};
  }
  // The position is certain where no other element can reach the maximum; exact ones tie for sure.
  const bool exact = distance(v, low) == 0 && distance(high, v) == 0 && !tie;
  const bool clear = nan ? !open : !open && (exact || runner_up < low);
  return {static_cast<double>(index), clear ? 0 : kUntrusted};
}

// Averages and interpolations: a weighted sum of a few elements.
Judged Resample::weighted(const Dims& at) const {
  Sums sum;
  Dims c = at;
  if (axis(0).pooling()) {
    for_each(window_, [&](const Dims& t) {
      const bool there = tap(at, t, c);
      if (mode_ == ResampleMode::avgpool_exclude_padding)
        for (int i = 0; i < spatial(); ++i)
          if (!axis(i).inside(axis(i).tap(at[i + 2], t[i]))) return;
      const Judged x = there ? job_.in[0].view.element(c) : Judged{padding_value(), 0};
      sum.v += x.value;
      sum.s += std::fabs(x.value);
      sum.q += x.value * x.value;
      sum.p += x.error;
    });
    const Judged total = finish_sum(sum, summation_growth(sum, window_.volume()),
                                    job_.in[0].numbers.unit, job_.precision);
    const double n = divisor(at), v = total.value / n;
    int exponent;
    const bool divides =  // without rounding
        v == 0 || (std::frexp(n, &exponent) == 0.5 && std::fabs(v) > 0x1p-100);
    if (total.error == 0 && (!std::isfinite(v) || divides)) return {v, 0};
    return {v, (total.error + 3 * job_.precision.u * (std::fabs(total.value) + total.error)) / n +
                   job_.precision.eta};
  }
  const Box corners{Dims::filled(spatial(), 0), Dims::filled(spatial(), 2)};
  for_each(corners, [&](const Dims& side) {
    double w = 1;
    for (int i = 0; i < spatial(); ++i) {
      const auto& a = axis(i);
      if (mode_ == ResampleMode::nearest) {
        c[i + 2] = a.nearest(at[i + 2]);
        if (side[i]) w = 0;
        continue;
      }
      const auto l = a.linear(at[i + 2]);
      c[i + 2] = std::min(l.low + side[i], a.x - 1);
      w *= side[i] ? l.fraction : 1 - l.fraction;
    }
    if (w != 0) add(sum, w, job_.in[0].view.element(c));
  });
  return finish(sum, corners.volume());
}

// The transposes: every output that read this element gives its share back.
Judged Resample::gradient(const Dims& at) const {
  Box outputs{at, Dims::filled(at.size(), 1)};
  for (int i = 0; i < spatial(); ++i) {
    const auto [begin, end] = axis(i).windows(at[i + 2], at[i + 2] + 1);
    outputs.set(i + 2, begin, end);
  }
  Sums sum;
  for_each(outputs, [&](const Dims& o) {
    double w = 0;
    if (!axis(0).pooling()) {
      w = weight(o, at);
    } else {
      Dims c = at;
      double hits = 0;
      for_each(window_, [&](const Dims& t) {
        bool inside = true;
        for (int i = 0; i < spatial(); ++i) inside &= axis(i).inside(axis(i).tap(o[i + 2], t[i]));
        if (mode_ == ResampleMode::avgpool_exclude_padding && !inside) return;
        if (tap(o, t, c) && c == at) hits += 1;
      });
      if (hits > 0) w = hits / divisor(o);
    }
    add(sum, w, job_.in[0].view.element(o));
  });
  return finish(sum, outputs.volume());
}

Judged Resample::max_gradient(const Dims& at) const {
  Box outputs{at, Dims::filled(at.size(), 1)};
  for (int i = 0; i < spatial(); ++i) {
    const auto [begin, end] = axis(i).windows(at[i + 2], at[i + 2] + 1);
    outputs.set(i + 2, begin, end);
  }
  Sums sum;
  for_each(outputs, [&](const Dims& o) {
    const Judged index = job_.in[3].view.element(o), dy = job_.in[0].view.element(o);
    const auto position = static_cast<std::int64_t>(index.value);
    if (position < 0 || position >= window_.volume()) return;
    Dims c = at;
    const bool hit = tap(o, coordinates(position, window_.size), c) && c == at;
    if (hit) {
      sum.v += dy.value;
      sum.s += std::fabs(dy.value);
      sum.q += dy.value * dy.value;
      sum.p += dy.error;
    }
    if (index.error > 0) sum.p += std::fabs(dy.value) + dy.error;  // it may have come here, or not
  });
  return finish_sum(sum, summation_growth(sum, outputs.volume()), job_.in[0].numbers.unit,
                    job_.precision);
}

}  // namespace

void evaluate_resample(const Job& job, std::int64_t begin, std::int64_t end, double* v, double* e) {
  const Resample resample(job);
  for_runs(job.box, begin, end, [&](const Dims& at, std::int64_t n, std::int64_t position) {
    Dims c = at;
    for (std::int64_t i = position; i < position + n; ++i, ++c.back()) {
      const Judged r = resample.element(c);
      v[i] = r.value;
      if (e) e[i] = r.error;
    }
  });
}

}  // namespace sinter::reference
