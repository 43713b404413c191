#include "runtime/bindings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>

#include "base/edit_distance.hpp"
#include "plan/workspace_alignment.hpp"
#include "reference/element.hpp"

namespace sinter {
namespace {

constexpr std::int64_t kMostMoved = 16;

// Null is a legal pointer for a tensor without elements, so "not bound" needs a value of its own.
char not_bound;

Status check_size(const PlanTensor& tensor, const Binding& binding) {
  if (binding.bytes < 0 || binding.bytes >= tensor.bytes) return Done{};
  return Diagnostic{.rule = Rule::binding_size,
                    .tensor = tensor.name,
                    .seen = fmt::format("{} bytes", binding.bytes),
                    .allowed = fmt::format("{} or more", tensor.bytes)};
}

Status check_pointer(const PlanTensor& tensor, const void* pointer) {
  if (pointer == &not_bound)
    return Diagnostic{
        .rule = Rule::binding_missing,
        .tensor = tensor.name,
        .allowed = tensor.by_value ? fmt::format("{{\"{}\", number}}", tensor.name) : ""};
  if (!pointer && tensor.bytes > 0)
    return Diagnostic{.rule = Rule::binding_null,
                      .tensor = tensor.name,
                      .allowed = fmt::format("a pointer to {} bytes", tensor.bytes)};
  // Kernels move up to 16 bytes at a time where the graph's alignment allows it.
  const std::int64_t needed =
      std::max<std::int64_t>({info(tensor.type).bytes, 1, std::min(tensor.alignment, kMostMoved)});
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
  std::copy_if(by_name_.begin(), by_name_.end(), std::back_inserter(by_uid_),
               [&](std::uint32_t i) { return tensors[i].uid.has_value(); });
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return tensors[a].name < tensors[b].name; });
  std::sort(by_uid_.begin(), by_uid_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return *tensors[a].uid < *tensors[b].uid; });
}

std::size_t BindingTable::find(const TensorKey& key) const {
  const auto number = key.number();
  if (key.kind() == TensorKey::Kind::index)
    return number >= 0 && number < std::ssize(tensors_) ? static_cast<std::size_t>(number) : kNone;
  if (key.kind() == TensorKey::Kind::uid) {
    const auto at = std::lower_bound(
        by_uid_.begin(), by_uid_.end(), number,
        [&](std::uint32_t position, std::int64_t uid) { return *tensors_[position].uid < uid; });
    return at != by_uid_.end() && *tensors_[*at].uid == number ? *at : kNone;
  }
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), key.name(),
                                   [&](std::uint32_t position, std::string_view name) {
                                     return tensors_[position].name < name;
                                   });
  return at != by_name_.end() && tensors_[*at].name == key.name() ? *at : kNone;
}

Status BindingTable::place(const Binding& binding, std::span<const Binding> numbers,
                           std::span<void*> pointers) const {
  const bool only_numbers = !numbers.empty();
  const std::size_t at = find(binding.tensor);
  if (at == kNone) return unknown(binding.tensor);
  const PlanTensor& tensor = tensors_[at];
  if (tensor.by_value && !binding.by_value)
    return Diagnostic{.rule = Rule::binding_number,
                      .tensor = tensor.name,
                      .seen = "a pointer",
                      .allowed = fmt::format("{{\"{}\", number}}", tensor.name)};
  const char* const again = only_numbers ? "bind the executable again for other memory" : "";
  if (!tensor.by_value && binding.by_value)
    return Diagnostic{.rule = Rule::binding_memory,
                      .tensor = tensor.name,
                      .seen = "a number",
                      .allowed = "a pointer",
                      .fix = again};
  if (!tensor.by_value && only_numbers)
    return Diagnostic{.rule = Rule::binding_repeated,
                      .tensor = tensor.name,
                      .seen = "a pointer, after it was bound",
                      .allowed = "what is passed by value",
                      .fix = again};
  const auto is_of = [&](const Binding& b) { return pointers[at] == &b.number; };
  if (only_numbers ? std::ranges::any_of(numbers, is_of) : pointers[at] != &not_bound)
    return Diagnostic{.rule = Rule::binding_repeated, .tensor = tensor.name};
  if (tensor.by_value) {
    pointers[at] = const_cast<Number*>(&binding.number);
    return Done{};
  }
  auto large = check_size(tensor, binding);
  SINTER_TRY(large);
  pointers[at] = binding.pointer;
  return Done{};
}

Status BindingTable::renumber(std::span<const Binding> numbers, std::span<void*> pointers) const {
  for (const Binding& number : numbers) {
    auto placed = place(number, numbers, pointers);
    SINTER_TRY(placed);
  }
  return Done{};
}

Status BindingTable::resolve(std::span<const Binding> bindings, std::span<void*> pointers) const {
  std::fill(pointers.begin(), pointers.end(), &not_bound);
  for (const Binding& binding : bindings) {
    auto placed = place(binding, {}, pointers);
    SINTER_TRY(placed);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const PlanTensor& t = tensors_[i];
    if (pointers[i] == &not_bound && t.alias >= 0)
      pointers[i] = pointers[static_cast<std::size_t>(t.alias)];
    if (pointers[i] == &not_bound && !t.read) {
      pointers[i] = nullptr;
      continue;
    }
    if (t.by_value && pointers[i] != &not_bound) continue;
    auto checked = check_pointer(tensors_[i], pointers[i]);
    SINTER_TRY(checked);
  }
  return Done{};
}

Diagnostic BindingTable::unknown(const TensorKey& key) const {
  Diagnostic d{.rule = Rule::binding_unknown};
  if (key.kind() == TensorKey::Kind::index) {
    d.tensor = fmt::format("index {}", key.number());
    d.allowed = fmt::format("0 to {}", std::ssize(tensors_) - 1);
    return d;
  }
  const bool by_uid = key.kind() == TensorKey::Kind::uid;
  d.tensor = by_uid ? fmt::format("uid {}", key.number()) : std::string(key.name());
  std::vector<std::string_view> names;
  for (const auto& t : tensors_) {
    names.push_back(t.name);
    if (by_uid && !t.uid) continue;
    if (d.allowed.size() > 200) {
      if (!d.allowed.ends_with(", ...")) d.allowed += ", ...";
      continue;
    }
    d.allowed += (d.allowed.empty() ? "" : ", ") + (by_uid ? std::to_string(*t.uid) : t.name);
  }
  if (by_uid && d.allowed.empty())
    d.allowed = "a name or an index: no tensor of the graph has a uid";
  if (!by_uid) d.fix = suggestion(key.name(), names);
  return d;
}

Status check_workspace(Workspace workspace, std::int64_t needed) {
  if (needed <= 0) return Done{};
  if (workspace.bytes < needed)
    return Diagnostic{.rule = Rule::workspace_size,
                      .attribute = "the workspace",
                      .seen = fmt::format("{} bytes", workspace.bytes),
                      .allowed = fmt::format("{} or more", needed)};
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.pointer);
  if (!workspace.pointer)
    return Diagnostic{.rule = Rule::workspace_null, .attribute = "the workspace"};
  if (address % kWorkspaceAlignment != 0)
    return Diagnostic{.rule = Rule::workspace_alignment,
                      .attribute = "the workspace's pointer",
                      .seen = fmt::format("{}", workspace.pointer),
                      .allowed = fmt::format("multiples of {}", kWorkspaceAlignment)};
  return Done{};
}

double rounded(DataType type, const Number& number) {
  if (!is_floating(type)) return static_cast<double>(integer(type, number));
  return round_to(type, number.value);
}

std::int64_t integer(DataType type, const Number& number) {
  if (type == DataType::i64 && number.is_integer) return number.integer;
  const double value = round_to(type, number.value);
  if (value >= -0x1p63 && value < 0x1p63) return static_cast<std::int64_t>(value);
  return value > 0 ? INT64_MAX : value < 0 ? INT64_MIN : 0;
}

void store_number(DataType type, const Number& number, void* element) {
  if (type == DataType::i64) {
    const std::int64_t value = integer(type, number);
    std::memcpy(element, &value, sizeof value);
  } else {
    store_element(type, element, 0, number.value);
  }
}

Binding binding_of(const PlanTensor& tensor, const void* memory) {
  if (!tensor.by_value) return {tensor.name, memory, tensor.bytes};
  if (tensor.type != DataType::i64) return {tensor.name, load_element(tensor.type, memory, 0)};
  std::int64_t value = 0;
  std::memcpy(&value, memory, sizeof value);
  return {tensor.name, value};
}

}  // namespace sinter
