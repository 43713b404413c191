#include "target/target.hpp"

#include <algorithm>

namespace sinter {
namespace {

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

bool target_fits(std::string_view architecture, std::string_view target) {
  if (architecture.empty() || architecture == target) return true;
  if (has_letter(architecture) || !valid_target(architecture) || !valid_target(target))
    return false;
  const std::string_view least = digits(architecture), here = digits(target);
  return here.size() != least.size() ? here.size() > least.size() : here >= least;
}

}  // namespace sinter
