// One kernel on the CPU, element by element: what every family's interpreter is made of. Accesses,
// the statements of bodies and reductions, in float or double as each statement says.
#pragma once
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "plan/liveness.hpp"
#include "reference/apply.hpp"
#include "reference/element.hpp"
#include "reference/job.hpp"

namespace sinter::test {

using Index = std::vector<std::int64_t>;

class KernelStatements {
 public:
  // `memory`: by port.
  KernelStatements(const KernelSpec& spec, std::vector<void*> memory)
      : spec_(spec), memory_(std::move(memory)) {}

 protected:
  // ---- accesses

  struct Place {
    std::int64_t offset = 0;
    bool inside = true;
  };
  Place locate(const Access& a, const Index& at) const {
    Place p{a.offset, true};
    Index joined;
    if (!a.via.empty()) {
      std::int64_t linear = 0;
      for (int i = 0; i < spec_.extent.size(); ++i)
        linear = linear * spec_.extent[i] + at[static_cast<std::size_t>(i)];
      joined.assign(static_cast<std::size_t>(a.via.size()), 0);
      for (int i = a.via.size() - 1; i >= 0; --i) {
        joined[static_cast<std::size_t>(i)] = linear % a.via[i];
        linear /= a.via[i];
      }
    }
    const Index& index = a.via.empty() ? at : joined;
    for (int i = 0; i < a.stride.size(); ++i)
      p.offset += a.stride[i] * index[static_cast<std::size_t>(i)];
    for (const auto& w : a.windows) {
      std::int64_t c = w.base;
      for (int i = 0; i < w.coefficient.size(); ++i)
        c += w.coefficient[i] * at[static_cast<std::size_t>(i)];
      if (w.divisor != 1) {
        if (c % w.divisor != 0) p.inside = false;
        c /= w.divisor;
      }
      if (c < 0 || c >= w.extent) p.inside = false;
      p.offset += c * w.stride;
    }
    return p;
  }

  // ---- statements

  static double rounded(DataType arithmetic, double v) {
    return arithmetic == DataType::f64 ? v : static_cast<double>(static_cast<float>(v));
  }

  double formula(const Statement& s, const std::vector<double>& v) const {
    double result = 0;
    with_formula(s.mode, [&]<class F>(F) {
      double x[3] = {};
      float y[3] = {}, q[3];
      for (std::size_t i = 0; i < s.args.size(); ++i)
        y[i] = static_cast<float>(x[i] = v[static_cast<std::size_t>(s.args[i])]);
      for (int i = 0; i < 3; ++i) q[i] = static_cast<float>(s.params[static_cast<std::size_t>(i)]);
      result = s.arithmetic == DataType::f64
                   ? reference::apply<F, double>(x, s.params.data())
                   : static_cast<double>(reference::apply<F, float>(y, q));
    });
    return result;
  }

  double random(const Statement& s, const Index& at) const {
    reference::Job job;
    Node node;
    node.op = OpKind::rng;
    node.attributes = s.rng;
    job.node = &node;
    job.dim = {std::int64_t{1} << 60};
    job.box = {{locate(s.access, at).offset}, {1}};
    job.seed = static_cast<std::uint64_t>(integer(s.port));
    job.offset = static_cast<std::uint64_t>(integer(s.port2));
    double v;
    reference::evaluate_part(job, 0, 1, &v, nullptr);
    return v;
  }
  std::int64_t integer(int port) const {
    if (port < 0) return spec_.scalars[static_cast<std::size_t>(-1 - port)].integer_value;
    const auto& p = spec_.ports[static_cast<std::size_t>(port)];
    return static_cast<std::int64_t>(
        load_element(p.type, memory_[static_cast<std::size_t>(port)], p.access.offset));
  }

  double gather(const Statement& s, const Index& at) const {
    const Gather& g = spec_.gathers[static_cast<std::size_t>(s.gather)];
    reference::Job job;
    Node node;
    node.op = g.op;
    node.attributes = g.attributes;
    job.node = &node;
    job.output = g.output;
    job.dim = g.output_dim;
    for (int d = 0; d < g.output_dim.size(); ++d) {
      job.box.first.push_back(at[static_cast<std::size_t>(g.index(d))]);
      job.box.size.push_back(1);
    }
    job.arithmetic = s.arithmetic;
    job.precision = reference::precision_of(s.arithmetic);
    for (std::size_t i = 0; i < g.ports.size(); ++i) {
      reference::Operand o;
      if (g.ports[i] >= 0) {
        const auto& p = spec_.ports[static_cast<std::size_t>(g.ports[i])];
        o.present = true;
        o.dim = g.dims[i];
        o.view.memory = memory_[static_cast<std::size_t>(g.ports[i])];
        o.view.type = p.type;
        o.view.offset = p.access.offset;
        o.view.stride = g.strides[i];
      }
      job.in.push_back(o);
    }
    double v;
    reference::evaluate_part(job, 0, 1, &v, nullptr);
    return v;
  }

  // Runs the statements that `when` selects; values of others are kept from before.
  template <class When>
  void compute(const Body& body, const Index& at, std::vector<double>& v, When when) {
    v.resize(body.statements.size());
    for (std::size_t i = 0; i < body.statements.size(); ++i) {
      const Statement& s = body.statements[i];
      if (!when(s)) continue;
      const double x = s.args.empty() ? 0 : v[static_cast<std::size_t>(s.args[0])];
      const auto port = static_cast<std::size_t>(s.port);
      switch (s.kind) {
        case StatementKind::load: {
          Place p = locate(spec_.ports[port].access, at);
          p.offset += s.element;
          v[i] = p.inside ? load_element(spec_.ports[port].type, memory_[port], p.offset) : x;
          break;
        }
        case StatementKind::scalar:
          v[i] = rounded(s.arithmetic, spec_.scalars[port].value);
          break;
        case StatementKind::index:
          v[i] = rounded(s.arithmetic, static_cast<double>(at[static_cast<std::size_t>(s.dim)]));
          break;
        case StatementKind::pointwise:
          v[i] = formula(s, v);
          break;
        case StatementKind::convert:
          v[i] = round_to(s.type, x);
          break;
        case StatementKind::random:
          v[i] = rounded(s.arithmetic, random(s, at));
          break;
        case StatementKind::gather:
          v[i] = rounded(s.arithmetic, gather(s, at));
          break;
        case StatementKind::accumulator:
          v[i] = accumulator_[s.dim];
          break;
        case StatementKind::reduced:
          v[i] = finished_[port];
          break;
        case StatementKind::inside:
          v[i] = locate(spec_.ports[port].access, at).inside ? x : 0;
          break;
        case StatementKind::store: {
          if (const ContractionSpec* const c = spec_.as_contraction();
              c && c->pooled.on() && c->pooled.of == s.port) {
            pool(*c, at, x);
            if (c->pooled.port == s.port) break;
          }
          Place p = locate(spec_.ports[port].access, at);
          p.offset += s.element;
          if (p.inside) store_element(spec_.ports[port].type, memory_[port], p.offset, x);
          break;
        }
        case StatementKind::partial:
          v[i] = partial_[port].result();
          break;
        case StatementKind::reduce:
          if (!s.access.stride.empty() && !locate(s.access, at).inside) break;
          accumulate(spec_.rowwise().reductions[port], partial_[port], x);
          break;
        case StatementKind::cross_row_reduce:
          accumulate(spec_.cross_row_reductions[port],
                     spec_.as_rowwise() ? column(s.port, at) : part(s.port, at), x);
          break;
      }
    }
  }

  // Of a window's pixels the first is the first that comes, and the last the last.
  void pool(const ContractionSpec& c, const Index& at, double x) {
    Index first = at;
    int odd = 0;
    for (int i = c.first_n() - 2; i < c.first_n(); ++i) {
      odd += static_cast<int>(at[static_cast<std::size_t>(i)] % 2);
      first[static_cast<std::size_t>(i)] -= at[static_cast<std::size_t>(i)] % 2;
    }
    const auto port = static_cast<std::size_t>(c.pooled.port);
    const KernelPort& p = spec_.ports[port];
    const std::int64_t place = locate(p.access, first).offset;
    if (c.pooled.averages) {
      double& sum = of_windows_[place];
      sum += round_to(p.type, x);
      if (odd == 2) store_element(p.type, memory_[port], place, sum / 4);
      return;
    }
    if (first != at)
      x = math::maximum(round_to(p.type, x), load_element(p.type, memory_[port], place));
    store_element(p.type, memory_[port], place, x);
  }

  // ---- reductions

  // What a reduction has so far. Terms are added by twos, these by twos, and so on: a kernel's
  // threads add side by side, so that the bound of the error allows fewer roundings than terms.
  struct Running {
    double value = 0;  // of all but sums
    DataType arithmetic = DataType::f32;
    std::int64_t terms = 0;
    std::vector<double> sums{};  // of 1, 2, 4 ... terms, where that bit of `terms` is set

    void add(double term) {
      double sum = rounded(arithmetic, term);
      std::size_t i = 0;
      for (; terms >> i & 1; ++i) sum = rounded(arithmetic, sums[i] + sum);
      if (i == sums.size()) sums.push_back(0);
      sums[i] = sum;
      ++terms;
    }
    double result() const {
      double sum = value;
      for (std::size_t i = 0; i < sums.size(); ++i)
        if (terms >> i & 1) sum = rounded(arithmetic, sum + sums[i]);
      return sum;
    }
  };
  template <class Reduction>
  static Running running(const Reduction& r) {
    return {.value = identity(r.mode), .arithmetic = r.arithmetic};
  }

  // The running result of a column in the slot of the row that is being computed.
  Running& column(int c, const Index& at) {
    Index key(at.begin() + spec_.rowwise().outer_rank, at.end());
    key.push_back(row_ % spec_.rowwise().num_partials);
    key.push_back(c);
    return columns_
        .try_emplace(key, running(spec_.cross_row_reductions[static_cast<std::size_t>(c)]))
        .first->second;
  }
  // Every slot is written, also those that no row came to.
  void store_columns() {
    const int rank = spec_.extent.size();
    for (std::size_t c = 0; c < spec_.cross_row_reductions.size(); ++c) {
      const auto& port = spec_.ports[static_cast<std::size_t>(spec_.cross_row_reductions[c].port)];
      std::int64_t row = 1;
      for (int i = spec_.rowwise().outer_rank; i < rank; ++i) row *= spec_.extent[i];
      for (row_ = 0; row_ < spec_.rowwise().num_partials; ++row_) {
        Index at(static_cast<std::size_t>(rank), 0);
        for_indices(at, spec_.rowwise().outer_rank, rank, std::function<void()>([&] {
                      store_element(
                          port.type,
                          memory_[static_cast<std::size_t>(spec_.cross_row_reductions[c].port)],
                          locate(port.access, at).offset + row_ * row,
                          column(static_cast<int>(c), at).result());
                    }));
      }
    }
  }

  // The running result of some rows or columns of a contraction's results, or of attention's.
  Running& part(int number, const Index& at) {
    using A = AttentionSpec;
    const ContractionSpec* const c = spec_.as_contraction();
    const auto& r = spec_.cross_row_reductions[static_cast<std::size_t>(number)];
    const auto group = [&](int from, int count) {
      std::int64_t i = 0;
      for (int d = from; d < from + count; ++d)
        i = i * spec_.extent[d] + at[static_cast<std::size_t>(d)];
      return i / kReducedTogether;
    };
    const std::int64_t place =
        locate(spec_.ports[static_cast<std::size_t>(r.port)].access, at).offset +
        (c ? group(c->first_m(), c->m) : group(A::member, 2)) * r.partial_stride_m +
        (c ? group(c->first_n(), c->n) : group(A::e, 1)) * r.partial_stride_n;
    return columns_.try_emplace(Index{number, place}, running(r)).first->second;
  }
  void store_parts() {
    for (const auto& [key, value] : columns_) {
      const int port = spec_.cross_row_reductions[static_cast<std::size_t>(key[0])].port;
      store_element(spec_.ports[static_cast<std::size_t>(port)].type,
                    memory_[static_cast<std::size_t>(port)], key[1], value.result());
    }
  }

  template <class Reduction>
  static void accumulate(const Reduction& k, Running& running, double x) {
    double& p = running.value;
    switch (k.mode) {
      case ReductionMode::add:
      case ReductionMode::avg:
        return running.add(x);
      case ReductionMode::norm1:
        return running.add(std::fabs(x));
      case ReductionMode::norm2:
        return running.add(x * x);
      case ReductionMode::mul:
        p = rounded(k.arithmetic, p * x);
        return;
      case ReductionMode::mul_no_zeros:
        p = rounded(k.arithmetic, x == 0 ? p : p * x);
        return;
      case ReductionMode::min:
        p = math::minimum(p, x);
        return;
      case ReductionMode::max:
        p = math::maximum(p, x);
        return;
      case ReductionMode::amax:
        p = math::maximum(p, std::fabs(x));
        return;
    }
  }
  static double identity(ReductionMode m) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    switch (m) {
      case ReductionMode::min:
        return inf;
      case ReductionMode::max:
        return -inf;
      case ReductionMode::mul:
      case ReductionMode::mul_no_zeros:
        return 1;
      default:
        return 0;
    }
  }
  double finish(int r) const {
    const auto& k = spec_.rowwise().reductions[static_cast<std::size_t>(r)];
    const double p = partial_[static_cast<std::size_t>(r)].result();
    if (k.mode == ReductionMode::norm2) return rounded(k.arithmetic, std::sqrt(p));
    if (k.mode == ReductionMode::avg)
      return rounded(k.arithmetic, p / static_cast<double>(k.length));
    return p;
  }

  // ---- families

  // Calls f with every combination of the indices [from, to).
  template <class F>
  void for_indices(Index& at, int from, int to, const F& f) const {
    if (from == to) return f();
    for (std::int64_t i = 0; i < spec_.extent[from]; ++i) {
      at[static_cast<std::size_t>(from)] = i;
      for_indices(at, from + 1, to, f);
    }
    at[static_cast<std::size_t>(from)] = 0;
  }

  double operand(const Body& body, const Index& at, std::vector<double>& v) {
    compute(body, at, v, [](auto&) { return true; });
    return v.back();
  }

  // A number for each combination of some indices, the last one fastest: an operand's values, which
  // are asked for again and again. `inner` of the indices make a row.
  struct Table {
    std::vector<int> over;
    int inner = 1;
    int shared = -1;         // this index counts groups
    std::int64_t group = 1;  // of so many
    std::vector<std::int64_t> extent;
    std::int64_t length = 1;  // of a row
    std::vector<double> values;

    double* row(const Index& at) {
      std::int64_t i = 0;
      for (std::size_t j = 0; j + static_cast<std::size_t>(inner) < over.size(); ++j) {
        const std::int64_t index = at[static_cast<std::size_t>(over[j])];
        i = i * extent[j] + (over[j] == shared ? index / group : index);
      }
      return values.data() + i * length;
    }
  };
  Table table(std::vector<int> over, int inner, int shared = -1, std::int64_t group = 1) const {
    Table t{std::move(over), inner, shared, group, {}, 1, {}};
    std::int64_t count = 1;
    for (std::size_t j = 0; j < t.over.size(); ++j) {
      t.extent.push_back(spec_.extent[t.over[j]] / (t.over[j] == shared ? group : 1));
      count *= t.extent.back();
      if (j + static_cast<std::size_t>(inner) >= t.over.size()) t.length *= t.extent.back();
    }
    t.values.assign(static_cast<std::size_t>(count), 0);
    return t;
  }
  // `visit(at, number)` for each.
  template <class Visit>
  void for_each(Table& t, const Visit& visit) const {
    Index at(static_cast<std::size_t>(spec_.extent.size()), 0);
    for (double& value : t.values) {
      visit(at, value);
      for (std::size_t j = t.over.size(); j-- > 0;) {
        std::int64_t& index = at[static_cast<std::size_t>(t.over[j])];
        if (++index < t.extent[j]) break;
        index = 0;
      }
    }
  }
  Table values_of(const Body& body, Table t) {
    std::vector<double> v;
    for_each(t, [&](const Index& at, double& x) { x = operand(body, at, v); });
    return t;
  }

  const KernelSpec& spec_;
  std::vector<void*> memory_;  // by port
  double accumulator_[2] = {};
  std::vector<Running> partial_;
  std::vector<double> finished_;
  // Rowwise: by place in the row, slot and cross-row reduction; contraction: by reduction and
  // place.
  std::map<Index, Running> columns_;
  std::map<std::int64_t, double> of_windows_;  // sums of pixels, by place
  std::int64_t row_ = 0;
};

}  // namespace sinter::test
