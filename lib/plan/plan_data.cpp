#include "plan/plan_data.hpp"

#include <algorithm>

namespace sinter {

std::string_view engine_of(const PlanKernel& kernel) {
  constexpr std::string_view include = "#include \"sinter/device/family/";
  const std::string_view source = kernel.source;
  const auto at = source.find(include);
  if (at == source.npos) return {};
  const auto rest = source.substr(at + include.size());
  return rest.substr(0, rest.find('.'));
}

bool PlanData::reads(const PlanTensor& tensor) const {
  const std::int64_t at = &tensor - tensors.data();
  return std::any_of(kernels.begin(), kernels.end(), [&](const PlanKernel& k) {
    using enum KernelArgument::Kind;
    const auto takes = [&](const KernelArgument& a) {
      return a.value == at &&
             (a.kind == KernelArgument::Kind::tensor || a.kind == number || a.kind == integer);
    };
    const auto maps = [&](const PlanMap& m) { return !m.workspace && m.value == at; };
    return std::any_of(k.arguments.begin(), k.arguments.end(), takes) ||
           std::any_of(k.maps.begin(), k.maps.end(), maps);
  });
}

}  // namespace sinter
