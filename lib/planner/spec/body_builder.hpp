// Builds the straight-line body of a kernel: walks from the wanted tensors to the kernel's inputs
// and writes one statement a value, each tensor rounded to its own type where it is made.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "planner/match/fusion_state.hpp"

namespace sinter {

// Where a tensor axis stands as the kernel's indices run: (base + sum coefficient*index) / divisor,
// and, for a window, only where that is exact and lies in [0, extent).
struct Coordinate {
  Dims coefficient;
  std::int64_t base = 0, divisor = 1, extent = 0;
  bool window = false;
};

// The coordinate that is the kernel's index i itself.
Coordinate index_coordinate(int indices, int i);

class BodyBuilder {
 public:
  // `inside`: the nodes that this body computes. `domain`: the dims that the coordinates describe,
  // one each; operands of lower rank or extent 1 broadcast over it.
  BodyBuilder(const FusionState& state, KernelSpec& spec, Body& body, std::vector<NodeId> inside,
              Dims domain, std::vector<Coordinate> coordinates)
      : state_(state),
        spec_(spec),
        body_(body),
        inside_(std::move(inside)),
        domain_(domain),
        coordinates_(std::move(coordinates)) {}

  // The statement that holds the tensor's value as rounded to its type.
  int value(TensorId t);
  // Stores the tensor where it lives.
  void store(TensorId t);
  // Reduces the node's operand over indices that it is not complete along within a kernel's block.
  void column(const Node& n);
  // Declares that a tensor's unrounded value is this statement (a contraction's result).
  void define(TensorId t, int statement) { raw_[t] = statement; }
  // Reductions whose results have these dims are of segments, in this phase or a later one.
  void reduce_segments(Dims of_results, int phase) {
    segments_ = of_results;
    phase_of_segments_ = phase;
  }
  // value(t), zero where the domain's windows do not hold.
  int value_inside_windows(TensorId t);

  Access access(const Dims& dim, const Location& at) const;
  int port(TensorId t, bool written);

 private:
  int add(Statement s);
  // The statement that has the same value, or -1. Of rowwise kernels, whose phases each compute
  // anew what they need: the compiler does not find that reductions are equal.
  int known(const Statement& s) const;
  int raw(TensorId t);  // before rounding to the tensor's type
  int load(TensorId t, DataType arithmetic);
  int load(TensorId t, DataType arithmetic, Access at, std::vector<int> otherwise);
  // Reads a concatenation at the part in which the element lies.
  int joined(NodeId n);
  bool loaded_as_is(TensorId t) const;
  bool is_small_index(TensorId t) const;
  bool is_small_constant(TensorId t) const;
  bool same_in_f32(const Node& n) const;
  bool asks_truth(const Node& n) const;
  bool loads_itself(TensorId t) const;
  int scalar(TensorId t);
  int pointwise(const Node& n);
  int reduction(const Node& n);
  int random(const Node& n);
  int gather(const Node& n, TensorId t);
  int index(const Node& n);
  std::int64_t extent_of(int index) const { return spec_.extent[index]; }

  const FusionState& state_;
  KernelSpec& spec_;
  Body& body_;
  std::vector<NodeId> inside_;
  Dims domain_;
  std::vector<Coordinate> coordinates_;
  std::map<TensorId, int> raw_, value_;
  using Same = std::tuple<StatementKind, DataType, PointwiseMode, std::array<std::uint64_t, 3>, int,
                          int, DataType, std::vector<int>>;
  static Same same(const Statement& s);
  std::map<Same, int> known_;
  std::map<std::tuple<ReductionMode, DataType, bool, int>, int> reduced_;
  Dims segments_;
  int phase_of_segments_ = 0;
};

// The kernels of the elementwise, rowwise and data-movement patterns.
KernelSpec pointwise_spec(const FusionState& state, const std::vector<NodeId>& nodes);
KernelSpec rowwise_spec(const FusionState& state, const std::vector<NodeId>& nodes, NodeId anchor);
// Of reductions over each segment of a row of these dims: the last axis alone.
Dims dims_of_segments(const Dims& full);
// The node reduces the last of the axes that rows with the dims `full` reduce to `kept`, each of
// their segments for itself.
bool reduces_segments(const Graph& g, const Node& n, const Dims& full, const Dims& kept);
std::vector<KernelSpec> data_movement_specs(const FusionState& state, NodeId node);

// Number of a port of this access, added when the kernel has none yet.
int add_port(KernelSpec& spec, KernelPort port);
int add_port(KernelSpec& spec, const Graph& graph, TensorId t, const Location& at, Access access,
             bool written);

}  // namespace sinter
