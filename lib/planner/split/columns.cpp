#include "planner/split/columns.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/rowwise/column_walk.hpp"

namespace sinter {
namespace {

// The kernel that finishes cross-row reductions: its rows are their results.
class ReductionEpilogue {
 public:
  // `kept`: which of the spec's indices its rows have, in order. `parts`: the partial results of a
  // row.
  ReductionEpilogue(const KernelSpec& spec, std::vector<int> kept, const Dims& parts)
      : kept_(std::move(kept)), body_(spec, whole_, 0) {
    whole_.family =
        RowwiseSpec{.outer_rank = static_cast<int>(kept_.size()), .combines_partials = true};
    whole_.nodes = spec.nodes;
    for (int i : kept_) whole_.extent.push_back(spec.extent[i]);
    for (std::int64_t n : parts) whole_.extent.push_back(n);
  }
  ReductionEpilogue(const ReductionEpilogue&) = delete;
  ReductionEpilogue& operator=(const ReductionEpilogue&) = delete;

  // `parts`: the port that the spec writes its partial results to. `step`: from one of them to the
  // next, along each index of the parts.
  void add(const CrossRowReduction& c, const KernelPort& parts, const Dims& step) {
    Access read = parts.access;
    KernelPort result = c.result;
    read.stride = restricted(parts.access.stride, step);
    result.access.stride = restricted(c.result.access.stride, Dims::filled(step.size(), 0));
    int value = finish_parts(whole_, body_, read_back(parts, read), c.mode, c.arithmetic, c.length,
                             c.label);
    DataType arithmetic = c.arithmetic;
    if (c.result.type != c.type && c.type != c.arithmetic) {
      // Stored narrower than its own type, the value is first rounded to its own.
      arithmetic = fits_f32(c.type) ? DataType::f32 : DataType::f64;
      value = body_.add_convert(value, arithmetic, c.type, c.label);
    }
    body_.add_store(value, arithmetic, result, true);
  }

  KernelSpec kernel() {
    simplify_domain(whole_);
    return std::move(whole_);
  }

 private:
  Dims restricted(const Dims& stride, const Dims& parts) const {
    Dims r;
    for (int i : kept_) r.push_back(stride[i]);
    for (std::int64_t n : parts) r.push_back(n);
    return r;
  }

  std::vector<int> kept_;
  KernelSpec whole_;
  BodyCopy body_;
};

// Adds the port for a cross-row reduction's partial results.
KernelPort add_parts(KernelSpec& spec, CrossRowReduction& c, const Dims& dim, const Access& written,
                     Temporaries& temporaries) {
  const DataType type = partial_type(c.mode, c.arithmetic);
  c.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(temporaries.add(c.label + "_parts", type, dim, written));
  return spec.ports.back();
}

// Blocks of whole rows that share an SM. Rows are divided among whole warps; where four
// blocks of one row would leave many threads' room unused, three of two rows may take it.
// (Gradients of a layernorm of 1152 columns on an H200: 84 us with four, 71 with three.)
std::int64_t blocks_together(std::int64_t columns, std::size_t reductions) {
  if (columns > 2048) return columns <= 5120 ? 2 : 1;
  // Two reductions and what they are made from take more registers.
  const std::int64_t threads = reductions > 1 ? kColumnThreads : kLightColumnThreads, width = 8;
  const std::int64_t of_row =
      std::max<std::int64_t>(1, (columns + 32 * width - 1) / (32 * width)) * 32;
  const auto busy = [&](std::int64_t blocks) {
    const auto rows = static_cast<std::uint64_t>(threads / blocks / of_row);
    return blocks * of_row * static_cast<std::int64_t>(std::bit_floor(rows));
  };
  return 5 * busy(3) > 6 * busy(4) ? 3 : 4;
}

// How the blocks of a rowwise kernel with cross-row reductions walk over the rows.
struct Walk {
  std::int64_t num_partials =
      0;  // persistent CTAs: blocks or, of long rows, clusters; each has partial results
  int rows_per_cta = 1;  // that one block takes
};
Walk choose_walk(const KernelSpec& spec, const DeviceModel& device) {
  const int outer = spec.rowwise().outer_rank;
  const std::int64_t rows = count(spec.extent, 0, outer),
                     columns = count(spec.extent, outer, spec.extent.size());
  const std::size_t reductions = spec.cross_row_reductions.size();
  constexpr std::int64_t one = 1, large_block = 8192;  // elements that a block takes at once
  constexpr std::int64_t few_steps = 64;               // each gets a block of its own
  // Rows that start anywhere are walked over in kinds that start alike, each by as many persistent
  // CTAs; fewer persistent CTAs than kinds are left as they are, and the rows' elements move one by
  // one. (Short rows do that anyway, but 65536 x 127 takes 21 us with 128 persistent CTAs and took
  // 27 with 132.) Where kinds of rows have results of their own, each has persistent CTAs of its
  // own.
  const std::int64_t own = column_kinds(spec), alike = columns % 8 == 0 ? 1 : 8;
  const auto of_kinds = [own, alike](std::int64_t num_partials) {
    if (own > 1) return std::max<std::int64_t>(1, num_partials / own) * own;
    return num_partials < alike ? num_partials : num_partials / alike * alike;
  };
  if (columns <= kShortRow && rows * columns >= device.sms * large_block)
    return {of_kinds(device.sms)};
  const std::int64_t per_sm = blocks_together(columns, reductions);
  const std::int64_t steps = std::max(one, rows / std::max(one, 2048 / std::max(columns, one)));
  // Clusters that wait for others to end would double the time.
  if (const int blocks = column_cluster(columns, reductions, device); blocks > 1) {
    const int at_once = device.clusters_at_once[static_cast<std::size_t>(blocks - 1)];
    return {of_kinds(std::clamp<std::int64_t>(rows, 1, at_once))};
  }
  // One more walker makes the others shorter by 1 / num_partials of all steps, and the end longer
  // by what it adds up. On an H200, for rmsnorm's gradients with 64, 132, 264 and 528 persistent
  // CTAs: 256 x 2048 in 3.9, 3.6, 4.3, 4.3 us; 1024 x 1024 in 5.3, 4.5, 5.4, 6.7; 2048 x 2048
  // in 11.8, 10.5, 10.1, 10.9; 8192 x 2048 in 27.2 with 264, 28.6 with 528.
  const double root = std::sqrt(static_cast<double>(steps));
  const auto best =
      static_cast<std::int64_t>(std::max(std::min(6 * root, 2.0 * device.sms), 4 * root));
  Walk walk{std::clamp(best, std::min(steps, few_steps), std::min(steps, device.sms * per_sm))};
  if (walk.num_partials > device.sms)
    walk.num_partials = walk.num_partials / device.sms * device.sms;
  // Blocks that would share an SM are one, as long as its threads are enough: that
  // leaves fewer partial results. (Gradients of a layernorm of 4096 x 5120 on an H200: 45.7 us with
  // 264 persistent CTAs, 39.3 with 132; of 1152 columns, 69 with 396 and 67 with 132.) Four are
  // two, though: 100.6 and 99.1 us for 65536 x 1024. But where several results need more registers,
  // as those of odd rows do, one is enough. (1001 columns: 66 and 32 us; 777: 48 and 38; 333: 42
  // and 36.)
  const std::int64_t blocks = walk.num_partials / device.sms;
  // Where rows wait for several reductions one after the other, another block computes meanwhile.
  // (A norm of 16 x 256 tokens of 1152, scaled by image, with all its gradients on an H200: 24.7 us
  // with one block of two rows an SM, 27.0, 15.7 and 21.2 with two of one, two and three.)
  constexpr int kPhases = 3;
  const bool together = !spec.sums_doubles();  // have the registers
  const bool alone = reductions > 1 && columns % 8 != 0;
  if (blocks > 1 && spec.rowwise().phases > kPhases)
    walk = {2 * device.sms, 2};
  else if (blocks > 2 && per_sm == 4 && together && !alone)
    walk = {2 * device.sms, 2};
  else if (blocks > 1 && reductions > 1 && together)
    walk = {device.sms, static_cast<int>(blocks)};
  walk.num_partials = of_kinds(walk.num_partials);
  return walk;
}

// Plans of a class of extents have as many blocks, some of which may have no row: what the kernel
// that finishes reduces is then as long in all of them.
Walk decide_walk(const KernelSpec& spec, const PlanContext& context) {
  const Walk walk = choose_walk(spec, context.device);
  if (column_kinds(spec) > 1) return walk;  // kinds may be as many as an extent says
  using Kind = Decisions::Kind;
  const auto decide = [&](Kind kind, std::int64_t chosen) {
    return context.decisions.decide(kind, spec.nodes.front(), [&] { return chosen; });
  };
  return {decide(Kind::num_partials, walk.num_partials),
          static_cast<int>(decide(Kind::rows_per_cta, walk.rows_per_cta))};
}

std::vector<KernelSpec> finish_columns(KernelSpec spec, const PlanContext& context,
                                       Temporaries& temporaries) {
  const Walk walk = decide_walk(spec, context);
  RowwiseSpec& r = spec.rowwise();
  r.num_partials = walk.num_partials;
  r.rows_per_cta = walk.rows_per_cta;
  const int rank = spec.extent.size();
  const Dims columns = part_of(spec.extent, r.outer_rank, rank);
  const Access written = packed_access(rank, r.outer_rank, columns);
  Dims partial_dim = columns;
  partial_dim.insert(0, r.num_partials);
  // A slot's number tells the kind of its rows first.
  const int kinds_from = column_kinds_from(spec);
  const std::int64_t kinds = column_kinds(spec);
  const Access of_kind = packed_access(rank, kinds_from, part_of(spec.extent, kinds_from, rank));
  std::vector<int> kept;
  for (int i = kinds_from; i < rank; ++i) kept.push_back(i);
  ReductionEpilogue whole(spec, kept, {r.num_partials / kinds});
  for (auto& c : spec.cross_row_reductions) {
    KernelPort parts = add_parts(spec, c, partial_dim, written, temporaries);
    parts.access = of_kind;
    whole.add(c, parts, {kinds * count(columns)});
  }
  return {std::move(spec), whole.kernel()};
}

// ---- reductions of a contraction's results, or of attention's

// Where a reduction's partial results lie: packed, in the order of batch, m and n, of which those
// that are reduced have one for some rows or columns. Batch indices are reduced by the finishing
// kernel alone.
struct ResultParts {
  std::vector<int> kept;  // indices of the domain
  Dims dim, count, step;  // of the memory; partial results of one result along each index of them
  Access written;

  ResultParts(const KernelSpec& spec, CrossRowReduction& c) {
    const Dims& result = c.result.access.stride;
    const Dims ends = spec.group_ends();  // of a product or attention: batch, rows, columns, k
    const int m = static_cast<int>(ends[0]), n = static_cast<int>(ends[1]),
              k = static_cast<int>(ends[2]);
    std::vector<int> index;  // of the domain, for each dim; -1: parts of some rows or columns
    const auto add_index = [&](int i) {
      index.push_back(i);
      dim.push_back(spec.extent[i]);
    };
    int slot[2] = {-1, -1};
    for (int i = 0; i < m; ++i) add_index(i);
    for (int group = 0; group < 2; ++group) {
      const int from = group == 0 ? m : n, to = group == 0 ? n : k;
      if (result[from] != 0) {
        for (int i = from; i < to; ++i) add_index(i);
        continue;
      }
      slot[group] = dim.size();
      index.push_back(-1);
      dim.push_back((sinter::count(spec.extent, from, to) + kReducedTogether - 1) /
                    kReducedTogether);
    }
    const Dims stride = packed_strides(dim);
    written.stride = Dims::filled(spec.extent.size(), 0);
    for (int d = 0; d < dim.size(); ++d) {
      const int i = index[static_cast<std::size_t>(d)];
      if (i >= 0) written.stride[i] = stride[d];
      if (i >= 0 && result[i] != 0) {
        kept.push_back(i);
      } else {
        count.push_back(dim[d]);
        step.push_back(stride[d]);
      }
    }
    c.partial_stride_m = slot[0] < 0 ? 0 : stride[slot[0]];
    c.partial_stride_n = slot[1] < 0 ? 0 : stride[slot[1]];
  }
};

std::vector<KernelSpec> finish_results(KernelSpec spec, const PlanContext& context,
                                       Temporaries& temporaries) {
  std::vector<std::unique_ptr<ReductionEpilogue>> epilogues;
  std::vector<ResultParts> shapes;
  for (auto& c : spec.cross_row_reductions) {
    ResultParts parts(spec, c);
    std::size_t i = 0;  // reductions over the same indices are finished together
    while (i < shapes.size() && shapes[i].kept != parts.kept) ++i;
    if (i == shapes.size()) {
      epilogues.push_back(std::make_unique<ReductionEpilogue>(spec, parts.kept, parts.count));
      shapes.push_back(parts);
    }
    epilogues[i]->add(c, add_parts(spec, c, parts.dim, parts.written, temporaries), parts.step);
  }
  std::vector<KernelSpec> kernels{std::move(spec)};
  for (auto& f : epilogues)
    for (auto& k : split(f->kernel(), context, temporaries)) kernels.push_back(std::move(k));
  return kernels;
}

}  // namespace

std::vector<KernelSpec> split_columns(KernelSpec spec, const PlanContext& context,
                                      Temporaries& temporaries) {
  const bool results = std::visit(
      Overloaded{[](const ContractionSpec&) { return true; },
                 [](const AttentionSpec&) { return true; }, [](const auto&) { return false; }},
      spec.family);
  return results ? finish_results(std::move(spec), context, temporaries)
                 : finish_columns(std::move(spec), context, temporaries);
}

}  // namespace sinter
