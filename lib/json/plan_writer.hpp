// The text of a plan file in its two parts, for the writer and for the reader's check of the hash.
#pragma once
#include <string>

#include "plan/plan_data.hpp"

namespace sinter::json {

inline constexpr std::string_view kPlanFormat = "sinter.plan";
inline constexpr std::int64_t kPlanVersion = 3;

std::string plan_body(const PlanData& plan);   // all that follows the hash
std::string plan_hash(std::string_view body);  // 32 hex digits

}  // namespace sinter::json
