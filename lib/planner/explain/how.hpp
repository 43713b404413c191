// For the sentences that say how a kernel works: a family has those of its engines in a file of its
// own.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/plan_data.hpp"

namespace sinter {

// What the generator chose for a kernel, by name. A plan file may lack what an explanation needs:
// the first such name is kept, and stands in the explanation's place.
class KernelConstants {
 public:
  explicit KernelConstants(const PlanKernel& kernel) : kernel_(kernel) {}
  // What every kernel of its kind has.
  std::int64_t operator()(std::string_view key) {
    const auto value = find(key);
    if (!value && missing_.empty()) missing_ = key;
    return value.value_or(0);
  }
  // What only some have, 0 in others.
  std::int64_t some(std::string_view key) const { return find(key).value_or(0); }
  bool has(std::string_view key) const { return find(key).has_value(); }
  const std::string& missing() const { return missing_; }

 private:
  std::optional<std::int64_t> find(std::string_view key) const {
    for (const auto& [name, value] : kernel_.config)
      if (name == key) return value;
    return {};
  }
  const PlanKernel& kernel_;
  std::string missing_;
};

// By the device library's file that the kernel calls.
struct EngineSentence {
  std::string_view engine;
  std::string (*how)(KernelConstants& get, const PlanKernel& k, std::string_view gpu);
};
#define SINTER_FAMILY(name, Spec) std::span<const EngineSentence> name##_sentences();
SINTER_FAMILIES(SINTER_FAMILY)
#undef SINTER_FAMILY

// Of elements in memory: in vectors, or each for itself.
std::string moved_vectors(KernelConstants& get);
inline constexpr std::string_view kMisalignedRows =
    "; rows are misaligned: vectors start at aligned addresses";
// The time that planning compared.
std::string estimated(KernelConstants& get, std::string_view gpu);
// "1 warp", "2 warps".
std::string counted(std::int64_t n, std::string_view of);

}  // namespace sinter
