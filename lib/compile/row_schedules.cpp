#include "compile/row_schedules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "emit/config_constants.hpp"
#include "plan/access.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// Numbers of rows up to each of these, and above the one before, are a band. (Lists of 20 shapes of
// a decoder block drawn at random need 5 to 8 compilations, and all shapes 10; 13 and 20 with 14
// schedules of all products together.)
constexpr std::int64_t kMore = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kBandsOfTokens[] = {64, 512, 4096, kMore},
                       kBandsOfImages[] = {16, 64, 256, kMore};
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
  constexpr std::int64_t kFewImages = 16, kFewTokens = 4096, kManyTokens = 16384,
                         kMostRows = 1 << 18;
  std::vector<std::int64_t> rows;
  if (images) {
    for (std::int64_t n = 4; n < kFewImages; n += 2) rows.push_back(n - 1);
  } else {
    for (std::int64_t n = 16; n < 128; n += 8) rows.push_back(n - 1);
    for (std::int64_t n = 128; n < 256; n += 16) rows.push_back(n - 1);
    for (std::int64_t n = 256; n < 1024; n += 32) rows.push_back(n - 1);
    for (std::int64_t n = 1024; n < kFewTokens; n += 128) rows.push_back(n - 1);
  }
  const auto growth = [&](double n) { return images ? 1.19 : n < kManyTokens ? 1.06 : 1.12; };
  for (double n = static_cast<double>(images ? kFewImages : kFewTokens); n < kMostRows;
       n *= growth(n))
    rows.push_back(static_cast<std::int64_t>(n) - 1);
  rows.push_back(kMostRows - 1);
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
  return std::visit(Overloaded{[&](const ContractionSpec& c) { return index >= c.first_m(); },
                               [&](const RowwiseSpec& r) { return index < r.outer_rank; },
                               [](const auto&) { return false; }},
                    spec.family);
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
  if (!e || e->window) return 1;
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

// The time that the kernel counts with, where `own` is the choice for its extents. Of unlike tiles
// the estimates are less certain than of tiles that are alike, and of many those estimated to be
// the fastest were looked at. (A decoder block on an H200, 64 x 128 tokens: 1 % slower estimated in
// other tiles, 6 % measured; 1 x 1024 tokens in the same tiles 1 %. 1600 x 1024 x 4096 on an H100:
// 22 us in 128 x 128 by clusters of 1 x 4, 34 of 2 x 1, estimated at 31 both.)
double estimated(const ScheduledKernel& k, const Choice& own) {
  constexpr double kUnlike = 1.05, kBoxed = 1.01;
  const bool boxed = k.wgmma() && k.wgmma()->tile.boxed();
  return k.microseconds * (choice_of(k) == own ? 1 : (boxed ? kBoxed : kUnlike) * filled(k));
}

// A product, scheduled for every number of rows, and what each of these schedules takes for others.
struct Trial {
  std::vector<std::int64_t> decided_for;   // a number of rows, of each schedule
  std::vector<std::size_t> own;            // of each number of rows its own schedule
  std::vector<double> microseconds;        // that a constant plan takes
  std::vector<std::vector<double>> takes;  // of each schedule, by numbers of rows
};

Trial try_rows(const RowSchedules::Member& member, const std::vector<std::int64_t>& rows,
               const PlanContext& context) {
  Trial trial;
  std::map<Choice, std::size_t> known;
  std::vector<KernelSpec> specs;
  std::vector<ScheduledKernel> decided;
  std::vector<const Choice*> choices;
  for (const std::int64_t n : rows) {
    specs.push_back(with_rows(member, n));
    trial.microseconds.push_back(schedule_kernel(specs.back(), context).microseconds);
    ScheduledKernel own = decide(member, n, context);
    const auto [at, fresh] = known.try_emplace(choice_of(own), decided.size());
    trial.own.push_back(at->second);
    choices.push_back(&at->first);
    if (!fresh) continue;
    trial.decided_for.push_back(n);
    decided.push_back(std::move(own));
  }
  for (const ScheduledKernel& d : decided) {
    auto& takes = trial.takes.emplace_back(rows.size(), kNever);
    for (std::size_t j = 0; j < rows.size(); ++j)
      if (const auto as = schedule_as(d, specs[j], context)) takes[j] = estimated(*as, *choices[j]);
  }
  return trial;
}

// The schedules of all products that a band takes: few, such that each of its numbers of rows has
// one of each product with which all products together take hardly longer than in plans of their
// own. Schedules that are best for other bands are not among them: of tiles that are unlike the
// estimates are less certain. (Of a decoder block 33 rows in two tiles of 32 took 5 % longer on an
// H200, estimated at 1.)
class BandChoice {
 public:
  using Schedules = std::vector<std::size_t>;  // of a product, as places in its trial

  // `first` to `last`: the band's, as places of numbers of rows.
  BandChoice(const std::vector<Trial>& trials, std::size_t first, std::size_t last)
      : trials_(trials), first_(first), last_(last), own_(last - first, 0), taken_(trials.size()) {
    constexpr double kSlower = 0.03;
    constexpr std::size_t kMostEach = 4;  // on average
    for (const Trial& t : trials_) {
      const std::set<std::size_t> all(t.own.begin() + static_cast<std::ptrdiff_t>(first),
                                      t.own.begin() + static_cast<std::ptrdiff_t>(last));
      candidates_.emplace_back(all.begin(), all.end());
      for (std::size_t j = 0; j < own_.size(); ++j) own_[j] += t.microseconds[first + j];
    }
    const std::vector<double> alone(own_.size(), 0);
    for (std::size_t p = 0; p < trials_.size(); ++p)  // those that are right for the most rows
      taken_[p] = {*std::min_element(candidates_[p].begin(), candidates_[p].end(),
                                     [&](std::size_t a, std::size_t b) {
                                       return losses(p, {a}, alone) < losses(p, {b}, alone);
                                     })};
    improve();
    std::size_t count = trials_.size();
    while (count++ < kMostEach * trials_.size() && slowest() > kSlower && add()) improve();
  }
  const std::vector<Schedules>& taken() const { return taken_; }

 private:
  double least(std::size_t product, const Schedules& of, std::size_t j) const {
    double least = kNever;
    for (const std::size_t s : of) least = std::min(least, trials_[product].takes[s][first_ + j]);
    return least;
  }
  // By numbers of rows what all products but one take.
  std::vector<double> rest(std::size_t product) const {
    std::vector<double> sums(own_.size(), 0);
    for (std::size_t p = 0; p < trials_.size(); ++p)
      for (std::size_t j = 0; p != product && j < sums.size(); ++j)
        sums[j] += least(p, taken_[p], j);
    return sums;
  }
  // Squared, so that large ones count; of all numbers of rows, where the product has these.
  double losses(std::size_t product, const Schedules& of, const std::vector<double>& rest) const {
    constexpr double kUnserved = 1;
    double sum = 0;
    for (std::size_t j = 0; j < own_.size(); ++j)
      sum +=
          std::pow(std::clamp((rest[j] + least(product, of, j)) / own_[j] - 1, 0.0, kUnserved), 2);
    return sum;
  }
  double slowest() const {
    double most = 0;
    const auto others = rest(0);
    for (std::size_t j = 0; j < own_.size(); ++j)
      most = std::max(most, (others[j] + least(0, taken_[0], j)) / own_[j] - 1);
    return most;
  }
  // Puts others in place of those that are taken, one by one, as long as the losses get less.
  void improve() {
    for (bool improved = true; improved;) {
      improved = false;
      for (std::size_t p = 0; p < trials_.size(); ++p) {
        const auto others = rest(p);
        double now = losses(p, taken_[p], others);
        for (std::size_t& place : taken_[p])
          for (const std::size_t s : candidates_[p]) {
            const std::size_t before = std::exchange(place, s);
            if (const double then = losses(p, taken_[p], others); then < now * kLess)
              now = then, improved = true;
            else
              place = before;
          }
      }
    }
  }
  // Takes one more, by which the losses get the least; false where none helps.
  bool add() {
    double least = kNever;
    std::pair<std::size_t, std::size_t> best;
    for (std::size_t p = 0; p < trials_.size(); ++p) {
      const auto others = rest(p);
      const double now = losses(p, taken_[p], others);
      Schedules more = taken_[p];
      more.push_back(0);
      for (const std::size_t s : candidates_[p]) {
        more.back() = s;
        if (const double then = losses(p, more, others); then < now * kLess && then < least)
          least = then, best = {p, s};
      }
    }
    if (least < kNever) taken_[best.first].push_back(best.second);
    return least < kNever;
  }

  static constexpr double kLess = 1 - 1e-9;  // by more than rounding
  const std::vector<Trial>& trials_;
  const std::size_t first_, last_;
  std::vector<double> own_;
  std::vector<Schedules> candidates_, taken_;
};

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

RowSchedules::Bands bands_of(const Members& members, const PlanContext& context) {
  const bool images = are_images(members);
  const std::vector<std::int64_t> rows = sampled_rows(images);
  std::vector<Trial> trials;
  for (const auto& m : members)
    if (m.spec.as_contraction()) trials.push_back(try_rows(m, rows, context));
  RowSchedules::Bands result;
  std::size_t first = 0;
  for (const std::int64_t most : images ? kBandsOfImages : kBandsOfTokens) {
    std::size_t last = first;
    while (last < rows.size() && rows[last] <= most) ++last;
    const BandChoice choice(trials, first, last);
    first = last;
    // Those whose offsets need 64 bits for many rows stand behind others, with such offsets.
    for (const bool wide : {false, true}) {
      RowSchedules::Band band{most, {}};
      std::size_t product = 0;
      bool any_wide = false, has_texts = true;
      for (const auto& m : members) {
        const bool own_wide = wide && needs_wide_index(with_rows(m, rows[last - 1]));
        any_wide |= own_wide;
        auto& kernels = band.kernels.emplace_back();
        const auto take = [&](std::int64_t n) {
          ClassKernel k = member_kernel(m, n, own_wide, context);
          if (k.text) kernels.push_back(std::move(k));
        };
        // Norms, of which the estimates say nothing, as for the most rows.
        if (!m.spec.as_contraction()) {
          take(rows[last - 1]);
        } else {
          const Trial& trial = trials[product];
          for (const std::size_t s : choice.taken()[product++]) take(trial.decided_for[s]);
        }
        has_texts &= !kernels.empty();
      }
      if (wide == any_wide && has_texts) result.push_back(std::move(band));
    }
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
    auto& bands = known[key];
    if (!bands) bands = std::make_shared<Bands>(bands_of(members, context));
    if (bands->empty()) continue;
    RowSchedules made;
    for (auto& m : members) made.members_.push_back({m.place, m.index});
    made.bands_ = bands;
    result.push_back(std::move(made));
  }
  return result;
}

std::size_t RowSchedules::texts() const {
  std::size_t count = 0;
  for (const Band& band : *bands_)
    for (const auto& kernels : band.kernels) count += kernels.size();
  return count;
}

std::vector<RowSchedules::Taken> RowSchedules::best(const std::vector<const KernelSpec*>& kernels,
                                                    const PlanContext& context) const {
  std::int64_t rows = 0;
  std::vector<Choice> own;
  for (const auto& [place, index] : members_) {
    const KernelSpec* const spec = kernels[place];
    own.push_back(spec ? choice_of(schedule_kernel(*spec, context)) : Choice());
    if (spec && index < spec->extent.size()) rows = spec->extent[index];
  }
  const auto of_band = [&](const Band& band) {
    std::vector<Taken> taken;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const KernelSpec* const spec = kernels[members_[i].place];
      if (!spec) continue;
      Taken best{members_[i].place, nullptr, &band.kernels[i]};
      double least = kNever;
      for (const ClassKernel& k : band.kernels[i]) {
        const auto as = schedule_as(k.decided, *spec, context);
        if (!as || is_wide(*as) != is_wide(k.decided)) continue;
        if (const double takes = estimated(*as, own[i]); takes < least)
          least = takes, best.kernel = &k;
      }
      if (!best.kernel) return std::vector<Taken>();
      taken.push_back(best);
    }
    return taken;
  };
  for (const Band& band : *bands_)
    if (rows <= band.most)
      if (auto taken = of_band(band); !taken.empty()) return taken;
  return {};
}

}  // namespace sinter
