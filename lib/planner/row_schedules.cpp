#include "planner/row_schedules.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "emit/config_text.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr std::size_t kMostSchedules = 8;  // each of them is a compilation
constexpr double kNever = std::numeric_limits<double>::infinity();

// Numbers of rows for which schedules are tried: tiles end at multiples of 8, of 64, and count less
// the more of them there are. Odd ones, since nothing that divides them is taken for granted.
std::vector<std::int64_t> sampled_rows() {
  constexpr std::int64_t kMost = 1 << 18;
  constexpr double kGrowth = 1.19;
  std::vector<std::int64_t> rows;
  for (std::int64_t n = 8; n < 64; n += 8) rows.push_back(n - 1);
  for (std::int64_t n = 64; n < 1024; n += 64) rows.push_back(n - 1);
  for (std::int64_t n = 1024; n < 2048; n += 128) rows.push_back(n - 1);
  for (double n = 2048; n < static_cast<double>(kMost) * kGrowth; n *= kGrowth)
    rows.push_back(std::min(kMost, static_cast<std::int64_t>(n)) - 1);
  for (auto& n : rows) n |= 1;
  return rows;
}

bool same_memory(const KernelSpec& a, const KernelSpec& b) {
  const auto accesses = [](const KernelSpec& spec) {
    std::vector<Access> all;
    for (const auto& p : spec.ports) all.push_back(p.access);
    for (const Body* body : spec.bodies())
      for (const auto& s : body->statements) all.push_back(s.access);
    return all;
  };
  return a.gathers.empty() && b.gathers.empty() && accesses(a) == accesses(b);
}

// The one extent in which two kernels differ; -1 where they differ in others, or in strides.
int only_difference(const KernelSpec& a, const KernelSpec& b) {
  if (a.family.index() != b.family.index() || a.extent.size() != b.extent.size() ||
      a.ports.size() != b.ports.size() || !same_memory(a, b))
    return -1;
  int found = -1;
  for (int i = 0; i < a.extent.size(); ++i) {
    if (a.extent[i] == b.extent[i]) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

// Of a product: not one of k, and no batch, of which few are many. Of others: of rows.
bool may_be_rows(const KernelSpec& spec, int index) {
  if (const auto* const c = spec.as_contraction())
    return index >= c->first_m() && index < c->first_k();
  return spec.as_rowwise() && index < spec.rowwise().outer_rank;
}

KernelSpec with_rows(const RowSchedules::Member& member, std::int64_t rows) {
  KernelSpec spec = member.spec;
  spec.extent[member.index] = rows;
  return spec;
}

bool is_wide(const ScheduledKernel& k) { return k.launch().wide_index; }
void set_wide(ScheduledKernel& k, bool wide) {
  std::visit([&](Launch& launch) { launch.wide_index = wide; }, k.config);
}

// What tells schedules of one kernel apart.
std::vector<std::int64_t> choice_of(const ScheduledKernel& k) {
  std::vector<std::int64_t> values{static_cast<std::int64_t>(k.config.index())};
  for (const auto& c : config_constants(k)) values.push_back(c.value);
  return values;
}

// Members that are products, scheduled for every number of rows, and what each of these schedules
// takes for all others. Of norms the estimates do not tell schedules apart.
class Trials {
 public:
  Trials(const std::vector<RowSchedules::Member>& members, const PlanContext& context)
      : rows_(sampled_rows()), total_(square(0)), own_(rows_.size(), 0) {
    for (const auto& m : members)
      if (m.spec.as_contraction()) add(m, context);
  }
  const std::vector<std::int64_t>& rows() const { return rows_; }
  // By how much the schedule for rows()[i] is slower than that for rows()[j], there.
  double loss(std::size_t i, std::size_t j) const { return total_[i][j] / own_[j] - 1; }

  // The fewest schedules, about, of which each number of rows has one that loses at most `most`.
  std::vector<std::size_t> cover(double most) const {
    std::vector<std::size_t> taken;
    std::vector<bool> served(rows_.size());
    const auto gain = [&](std::size_t i) {
      std::pair<int, double> gain{0, 0};
      for (std::size_t j = 0; j < rows_.size(); ++j)
        if (!served[j] && loss(i, j) <= most) ++gain.first, gain.second -= loss(i, j);
      return gain;
    };
    while (true) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < rows_.size(); ++i)
        if (gain(i) > gain(best)) best = i;
      if (gain(best).first == 0) return taken;
      taken.push_back(best);
      for (std::size_t j = 0; j < rows_.size(); ++j)
        if (loss(best, j) <= most) served[j] = true;
    }
  }

 private:
  std::vector<std::vector<double>> square(double x) const {
    return {rows_.size(), std::vector<double>(rows_.size(), x)};
  }
  void add(const RowSchedules::Member& member, const PlanContext& context) {
    std::map<std::vector<std::int64_t>, std::size_t> known;
    auto takes = square(kNever);
    std::vector<KernelSpec> specs;
    for (const std::int64_t n : rows_) specs.push_back(with_rows(member, n));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const ScheduledKernel decided = schedule_kernel(specs[i], context);
      own_[i] += decided.microseconds;
      const auto [same, fresh] = known.try_emplace(choice_of(decided), i);
      if (!fresh)
        takes[i] = takes[same->second];
      else
        for (std::size_t j = 0; j < rows_.size(); ++j)
          if (const auto as = schedule_as(decided, specs[j], context))
            takes[i][j] = as->microseconds;
      for (std::size_t j = 0; j < rows_.size(); ++j) total_[i][j] += takes[i][j];
    }
  }

  std::vector<std::int64_t> rows_;
  std::vector<std::vector<double>> total_;  // microseconds
  std::vector<double> own_;
};

// As few as are compiled at the most, with the least loss that this takes.
std::vector<std::size_t> cover(const Trials& trials) {
  constexpr double kStep = 0.01, kLast = 1;
  std::vector<std::size_t> taken;
  for (double most = kStep; most <= kLast; most += kStep)
    if (taken = trials.cover(most); taken.size() <= kMostSchedules) break;
  if (taken.size() > kMostSchedules) taken.resize(kMostSchedules);
  return taken;
}

// The largest number of rows that schedule `taken[at]` is the best for, as a place of rows().
std::size_t largest(const Trials& trials, const std::vector<std::size_t>& taken, std::size_t at) {
  for (std::size_t j = trials.rows().size(); j-- > 0;) {
    const auto best = std::min_element(taken.begin(), taken.end(), [&](std::size_t a, std::size_t b) {
      return trials.loss(a, j) < trials.loss(b, j);
    });
    if (*best == taken[at]) return j;
  }
  return taken[at];
}

// The members scheduled for rows()[at], those of which the estimates say nothing for rows()[most].
RowSchedules::Kernels scheduled(const std::vector<RowSchedules::Member>& members,
                                const Trials& trials, std::size_t at, std::size_t most, bool wide,
                                const PlanContext& context) {
  RowSchedules::Kernels result;
  for (const auto& m : members) {
    const std::int64_t rows = trials.rows()[m.spec.as_contraction() ? at : most];
    ScheduledKernel decided = schedule_kernel(with_rows(m, rows), context);
    set_wide(decided, wide && needs_wide_index(with_rows(m, trials.rows().back())));
    result.places.push_back(m.place);
    result.kernels.push_back(class_kernel(std::move(decided), with_rows(m, rows - 2), context));
  }
  return result;
}

bool has_texts(const RowSchedules::Kernels& k) {
  return std::all_of(k.kernels.begin(), k.kernels.end(),
                     [](const ClassKernel& one) { return one.text.has_value(); });
}

}  // namespace

std::vector<RowSchedules> RowSchedules::all(const std::vector<KernelSpec>& one,
                                            const std::vector<KernelSpec>& other,
                                            const PlanContext& context) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Member>> groups;
  for (std::size_t i = 0; i < std::min(one.size(), other.size()); ++i)
    if (const int index = only_difference(one[i], other[i]);
        index >= 0 && may_be_rows(one[i], index))
      groups[{one[i].extent[index], other[i].extent[index]}].push_back({i, one[i], index});
  std::vector<RowSchedules> result;
  for (const auto& [rows, members] : groups) {
    if (std::none_of(members.begin(), members.end(),
                     [](const Member& m) { return m.spec.as_contraction(); }))
      continue;
    const Trials trials(members, context);
    const auto taken = cover(trials);
    RowSchedules schedules;
    for (const bool wide : {false, true})
      for (std::size_t i = 0; i < taken.size(); ++i) {
        auto kernels = scheduled(members, trials, taken[i], largest(trials, taken, i), wide, context);
        const bool any_wide = std::any_of(kernels.kernels.begin(), kernels.kernels.end(),
                                          [](const auto& k) { return is_wide(k.decided); });
        if (wide == any_wide && has_texts(kernels))
          schedules.schedules_.push_back(std::move(kernels));
      }
    if (!schedules.schedules_.empty()) result.push_back(std::move(schedules));
  }
  return result;
}

const RowSchedules::Kernels* RowSchedules::best(const std::vector<KernelSpec>& kernels,
                                                const PlanContext& context) const {
  const Kernels* best = nullptr;
  double least = kNever;
  for (const Kernels& s : schedules_) {
    double takes = 0;
    for (std::size_t i = 0; i < s.places.size() && takes < kNever; ++i) {
      const ScheduledKernel& decided = s.kernels[i].decided;
      std::optional<ScheduledKernel> as;
      if (s.places[i] < kernels.size()) as = schedule_as(decided, kernels[s.places[i]], context);
      takes += as && is_wide(*as) == is_wide(decided) ? as->microseconds : kNever;
    }
    if (takes < least) least = takes, best = &s;
  }
  return best;
}

}  // namespace sinter
