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

// Each of them is a compilation, for extents that need it. (Lists of 20 shapes of a decoder block
// drawn at random need 9.8 on average with 12 schedules, 10.5 with 14, 11.5 with 20; with 12
// products of 350 rows are estimated to take 5 to 7 % longer, with 14 less than 5.)
constexpr std::size_t kMostOfTokens = 14, kMostOfImages = 24;
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
    if (c.name != "group" && !c.name.starts_with("boxed_")) values.push_back(c.value);
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
    return 1 + kInVain *
                   (of_tiles(m > n                 ? e->tile.columns()
                             : e->tile.boxed_m > 0 ? e->tile.boxed_m
                                                   : e->loaded_rows) -
                    rows) /
                   kFew;
  return rows > kMany ? 1
                      : of_tiles(m <= n ? e->tile.rows() * e->tile.cluster_m
                                        : e->tile.columns() * e->tile.cluster_n) /
                            rows;
}

// Of few rows tiles have as many as the launch says. Of more, products take longer than loads, and
// they are those of whole tiles.
ScheduledKernel decide(const RowSchedules::Member& member, std::int64_t rows,
                       const PlanContext& context) {
  constexpr std::int64_t kMostBoxed = 512;
  const KernelSpec spec = with_rows(member, rows);
  ScheduledKernel decided = schedule_kernel(spec, context);
  if (rows > kMostBoxed) return decided;
  return boxed_by_launch(std::move(decided), spec, with_rows(member, rows - 2), context);
}

// What the kernel is reckoned with, where `own` is the choice for its extents. Of unlike tiles the
// estimates are less certain than of tiles that are alike, and of many those estimated to be the
// fastest were looked at. (A decoder block on an H200, 64 x 128 tokens: 1 % slower reckoned in
// other tiles, 6 % measured; 1 x 1024 tokens in the same tiles 1 %.)
double reckoned(const ScheduledKernel& k, const Choice& own) {
  constexpr double kUnlike = 1.03, kBoxed = 1.01;
  const bool boxed = k.wgmma() && k.wgmma()->tile.boxed();
  return k.microseconds * (choice_of(k) == own ? 1 : (boxed ? kBoxed : kUnlike) * filled(k));
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

  // Takes more, up to `most`: those by which the losses get less.
  void fill(std::vector<std::size_t>& taken, std::size_t most) const {
    while (taken.size() < most) {
      const double before = losses(taken);
      double least = before;
      std::size_t best = 0;
      taken.push_back(0);
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        taken.back() = i;
        if (const double now = losses(taken); now < least) least = now, best = i;
      }
      if (least == before) return taken.pop_back();
      taken.back() = best;
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

  // Of each product the number of rows, as a place of rows(), whose tiles it has.
  using Composed = std::vector<std::size_t>;
  double loss(const Composed& s, std::size_t j) const {
    double sum = 0;
    for (std::size_t p = 0; p < s.size(); ++p) sum += takes_[p][s[p]][j];
    return sum / own_[j] - 1;
  }

  // Schedules in which each product has the tiles that are the best for all numbers of rows that
  // are the schedule's. Not those of any other number: of tiles that are unlike the estimates are
  // less certain. (Of a decoder block 33 rows in two tiles of 32 took 5 % longer, estimated at 1.)
  std::vector<Composed> composed(const std::vector<std::size_t>& taken) const {
    constexpr int kRounds = 8;
    std::vector<Composed> all;
    for (const std::size_t i : taken) all.emplace_back(takes_.size(), i);
    bool changed = true;
    for (int round = 0; changed && round < kRounds; ++round) {
      changed = false;
      for (std::size_t s = 0; s < all.size(); ++s) {
        const auto own = served(all, s);
        for (std::size_t& place : all[s])
          for (const std::size_t i : own) {
            const double before = losses(all[s], own);
            const std::size_t was = std::exchange(place, i);
            if (losses(all[s], own) < before)
              changed = true;
            else
              place = was;
          }
      }
    }
    std::vector<std::pair<std::size_t, std::size_t>> wins;  // that serve many come first
    for (std::size_t s = 0; s < all.size(); ++s) wins.emplace_back(served(all, s).size(), s);
    std::stable_sort(wins.begin(), wins.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<Composed> sorted;
    for (const auto& [count, s] : wins) sorted.push_back(all[s]);
    for (std::size_t s = sorted.size(); s-- > 0;)
      if (served(sorted, s).empty()) sorted.erase(sorted.begin() + static_cast<std::ptrdiff_t>(s));
    return sorted;
  }
  // The numbers of rows of which `all[s]` is the fastest.
  std::vector<std::size_t> served(const std::vector<Composed>& all, std::size_t s) const {
    std::vector<std::size_t> result;
    for (std::size_t j = 0; j < rows_.size(); ++j) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < all.size(); ++i)
        if (loss(all[i], j) < loss(all[best], j)) best = i;
      if (best == s) result.push_back(j);
    }
    return result;
  }

 private:
  double losses(const Composed& s, const std::vector<std::size_t>& of) const {
    double sum = 0;
    for (const std::size_t j : of) sum += std::pow(std::max(0.0, loss(s, j)), 2);
    return sum;
  }
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
      own_[specs.size() - 1] += schedule_kernel(specs.back(), context).microseconds;
      decided.push_back(decide(member, n, context));
      choices.push_back(choice_of(decided.back()));
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto [same, fresh] = known.try_emplace(choices[i], i);
      if (!fresh)
        takes[i] = takes[same->second];
      else
        for (std::size_t j = 0; j < rows_.size(); ++j)
          if (const auto as = schedule_as(decided[i], specs[j], context))
            takes[i][j] = reckoned(*as, choices[j]);
      for (std::size_t j = 0; j < rows_.size(); ++j) total_[i][j] += takes[i][j];
    }
    takes_.push_back(std::move(takes));
  }

  std::vector<std::int64_t> rows_;
  std::vector<std::vector<std::vector<double>>> takes_;  // microseconds of a product, a list each
  std::vector<std::vector<double>> total_;               // of all
  std::vector<double> own_;
};

// As few as are compiled at the most, with the least loss that this takes.
std::vector<Trials::Composed> cover(const Trials& trials, std::size_t most_schedules) {
  constexpr double kStep = 0.005, kLast = 1;
  std::vector<std::size_t> taken;
  for (double most = kStep; most <= kLast; most += kStep)
    if (taken = trials.cover(most); taken.size() <= most_schedules) break;
  if (taken.size() > most_schedules) taken.resize(most_schedules);
  trials.fill(taken, most_schedules);
  trials.improve(taken);
  return trials.composed(taken);
}

ClassKernel member_kernel(const RowSchedules::Member& m, std::int64_t rows, bool wide,
                          const PlanContext& context) {
  ScheduledKernel decided = decide(m, rows, context);
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
  const auto taken = cover(trials, are_images(members) ? kMostOfImages : kMostOfTokens);
  RowSchedules::Schedules result;
  // Those whose offsets need 64 bits for many rows stand behind all others, with such offsets.
  for (const bool wide : {false, true})
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const std::size_t most = trials.served(taken, i).back();
      std::size_t product = 0;
      bool any_wide = false, has_texts = true;
      std::vector<ClassKernel> kernels;
      for (const auto& m : members) {
        const bool own_wide = wide && needs_wide_index(with_rows(m, rows.back()));
        // Norms, of which the estimates say nothing, as for the most rows.
        const std::size_t at = m.spec.as_contraction() ? taken[i][product++] : most;
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
