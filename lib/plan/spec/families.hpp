// The kernel families: the types of their specs, and their names.
#pragma once
#include <concepts>
#include <cstdint>
#include <string_view>
#include <variant>

#include "plan/spec/attention.hpp"
#include "plan/spec/attention_backward.hpp"
#include "plan/spec/contraction.hpp"
#include "plan/spec/pointwise.hpp"
#include "plan/spec/rowwise.hpp"

namespace sinter {

// THE list of kernel families, one row each: the name in plans and for people, and the spec. The
// patterns of a family are asked before those of the families below it. Made from it, besides what
// stands below:
//   schedule(const Spec&, ...)  in lib/schedule, see schedule/scheduled_kernel.hpp
//   its patterns                in fusion_patterns, see planner/match/pattern.hpp
//   its sentences of explain    in lib/planner/explain, see planner/explain/how.hpp
// clang-format off
#define SINTER_FAMILIES(FAMILY) \
  FAMILY(attention, AttentionSpec) \
  FAMILY(attention_backward, AttentionBackwardSpec) \
  FAMILY(contraction, ContractionSpec) \
  FAMILY(rowwise, RowwiseSpec) \
  FAMILY(pointwise, PointwiseSpec)
// clang-format on

// What every family's spec says of itself. It may also have
//   own_bodies(self)   its bodies besides KernelSpec::body, of a constant or changing spec
//   own_ports(self)    likewise: where it holds numbers of ports besides its statements
template <class Spec>
concept FamilySpec = requires(const Spec s, int rank) {
  // The domain's indices are in groups, each of which has a meaning of its own: where these end.
  { s.group_ends(rank) } -> std::same_as<Dims>;
  // How many of the indices, the first ones, name a result. The others are summed over.
  { s.result_rank(rank) } -> std::same_as<int>;
};
template <class, FamilySpec... Specs>
using FamilyVariant = std::variant<Specs...>;

#define SINTER_FAMILY(name, Spec) , Spec
using AnyFamily = FamilyVariant<void SINTER_FAMILIES(SINTER_FAMILY)>;
#undef SINTER_FAMILY

#define SINTER_FAMILY(name, Spec) name,
enum class Family : std::uint8_t { SINTER_FAMILIES(SINTER_FAMILY) };
#undef SINTER_FAMILY

#define SINTER_FAMILY(name, Spec) #name,
template <>
struct EnumNames<Family> {
  static constexpr std::string_view names[] = {SINTER_FAMILIES(SINTER_FAMILY)};
};
#undef SINTER_FAMILY

}  // namespace sinter
