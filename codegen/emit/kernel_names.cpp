#include "emit/kernel_names.hpp"

#include <fmt/format.h>

#include <bit>
#include <set>

#include "emit/spelling.hpp"

namespace sinter {
namespace {

// How scalars are used: as numbers, or as the raw integers of a random number generator.
struct ScalarUse {
  std::vector<bool> value, integer;
  ScalarUse(const KernelSpec& spec, const std::vector<const Body*>& others)
      : value(spec.scalars.size()), integer(spec.scalars.size()) {
    std::vector<const Body*> bodies = spec.bodies();
    bodies.insert(bodies.end(), others.begin(), others.end());
    for (const Body* body : bodies)
      for (const auto& s : body->statements) {
        if (s.kind == StatementKind::scalar) value[static_cast<std::size_t>(s.port)] = true;
        if (s.kind != StatementKind::random) continue;
        for (int port : {s.port, s.port2})
          if (port < 0) integer[static_cast<std::size_t>(-1 - port)] = true;
      }
  }
};

}  // namespace

KernelNames::KernelNames(const KernelSpec& spec, const std::vector<const Body*>& others) {
  Identifiers members;
  std::set<std::string> taken;
  // Members that differ in underscores only would share the name of their struct.
  const auto unique = [&](const std::string& stem) {
    std::string name = stem + "Access";
    for (int i = 2; !taken.insert(name).second; ++i) name = fmt::format("{}{}Access", stem, i);
    return name;
  };
  for (const auto& p : spec.ports) {
    port.push_back(members.add(p.name, "t"));
    access.push_back(unique(pascal_case(port.back())));
  }
  const ScalarUse use(spec, others);
  for (std::size_t i = 0; i < spec.scalars.size(); ++i) {
    scalar_value.push_back(use.value[i] ? members.add(spec.scalars[i].name, "s") : "");
    scalar_integer.push_back(use.integer[i] ? members.add(spec.scalars[i].name, "s") : "");
  }
  for (std::size_t i = 0; i < spec.gathers.size(); ++i) {
    gather.push_back(fmt::format("{}{}", pascal_case(name(spec.gathers[i].op)), i));
    gathered.push_back(members.add(std::string(name(spec.gathers[i].op)), "g"));
  }
  if (const RowwiseSpec* const rows = spec.as_rowwise())
    for (std::size_t i = 0; i < rows->reductions.size(); ++i)
      reduction.push_back(fmt::format("{}{}", pascal_case(name(rows->reductions[i].mode)), i));
  for (std::size_t i = 0; i < spec.cross_row_reductions.size(); ++i)
    cross_row.push_back(
        fmt::format("CrossRow{}{}", pascal_case(name(spec.cross_row_reductions[i].mode)), i));
}

std::vector<EmittedArgument> kernel_arguments(const KernelSpec& spec, const KernelNames& names) {
  std::vector<EmittedArgument> arguments;
  for (int i = 0; i < static_cast<int>(spec.ports.size()); ++i)
    arguments.push_back({.scalar = false, .index = i, .bytes = 8, .bits = 0});
  for (std::size_t i = 0; i < spec.scalars.size(); ++i) {
    const KernelScalar& s = spec.scalars[i];
    const int index = static_cast<int>(i);
    if (!names.scalar_value[i].empty()) {
      if (fits_f32(s.type))
        arguments.push_back({.scalar = true,
                             .index = index,
                             .bytes = 4,
                             .bits = std::bit_cast<std::uint32_t>(static_cast<float>(s.value))});
      else
        arguments.push_back(
            {.scalar = true, .index = index, .bits = std::bit_cast<std::uint64_t>(s.value)});
    }
    if (!names.scalar_integer[i].empty())
      arguments.push_back({.scalar = true,
                           .integer = true,
                           .index = index,
                           .bits = static_cast<std::uint64_t>(s.integer_value)});
  }
  return arguments;
}

}  // namespace sinter
