// What one kernel computes, as plain data without instruction, tile or thread: an iteration domain,
// the buffers it reaches, and a straight-line body of named values. The planner writes it, a
// schedule is chosen for it, the generator prints it, and the tests' plan interpreter runs it on
// the CPU.
//
// What all families have stands here; what only one of them has, in its own type (lib/plan/spec).
#pragma once
#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "plan/spec/families.hpp"

namespace sinter {

// For std::visit: a function for each family that is treated apart.
template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

struct KernelSpec {
  AnyFamily family = PointwiseSpec{};
  std::vector<NodeId> nodes;  // of the lowered graph, for explain
  Dims extent;                // the domain
  std::vector<KernelPort> ports;
  std::vector<KernelScalar> scalars;
  std::vector<Gather> gathers;
  Body body;  // of a contraction the epilogue
  // Reductions that are complete only when the kernel has ended: of rowwise kernels and
  // contractions.
  std::vector<CrossRowReduction> cross_row_reductions;
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
    return std::any_of(cross_row_reductions.begin(), cross_row_reductions.end(),
                       [](const auto& c) { return c.arithmetic == DataType::f64; });
  }
  // The body and those of all operands.
  std::vector<Body*> bodies() { return bodies_of<Body>(*this); }
  std::vector<const Body*> bodies() const { return bodies_of<const Body>(*this); }

  Dims group_ends() const {
    return std::visit([&](const auto& f) { return f.group_ends(extent.size()); }, family);
  }
  int result_rank() const {
    return std::visit([&](const auto& f) { return f.result_rank(extent.size()); }, family);
  }

 private:
  template <class B, class Spec>
  static std::vector<B*> bodies_of(Spec& spec) {
    std::vector<B*> all{&spec.body};
    std::visit(
        [&](auto& family) {
          if constexpr (requires { family.own_bodies(family); })
            for (B* body : family.own_bodies(family)) all.push_back(body);
        },
        spec.family);
    return all;
  }
};

constexpr Family family_of(const KernelSpec& spec) {
  return static_cast<Family>(spec.family.index());
}

}  // namespace sinter
