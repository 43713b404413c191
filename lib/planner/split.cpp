#include "planner/split.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "base/env.hpp"
#include "emit/schedule.hpp"
#include "plan/access.hpp"
#include "plan/device_model.hpp"
#include "plan/liveness.hpp"
#include "planner/body_copy.hpp"
#include "planner/domain.hpp"

namespace sinter {
namespace {

// Blocks of a kernel: two or four on each multiprocessor, or too few to be worth a kernel.
constexpr std::int64_t kManyBlocks = 528, kFewBlocks = 32;
constexpr std::int64_t kAcross = 256;  // rows that one block takes side by side
// A block takes up to 1024 threads along one row, and 256 across rows.
constexpr std::int64_t kEnoughLong = 128, kEnoughAcross = 264;
constexpr std::int64_t kFewSteps = 64;  // of walks over rows: each gets a block of its own

// The fewest elements that are worth a block of their own.
std::int64_t elements_a_block() {
  static const std::int64_t n = [] {
    std::int64_t value = 32768;
    const std::string text = env_value("SINTER_SPLIT_ELEMENTS");
    std::from_chars(text.data(), text.data() + text.size(), value);
    return std::max<std::int64_t>(value, 1);
  }();
  return n;
}

std::int64_t rows_of(const KernelSpec& s) { return count(s.extent, 0, s.kept); }
std::int64_t columns_of(const KernelSpec& s) { return count(s.extent, s.kept, s.extent.size()); }

std::int64_t blocks_of(const KernelSpec& s) {
  const std::int64_t rows = rows_of(s);
  return rows_lie_together(s) ? (rows + kAcross - 1) / kAcross : rows;
}

bool divisible(const KernelSpec& s) {
  if (!s.gathers.empty()) return false;
  for (const auto& p : s.ports)
    if (!p.access.via.empty()) return false;
  for (const auto& x : s.body.statements)
    if (x.kind == StatementKind::index && x.dim >= s.kept) return false;
  return true;
}

// Whether clusters of blocks hold whole rows in their registers: then even one row takes them less
// time than several kernels.
bool held_by_clusters(const KernelSpec& s, std::string_view architecture) {
  if (architecture != "sm_90a") return false;
  const Schedule schedule = choose_schedule(s, architecture);
  return schedule.resident && schedule.blocks_per_row > 1;
}

// ---- a kernel a phase

// Everything of phase 0, its reductions finished into temporaries, and all later phases.
std::pair<KernelSpec, KernelSpec> peel(const KernelSpec& spec, Temporaries& temporaries) {
  const int rank = spec.extent.size();
  KernelSpec first = spec, rest = spec;
  for (KernelSpec* part : {&first, &rest}) {
    part->body.statements.clear();
    part->reductions.clear();
    part->ports.clear();
  }
  const Dims kept = part_of(spec.extent, 0, spec.kept);
  const Access per_row = packed_access(rank, 0, kept);

  first.phases = 2;
  rest.phases = spec.phases - 1;
  if (rest.phases == 1) {
    rest.family = Family::pointwise;
    rest.kept = 0;
  }
  BodyCopy head(spec, first, rank), tail(spec, rest, rank);
  std::vector<int> renumbered(spec.reductions.size(), -1);
  for (std::size_t i = 0; i < spec.body.statements.size(); ++i) {
    const Statement& s = spec.body.statements[i];
    const int id = static_cast<int>(i);
    const auto r = static_cast<std::size_t>(std::max(s.port, 0));
    if (s.kind == StatementKind::store) {
      const bool first_rows = s.per_row && s.phase <= 1;
      s.phase == 0 || first_rows ? head.copy(id) : tail.copy(id);
    } else if (s.kind == StatementKind::reduce) {
      KernelReduction reduction = spec.reductions[r];
      KernelSpec& part = s.phase == 0 ? first : rest;
      reduction.phase = s.phase == 0 ? 0 : reduction.phase - 1;
      renumbered[r] = static_cast<int>(part.reductions.size());
      part.reductions.push_back(reduction);
      const int copy = s.phase == 0 ? head.copy(id) : tail.copy(id);
      part.body.statements[static_cast<std::size_t>(copy)].port = renumbered[r];
    } else if (s.kind == StatementKind::reduced) {
      Statement reduced = s;
      reduced.port = renumbered[r];
      if (spec.reductions[r].phase > 0) {
        reduced.phase -= 1;
        tail.set(id, tail.add(std::move(reduced)));
        continue;
      }
      const int value = head.add(std::move(reduced));
      head.set(id, value);
      const KernelPort port = temporaries.add(s.label, s.arithmetic, kept, per_row);
      head.add_store(value, s.arithmetic, port, true);
      Statement load = statement(StatementKind::load, s.arithmetic, s.label);
      load.port = tail.add_port(read_back(port, per_row));
      load.per_row = true;
      tail.set(id, tail.add(std::move(load)));
    }
  }
  simplify_domain(first);
  simplify_domain(rest);
  return {std::move(first), std::move(rest)};
}

// ---- rows cut in parts

// In how many parts of what size an extent is cut: as wished where that divides it, else in parts
// that are multiples of 64, the last one short.
std::pair<std::int64_t, std::int64_t> parts_of(std::int64_t extent, std::int64_t wished) {
  for (std::int64_t off = 0; off <= wished / 2; ++off)
    for (const std::int64_t n : {wished + off, wished - off})
      if (n > 0 && extent % n == 0 && (extent / n % 8 == 0 || extent % 8 != 0))
        return {n, extent / n};
  std::int64_t size = (extent + wished - 1) / wished;
  if (size > 64) size = (size + 63) / 64 * 64;
  return {(extent + size - 1) / size, size};
}

// One phase of reductions, then values of the row: `parts` kernels' worth of rows, and their sum.
std::vector<KernelSpec> cut_rows(const KernelSpec& spec, std::int64_t wished,
                                 Temporaries& temporaries) {
  KernelSpec cut = spec, whole;
  std::int64_t parts = 1;
  int added = 0;
  for (int d = spec.kept; d < spec.extent.size() && wished > 1; ++d) {
    const std::int64_t extent = spec.extent[d];
    const auto [n, size] =
        extent <= wished ? std::pair{extent, std::int64_t{1}} : parts_of(extent, wished);
    if (n <= 1) continue;
    cut_index(cut, d + added, n, size);
    ++cut.kept;
    ++added;
    parts *= n;
    wished /= n;
  }
  if (parts == 1) return {spec};

  // Partial results lie part by part, so that neighbouring rows stay neighbours.
  const Dims partial_dim = part_of(cut.extent, 0, cut.kept);
  const Access written = packed_access(cut.extent.size(), 0, partial_dim);

  whole.family = Family::rowwise;
  whole.nodes = spec.nodes;
  whole.kept = spec.kept;
  whole.extent = part_of(spec.extent, 0, spec.kept);
  whole.extent.push_back(parts);
  Access read;
  read.stride = Dims::filled(spec.kept + 1, 0);
  for (int i = 0; i < spec.kept; ++i) read.stride[i] = written.stride[i + added];
  read.stride[spec.kept] = rows_of(spec);

  const KernelSpec source = cut;
  cut.body.statements.clear();
  cut.ports.clear();
  whole.scalars = cut.scalars;
  BodyCopy head(source, cut, source.extent.size()), tail(spec, whole, spec.kept);
  for (std::size_t i = 0; i < source.body.statements.size(); ++i) {
    const Statement& s = source.body.statements[i];
    const int id = static_cast<int>(i);
    if (s.kind == StatementKind::reduce || (s.kind == StatementKind::store && s.phase == 0)) {
      head.copy(id);
    } else if (s.kind == StatementKind::store) {
      tail.copy(id);
    } else if (s.kind == StatementKind::reduced) {
      const KernelReduction& r = spec.reductions[static_cast<std::size_t>(s.port)];
      const DataType type = partial_type(r.mode, r.arithmetic);
      Statement partial = statement(StatementKind::partial, type, s.label);
      partial.port = s.port;
      partial.per_row = true;
      partial.phase = 1;
      const KernelPort port = temporaries.add(s.label + "_parts", type, partial_dim, written);
      head.add_store(head.add(std::move(partial)), type, port, true);
      tail.set(id, finish_parts(whole, tail, read_back(port, read), r.mode, r.arithmetic, r.length,
                                s.label));
    }
  }
  simplify_domain(cut);
  simplify_domain(whole);
  return {std::move(cut), std::move(whole)};
}

// ---- column reductions

// The kernel that finishes column reductions: its rows are their results.
class Finish {
 public:
  // `kept`: which of the spec's indices its rows have, in order. `parts`: the partial results of a
  // row.
  Finish(const KernelSpec& spec, std::vector<int> kept, const Dims& parts)
      : kept_(std::move(kept)), body_(spec, whole_, 0) {
    whole_.family = Family::rowwise;
    whole_.nodes = spec.nodes;
    whole_.kept = static_cast<int>(kept_.size());
    for (int i : kept_) whole_.extent.push_back(spec.extent[i]);
    for (std::int64_t n : parts) whole_.extent.push_back(n);
  }
  Finish(const Finish&) = delete;
  Finish& operator=(const Finish&) = delete;

  // `parts`: the port that the spec writes its partial results to. `step`: from one of them to the
  // next, along each index of the parts.
  void add(const ColumnReduction& c, const KernelPort& parts, const Dims& step) {
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
      Statement convert = statement(StatementKind::convert, arithmetic, c.label);
      convert.type = c.type;
      convert.args = {value};
      value = body_.add(std::move(convert));
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

// Adds the port for a column reduction's partial results.
KernelPort add_parts(KernelSpec& spec, ColumnReduction& c, const Dims& dim, const Access& written,
                     Temporaries& temporaries) {
  const DataType type = partial_type(c.mode, c.arithmetic);
  c.port = static_cast<int>(spec.ports.size());
  spec.ports.push_back(temporaries.add(c.label + "_parts", type, dim, written));
  return spec.ports.back();
}

std::vector<KernelSpec> finish_columns(KernelSpec spec, Temporaries& temporaries) {
  const int rank = spec.extent.size();
  const Dims columns = part_of(spec.extent, spec.kept, rank);
  const Access written = packed_access(rank, spec.kept, columns);
  Dims partial_dim = columns;
  partial_dim.insert(0, spec.slots);
  std::vector<int> kept;
  for (int i = spec.kept; i < rank; ++i) kept.push_back(i);
  Finish whole(spec, kept, {spec.slots});
  for (auto& c : spec.columns)
    whole.add(c, add_parts(spec, c, partial_dim, written, temporaries), {count(columns)});
  return {std::move(spec), whole.kernel()};
}

// ---- reductions of a contraction's results

// Where a reduction's partial results lie: packed, in the order of batch, m and n, of which those
// that are reduced have one for some rows or columns. Batch indices are reduced by the finishing
// kernel alone.
struct ResultParts {
  std::vector<int> kept;  // indices of the domain
  Dims dim, count, step;  // of the memory; partial results of one result along each index of them
  Access written;

  ResultParts(const KernelSpec& spec, ColumnReduction& c) {
    const Dims& result = c.result.access.stride;
    const int m = spec.batch, n = m + spec.m, k = n + spec.n;
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
    c.slot_m = slot[0] < 0 ? 0 : stride[slot[0]];
    c.slot_n = slot[1] < 0 ? 0 : stride[slot[1]];
  }
};

std::vector<KernelSpec> finish_results(KernelSpec spec, std::string_view architecture,
                                       Temporaries& temporaries) {
  std::vector<std::unique_ptr<Finish>> finishes;
  std::vector<ResultParts> shapes;
  for (auto& c : spec.columns) {
    ResultParts parts(spec, c);
    std::size_t i = 0;  // reductions over the same indices are finished together
    while (i < shapes.size() && shapes[i].kept != parts.kept) ++i;
    if (i == shapes.size()) {
      finishes.push_back(std::make_unique<Finish>(spec, parts.kept, parts.count));
      shapes.push_back(parts);
    }
    finishes[i]->add(c, add_parts(spec, c, parts.dim, parts.written, temporaries), parts.step);
  }
  std::vector<KernelSpec> kernels{std::move(spec)};
  for (auto& f : finishes)
    for (auto& k : split(f->kernel(), architecture, temporaries)) kernels.push_back(std::move(k));
  return kernels;
}

}  // namespace

KernelPort Temporaries::add(std::string name, DataType type, const Dims& dim, Access access) {
  bytes_[next_] = count(dim) * info(type).bytes;
  return {next_++, std::move(name), type, std::move(access), true, 256};
}

std::int64_t column_slots(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t one = 1, large_block = 8192;  // elements that a block takes at once
  if (columns <= kShortRow && rows * columns >= kMultiprocessors * large_block)
    return kMultiprocessors;
  const std::int64_t a_multiprocessor = columns <= 2048 ? 4 : columns <= 4096 ? 2 : 1;
  const std::int64_t steps = std::max(one, rows / std::max(one, 2048 / std::max(columns, one)));
  // One more slot makes the others shorter by 1 / slots of all steps, and the end longer by what it
  // adds up. On an H200, for rmsnorm's gradients: 256 x 2048 in 8.1 us with 256 slots, 5.4 with 66;
  // 1024 x 4096 18.6 with 264, 15.0 with 132; 2048 x 2048 17.5 with 528, 12.0 with 132.
  const auto best = static_cast<std::int64_t>(4 * std::sqrt(static_cast<double>(steps)));
  const std::int64_t slots = std::clamp(best, std::min(steps, kFewSteps),
                                        std::min(steps, kMultiprocessors * a_multiprocessor));
  return slots > kMultiprocessors ? slots / kMultiprocessors * kMultiprocessors : slots;
}

std::vector<KernelSpec> split(KernelSpec spec, std::string_view architecture,
                              Temporaries& temporaries) {
  if (spec.family == Family::contraction && !spec.columns.empty())
    return finish_results(std::move(spec), architecture, temporaries);
  if (spec.family != Family::rowwise) return {std::move(spec)};
  if (!spec.columns.empty()) return finish_columns(std::move(spec), temporaries);
  const std::int64_t least = elements_a_block(),
                     blocks = std::max<std::int64_t>(blocks_of(spec), 1),
                     elements = rows_of(spec) * columns_of(spec);
  if (!divisible(spec) || elements == 0) return {std::move(spec)};
  if (has_later_elements(spec)) {
    // A row alone may be shared by a cluster of blocks.
    const std::int64_t few = rows_lie_together(spec) ? kFewBlocks : kFewBlocks / 2;
    if (blocks >= few || elements / least < kFewBlocks || held_by_clusters(spec, architecture))
      return {std::move(spec)};
    auto [first, rest] = peel(spec, temporaries);
    std::vector<KernelSpec> kernels = split(std::move(first), architecture, temporaries);
    for (auto& k : split(std::move(rest), architecture, temporaries))
      kernels.push_back(std::move(k));
    return kernels;
  }
  const std::int64_t wished = std::min(kManyBlocks / blocks, elements / blocks / least);
  const std::int64_t enough = rows_lie_together(spec) ? kEnoughAcross : kEnoughLong;
  if (blocks >= enough || wished < 2) return {std::move(spec)};
  return cut_rows(spec, wished, temporaries);
}

}  // namespace sinter
