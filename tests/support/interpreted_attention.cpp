#include "support/interpreted_attention.hpp"

#include "schedule/attention/backward.hpp"
#include "support/kernel_statements.hpp"

namespace sinter::test {
namespace {

class Attention : KernelStatements {
 public:
  using KernelStatements::KernelStatements;

  void run() {
    if (const auto* const forward = spec_.as_attention()) return run_attention(*forward);
    run_attention_backward(*spec_.as_attention_backward());
  }

 private:
  // An integer or a number of the entry that `at` is in.
  double of_entry(int port, const Index& at) const {
    const auto p = static_cast<std::size_t>(port);
    return load_element(spec_.ports[p].type, memory_[p], locate(spec_.ports[p].access, at).offset);
  }
  struct Interval {
    std::int64_t first, end;
  };
  // Over entry, head and `more`; `group`: heads that share one of the table's.
  Table over_heads(std::initializer_list<int> more, std::int64_t group) const {
    std::vector<int> over{0, AttentionSpec::head};
    over.insert(over.end(), more);
    return table(std::move(over), 1, AttentionSpec::head, group);
  }
  // sums[i] += factor x[i], each sum rounded to f32.
  static void add_scaled(double* sums, double factor, const double* x, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      sums[i] = rounded(DataType::f32, sums[i] + factor * x[i]);
  }
  // Of x, with `count` elements, and a table's row of each key. `n`: the index of keys in `at`. Of
  // eight keys at once, as a sum waits for its rounding.
  static std::vector<double> dots(const double* x, std::int64_t count, Table& table, Index at,
                                  std::size_t n, const Interval& keys) {
    constexpr std::int64_t kAtOnce = 8;
    std::vector<double> result;
    for (std::int64_t first = keys.first; first < keys.end; first += kAtOnce) {
      const double* rows[kAtOnce];
      for (std::int64_t j = 0; j < kAtOnce; ++j) {
        at[n] = std::min(first + j, keys.end - 1);
        rows[j] = table.row(at);
      }
      double sums[kAtOnce] = {};
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < kAtOnce; ++j)
          sums[j] = rounded(DataType::f32, sums[j] + x[i] * rows[j][i]);
      result.insert(result.end(), sums, sums + std::min(kAtOnce, keys.end - first));
    }
    return result;
  }
  template <class A>
  Interval seen_in_sequence(const A& a, std::int64_t row) const {
    const auto offset = [&](int port, std::int64_t i) {
      const auto p = static_cast<std::size_t>(port);
      return static_cast<std::int64_t>(
          load_element(spec_.ports[p].type, memory_[p], spec_.ports[p].access.offset + i));
    };
    for (std::int64_t i = 0; i < a.sequences.count; ++i) {
      const std::int64_t first = offset(a.sequences.offsets_q, i),
                         end = offset(a.sequences.offsets_q, i + 1);
      if (row < first || row >= end) continue;
      Interval keys{offset(a.sequences.offsets_kv, i), offset(a.sequences.offsets_kv, i + 1)};
      const std::int64_t diagonal =
          row + (a.band.bottom_right ? keys.end - end : keys.first - first);
      if (a.band.left) keys.first = std::max(keys.first, diagonal - *a.band.left + 1);
      if (a.band.right) keys.end = std::min(keys.end, diagonal + *a.band.right + 1);
      return keys;
    }
    return {0, 0};
  }
  // `a`: of either direction.
  template <class A>
  Interval seen(const A& a, const Index& at, int query) const {
    const std::int64_t row = at[static_cast<std::size_t>(query)], rows = spec_.extent[query],
                       columns = spec_.extent[A::n];
    if (a.sequences.count > 0) return seen_in_sequence(a, row);
    const auto length = [&](int port, std::int64_t otherwise) {
      return port < 0 ? otherwise : static_cast<std::int64_t>(of_entry(port, at));
    };
    const std::int64_t q = length(a.length_q, rows), k = length(a.length_kv, columns);
    if (a.band.padding && row >= q) return {0, 0};
    const std::int64_t diagonal = row + (a.band.bottom_right ? k - q : 0);
    Interval i{0, a.band.padding ? std::min(k, columns) : columns};
    if (a.band.left) i.first = std::max<std::int64_t>(0, diagonal - *a.band.left + 1);
    if (a.band.right) i.end = std::min(i.end, diagonal + *a.band.right + 1);
    if (a.band.chunk) {
      const std::int64_t start = row / *a.band.chunk * *a.band.chunk;
      i.first = std::max(i.first, start), i.end = std::min(i.end, start + *a.band.chunk);
    }
    return i;
  }
  void run_attention(const AttentionSpec& a) {
    using A = AttentionSpec;
    q_ = values_of(a.q.body, over_heads({A::member, A::query, A::d}, 1));
    k_ = values_of(a.k.body, over_heads({A::n, A::d}, a.group));
    v_ = values_of(a.v.body, over_heads({A::n, A::e}, a.group));
    Index at(static_cast<std::size_t>(spec_.extent.size()), 0);
    for_indices(at, 0, A::e, std::function<void()>([&] {
                  const Interval visible = seen(a, at, A::query),
                                 keys = a.band.hidden ? Interval{0, spec_.extent[A::n]} : visible;
                  const std::int64_t each =
                      (std::max<std::int64_t>(0, keys.end - keys.first) + a.splits - 1) / a.splits;
                  for (int i = 0; i < a.splits; ++i) {
                    const std::int64_t first = keys.first + i * each;
                    attend(a, at, {first, std::min(keys.end, first + each)}, visible, i);
                  }
                }));
    store_parts();
  }
  // A row's part of the keys; what it gives is written as if it were another batch entry's.
  void attend(const AttentionSpec& a, Index at, const Interval& keys, const Interval& visible,
              int split) {
    using A = AttentionSpec;
    constexpr double kNothing = -std::numeric_limits<double>::infinity();
    std::vector<double> v, weights;
    Index result = at;
    result[0] += split * spec_.extent[0];
    double largest = kNothing, total = 0;
    const std::vector<double> products = dots(q_.row(at), spec_.extent[A::d], k_, at, A::n, keys);
    for (std::int64_t n = keys.first; n < keys.end; ++n) {
      at[A::n] = n;
      const double sum = products[static_cast<std::size_t>(n - keys.first)];
      accumulator_[0] = sum;
      const bool hidden = !a.mask.statements.empty() && operand(a.mask, at, v) == 0;
      weights.push_back(hidden                                  ? kNothing
                        : n < visible.first || n >= visible.end ? *a.band.hidden
                        : a.score.statements.empty()            ? sum * a.scale
                                                                : operand(a.score, at, v));
      largest = math::maximum(largest, weights.back());
    }
    const bool nothing = largest == kNothing;
    const double sink = !a.has_sink() || split != 0 ? kNothing
                        : a.sink_value              ? *a.sink_value
                                                    : of_entry(a.sink, at),
                 most = std::max(largest, sink);
    for (double& w : weights) total += w = nothing ? 0 : std::exp(w - most);
    if (!nothing) total += std::exp(sink - most);
    const bool stands = a.written_out && std::isinf(largest),
               undefined = nothing && a.written_out && a.splits == 1 && !(sink > kNothing);
    const auto store_row = [&](int number, double x) {
      const auto p = static_cast<std::size_t>(number);
      store_element(spec_.ports[p].type, memory_[p], locate(spec_.ports[p].access, result).offset,
                    x);
    };
    if (a.stats >= 0)
      store_row(a.stats, stands && a.adds_stats ? std::numeric_limits<double>::quiet_NaN()
                         : stands               ? largest
                         : !nothing             ? most + std::log(total)
                                                : largest);
    if (a.totals()) {
      const bool whole = a.splits == 1;
      store_row(a.largest, nothing && whole && !a.written_out ? 0 : most);
      store_row(a.total, nothing && whole && a.written_out
                             ? std::numeric_limits<double>::quiet_NaN()
                         : nothing ? (sink == kNothing ? 0 : 1)
                                   : total);
    }
    // Weights that are NaN are so where the row sees no key, too: a body may drop those that it
    // sees.
    const bool not_numbers = a.splits == 1 && (undefined || std::isnan(total));
    if (not_numbers) weights.resize(static_cast<std::size_t>(spec_.extent[A::n]));
    const std::int64_t begin = not_numbers ? 0 : keys.first;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      at[A::n] = begin + static_cast<std::int64_t>(i);
      accumulator_[0] = not_numbers ? std::numeric_limits<double>::quiet_NaN()
                        : nothing   ? 0
                                    : weights[i] / total;
      if (!a.weight.statements.empty()) accumulator_[0] = operand(a.weight, at, v);
      weights[i] = accumulator_[0];
    }
    // Of 8 bits times a power of two of the row: kernels take weights off the largest of its keys,
    // so that these do not vanish beside a sink.
    double largest_weight = 0;
    for (const double w : weights) largest_weight = std::fmax(largest_weight, std::fabs(w));
    const double power = a.f8_weights && largest_weight > 0 && std::isfinite(largest_weight)
                             ? std::ldexp(1.0, 5 - std::ilogb(largest_weight))
                             : 1;
    for (double& w : weights) w = round_to(a.v.type, w * power) / power;
    std::vector<double> sums(static_cast<std::size_t>(spec_.extent[A::e]));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      at[A::n] = begin + static_cast<std::int64_t>(i);
      if (weights[i] != 0 || !a.zero_dominates)
        add_scaled(sums.data(), weights[i], v_.row(at), spec_.extent[A::e]);
    }
    for_indices(at, A::e, A::e + 1, std::function<void()>([&] {
                  accumulator_[0] = sums[static_cast<std::size_t>(at[A::e])];
                  result[A::e] = at[A::e];
                  compute(spec_.body, result, v, [](auto&) { return true; });
                }));
  }

  void run_attention_backward(const AttentionBackwardSpec& a) {
    using A = AttentionBackwardSpec;
    Index at(static_cast<std::size_t>(spec_.extent.size()), 0);
    std::vector<double> v;
    Table q = values_of(a.q.body, over_heads({A::m, A::d}, 1)),
          k = values_of(a.k.body, over_heads({A::n, A::d}, a.group)),
          values = values_of(a.v.body, over_heads({A::n, A::e}, a.group)),
          d_o = values_of(a.d_o.body, over_heads({A::m, A::e}, 1));
    Table dq = over_heads({A::m, A::d}, 1), dk = over_heads({A::n, A::d}, a.group),
          dv = over_heads({A::n, A::e}, a.group);
    // Where no pair is hidden, a row's Stats are -infinity as its scores overflowed or are masks:
    // its weights are zeros like others, which infinite operands make NaN. Else a zero makes its
    // products zeros.
    const bool hides_pairs = a.band.left || a.band.right || a.band.padding || a.length_q >= 0 ||
                             a.length_kv >= 0 || a.sequences.count > 0;
    const auto add = [&](double* sums, double factor, const double* x, std::int64_t count) {
      if (!hides_pairs || factor != 0) add_scaled(sums, factor, x, count);
    };
    const BiasGradient bias = bias_gradient_of(spec_);
    const auto put_bias = [&](double x) {
      if (a.dbias < 0) return;
      const auto port = static_cast<std::size_t>(a.dbias);
      const DataType type = spec_.ports[port].type;
      std::int64_t to = locate(spec_.ports[port].access, at).offset;
      bool adds = bias.shared;
      if (bias.of_blocks) {
        const std::int64_t first = seen(a, at, AttentionBackwardSpec::m).first;
        adds = at[A::n] % AttentionBackwardSpec::keys_of_block != 0 && at[A::n] != first;
        to += at[A::n] / AttentionBackwardSpec::keys_of_block;
      }
      if (adds) x = rounded(DataType::f32, x + load_element(type, memory_[port], to));
      store_element(type, memory_[port], to, x);
    };
    for_indices(
        at, 0, A::n, std::function<void()>([&] {
          const Interval keys = seen(a, at, AttentionBackwardSpec::m);
          // Without totals Stats are what is taken off, and weights are divided by 1.
          const double largest = of_entry(a.totals() ? a.largest : a.stats, at),
                       total = a.totals() ? of_entry(a.total, at) : 1;
          const bool row_seen =
              a.totals() ? total != 0 : largest != -std::numeric_limits<double>::infinity();
          const double delta = a.delta < 0 || !row_seen ? 0 : of_entry(a.delta, at);
          const std::vector<double> qk = dots(q.row(at), spec_.extent[A::d], k, at, A::n, keys),
                                    d_o_v = dots(d_o.row(at), spec_.extent[A::e], values, at, A::n,
                                                 keys);
          for (std::int64_t n = keys.first; n < keys.end; ++n) {
            at[A::n] = n;
            const auto key = static_cast<std::size_t>(n - keys.first);
            const bool hidden = !row_seen && hides_pairs;
            if (hidden) put_bias(0);
            if (hidden || (!a.mask.statements.empty() && operand(a.mask, at, v) == 0)) continue;
            const double sum = rounded(DataType::f32, qk[key] * a.scale);
            accumulator_[0] = sum;
            const double score = a.score.statements.empty() ? sum : operand(a.score, at, v),
                         probability =
                             row_seen ? std::exp(score - largest) / total
                                      : std::exp(score - std::numeric_limits<double>::infinity());
            const auto made = [&](const Body& body, double x) {
              accumulator_[0] = x;
              return body.statements.empty() ? x : operand(body, at, v);
            };
            const double dp = made(a.rounded_dp, d_o_v[key]), weight = made(a.weight, probability),
                         ds = made(a.rounded_ds, probability * (made(a.weight, dp) - delta));
            put_bias(ds);
            accumulator_[0] = sum, accumulator_[1] = ds;
            const double gradient =
                             round_to(a.q.type,
                                      a.score.statements.empty() ? ds : operand(a.gradient, at, v)),
                         p = round_to(a.q.type, weight);
            add(dk.row(at), gradient, q.row(at), spec_.extent[A::d]);
            add(dq.row(at), gradient, k.row(at), spec_.extent[A::d]);
            add(dv.row(at), p, d_o.row(at), spec_.extent[A::e]);
          }
          at[A::n] = 0;
        }));
    const auto store = [&](int number, Table& sums, double scale, int parts) {
      if (number < 0) return;  // not wanted
      const auto port = static_cast<std::size_t>(number);
      for_each(sums, [&](Index to, double x) {
        for (int part = 0; part < parts; ++part, to[0] += spec_.extent[0])
          store_element(spec_.ports[port].type, memory_[port],
                        locate(spec_.ports[port].access, to).offset, part == 0 ? scale * x : 0);
      });
    };
    store(a.sums, dq, a.dq_factor.value_or(1), 1);
    store(a.dk, dk, a.scale, a.parts);
    store(a.dv, dv, 1, a.parts);
  }

  Table q_, k_, v_;  // of the forward kernel
};

}  // namespace

void interpret_attention(const KernelSpec& spec, std::vector<void*> memory) {
  Attention(spec, std::move(memory)).run();
}

}  // namespace sinter::test
