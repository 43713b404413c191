// The sentence that says how a kernel works.
#include "planner/explain/how.hpp"

#include <fmt/format.h>

#include "planner/explain/explain.hpp"

namespace sinter {

std::string moved_vectors(KernelConstants& get) {
  const auto width = get("width");
  return width > 1 ? fmt::format("vectors of {} elements", width)
                   : "element by element, as extents, strides or alignments allow no more or the "
                     "rows are short";
}

std::string estimated(KernelConstants& get, std::string_view gpu) {
  return fmt::format("estimated at {:.1f} us on {}",
                     static_cast<double>(get("estimated_ns")) / 1000, gpu);
}

std::string counted(std::int64_t n, std::string_view of) {
  return fmt::format("{} {}{}", n, of, n == 1 ? "" : "s");
}

std::string how_it_works(const PlanKernel& k, std::string_view gpu) {
  const auto all = {
#define SINTER_FAMILY(name, Spec) name##_sentences(),
      SINTER_FAMILIES(SINTER_FAMILY)
#undef SINTER_FAMILY
  };
  for (const auto sentences : all)
    for (const EngineSentence& s : sentences) {
      if (s.engine != engine_of(k)) continue;
      KernelConstants get(k);
      const std::string text = s.how(get, k, gpu);
      return get.missing().empty()
                 ? text
                 : fmt::format("unknown, as the plan's config has no '{}'", get.missing());
    }
  return "unknown, as the kernel calls no known engine";
}

}  // namespace sinter
