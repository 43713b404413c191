#include "compile/extent_classes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "emit/emit.hpp"

namespace sinter {
namespace {

struct Range {
  std::int64_t least, most;
};

constexpr std::int64_t kSecond = 16, kGrowth = 4;  // bounds where none are given

// The class that `x` is in.
Range range_of(const DynamicExtent& e, std::int64_t x) {
  Range r{e.least, e.most};
  const auto cut = [&](std::int64_t bound) {
    if (bound < x) r.least = std::max(r.least, bound + 1);
    if (bound >= x) r.most = std::min(r.most, bound);
  };
  for (const std::int64_t bound : e.bounds) cut(bound);
  if (!e.bounds.empty()) return r;
  cut(1);
  for (std::int64_t bound = kSecond; bound < e.most; bound *= kGrowth) cut(bound);
  return r;
}

bool is_prime(std::int64_t x) {
  for (std::int64_t d = 2; d * d <= x; ++d)
    if (x % d == 0) return false;
  return x > 1;
}

// The largest extent of the range that stands for it: a prime, so that nothing that divides it is
// taken for granted, and none of those `taken`, so that numbers which depend on different extents
// differ. The range's end where there is none.
std::int64_t representative(const Range& r, std::set<std::int64_t>& taken) {
  constexpr std::int64_t kTried = 1000;
  for (std::int64_t x = r.most; x >= r.least && x > r.most - kTried; --x)
    if (is_prime(x) && taken.insert(x).second) return x;
  for (std::int64_t x = r.most; x > r.least; --x)
    if (taken.insert(x).second) return x;
  return r.most;
}

// For the other graph: so far from the first that what is counted in blocks differs, too.
Range lower_part(const Range& r) { return {r.least, r.most - (r.most - r.least) / 4}; }

// Without the digest of its text.
std::string name_of(const ClassKernel& k) {
  const std::string entry = emit_kernel(k.decided).entry;
  return entry.substr(0, entry.rfind('_'));
}

// What is wrong with an extent that changes; nothing where it is well-formed.
Status check_described(const DynamicExtent& e) {
  const auto wrong = [&](const char* what, std::string seen, std::string allowed) {
    return Diagnostic{.rule = Rule::tensor_extent,
                      .attribute = e.name + what,
                      .seen = std::move(seen),
                      .allowed = std::move(allowed),
                      .file = e.where.file,
                      .line = e.where.line};
  };
  if (e.least < 0) return wrong(", the least", std::to_string(e.least), "0 or more");
  if (e.most < e.least || e.most > detail::ShapeRules::kMaxExtent)
    return wrong(", the most", std::to_string(e.most),
                 fmt::format("{} to {}", e.least, detail::ShapeRules::kMaxExtent));
  const bool rising = std::adjacent_find(e.bounds.begin(), e.bounds.end(),
                                         std::greater_equal<>()) == e.bounds.end();
  if (!rising || (!e.bounds.empty() && (e.bounds.front() < e.least || e.bounds.back() > e.most)))
    return wrong(", bounds", fmt::format("{}", fmt::join(e.bounds, ", ")),
                 fmt::format("rising numbers of {} to {}", e.least, e.most));
  return Done{};
}

}  // namespace

Status ExtentClasses::check_described() const {
  for (const DynamicExtent& e : extents_) {
    auto checked = sinter::check_described(e);
    SINTER_TRY(checked);
  }
  return Done{};
}

Status ExtentClasses::check(GraphBuilder::Extents extents) const {
  auto described = check_described();
  SINTER_TRY(described);
  if (extents.size() != extents_.size())
    return Diagnostic{.rule = Rule::tensor_extent,
                      .attribute = "the number of extents",
                      .seen = std::to_string(extents.size()),
                      .allowed = std::to_string(extents_.size())};
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const DynamicExtent& e = extents_[i];
    if (extents[i] >= e.least && extents[i] <= e.most) continue;
    return Diagnostic{.rule = Rule::tensor_extent,
                      .attribute = e.name,
                      .seen = std::to_string(extents[i]),
                      .allowed = fmt::format("{} to {}", e.least, e.most),
                      .file = e.where.file,
                      .line = e.where.line};
  }
  return Done{};
}

ExtentClasses::Key ExtentClasses::key_of(GraphBuilder::Extents extents) const {
  Key key;
  for (std::size_t i = 0; i < extents.size(); ++i)
    key.push_back(range_of(extents_[i], extents[i]).most);
  return key;
}

std::shared_ptr<const PlanClass> ExtentClasses::known(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = classes_.find(key);
  return found == classes_.end() ? nullptr : found->second;
}

bool ExtentClasses::met(GraphBuilder::Extents extents) const {
  return check(extents) && known(key_of(extents));
}

Result<std::shared_ptr<const PlanClass>> ExtentClasses::class_of(GraphBuilder::Extents extents) {
  const Key key = key_of(extents);
  if (auto found = known(key)) return found;
  const std::lock_guard making(making_);
  if (auto found = known(key)) return found;
  auto made = make(key);
  SINTER_TRY(made);
  const std::lock_guard lock(mutex_);
  return classes_[key] = std::move(*made);
}

Result<std::shared_ptr<PlanClass>> ExtentClasses::make(const Key& key) {
  std::set<std::int64_t> taken;
  Key one, other;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const Range r = range_of(extents_[i], key[i]);
    one.push_back(representative(r, taken));
    other.push_back(r.least < r.most ? representative(lower_part(r), taken) : r.most);
  }
  Graph graph(graph_), other_graph(graph_);
  builder_(graph, one);
  builder_(other_graph, other);
  return make_plan_class(graph, other_graph, plan_, schedules_);
}

Result<Plan> ExtentClasses::plan(Graph& graph, GraphBuilder::Extents extents,
                                 std::vector<ClassSource>* beside) {
  auto checked = check(extents);
  SINTER_TRY(checked);
  auto of_class = class_of(extents);
  SINTER_TRY(of_class);
  return make_plan_of_class(graph, plan_, **of_class, beside);
}

std::int64_t ExtentClasses::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(classes_.size());
}

std::string ExtentClasses::explain() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [key, of_class] : classes_) {
    for (std::size_t i = 0; i < key.size(); ++i) {
      const Range r = range_of(extents_[i], key[i]);
      text += fmt::format("{}{} {} to {}", i ? ", " : "", extents_[i].name, r.least, r.most);
    }
    const auto& kernels = of_class->kernels;
    const auto shared = std::count_if(kernels.begin(), kernels.end(),
                                      [](const ClassKernel& k) { return k.text.has_value(); });
    text += fmt::format(": {} of {} kernels serve all extents", shared, kernels.size());
    for (const RowSchedules& s : of_class->by_rows)
      text += fmt::format(", {} of them compiled as {} for {} bands of rows", s.kernels(),
                          s.texts(), s.bands());
    text += '\n';
    for (const ClassKernel& k : kernels)
      if (!k.text) text += fmt::format("  {}: {}\n", name_of(k), k.reason);
  }
  return text;
}

}  // namespace sinter
