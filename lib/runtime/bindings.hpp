// From names, uids or positions to pointers: checks what the caller bound against the plan's
// tensors, without an allocation unless it has an error to report.
#pragma once
#include <span>
#include <vector>

#include "plan/plan_data.hpp"
#include "sinter/compile.hpp"

namespace sinter {

class BindingTable {
 public:
  BindingTable() = default;
  // Keeps a view of the tensors.
  explicit BindingTable(std::span<const PlanTensor> tensors);

  // pointers[i] becomes the pointer of tensors[i]; both have the same length. Where the tensor is
  // passed by value, it points to the Number in its binding.
  Status resolve(std::span<const Binding> bindings, std::span<void*> pointers) const;
  // The same for numbers alone, which take the place of those that are there.
  Status renumber(std::span<const Binding> numbers, std::span<void*> pointers) const;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t find(const TensorKey& key) const;  // the position, or kNone
  // `numbers`: where these alone are placed, all of them.
  Status place(const Binding& binding, std::span<const Binding> numbers,
               std::span<void*> pointers) const;
  Diagnostic unknown(const TensorKey& key) const;
  std::span<const PlanTensor> tensors_;
  // Positions in tensors_, sorted by name; of those with a uid, by uid.
  std::vector<std::uint32_t> by_name_, by_uid_;
};

Status check_workspace(Workspace workspace, std::int64_t needed);

// That nothing which is written shares memory with anything else, but an output with the input
// that it is declared an alias of. `pointers` as resolve() gives them.
Status check_overlaps(std::span<const PlanTensor> tensors, std::span<void* const> pointers,
                      Workspace workspace, std::int64_t workspace_bytes);

// A tensor and what is bound to it: `memory`, or the number that lies there where it is passed by
// value; then `memory` is of the host.
Binding binding_of(const PlanTensor& tensor, const void* memory);
// The number as a tensor of this type holds it: as a double, as a 64-bit integer, as an element.
double rounded(DataType type, const Number& number);
std::int64_t integer(DataType type, const Number& number);
void store_number(DataType type, const Number& number, void* element);

}  // namespace sinter
