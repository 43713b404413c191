#include "target/target.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/edit_distance.hpp"

namespace sinter {
namespace {

// As NVRTC 13.0 knows them. "a": all that the architecture has, "f": what its family shares.
constexpr std::string_view kTargets[] = {
    "sm_80",   "sm_86",   "sm_87",   "sm_88",   "sm_89",   "sm_90",  "sm_90a",  "sm_100",
    "sm_100a", "sm_100f", "sm_103",  "sm_103a", "sm_103f", "sm_110", "sm_110a", "sm_110f",
    "sm_120",  "sm_120a", "sm_120f", "sm_121",  "sm_121a", "sm_121f"};

bool has_letter(std::string_view target) { return target.ends_with('a') || target.ends_with('f'); }

std::string_view digits(std::string_view target) {
  target.remove_prefix(3);
  if (has_letter(target)) target.remove_suffix(1);
  return target;
}

}  // namespace

bool valid_target(std::string_view target) {
  if (!target.starts_with("sm_")) return false;
  const std::string_view number = digits(target);
  return number.size() >= 2 && number.size() <= 3 &&
         std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::span<const std::string_view> known_targets() { return kTargets; }

std::string_view nearest_target(std::string_view text) {
  std::string lower = lower_case(text.substr(0, 16));
  lower.erase(0, lower.rfind('_') + 1);
  if (!lower.empty() && lower[0] >= '0' && lower[0] <= '9') lower.insert(0, "sm_");
  const auto unlike = [&](std::string_view target) {
    const auto end = std::mismatch(target.begin(), target.end(), lower.begin(), lower.end()).first;
    // Of equally distant ones that with the longer common beginning: sm_9 is nearer to sm_90.
    return std::pair(edit_distance(lower, target), target.end() - end);
  };
  const std::string_view best =
      *std::min_element(std::begin(kTargets), std::end(kTargets),
                        [&](auto a, auto b) { return unlike(a) < unlike(b); });
  const bool near = 2 * edit_distance(lower, best) < std::max(lower.size(), best.size());
  return near ? best : std::string_view{};
}

bool target_fits(std::string_view architecture, std::string_view target) {
  if (architecture.empty() || architecture == target) return true;
  if (has_letter(architecture) || !valid_target(architecture) || !valid_target(target))
    return false;
  const std::string_view least = digits(architecture), here = digits(target);
  return here.size() != least.size() ? here.size() > least.size() : here >= least;
}

bool has_dependent_launch(std::string_view target) { return target_fits("sm_90", target); }

}  // namespace sinter
