#include "planner/row_schedules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "emit/config_text.hpp"
#include "plan/access.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// Each of them is a compilation, for extents that need it. (Of 20 shapes of a decoder block with 15
// 9 are compiled for, and on an H200 2 x 100, 16 x 64 and 1 x 1024 tokens are 4.3, 3.7 and 1.8 %
// slower than plans of their own; with 24 11, and none is 1.6 %.)
constexpr std::size_t kMostSchedules = 24;
constexpr double kNever = std::numeric_limits<double>::infinity();

using Members = std::vector<RowSchedules::Member>;

// Of convolutions, where a number of rows, or of terms of a filter's gradient, is one of images,
// which have many each.
bool are_images(const Members& members) {
  constexpr std::int64_t kMany = 32;
  return std::any_of(members.begin(), members.end(), [](const RowSchedules::Member& m) {
    const auto* const c = m.spec.as_contraction();
    if (!c || m.index < c->first_m()) return false;
    const int ends[] = {c->first_m(), c->first_n(), c->first_k(), m.spec.extent.size()};
    const int side = m.index < ends[1] ? 0 : m.index < ends[2] ? 1 : 2;
    return count(m.spec.extent, ends[side], ends[side + 1]) >= kMany * m.spec.extent[m.index];
  });
}

// Numbers of rows for which schedules are tried: tiles end at multiples of 8, of 16, of 64, and
// count less the more of them there are. Odd ones, since nothing that divides them is taken for
// granted. Fewer than 15 gain nothing by tiles of 8. (2 rows of a decoder block on an H200: 127 us
// in these, 125.5 in tiles of 16.)
std::vector<std::int64_t> sampled_rows(bool images) {
  constexpr std::int64_t kMost = 1 << 18, kFewImages = 16;
  constexpr double kGrowth = 1.19;
  std::vector<std::int64_t> rows;
  if (images) {
    for (std::int64_t n = 4; n < kFewImages; n += 2) rows.push_back(n - 1);
  } else {
    for (std::int64_t n = 16; n < 64; n += 8) rows.push_back(n - 1);
    for (std::int64_t n = 64; n < 256; n += 16) rows.push_back(n - 1);
    for (std::int64_t n = 256; n < 1024; n += 64) rows.push_back(n - 1);
    for (std::int64_t n = 1024; n < 2048; n += 128) rows.push_back(n - 1);
  }
  for (double n = images ? kFewImages : 2048; n < static_cast<double>(kMost) * kGrowth;
       n *= kGrowth)
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

// Of a product: rows, columns or k, but no batch, of which few are many. Of others: of rows.
bool may_be_rows(const KernelSpec& spec, int index) {
  if (const auto* const c = spec.as_contraction()) return index >= c->first_m();
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

// What tells schedules of one kernel apart. The order of tiles comes with the launch.
using Choice = std::vector<std::int64_t>;
Choice choice_of(const ScheduledKernel& k) {
  Choice values{static_cast<std::int64_t>(k.config.index())};
  for (const auto& c : config_constants(k))
    if (c.name != "group") values.push_back(c.value);
  return values;
}

// By how much more the tiles take where they are more than the rows, and these are few. Rows past
// the end of the last tile take longer than is estimated. (200 x 4096 x 4096 of bf16 on an H100:
// 20.0 us in tiles of 128 x 104, where 18.5 were estimated, and 27.8 of 128 x 128, where 20.0 were;
// 200 x 1024 x 4096 11.1 us of 64 x 56 and 12.9 of 64 x 64, where 10.8 and 10.9 were.) Of one tile
// that reads all of the weights, by what it loads beside their 64 lines. (A decoder block on an
// H200: 33 rows 145 us in tiles that load 64, 136 in those that load 40 or 48; 7 rows 148 and 134.)
double filled(const ScheduledKernel& k) {
  constexpr double kFew = 64, kMany = 256, kInVain = 0.12;
  const WgmmaConfig* const e = k.wgmma();
  if (!e || e->window || e->image_rows) return 1;
  const ContractionSpec& c = k.spec.contraction();
  const double m = elements(k.spec.extent, c.first_m(), c.first_n()),
               n = elements(k.spec.extent, c.first_n(), c.first_k()), rows = std::min(m, n);
  const auto of_tiles = [&](double tile) { return std::ceil(rows / tile) * tile; };
  if (rows <= kFew)
    return 1 + kInVain * (of_tiles(m <= n ? e->loaded_rows : e->tile.n) - rows) / kFew;
  return rows > kMany
             ? 1
             : of_tiles(m <= n ? e->tile.m * e->tile.cluster_m : e->tile.n * e->tile.cluster_n) /
                   rows;
}

// What the kernel is reckoned with, where `own` is the choice for its extents. Of unlike tiles the
// estimates are less certain than of tiles that are alike, and of many those estimated to be the
// fastest were looked at. (A decoder block on an H200, 64 x 128 tokens: 1 % slower reckoned in
// other tiles, 6 % measured; 1 x 1024 tokens in the same tiles 1 %.)
double reckoned(const ScheduledKernel& k, const Choice& own) {
  constexpr double kUnlike = 1.03;
  return k.microseconds * (choice_of(k) == own ? 1 : kUnlike * filled(k));
}

// Members that are products, scheduled for every number of rows, and what each of these schedules
// takes for all others. Of norms the estimates do not tell schedules apart.
class Trials {
 public:
  Trials(const Members& members, const PlanContext& context)
      : rows_(sampled_rows(are_images(members))), total_(square(0)), own_(rows_.size(), 0) {
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

  // Puts others in place of those `taken`, one by one, as long as the losses get less.
  void improve(std::vector<std::size_t>& taken) const {
    double least = losses(taken);
    for (bool improved = true; improved;) {
      improved = false;
      for (std::size_t& t : taken)
        for (std::size_t i = 0; i < rows_.size(); ++i) {
          const std::size_t before = std::exchange(t, i);
          if (const double now = losses(taken); now < least)
            least = now, improved = true;
          else
            t = before;
        }
    }
  }

  // Those that are the best for many numbers of rows come first.
  void sort(std::vector<std::size_t>& taken) const {
    std::map<std::size_t, int> wins;
    for (std::size_t j = 0; j < rows_.size(); ++j) ++wins[best(taken, j)];
    std::stable_sort(taken.begin(), taken.end(),
                     [&](std::size_t a, std::size_t b) { return wins[a] > wins[b]; });
  }
  std::size_t best(const std::vector<std::size_t>& taken, std::size_t j) const {
    return *std::min_element(taken.begin(), taken.end(),
                             [&](std::size_t a, std::size_t b) { return loss(a, j) < loss(b, j); });
  }

 private:
  // Squared, so that large ones count; of all numbers of rows.
  double losses(const std::vector<std::size_t>& taken) const {
    constexpr double kUnserved = 1;
    double sum = 0;
    for (std::size_t j = 0; j < rows_.size(); ++j) {
      double least = kUnserved;
      for (const std::size_t i : taken) least = std::min(least, loss(i, j));
      sum += least * least;
    }
    return sum;
  }
  std::vector<std::vector<double>> square(double x) const {
    return {rows_.size(), std::vector<double>(rows_.size(), x)};
  }
  void add(const RowSchedules::Member& member, const PlanContext& context) {
    std::map<Choice, std::size_t> known;
    auto takes = square(kNever);
    std::vector<KernelSpec> specs;
    std::vector<ScheduledKernel> decided;
    std::vector<Choice> choices;
    for (const std::int64_t n : rows_) {
      specs.push_back(with_rows(member, n));
      decided.push_back(schedule_kernel(specs.back(), context));
      choices.push_back(choice_of(decided.back()));
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      own_[i] += decided[i].microseconds;
      const auto [same, fresh] = known.try_emplace(choices[i], i);
      if (!fresh)
        takes[i] = takes[same->second];
      else
        for (std::size_t j = 0; j < rows_.size(); ++j)
          if (const auto as = schedule_as(decided[i], specs[j], context))
            takes[i][j] = reckoned(*as, choices[j]);
      for (std::size_t j = 0; j < rows_.size(); ++j) total_[i][j] += takes[i][j];
    }
  }

  std::vector<std::int64_t> rows_;
  std::vector<std::vector<double>> total_;  // microseconds
  std::vector<double> own_;
};

// As few as are compiled at the most, with the least loss that this takes.
std::vector<std::size_t> cover(const Trials& trials) {
  constexpr double kStep = 0.005, kLast = 1;
  std::vector<std::size_t> taken;
  for (double most = kStep; most <= kLast; most += kStep)
    if (taken = trials.cover(most); taken.size() <= kMostSchedules) break;
  if (taken.size() > kMostSchedules) taken.resize(kMostSchedules);
  trials.improve(taken);
  trials.sort(taken);
  return taken;
}

// The largest number of rows that schedule `taken[at]` is the best for, as a place of rows().
std::size_t largest(const Trials& trials, const std::vector<std::size_t>& taken, std::size_t at) {
  for (std::size_t j = trials.rows().size(); j-- > 0;)
    if (trials.best(taken, j) == taken[at]) return j;
  return taken[at];
}

ClassKernel member_kernel(const RowSchedules::Member& m, std::int64_t rows, bool wide,
                          const PlanContext& context) {
  ScheduledKernel decided = schedule_kernel(with_rows(m, rows), context);
  set_wide(decided, wide);
  return class_kernel(std::move(decided), with_rows(m, rows - 2), context);
}

// The members' texts, for one number of rows. Members that have none are left out.
std::string take_texts(Members& members, const PlanContext& context) {
  std::string all;
  const std::int64_t rows = sampled_rows(are_images(members)).front();
  std::erase_if(members, [&](const RowSchedules::Member& m) {
    const ClassKernel k = member_kernel(m, rows, false, context);
    if (k.text) all += k.text->text();
    return !k.text;
  });
  return all;
}

RowSchedules::Schedules schedules_of(const Members& members, const PlanContext& context) {
  const Trials trials(members, context);
  const auto& rows = trials.rows();
  const auto taken = cover(trials);
  RowSchedules::Schedules result;
  // Those whose offsets need 64 bits for many rows stand behind all others, with such offsets.
  for (const bool wide : {false, true})
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const std::size_t most = largest(trials, taken, i);
      bool any_wide = false, has_texts = true;
      std::vector<ClassKernel> kernels;
      for (const auto& m : members) {
        const bool own_wide = wide && needs_wide_index(with_rows(m, rows.back()));
        // Norms, of which the estimates say nothing, as for the most rows.
        const std::size_t at = m.spec.as_contraction() ? taken[i] : most;
        kernels.push_back(member_kernel(m, rows[at], own_wide, context));
        any_wide |= own_wide;
        has_texts &= kernels.back().text.has_value();
      }
      if (wide == any_wide && has_texts) result.push_back(std::move(kernels));
    }
  return result;
}

}  // namespace

std::vector<RowSchedules> RowSchedules::all(const std::vector<KernelSpec>& one,
                                            const std::vector<const KernelSpec*>& other,
                                            const PlanContext& context, Known& known) {
  std::map<std::pair<std::int64_t, std::int64_t>, Members> groups;
  for (std::size_t i = 0; i < one.size(); ++i)
    if (const int index = other[i] ? only_difference(one[i], *other[i]) : -1;
        index >= 0 && may_be_rows(one[i], index))
      groups[{one[i].extent[index], other[i]->extent[index]}].push_back({i, one[i], index});
  std::vector<RowSchedules> result;
  for (auto& [rows, members] : groups) {
    const std::string key = take_texts(members, context);
    if (std::none_of(members.begin(), members.end(),
                     [](const Member& m) { return m.spec.as_contraction(); }))
      continue;
    auto& schedules = known[key];
    if (!schedules) schedules = std::make_shared<Schedules>(schedules_of(members, context));
    if (schedules->empty()) continue;
    RowSchedules made;
    for (const auto& m : members) made.places_.push_back(m.place);
    made.schedules_ = schedules;
    result.push_back(std::move(made));
  }
  return result;
}

const std::vector<ClassKernel>* RowSchedules::best(const std::vector<const KernelSpec*>& kernels,
                                                   const PlanContext& context) const {
  std::vector<Choice> own;
  for (const std::size_t place : places_)
    own.push_back(kernels[place] ? choice_of(schedule_kernel(*kernels[place], context)) : Choice());
  std::vector<double> all;
  for (const auto& schedule : *schedules_) {
    double& takes = all.emplace_back(0);
    for (std::size_t i = 0; i < places_.size() && takes < kNever; ++i) {
      const KernelSpec* const spec = kernels[places_[i]];
      if (!spec) continue;
      const ScheduledKernel& decided = schedule[i].decided;
      const auto as = schedule_as(decided, *spec, context);
      takes += as && is_wide(*as) == is_wide(decided) ? reckoned(*as, own[i]) : kNever;
    }
  }
  // Of those that are about alike the first, which most plans take.
  constexpr double kAlike = 1.01;
  const double least = *std::min_element(all.begin(), all.end());
  if (least == kNever) return nullptr;
  const auto first =
      std::find_if(all.begin(), all.end(), [&](double takes) { return takes <= kAlike * least; });
  return &(*schedules_)[static_cast<std::size_t>(first - all.begin())];
}

}  // namespace sinter
