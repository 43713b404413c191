#include "support/compiled_kernels.hpp"

#include <set>

#include "runtime/compiler.hpp"
#include "support/catch.hpp"
#include "support/joined_kernels.hpp"

namespace sinter::test {

void compile_together(std::span<const NamedKernel> kernels, std::string_view target,
                      const LookAtCode& look) {
  std::set<std::string_view> sources;
  std::vector<PlanKernel> texts;
  for (const NamedKernel& k : kernels) {
    if (!sources.insert(k.source).second) continue;
    PlanKernel& text = texts.emplace_back();
    text.source = k.source;
    text.entry = k.entry;
    text.nodes = {k.name};
  }
  std::vector<const PlanKernel*> each;
  for (const PlanKernel& k : texts) each.push_back(&k);
  for (const auto& part : joinable(each, kMostJoinedOfPlans, [](const PlanKernel&) { return 0; })) {
    std::string names = "for " + std::string(target);
    std::vector<std::string> entries;
    for (const PlanKernel* k : part) {
      entries.push_back(k->entry);
      names += "\n" + k->entry + ": " + k->nodes[0];
    }
    INFO(names);
    std::string log;
    const bool alone = part.size() == 1;
    const auto code =
        compile_uncached({alone ? part[0]->source : joined(part), part[0]->entry, target}, &log);
    if (code && look) look(entries, *code, log);
    if (code) continue;
    FAIL_CHECK(code.error().message());
    if (alone) continue;
    for (const PlanKernel* k : part)
      if (const auto one = compile_uncached({k->source, k->entry, target}); !one)
        FAIL_CHECK(one.error().message());
  }
}

void expect_no_complaint(std::span<const NamedKernel> kernels, std::string_view target,
                         std::span<const std::string_view> complaints) {
  compile_together(kernels, target,
                   [&](std::span<const std::string>, const std::string&, const std::string& log) {
                     CAPTURE(log);
                     for (const std::string_view complaint : complaints)
                       CHECK(log.find(complaint) == std::string::npos);
                   });
}

}  // namespace sinter::test
