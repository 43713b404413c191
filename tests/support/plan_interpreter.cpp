#include "support/plan_interpreter.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "plan/liveness.hpp"
#include "planner/rewrite/pass.hpp"
#include "reference/apply.hpp"
#include "reference/element.hpp"
#include "reference/job.hpp"

namespace sinter::test {
namespace {

using Index = std::vector<std::int64_t>;

class Kernel {
 public:
  Kernel(const KernelSpec& spec, std::vector<void*> memory)
      : spec_(spec), memory_(std::move(memory)) {}

  void run() {
    std::visit(Overloaded{[&](const PointwiseSpec&) { run_pointwise(); },
                          [&](const RowwiseSpec& rows) { run_rowwise(rows); },
                          [&](const ContractionSpec& c) { run_contraction(c); },
                          [&](const AttentionSpec& a) { run_attention(a); },
                          [&](const AttentionBackwardSpec& a) { run_attention_backward(a); }},
               spec_.family);
  }

 private:
  // ---- accesses

  struct Place {
    std::int64_t offset = 0;
    bool inside = true;
  };
  Place locate(const Access& a, const Index& at) const {
    Place p{a.offset, true};
    Index index = at;
    if (!a.via.empty()) {
      std::int64_t linear = 0;
      for (int i = 0; i < spec_.extent.size(); ++i)
        linear = linear * spec_.extent[i] + at[static_cast<std::size_t>(i)];
      index.assign(static_cast<std::size_t>(a.via.size()), 0);
      for (int i = a.via.size() - 1; i >= 0; --i) {
        index[static_cast<std::size_t>(i)] = linear % a.via[i];
        linear /= a.via[i];
      }
    }
    for (int i = 0; i < a.stride.size(); ++i)
      p.offset += a.stride[i] * index[static_cast<std::size_t>(i)];
    for (const auto& w : a.windows) {
      std::int64_t c = w.base;
      for (int i = 0; i < w.coefficient.size(); ++i)
        c += w.coefficient[i] * at[static_cast<std::size_t>(i)];
      if (c % w.divisor != 0) p.inside = false;
      c /= w.divisor;
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
    reference::with_formula(s.mode, [&]<class F>(F) {
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
  void run(const Body& body, const Index& at, std::vector<double>& v, When when) {
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
          Place p = locate(spec_.ports[port].access, at);
          p.offset += s.element;
          if (p.inside) store_element(spec_.ports[port].type, memory_[port], p.offset, x);
          break;
        }
        case StatementKind::partial:
          v[i] = partial_[port];
          break;
        case StatementKind::reduce:
          if (!s.access.stride.empty() && !locate(s.access, at).inside) break;
          accumulate(spec_.rowwise().reductions[port], partial_[port], x);
          break;
        case StatementKind::column:
          accumulate(spec_.columns[port],
                     spec_.as_contraction() ? part(s.port, at) : column(s.port, at), x);
          break;
      }
    }
  }

  // ---- reductions

  // The running result of a column in the slot of the row that is being computed.
  double& column(int c, const Index& at) {
    Index key(at.begin() + spec_.rowwise().outer_rank, at.end());
    key.push_back(row_ % spec_.rowwise().num_partials);
    key.push_back(c);
    const auto mode = spec_.columns[static_cast<std::size_t>(c)].mode;
    return columns_.try_emplace(key, identity(mode)).first->second;
  }
  // Every slot is written, also those that no row came to.
  void store_columns() {
    const int rank = spec_.extent.size();
    for (std::size_t c = 0; c < spec_.columns.size(); ++c) {
      const auto& port = spec_.ports[static_cast<std::size_t>(spec_.columns[c].port)];
      std::int64_t row = 1;
      for (int i = spec_.rowwise().outer_rank; i < rank; ++i) row *= spec_.extent[i];
      for (row_ = 0; row_ < spec_.rowwise().num_partials; ++row_) {
        Index at(static_cast<std::size_t>(rank), 0);
        for_indices(at, spec_.rowwise().outer_rank, rank, std::function<void()>([&] {
                      store_element(port.type,
                                    memory_[static_cast<std::size_t>(spec_.columns[c].port)],
                                    locate(port.access, at).offset + row_ * row,
                                    column(static_cast<int>(c), at));
                    }));
      }
    }
  }

  // The running result of some rows or columns of a contraction's results.
  double& part(int number, const Index& at) {
    const ContractionSpec& c = spec_.contraction();
    const auto& r = spec_.columns[static_cast<std::size_t>(number)];
    const auto group = [&](int from, int count) {
      std::int64_t i = 0;
      for (int d = from; d < from + count; ++d)
        i = i * spec_.extent[d] + at[static_cast<std::size_t>(d)];
      return i / kReducedTogether;
    };
    const std::int64_t place =
        locate(spec_.ports[static_cast<std::size_t>(r.port)].access, at).offset +
        group(c.first_m(), c.m) * r.slot_m + group(c.first_n(), c.n) * r.slot_n;
    return columns_.try_emplace(Index{number, place}, identity(r.mode)).first->second;
  }
  void store_parts() {
    for (const auto& [key, value] : columns_) {
      const int port = spec_.columns[static_cast<std::size_t>(key[0])].port;
      store_element(spec_.ports[static_cast<std::size_t>(port)].type,
                    memory_[static_cast<std::size_t>(port)], key[1], value);
    }
  }

  template <class Reduction>
  static void accumulate(const Reduction& k, double& p, double x) {
    const auto sum = [&](double term) {
      p = rounded(k.arithmetic, p + rounded(k.arithmetic, term));
    };
    switch (k.mode) {
      case ReductionMode::add:
      case ReductionMode::avg:
        return sum(x);
      case ReductionMode::norm1:
        return sum(std::fabs(x));
      case ReductionMode::norm2:
        return sum(x * x);
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
    const double p = partial_[static_cast<std::size_t>(r)];
    if (k.mode == ReductionMode::norm2) return rounded(k.arithmetic, std::sqrt(p));
    if (k.mode == ReductionMode::avg)
      return rounded(k.arithmetic, p / static_cast<double>(k.length));
    return p;
  }

  // ---- families

  // Calls f with every combination of the indices [from, to).
  template <class F>
  void for_indices(Index& at, int from, int to, F f) const {
    if (from == to) return f();
    for (std::int64_t i = 0; i < spec_.extent[from]; ++i) {
      at[static_cast<std::size_t>(from)] = i;
      for_indices(at, from + 1, to, f);
    }
    at[static_cast<std::size_t>(from)] = 0;
  }

  void run_pointwise() {
    Index at(static_cast<std::size_t>(spec_.extent.size()), 0);
    std::vector<double> v;
    for_indices(at, 0, spec_.extent.size(),
                std::function<void()>([&] { run(spec_.body, at, v, [](auto&) { return true; }); }));
  }

  void run_rowwise(const RowwiseSpec& rows) {
    const int rank = spec_.extent.size();
    Index at(static_cast<std::size_t>(rank), 0);
    std::vector<double> v;
    row_ = 0;
    for_indices(
        at, 0, rows.outer_rank, std::function<void()>([&] {
          partial_.clear();
          for (const auto& r : rows.reductions) partial_.push_back(identity(r.mode));
          finished_.assign(rows.reductions.size(), std::numeric_limits<double>::quiet_NaN());
          for (int phase = 0; phase < rows.phases; ++phase) {
            run(spec_.body, at, v,
                [&](const Statement& s) { return s.per_row && s.phase <= phase && !acts(s); });
            for_indices(at, rows.outer_rank, rank, std::function<void()>([&] {
                          run(spec_.body, at, v, [&](const Statement& s) {
                            return !s.per_row && s.phase <= phase && (!acts(s) || s.phase == phase);
                          });
                        }));
            for (std::size_t r = 0; r < rows.reductions.size(); ++r)
              if (rows.reductions[r].phase == phase) finished_[r] = finish(static_cast<int>(r));
            run(spec_.body, at, v, [&](const Statement& s) {
              return s.per_row && s.phase == phase && s.kind == StatementKind::store;
            });
          }
          ++row_;
        }));
    store_columns();
  }

  double operand(const Body& body, const Index& at, std::vector<double>& v) {
    run(body, at, v, [](auto&) { return true; });
    return v.back();
  }

  // f(A B) C, of which every element of the row of f(A B) is computed once for each result.
  void run_chained(const ContractionSpec& c) {
    const int n = c.first_n(), k = c.first_k(), depth = k + c.k(), rank = depth + c.chained_k;
    Index at(static_cast<std::size_t>(rank), 0);
    std::vector<double> va, vb, v;
    const auto sum_over = [&](int from, int to, const auto& left, const Body& right) {
      double acc = 0;
      for_indices(at, from, to, std::function<void()>([&] {
                    const double a = left();
                    acc = rounded(c.accumulate, acc + a * operand(right, at, vb));
                  }));
      return acc;
    };
    for_indices(at, 0, n, std::function<void()>([&] {
                  std::vector<double> row;  // f(A B), as the second product's type
                  for_indices(at, k, depth, std::function<void()>([&] {
                                accumulator_[0] = sum_over(
                                    depth, rank, [&] { return operand(c.a().body, at, va); },
                                    c.b().body);
                                const double y = operand(c.products[1].a.body, at, v);
                                row.push_back(rounded(c.products[1].a.type, y));
                              }));
                  for_indices(at, n, k, std::function<void()>([&] {
                                std::size_t next = 0;
                                accumulator_[0] = sum_over(
                                    k, depth, [&] { return row[next++]; }, c.b(1).body);
                                run(spec_.body, at, v, [](auto&) { return true; });
                              }));
                }));
  }

  // ---- attention

  // An integer or a number of the entry that `at` is in.
  double of_entry(int port, const Index& at) const {
    const auto p = static_cast<std::size_t>(port);
    return load_element(spec_.ports[p].type, memory_[p], locate(spec_.ports[p].access, at).offset);
  }
  struct Interval {
    std::int64_t first, end;
  };
  // `a`: of either direction.
  template <class A>
  Interval seen(const A& a, const Index& at, int query) const {
    const std::int64_t row = at[static_cast<std::size_t>(query)], rows = spec_.extent[query],
                       columns = spec_.extent[A::n];
    const auto length = [&](int port, std::int64_t otherwise) {
      return port < 0 ? otherwise : static_cast<std::int64_t>(of_entry(port, at));
    };
    const std::int64_t q = length(a.length_q, rows), k = length(a.length_kv, columns);
    if (a.band.padding && row >= q) return {0, 0};
    const std::int64_t diagonal = row + (a.band.bottom_right ? k - q : 0);
    Interval i{0, a.band.padding ? std::min(k, columns) : columns};
    if (a.band.left) i.first = std::max<std::int64_t>(0, diagonal - *a.band.left + 1);
    if (a.band.right) i.end = std::min(i.end, diagonal + *a.band.right + 1);
    return i;
  }
  void run_attention(const AttentionSpec& a) {
    Index at(static_cast<std::size_t>(spec_.extent.size()), 0);
    for_indices(at, 0, AttentionSpec::e, std::function<void()>([&] {
                  const Interval keys = seen(a, at, AttentionSpec::query);
                  const std::int64_t each =
                      (std::max<std::int64_t>(0, keys.end - keys.first) + a.splits - 1) / a.splits;
                  for (int i = 0; i < a.splits; ++i) {
                    const std::int64_t first = keys.first + i * each;
                    attend(a, at, {first, std::min(keys.end, first + each)}, i);
                  }
                }));
  }
  // A row's part of the keys; what it gives is written as if it were another batch entry's.
  void attend(const AttentionSpec& a, Index at, const Interval& keys, int split) {
    using A = AttentionSpec;
    constexpr double kNothing = -std::numeric_limits<double>::infinity();
    std::vector<double> v, weights;
    Index result = at;
    result[0] += split * spec_.extent[0];
    const auto shared = [&](const Body& body) {  // of the head that the group shares
      Index own = at;
      own[A::head] /= a.group;
      return operand(body, own, v);
    };
    double largest = kNothing, total = 0;
    for (std::int64_t n = keys.first; n < keys.end; ++n) {
      at[A::n] = n;
      double sum = 0;
      for_indices(at, A::d, A::d + 1, std::function<void()>([&] {
                    sum = rounded(DataType::f32, sum + operand(a.q.body, at, v) * shared(a.k.body));
                  }));
      accumulator_[0] = sum;
      weights.push_back(a.score.statements.empty() ? sum * a.scale : operand(a.score, at, v));
      largest = math::maximum(largest, weights.back());
    }
    const bool nothing = largest == kNothing;
    const double sink = a.sink >= 0 && split == 0 ? of_entry(a.sink, at) : kNothing,
                 most = std::max(largest, sink);
    for (double& w : weights) total += w = nothing ? 0 : std::exp(w - most);
    if (!nothing) total += std::exp(sink - most);
    const bool stands = a.written_out && std::isinf(largest),
               undefined = nothing && a.written_out && a.splits == 1;
    if (a.stats >= 0) {
      const auto p = static_cast<std::size_t>(a.stats);
      store_element(spec_.ports[p].type, memory_[p], locate(spec_.ports[p].access, result).offset,
                    stands         ? largest
                    : !nothing     ? most + std::log(total)
                    : a.splits > 1 ? sink
                                   : largest);
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      at[A::n] = keys.first + static_cast<std::int64_t>(i);
      accumulator_[0] = undefined ? std::numeric_limits<double>::quiet_NaN()
                        : nothing ? 0
                                  : weights[i] / total;
      if (!a.weight.statements.empty()) accumulator_[0] = operand(a.weight, at, v);
      weights[i] = round_to(a.v.type, accumulator_[0]);
    }
    for_indices(at, A::e, A::e + 1, std::function<void()>([&] {
                  double sum = 0;
                  for (std::size_t i = 0; i < weights.size(); ++i) {
                    at[A::n] = keys.first + static_cast<std::int64_t>(i);
                    if (weights[i] != 0 || !a.zero_dominates)
                      sum = rounded(DataType::f32, sum + weights[i] * shared(a.v.body));
                  }
                  if (undefined) sum = std::numeric_limits<double>::quiet_NaN();
                  accumulator_[0] = sum;
                  result[A::e] = at[A::e];
                  run(spec_.body, result, v, [](auto&) { return true; });
                }));
  }

  void run_attention_backward(const AttentionBackwardSpec& a) {
    using A = AttentionBackwardSpec;
    Index at(static_cast<std::size_t>(spec_.extent.size()), 0);
    std::vector<double> v;
    // Sums of f32, by place.
    const auto index_of = [&](const Index& i, int row, int column) {
      return Index{i[0], i[1], i[static_cast<std::size_t>(row)],
                   i[static_cast<std::size_t>(column)]};
    };
    std::map<Index, double> dk, dv;
    const auto add = [&](std::map<Index, double>& to, const Index& i, double x) {
      double& sum = to[i];
      sum = rounded(DataType::f32, sum + x);
    };
    const auto shared = [&](const Body& body) {  // of the head that the group shares
      Index own = at;
      own[A::head] /= a.group;
      return operand(body, own, v);
    };
    const auto dot = [&](const ProductOperand& x, const ProductOperand& y, int along) {
      double sum = 0;
      for_indices(at, along, along + 1, std::function<void()>([&] {
                    sum = rounded(DataType::f32, sum + operand(x.body, at, v) * shared(y.body));
                  }));
      return sum;
    };
    for_indices(
        at, 0, A::n, std::function<void()>([&] {
          const Interval keys = seen(a, at, AttentionBackwardSpec::m);
          const double stats = of_entry(a.stats, at), delta = of_entry(a.delta, at);
          if (stats == -std::numeric_limits<double>::infinity()) return;
          for (std::int64_t n = keys.first; n < keys.end; ++n) {
            at[A::n] = n;
            const double sum = rounded(DataType::f32, dot(a.q, a.k, A::d) * a.scale);
            accumulator_[0] = sum;
            const double score = a.score.statements.empty() ? sum : operand(a.score, at, v),
                         weight = std::exp(score - stats),
                         ds = weight * (dot(a.d_o, a.v, A::e) - delta);
            accumulator_[0] = sum, accumulator_[1] = ds;
            const double gradient =
                             round_to(a.q.type,
                                      a.score.statements.empty() ? ds : operand(a.gradient, at, v)),
                         p = round_to(a.q.type, weight);
            Index of_key = at;
            of_key[A::head] /= a.group;
            for_indices(
                at, A::d, A::d + 1, std::function<void()>([&] {
                  of_key[A::d] = at[A::d];
                  add(dk, index_of(of_key, A::n, A::d), gradient * operand(a.q.body, at, v));
                  const auto port = static_cast<std::size_t>(a.sums);
                  const std::int64_t to = locate(spec_.ports[port].access, at).offset;
                  store_element(
                      DataType::f32, memory_[port], to,
                      load_element(DataType::f32, memory_[port], to) + gradient * shared(a.k.body));
                }));
            for_indices(at, A::e, A::e + 1, std::function<void()>([&] {
                          of_key[A::e] = at[A::e];
                          add(dv, index_of(of_key, A::n, A::e), p * operand(a.d_o.body, at, v));
                        }));
          }
          at[A::n] = 0;
        }));
    const auto store = [&](int number, int column, const std::map<Index, double>& sums,
                           double scale) {
      const auto port = static_cast<std::size_t>(number);
      for_indices(at, 0, spec_.extent.size(), std::function<void()>([&] {
                    const int other = column == A::d ? A::e : A::d;
                    if (at[A::m] != 0 || at[static_cast<std::size_t>(other)] != 0 ||
                        at[A::head] >= spec_.extent[A::head] / a.group)
                      return;
                    const auto sum = sums.find(index_of(at, A::n, column));
                    store_element(spec_.ports[port].type, memory_[port],
                                  locate(spec_.ports[port].access, at).offset,
                                  sum == sums.end() ? 0 : scale * sum->second);
                  }));
    };
    store(a.dk, A::d, dk, a.scale);
    store(a.dv, A::e, dv, 1);
  }

  void run_contraction(const ContractionSpec& c) {
    if (c.chained()) return run_chained(c);
    const int m = c.first_m(), k = c.first_k(), rank = k + c.k();
    Index at(static_cast<std::size_t>(rank), 0);
    std::vector<double> va, vb, v;
    const auto rows = [&](int port, std::int64_t i) {
      const auto& p = spec_.ports[static_cast<std::size_t>(port)];
      return static_cast<std::int64_t>(
          load_element(p.type, memory_[static_cast<std::size_t>(port)], p.access.offset + i));
    };
    for_indices(at, 0, k, std::function<void()>([&] {
                  const std::int64_t row = c.rows.on ? at[static_cast<std::size_t>(m)] : 0;
                  if (c.rows.on) {
                    const std::int64_t e = at[0];
                    if (row < rows(c.rows.offsets, e) || row >= rows(c.rows.offsets, e + 1)) return;
                    if (c.rows.gathers()) at[static_cast<std::size_t>(m)] = rows(c.rows.index, row);
                  }
                  for (std::size_t p = 0; p < c.products.size(); ++p) {
                    double& acc = accumulator_[p] = 0;
                    for_indices(at, k, rank, std::function<void()>([&] {
                                  const double a = operand(c.a().body, at, va),
                                               b = operand(c.products[p].b.body, at, vb);
                                  if (c.zero_dominates == ZeroOf::a && a == 0) return;
                                  acc = rounded(c.accumulate, acc + a * b);
                                }));
                  }
                  if (c.rows.on)
                    at[static_cast<std::size_t>(m)] =
                        c.rows.mode == MoeMode::scatter ? rows(c.rows.index, row) : row;
                  run(spec_.body, at, v, [](auto&) { return true; });
                  if (c.rows.on) at[static_cast<std::size_t>(m)] = row;
                }));
    store_parts();
  }

  const KernelSpec& spec_;
  std::vector<void*> memory_;  // by port
  double accumulator_[2] = {};
  std::vector<double> partial_, finished_;
  // Rowwise: by place in the row, slot and column reduction; contraction: by reduction and place.
  std::map<Index, double> columns_;
  std::int64_t row_ = 0;
};

}  // namespace

void interpret(const Partition& p, const HostPointers& memory) {
  std::vector<unsigned char> workspace(static_cast<std::size_t>(p.workspace_bytes) + 1, 0xFF);
  for (const auto& spec : p.kernels) {
    std::vector<void*> ports;
    for (const auto& port : spec.ports) {
      const auto at = p.workspace.find(port.tensor);
      ports.push_back(at != p.workspace.end() ? workspace.data() + at->second
                                              : memory.at(port.tensor));
    }
    Kernel(spec, std::move(ports)).run();
  }
}

void interpret_fused(const Lowered& lowered, std::string_view architecture,
                     const HostPointers& memory) {
  const auto moved = run_passes(lowered, rewrite_passes()[0]);
  const Graph& graph = moved ? *moved->graph : *lowered.graph;
  HostPointers by_name;
  for (const auto& [t, pointer] : memory)
    if (const auto id = graph.find((*lowered.graph)[t].name)) by_name[*id] = pointer;
  interpret(partition(graph, true, architecture, moved ? moved->regions : lowered.regions),
            by_name);
}

}  // namespace sinter::test
