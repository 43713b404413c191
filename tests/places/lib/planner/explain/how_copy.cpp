// How copies work.
#include "planner/explain/how.hpp"

namespace sinter {
namespace {

std::string how_copy(KernelConstants&, const PlanKernel&, std::string_view) {
  return "one element a thread";
}

}  // namespace

std::span<const EngineSentence> copy_sentences() {
  static constexpr EngineSentence all[] = {{"copy", how_copy}};
  return all;
}

}  // namespace sinter
