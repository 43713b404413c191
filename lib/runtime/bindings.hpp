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

  // pointers[i] becomes the pointer of tensors[i]; both have the same length.
  Status resolve(std::span<const Binding> bindings, std::span<void*> pointers) const;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t find(const TensorKey& key) const;  // the position, or kNone
  Diagnostic unknown(const TensorKey& key) const;
  std::span<const PlanTensor> tensors_;
  // Positions in tensors_, sorted by name; of those with a uid, by uid.
  std::vector<std::uint32_t> by_name_, by_uid_;
};

Status check_workspace(Workspace workspace, std::int64_t needed);

}  // namespace sinter
