#include "support/plan_interpreter.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <type_traits>

#include "support/interpreted_attention.hpp"
#include "support/kernel_statements.hpp"

namespace sinter::test {
namespace {

class Kernel : KernelStatements {
 public:
  using KernelStatements::KernelStatements;

  void run() {
    const auto attention = [&](const auto&) { interpret_attention(spec_, memory_); };
    std::visit(Overloaded{[&](const PointwiseSpec&) { run_pointwise(); },
                          [&](const RowwiseSpec& rows) { run_rowwise(rows); },
                          [&](const ContractionSpec& c) { run_contraction(c); }, attention},
               spec_.family);
  }

 private:
  void run_pointwise() {
    Index at(static_cast<std::size_t>(spec_.extent.size()), 0);
    std::vector<double> v;
    for_indices(at, 0, spec_.extent.size(), std::function<void()>([&] {
                  compute(spec_.body, at, v, [](auto&) { return true; });
                }));
  }

  void run_rowwise(const RowwiseSpec& rows) {
    const int rank = spec_.extent.size();
    Index at(static_cast<std::size_t>(rank), 0);
    std::vector<double> v;
    row_ = 0;
    // Neighbours whose reductions are one go through each phase one after the other.
    const auto last = static_cast<std::size_t>(rows.outer_rank - 1);
    for_indices(at, 0, rows.outer_rank, std::function<void()>([&] {
                  const std::int64_t first = rows.group > 1 ? at[last] : 0;
                  if (first % rows.group != 0) return;
                  partial_.clear();
                  for (const auto& r : rows.reductions) partial_.push_back(running(r));
                  finished_.assign(rows.reductions.size(),
                                   std::numeric_limits<double>::quiet_NaN());
                  for (int phase = 0; phase < rows.phases; ++phase) {
                    if (rows.segment > 0 && phase == rows.phases - 2) {
                      run_segments(rows, at, v);
                      break;
                    }
                    for (std::int64_t member = 0; member < rows.group; ++member) {
                      if (rows.group > 1) at[last] = first + member;
                      compute(spec_.body, at, v, [&](const Statement& s) {
                        return s.per_row && s.phase <= phase && !acts(s);
                      });
                      for_indices(at, rows.outer_rank, rank, std::function<void()>([&] {
                                    compute(spec_.body, at, v, [&](const Statement& s) {
                                      return !s.per_row && s.phase <= phase &&
                                             (!acts(s) || s.phase == phase);
                                    });
                                  }));
                      compute(spec_.body, at, v, [&](const Statement& s) {
                        return s.per_row && s.phase == phase && s.kind == StatementKind::store;
                      });
                    }
                    for (std::size_t r = 0; r < rows.reductions.size(); ++r)
                      if (rows.reductions[r].phase == phase)
                        finished_[r] = finish(static_cast<int>(r));
                  }
                  if (rows.group > 1) at[last] = first;
                  ++row_;
                }));
    store_columns();
  }

  // The last two phases: each segment's reductions, then what needs them.
  void run_segments(const RowwiseSpec& rows, Index& at, std::vector<double>& v) {
    const int last_phase = rows.phases - 1, last = spec_.extent.size() - 1;
    compute(spec_.body, at, v,
            [&](const Statement& s) { return s.per_row && !acts(s) && s.phase <= last_phase; });
    const auto elements = [&](std::int64_t first, int phase) {
      for (std::int64_t i = first; i < first + rows.segment; ++i) {
        at[static_cast<std::size_t>(last)] = i;
        compute(spec_.body, at, v, [&](const Statement& s) {
          return !s.per_row && s.phase <= phase && (!acts(s) || s.phase == phase);
        });
      }
    };
    for_indices(at, rows.outer_rank, last, std::function<void()>([&] {
                  for (std::int64_t i = 0; i < spec_.extent[last]; i += rows.segment) {
                    for (std::size_t r = 0; r < rows.reductions.size(); ++r)
                      if (rows.reductions[r].segmented) partial_[r] = running(rows.reductions[r]);
                    elements(i, last_phase - 1);
                    for (std::size_t r = 0; r < rows.reductions.size(); ++r)
                      if (rows.reductions[r].segmented) finished_[r] = finish(static_cast<int>(r));
                    elements(i, last_phase);
                  }
                  at[static_cast<std::size_t>(last)] = 0;
                }));
    compute(spec_.body, at, v, [&](const Statement& s) {
      return s.per_row && s.phase >= last_phase - 1 && s.kind == StatementKind::store;
    });
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
                                compute(spec_.body, at, v, [](auto&) { return true; });
                              }));
                }));
  }

  // Operands over batch, rows (or columns) and k.
  Table values_of_operand(const ContractionSpec& c, const Body& body, int first, int count) {
    std::vector<int> over;
    const auto append = [&](int from, int n) {
      for (int i = from; i < from + n; ++i) over.push_back(i);
    };
    append(0, c.batch), append(first, count), append(c.first_k(), c.k());
    return values_of(body, table(std::move(over), c.k()));
  }
  void run_products(const ContractionSpec& c) {
    Table a = values_of_operand(c, c.a().body, c.first_m(), c.m);
    std::vector<Table> b;
    for (const auto& product : c.products)
      b.push_back(values_of_operand(c, product.b.body, c.first_n(), c.n));
    std::vector<double> v;
    Index at(static_cast<std::size_t>(c.first_k() + c.k()), 0);
    const bool dominated = c.zero_dominates == ZeroOf::a, marked = c.marked_zeros;
    const auto term = [&](double x, double y, auto& acc) {
      if ((!dominated || x != 0) && !(marked && y == 0 && std::signbit(y)))
        acc = static_cast<std::remove_reference_t<decltype(acc)>>(static_cast<double>(acc) + x * y);
    };
    // Of neighbours along the last index of n, some side by side: each waits for its own last sum.
    const int last = c.first_k() - 1;
    const auto width = static_cast<std::size_t>(c.n > 0 ? spec_.extent[last] : 1);
    std::vector<double> sums[2];
    for (auto& of_line : sums) of_line.resize(width);
    const auto sum_some = [&]<class Sum, std::size_t count>(std::array<Sum, count> acc,
                                                            const double* x, const double* y,
                                                            double* line) {
      for (std::int64_t i = 0; i < a.length; ++i, ++y)
        for (std::size_t n = 0; n < count; ++n)
          term(x[i], y[static_cast<std::int64_t>(n) * a.length], acc[n]);
      std::copy(acc.begin(), acc.end(), line);
    };
    const auto sum_line = [&]<class Sum>(Sum, const double* x, const double* y, double* line) {
      constexpr std::size_t kTogether = 8;
      std::size_t j = 0;
      const auto next = [&] { return y + static_cast<std::int64_t>(j) * a.length; };
      for (; j + kTogether <= width; j += kTogether)
        sum_some(std::array<Sum, kTogether>{}, x, next(), line + j);
      for (; j < width; ++j) sum_some(std::array<Sum, 1>{}, x, next(), line + j);
    };
    for_indices(at, 0, c.first_k(), std::function<void()>([&] {
                  const std::size_t in_line =
                      c.n > 0 ? static_cast<std::size_t>(at[static_cast<std::size_t>(last)]) : 0;
                  for (std::size_t p = 0; p < b.size(); ++p) {
                    if (in_line == 0 && c.accumulate == DataType::f64)
                      sum_line(0.0, a.row(at), b[p].row(at), sums[p].data());
                    else if (in_line == 0)
                      sum_line(0.0F, a.row(at), b[p].row(at), sums[p].data());
                    accumulator_[p] = sums[p][in_line];
                  }
                  compute(spec_.body, at, v, [](auto&) { return true; });
                }));
    store_parts();
  }

  void run_contraction(const ContractionSpec& c) {
    if (c.chained()) return run_chained(c);
    if (!c.rows.on) return run_products(c);
    run_groups(c);
  }
  // Rows of groups (mixtures of experts), whose operand depends on the row that the index names.
  void run_groups(const ContractionSpec& c) {
    const int m = c.first_m(), k = c.first_k(), rank = k + c.k();
    Index at(static_cast<std::size_t>(rank), 0);
    std::vector<double> va, vb, v;
    const auto rows = [&](int port, std::int64_t i) {
      const auto& p = spec_.ports[static_cast<std::size_t>(port)];
      return static_cast<std::int64_t>(
          load_element(p.type, memory_[static_cast<std::size_t>(port)], p.access.offset + i));
    };
    for_indices(at, 0, k, std::function<void()>([&] {
                  const std::int64_t row = at[static_cast<std::size_t>(m)], e = at[0];
                  if (row < rows(c.rows.offsets, e) || row >= rows(c.rows.offsets, e + 1)) return;
                  if (c.rows.gathers()) at[static_cast<std::size_t>(m)] = rows(c.rows.index, row);
                  for (std::size_t p = 0; p < c.products.size(); ++p) {
                    double& acc = accumulator_[p] = 0;
                    for_indices(at, k, rank, std::function<void()>([&] {
                                  const double a = operand(c.a().body, at, va),
                                               b = operand(c.products[p].b.body, at, vb);
                                  if (c.zero_dominates == ZeroOf::a && a == 0) return;
                                  acc = rounded(c.accumulate, acc + a * b);
                                }));
                  }
                  at[static_cast<std::size_t>(m)] =
                      c.rows.mode == MoeMode::scatter ? rows(c.rows.index, row) : row;
                  compute(spec_.body, at, v, [](auto&) { return true; });
                  at[static_cast<std::size_t>(m)] = row;
                }));
    store_parts();
  }
};

}  // namespace

void interpret(const Partition& p, const HostPointers& memory, const Graph& graph) {
  std::vector<unsigned char> workspace(static_cast<std::size_t>(p.workspace_bytes) + 1, 0xFF);
  for (const auto& spec : p.kernels) {
    std::vector<void*> ports;
    for (const auto& port : spec.ports) {
      const auto at = p.workspace.find(port.tensor);
      ports.push_back(at != p.workspace.end() ? workspace.data() + at->second
                                              : memory.at(port.tensor));
    }
    KernelSpec given = spec;  // with the numbers of this call
    for (KernelScalar& s : given.scalars)
      if (const auto found = memory.find(s.tensor); found != memory.end()) {
        s.value = load_element(graph.type(s.tensor), found->second, 0);
        s.integer_value = static_cast<std::int64_t>(s.value);
      }
    Kernel(given, std::move(ports)).run();
  }
}

void interpret_fused(Graph& graph, const PlanOptions& options, const Graph& lowered,
                     const HostPointers& memory) {
  const auto made = partition_graph(graph, options, {device_model(options.architecture), {}});
  if (!made) throw std::runtime_error(made.error().message());
  const Graph& moved = *made->lowered.graph;
  HostPointers by_name;
  for (const auto& [t, pointer] : memory)
    if (const auto id = moved.find(lowered[t].name)) by_name[*id] = pointer;
  interpret(made->parts, by_name, moved);
}

}  // namespace sinter::test
