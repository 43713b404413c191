// What one kernel computes, as plain data without instruction, tile or thread: an iteration domain,
// the buffers it reaches, and a straight-line body of named values. The planner writes it, a
// schedule is chosen for it, the generator prints it, and the tests' plan interpreter runs it on
// the CPU.
//
// What all families have stands here; what only one of them has, in its own type (spec/rowwise.hpp,
// spec/contraction.hpp). Pointwise kernels have nothing of their own: every index of the domain is
// independent, the body runs once an element.
#pragma once
#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "plan/spec/attention.hpp"
#include "plan/spec/attention_backward.hpp"
#include "plan/spec/contraction.hpp"
#include "plan/spec/rowwise.hpp"

namespace sinter {

struct PointwiseSpec {
  // It reads nothing that the kernel before it writes, writes nothing that that one reads, and
  // other elements than that one, so that both may run at once.
  bool beside_before = false;
};

// For std::visit: one function for each family, so that a new family does not compile until
// everybody who tells them apart has said what it is there.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

// The family's name in plans and for people, in the order of KernelSpec::family.
enum class Family : std::uint8_t {
  pointwise,
  rowwise,
  contraction,
  attention,
  attention_backward,
};
template <>
struct EnumNames<Family> {
  static constexpr std::string_view names[] = {"pointwise", "rowwise", "contraction", "attention",
                                               "attention_backward"};
};

struct KernelSpec {
  std::variant<PointwiseSpec, RowwiseSpec, ContractionSpec, AttentionSpec, AttentionBackwardSpec>
      family;
  std::vector<NodeId> nodes;  // of the lowered graph, for explain
  Dims extent;                // the domain
  std::vector<KernelPort> ports;
  std::vector<KernelScalar> scalars;
  std::vector<Gather> gathers;
  Body body;  // of a contraction the epilogue
  // Reductions that are complete only when the kernel has ended: of rowwise kernels and
  // contractions.
  std::vector<ColumnReduction> columns;
  // Pointwise and rowwise: the first blocks to run take the end of the domain
  // (lib/planner/passes/block_order.hpp).
  bool from_end = false;

  // Of the family that the caller knows it to be.
  RowwiseSpec& rowwise() { return std::get<RowwiseSpec>(family); }
  const RowwiseSpec& rowwise() const { return std::get<RowwiseSpec>(family); }
  ContractionSpec& contraction() { return std::get<ContractionSpec>(family); }
  const ContractionSpec& contraction() const { return std::get<ContractionSpec>(family); }
  AttentionSpec& attention() { return std::get<AttentionSpec>(family); }
  const AttentionSpec& attention() const { return std::get<AttentionSpec>(family); }
  AttentionBackwardSpec& attention_backward() { return std::get<AttentionBackwardSpec>(family); }
  const AttentionBackwardSpec& attention_backward() const {
    return std::get<AttentionBackwardSpec>(family);
  }
  // Null where it is of another family.
  const PointwiseSpec* as_pointwise() const { return std::get_if<PointwiseSpec>(&family); }
  const RowwiseSpec* as_rowwise() const { return std::get_if<RowwiseSpec>(&family); }
  ContractionSpec* as_contraction() { return std::get_if<ContractionSpec>(&family); }
  const ContractionSpec* as_contraction() const { return std::get_if<ContractionSpec>(&family); }
  AttentionSpec* as_attention() { return std::get_if<AttentionSpec>(&family); }
  const AttentionSpec* as_attention() const { return std::get_if<AttentionSpec>(&family); }
  AttentionBackwardSpec* as_attention_backward() {
    return std::get_if<AttentionBackwardSpec>(&family);
  }
  const AttentionBackwardSpec* as_attention_backward() const {
    return std::get_if<AttentionBackwardSpec>(&family);
  }

  // Down the columns.
  bool sums_doubles() const {
    return std::any_of(columns.begin(), columns.end(),
                       [](const auto& c) { return c.arithmetic == DataType::f64; });
  }
  // The body and those of all operands.
  std::vector<Body*> bodies() { return bodies_of<Body>(*this); }
  std::vector<const Body*> bodies() const { return bodies_of<const Body>(*this); }

 private:
  template <class B, class Spec>
  static std::vector<B*> bodies_of(Spec& spec) {
    std::vector<B*> all{&spec.body};
    if (auto* const c = spec.as_contraction())
      for (auto& p : c->products) all.insert(all.end(), {&p.a.body, &p.b.body});
    if (auto* const a = spec.as_attention())
      all.insert(all.end(), {&a->q.body, &a->k.body, &a->v.body, &a->score, &a->weight});
    if (auto* const a = spec.as_attention_backward())
      all.insert(all.end(),
                 {&a->q.body, &a->k.body, &a->v.body, &a->d_o.body, &a->score, &a->gradient,
                  &a->weight, &a->rounded_dp, &a->rounded_ds, &a->dq, &a->block_mask});
    return all;
  }
};

constexpr Family family_of(const KernelSpec& spec) {
  return static_cast<Family>(spec.family.index());
}

}  // namespace sinter
