// Matmul, convolutions and the grouped matmul: every element is a sum of dot products of two lines.
#include <algorithm>
#include <cmath>

#include "reference/job.hpp"
#include "sinter/ops/shapes_contraction.hpp"

namespace sinter::reference {
namespace {

// Sums over lines. Exact lines take a loop without errors; four partial sums let the additions
// overlap.
template <bool judging>
void dot_exact(const double* a, const double* b, std::int64_t n, Sums& sum) {
  double v[4] = {}, s[4] = {}, q[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int j = 0; j < 4; ++j) {
      const double product = a[i + j] * b[i + j];
      v[j] += product;
      if constexpr (judging) {
        s[j] += std::fabs(product);
        q[j] += product * product;
      }
    }
  for (; i < n; ++i) {
    const double product = a[i] * b[i];
    v[0] += product;
    if constexpr (judging) {
      s[0] += std::fabs(product);
      q[0] += product * product;
    }
  }
  sum.v += (v[0] + v[1]) + (v[2] + v[3]);
  if constexpr (judging) {
    sum.s += (s[0] + s[1]) + (s[2] + s[3]);
    sum.q += (q[0] + q[1]) + (q[2] + q[3]);
  }
}

void add_product(double a, double ea, double b, double eb, Sums& sum) {
  const double product = a * b;
  sum.v += product;
  sum.s += std::fabs(product);
  sum.q += product * product;
  // An exact zero times an exact number stays exact; else the usual bound of a product.
  if (ea > 0 || eb > 0) sum.p += std::fabs(a) * eb + std::fabs(b) * ea + ea * eb;
}

// The same where one of the lines has errors, or both. `with_a`, `with_b`: which.
template <bool with_a, bool with_b>
void dot_bounded(const Line& a, const Line& b, Sums& sum) {
  const std::size_t n = a.v.size();
  Sums parts[4];
  const auto add = [&](std::size_t i, Sums& part) {
    add_product(a.v[i], with_a ? a.e[i] : 0, b.v[i], with_b ? b.e[i] : 0, part);
  };
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (std::size_t j = 0; j < 4; ++j) add(i + j, parts[j]);
  for (; i < n; ++i) add(i, parts[0]);
  for (const Sums& part : parts) sum.v += part.v, sum.s += part.s, sum.q += part.q, sum.p += part.p;
}

// Elements that differ from the one before, the first among them; no more are counted than n terms
// in runs have.
std::int64_t changes_of(const Line& line, std::int64_t n) {
  std::int64_t changes = 1;
  for (std::size_t i = 1; i < line.v.size() && in_runs(changes, n); ++i)
    changes += line.v[i] != line.v[i - 1];
  return changes;
}
bool stands_in_runs(const Line& line) {
  const auto n = static_cast<std::int64_t>(line.v.size());
  return in_runs(changes_of(line, n), n);
}

// Whether n columns are kept as doubles, with their errors, for the next row.
constexpr bool are_kept(std::int64_t n, std::int64_t k) { return n * (k + 8) <= 1 << 20; }

class Contraction {
 public:
  explicit Contraction(const Job& job) : job_(job) {
    if (const auto* m = std::get_if<MatmulAttributes>(&job.node->attributes))
      zero_dominates_ = m->zero_dominates;
  }

  void add(const Line& a, const Line& b, Sums& sum) const {
    const auto n = static_cast<std::int64_t>(a.v.size());
    if (zero_dominates_) {
      for (std::size_t i = 0; i < a.v.size(); ++i) {
        const double ea = a.e.empty() ? 0 : a.e[i], eb = b.e.empty() ? 0 : b.e[i];
        if (a.v[i] == 0 && ea == 0) continue;
        add_product(a.v[i], ea, b.v[i], eb, sum);
      }
    } else if (a.errors() && b.errors()) {
      dot_bounded<true, true>(a, b, sum);
    } else if (a.errors()) {
      dot_bounded<true, false>(a, b, sum);
    } else if (b.errors()) {
      dot_bounded<false, true>(a, b, sum);
    } else if (job_.judging) {
      dot_exact<true>(a.v.data(), b.v.data(), n, sum);
    } else {
      dot_exact<false>(a.v.data(), b.v.data(), n, sum);
    }
  }

  // One of several lines of a sum of `terms`.
  void add_line(const Line& a, const Line& b, std::int64_t terms, Sums& sum, Lines& lines) const {
    if (!job_.judging || !lines.open(terms)) return add(a, b, sum);
    Sums line;
    add(a, b, line);
    sum.v += line.v, sum.s += line.s, sum.q += line.q, sum.p += line.p;
    lines.add(line, changes_of(a, terms) + changes_of(b, terms) - 1,
              static_cast<std::int64_t>(a.v.size()));
    sum.alike = lines.alike();
  }

  // `padding`: some products are of zeros around the image. What these give with an infinite or NaN
  // element of `beside` is left open (GRAPH_JSON.md).
  void finish_convolution(const Sums& sum, std::int64_t terms, bool padding, const Operand& beside,
                          double* v, double* e) const {
    finish(sum, terms, v, e);
    if (e && padding && !beside.numbers.finite) *e = kUntrusted;
  }

  void finish(const Sums& sum, std::int64_t terms, double* v, double* e) const {
    *v = sum.v;
    if (!e) return;
    double growth = summation_growth(sum, terms);
    if (job_.tensor_cores)  // these truncate, so that their error grows linearly
      growth = std::max(
          growth, 2 * static_cast<double>(terms) / static_cast<double>(job_.tensor_core_depth) +
                      job_.tensor_core_floor);
    growth += job_.scaled_sums;
    *e = finish_sum(sum, growth, job_.in[0].numbers.unit * job_.in[1].numbers.unit, job_.precision)
             .error;
    if (job_.tensor_cores && job_.f16_factors && sum.s > 0) *e += error_of_subnormals(terms);
  }

  // Tensor cores align the products of a step, and the sum so far, to the largest exponent of any,
  // and cut each off 23 bits behind it at the least. Subnormal factors of f16 have the exponent of
  // the least normal number there, not their own, so that their products may cut off more than the
  // rounding of the sum of magnitudes. (Seen on an H200: sums of 9 products of numbers below 1 and
  // of 2^-24 to 2^-20 off by 2^-42, which is two units of their last place.)
  double error_of_subnormals(std::int64_t terms) const {
    const double least = std::ldexp(1.0, info(DataType::f16).min_exponent);
    const auto largest_product = [&](const Numbers& subnormal, const Numbers& other) {
      return subnormal.subnormal_as_f16 ? least * std::max(other.largest, least) : 0;
    };
    const Numbers &a = job_.in[0].numbers, &b = job_.in[1].numbers;
    const double depth = static_cast<double>(job_.tensor_core_depth),
                 steps = std::ceil(static_cast<double>(terms) / depth);
    return steps * (depth + 1) *
           std::ldexp(std::max(largest_product(a, b), largest_product(b, a)), -23);
  }

  void matmul(std::int64_t begin, std::int64_t end, double* v, double* e) const;
  void conv_fprop(const Dims& at, double* v, double* e) const;
  void conv_dgrad(const Dims& at, double* v, double* e) const;
  void conv_wgrad(const Dims& at, double* v, double* e) const;
  void moe(const Dims& at, double* v, double* e) const;

 private:
  // Columns of B from one on, which several rows of the result need.
  struct Columns {
    Dims first;
    std::int64_t count = 0;
    std::vector<Line> lines;
  };
  // One row of the result, column by column or, where B's rows are contiguous, row by row of B.
  void row_by_columns(const Line& a, Dims b, std::int64_t n, Columns& kept, double* v,
                      double* e) const;
  void row_by_rows(const Line& a, Dims b, std::int64_t n, double* v, double* e) const;

  const Job& job_;
  bool zero_dominates_ = false;
};

// Where entry `c` of the result's batch dim of extent `full` lies in an operand's.
std::int64_t batch_entry(std::int64_t c, std::int64_t extent, std::int64_t full) {
  return extent == full ? c : extent == 1 ? 0 : c / (full / extent);
}

void Contraction::matmul(std::int64_t begin, std::int64_t end, double* v, double* e) const {
  const Operand &a = job_.in[0], &b = job_.in[1];
  const int rank = job_.dim.size();
  const std::int64_t k = a.dim.back();
  const auto origin = [&](const Operand& o, const Dims& at) {
    Dims c = Dims::filled(o.dim.size(), 0);
    for (int i = 0; i < o.dim.size() - 2; ++i) {
      const int r = rank - o.dim.size() + i;
      c[i] = batch_entry(at[r], o.dim[i], job_.dim[r]);
    }
    return c;
  };
  Line row;
  Columns columns;
  for_runs(job_.box, begin, end, [&](const Dims& at, std::int64_t n, std::int64_t position) {
    Dims ca = origin(a, at), cb = origin(b, at);
    ca[ca.size() - 2] = at[rank - 2];
    cb[cb.size() - 1] = at[rank - 1];
    if (k > 0) a.view.line(ca, ca.size() - 1, k, row);
    double* pe = e ? e + position : nullptr;
    const Dims& stride = b.view.stride;
    if (n < 4 || k == 0 || stride[stride.size() - 2] < stride.back() ||
        (e && (are_kept(n, k) || stands_in_runs(row))))
      row_by_columns(row, cb, n, columns, v + position, pe);
    else
      row_by_rows(row, cb, n, v + position, pe);
  });
}

void Contraction::row_by_columns(const Line& a, Dims b, std::int64_t n, Columns& kept, double* v,
                                 double* e) const {
  const auto k = static_cast<std::int64_t>(a.v.size());
  const bool alike = e && stands_in_runs(a), keep = are_kept(n, k);
  if (!keep || kept.first != b || kept.count < n) kept.count = 0;
  if (kept.count == 0) kept.first = b;
  kept.lines.resize(static_cast<std::size_t>(std::max<std::int64_t>(keep ? n : 1, kept.count)));
  for (std::int64_t j = 0; j < n; ++j, ++b.back()) {
    Sums sum;
    if (k > 0) {
      Line& column = kept.lines[static_cast<std::size_t>(keep ? j : 0)];
      if (j >= kept.count) job_.in[1].view.line(b, b.size() - 2, k, column);
      if (keep) kept.count = std::max(kept.count, j + 1);
      add(a, column, sum);
      sum.alike = alike && stands_in_runs(column);
    }
    finish(sum, k, v + j, e ? e + j : nullptr);
  }
}

void Contraction::row_by_rows(const Line& a, Dims b, std::int64_t n, double* v, double* e) const {
  const auto k = static_cast<std::int64_t>(a.v.size());
  std::vector<Sums> sums(static_cast<std::size_t>(e ? n : 0));
  if (!e) std::fill_n(v, n, 0.0);
  Line row;
  for (std::int64_t i = 0; i < k; ++i) {
    const double x = a.v[static_cast<std::size_t>(i)],
                 ex = a.e.empty() ? 0 : a.e[static_cast<std::size_t>(i)];
    if (zero_dominates_ && x == 0 && ex == 0) continue;
    b[b.size() - 2] = i;
    job_.in[1].view.line(b, b.size() - 1, n, row);
    if (!e) {
      for (std::int64_t j = 0; j < n; ++j) v[j] += x * row.v[static_cast<std::size_t>(j)];
      continue;
    }
    for (std::size_t j = 0; j < sums.size(); ++j)
      add_product(x, ex, row.v[j], row.e.empty() ? 0 : row.e[j], sums[j]);
  }
  for (std::size_t j = 0; j < sums.size(); ++j) finish(sums[j], k, v + j, e + j);
}

// ---- convolutions. Position of tap t of output o in the image: o * stride - pre + dilation * t;
// mode convolution reads the filter backwards.

std::int64_t filter_entry(const shapes::ConvGeometry& g, const Dims& w, int i, std::int64_t t) {
  return g.flip ? w[i + 2] - 1 - t : t;
}

void Contraction::conv_fprop(const Dims& at, double* v, double* e) const {
  const Operand &x = job_.in[0], &w = job_.in[1];
  const auto g = shapes::conv_geometry(job_.attributes<ConvAttributes>(), x.dim.size());
  const std::int64_t channels = w.dim[1];
  Box taps{Dims::filled(g.spatial, 0), {}};
  for (int i = 0; i < g.spatial; ++i) taps.size.push_back(w.dim[i + 2]);
  Dims cx = at, cw = at;
  cx[1] = at[1] / (w.dim[0] / g.groups) * channels;
  cw[0] = at[1];
  cw[1] = 0;
  Sums sum;
  Lines lines;
  bool padding = false;
  Line lx, lw;
  if (channels > 0)
    for_each(taps, [&](const Dims& t) {
      for (int i = 0; i < g.spatial; ++i) {
        cx[i + 2] = at[i + 2] * g.stride[i] - g.pre[i] + g.dilation[i] * t[i];
        const bool outside = cx[i + 2] < 0 || cx[i + 2] >= x.dim[i + 2];
        padding |= outside;
        if (outside) return;
        cw[i + 2] = filter_entry(g, w.dim, i, t[i]);
      }
      x.view.line(cx, 1, channels, lx);
      w.view.line(cw, 1, channels, lw);
      add_line(lx, lw, channels * taps.volume(), sum, lines);
    });
  finish_convolution(sum, channels * taps.volume(), padding, w, v, e);
}

void Contraction::conv_dgrad(const Dims& at, double* v, double* e) const {
  const Operand &dy = job_.in[0], &w = job_.in[1];
  const auto g = shapes::conv_geometry(job_.attributes<ConvAttributes>(), dy.dim.size());
  const std::int64_t filters = w.dim[0] / g.groups;
  Box taps{Dims::filled(g.spatial, 0), {}};
  for (int i = 0; i < g.spatial; ++i) taps.size.push_back(w.dim[i + 2]);
  Dims cy = at, cw = at;
  cy[1] = cw[0] = at[1] / w.dim[1] * filters;
  cw[1] = at[1] % w.dim[1];
  Sums sum;
  Lines lines;
  bool padding = false;
  Line ly, lw;
  if (filters > 0)
    for_each(taps, [&](const Dims& t) {
      for (int i = 0; i < g.spatial; ++i) {
        const std::int64_t reach = at[i + 2] + g.pre[i] - g.dilation[i] * t[i];
        const bool outside =
            reach < 0 || reach % g.stride[i] || reach / g.stride[i] >= dy.dim[i + 2];
        padding |= outside;
        if (outside) return;
        cy[i + 2] = reach / g.stride[i];
        cw[i + 2] = filter_entry(g, w.dim, i, t[i]);
      }
      dy.view.line(cy, 1, filters, ly);
      w.view.line(cw, 0, filters, lw);
      add_line(ly, lw, filters * taps.volume(), sum, lines);
    });
  finish_convolution(sum, filters * taps.volume(), padding, w, v, e);
}

void Contraction::conv_wgrad(const Dims& at, double* v, double* e) const {
  const Operand &dy = job_.in[0], &x = job_.in[1];
  const auto g = shapes::conv_geometry(job_.attributes<ConvAttributes>(), x.dim.size());
  const int last = g.spatial - 1, axis = last + 2;
  Dims tap;  // distance of this filter entry from the start of a window
  for (int i = 0; i < g.spatial; ++i) {
    const std::int64_t t = filter_entry(g, job_.dim, i, at[i + 2]);
    tap.push_back(g.dilation[i] * t - g.pre[i]);
  }
  // Outputs along the last axis whose tap lies inside the image.
  const std::int64_t s = g.stride[last];
  const std::int64_t low = tap[last] >= 0 ? 0 : (-tap[last] + s - 1) / s;
  const std::int64_t room = x.dim[axis] - 1 - tap[last];
  const std::int64_t n = std::min(dy.dim[axis], room < 0 ? 0 : room / s + 1) - low,
                     terms = dy.dim[1] > 0 ? count(dy.dim) / dy.dim[1] : 0;
  Sums sum;
  Lines lines;
  bool padding = n < dy.dim[axis];
  Line ly, lx;
  Box outer = Box::whole(dy.dim);
  outer.set(1, at[0], at[0] + 1);
  outer.set(axis, low, low + 1);
  View strided = x.view;
  strided.stride[axis] *= s;
  if (n > 0)
    for_each(outer, [&](const Dims& cy) {
      Dims cx = cy;
      cx[1] = at[0] / (job_.dim[0] / g.groups) * job_.dim[1] + at[1];
      for (int i = 0; i < last; ++i) {
        cx[i + 2] = cy[i + 2] * g.stride[i] + tap[i];
        const bool outside = cx[i + 2] < 0 || cx[i + 2] >= x.dim[i + 2];
        padding |= outside;
        if (outside) return;
      }
      cx[axis] = 0;
      strided.offset = x.view.offset + (low * s + tap[last]) * x.view.stride[axis];
      dy.view.line(cy, axis, n, ly);
      strided.line(cx, axis, n, lx);
      add_line(ly, lx, terms, sum, lines);
    });
  finish_convolution(sum, terms, padding, dy, v, e);
}

void Contraction::moe(const Dims& at, double* v, double* e) const {
  const MoeRow row = job_.rows[static_cast<std::size_t>(at[1] - job_.box.first[1])];
  if (row.token < 0 || row.expert < 0) {  // what no row is sent to is not written
    *v = 0;
    if (e) *e = kUntrusted;
    return;
  }
  const std::int64_t k = job_.in[0].dim[2];
  Sums sum;
  Line a, b;
  if (k > 0) {
    job_.in[0].view.line({0, row.token, 0}, 2, k, a);
    job_.in[1].view.line({row.expert, 0, at[2]}, 1, k, b);
    Lines lines;
    add_line(a, b, k, sum, lines);
  }
  finish(sum, k, v, e);
}

}  // namespace

void prepare_moe(Job& job) {
  const auto mode = job.attributes<MoeAttributes>().mode;
  const Operand &token = job.in[0], &weight = job.in[1], &offsets = job.in[2], &index = job.in[3];
  const auto read = [](const Operand& o, std::int64_t i) {
    return static_cast<std::int64_t>(o.view.element(coordinates(i, o.dim)).value);
  };
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i <= weight.dim[0]; ++i) starts.push_back(read(offsets, i));
  const auto expert_of = [&](std::int64_t row) {
    for (std::int64_t i = 0; i < weight.dim[0]; ++i)
      if (row >= starts[static_cast<std::size_t>(i)] &&
          row < starts[static_cast<std::size_t>(i) + 1])
        return i;
    return std::int64_t{-1};
  };
  const std::int64_t first = job.box.first[1], n = job.box.size[1];
  job.rows.assign(static_cast<std::size_t>(n), {});
  if (mode == MoeMode::scatter) {
    for (std::int64_t i = 0; i < token.dim[1]; ++i) {
      const std::int64_t to = read(index, i) - first;
      if (to >= 0 && to < n) job.rows[static_cast<std::size_t>(to)] = {i, expert_of(i)};
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t from = mode == MoeMode::gather ? read(index, first + i) : first + i;
    if (from >= 0 && from < token.dim[1])
      job.rows[static_cast<std::size_t>(i)] = {from, expert_of(first + i)};
  }
}

void evaluate_contraction(const Job& job, std::int64_t begin, std::int64_t end, double* v,
                          double* e) {
  const Contraction contraction(job);
  if (job.node->op == OpKind::matmul) return contraction.matmul(begin, end, v, e);
  for_runs(job.box, begin, end, [&](const Dims& at, std::int64_t n, std::int64_t position) {
    Dims c = at;
    for (std::int64_t i = position; i < position + n; ++i, ++c.back()) {
      double *pv = v + i, *pe = e ? e + i : nullptr;
      switch (job.node->op) {
        case OpKind::conv_fprop:
          contraction.conv_fprop(c, pv, pe);
          break;
        case OpKind::conv_dgrad:
          contraction.conv_dgrad(c, pv, pe);
          break;
        case OpKind::conv_wgrad:
          contraction.conv_wgrad(c, pv, pe);
          break;
        default:
          contraction.moe(c, pv, pe);
          break;
      }
    }
  });
}

}  // namespace sinter::reference
