#include "runtime/bindings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace sinter {
namespace {

constexpr std::uintptr_t kWorkspaceAlignment = 256;
constexpr std::int64_t kMostMoved = 16;

// Null is a legal pointer for a tensor without elements, so "not bound" needs a value of its own.
char not_bound;

Status check_pointer(const PlanTensor& tensor, const void* pointer) {
  if (pointer == &not_bound)
    return Diagnostic{.rule = Rule::binding_missing, .tensor = tensor.name};
  if (!pointer && tensor.bytes > 0)
    return Diagnostic{.rule = Rule::binding_null,
                      .tensor = tensor.name,
                      .allowed = fmt::format("a pointer to {} bytes", tensor.bytes)};
  // Kernels move up to 16 bytes at a time where the graph's alignment allows it.
  const std::int64_t needed = std::max<std::int64_t>({info(tensor.type).bytes, 1,
                                                      std::min(tensor.alignment, kMostMoved)});
  if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(needed) != 0)
    return Diagnostic{.rule = Rule::binding_alignment,
                      .tensor = tensor.name,
                      .seen = fmt::format("{}", pointer),
                      .allowed = fmt::format("multiples of {} bytes", needed),
                      .fix = fmt::format("declare alignment {} or less for the tensor",
                                         reinterpret_cast<std::uintptr_t>(pointer) &
                                             (~reinterpret_cast<std::uintptr_t>(pointer) + 1))};
  return Done{};
}

}  // namespace

BindingTable::BindingTable(std::span<const PlanTensor> tensors)
    : tensors_(tensors), by_name_(tensors.size()) {
  std::iota(by_name_.begin(), by_name_.end(), 0U);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return tensors[a].name < tensors[b].name; });
}

Status BindingTable::resolve(std::span<const Binding> bindings, std::span<void*> pointers) const {
  std::fill(pointers.begin(), pointers.end(), &not_bound);
  for (const Binding& binding : bindings) {
    const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), binding.name,
                                     [&](std::uint32_t position, std::string_view name) {
                                       return tensors_[position].name < name;
                                     });
    if (at == by_name_.end() || tensors_[*at].name != binding.name) return unknown(binding.name);
    if (pointers[*at] != &not_bound)
      return Diagnostic{
          .rule = Rule::binding_unknown, .tensor = tensors_[*at].name, .seen = "a second binding"};
    pointers[*at] = binding.pointer;
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    auto checked = check_pointer(tensors_[i], pointers[i]);
    SINTER_TRY(checked);
  }
  return Done{};
}

Diagnostic BindingTable::unknown(std::string_view name) const {
  std::string names;
  for (const auto& t : tensors_) {
    if (names.size() > 200) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + t.name;
  }
  return {.rule = Rule::binding_unknown, .tensor = std::string(name), .allowed = std::move(names)};
}

Status check_workspace(Workspace workspace, std::int64_t needed) {
  if (needed <= 0) return Done{};
  if (workspace.bytes < needed)
    return Diagnostic{.rule = Rule::workspace,
                      .attribute = "the workspace",
                      .seen = fmt::format("{} bytes", workspace.bytes),
                      .allowed = fmt::format("{} or more", needed)};
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.pointer);
  if (!workspace.pointer || address % kWorkspaceAlignment != 0)
    return Diagnostic{.rule = Rule::workspace,
                      .attribute = "the workspace's pointer",
                      .seen = fmt::format("{}", workspace.pointer),
                      .allowed = fmt::format("multiples of {}, not null", kWorkspaceAlignment)};
  return Done{};
}

}  // namespace sinter
