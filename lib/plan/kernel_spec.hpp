// What one kernel computes, as plain data that knows no GPU: an iteration domain, the buffers it
// reaches, and a straight-line body of named values. The planner writes it, the generator prints
// it, and the plan interpreter (lib/reference) runs it on the CPU.
//
// Three families share it:
//   pointwise    every index of the domain is independent; the body runs once an element.
//   rowwise      the first `kept` indices name a row, the rest run along it. The body is split in
//                phases: phase p sees the reductions that phases before p finished. Values marked
//                `per_row` do not depend on the inner indices and run once a row and phase. Values
//                may also be reduced down the columns, over all rows, in `slots` parts.
//   contraction  indices are batch, m, n, k in this order; acc(batch, m, n) = sum over k of
//                a(batch, m, k) * b(batch, n, k), where a and b are bodies of their own and `body`
//                is the epilogue, run once an element of (batch, m, n). Its values may also be
//                reduced over all of m, of n or of both, in parts of 16 rows or columns.
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sinter/graph.hpp"

namespace sinter {

enum class Family : std::uint8_t { pointwise, rowwise, contraction };
template <>
struct EnumNames<Family> {
  static constexpr std::string_view names[] = {"pointwise", "rowwise", "contraction"};
};
enum class ZeroOf : std::uint8_t { neither, a, b };  // operands of a contraction

// A coordinate that may fall outside its tensor (convolution padding, parts of a concatenation):
// c = (base + sum coefficient[i] * index[i]) / divisor. The element exists when the division is
// exact and 0 <= c < extent; it then lies c * stride further.
struct Window {
  Dims coefficient;  // one an index of the domain
  std::int64_t base = 0, divisor = 1, extent = 0, stride = 0;
  bool operator==(const Window&) const = default;
};

// How the indices of the domain reach one element of a buffer:
// offset + sum stride[i] * index[i] + the windows. When `via` is not empty, the domain's indices
// are first joined row-major over the domain's extents to one number, which is split over the
// extents `via`; `stride` is then per split index (a reshape that is no view). Unused indices have
// stride 0.
struct Access {
  Dims stride;
  std::int64_t offset = 0;
  std::vector<Window> windows;
  Dims via;
  bool operator==(const Access&) const = default;
};

struct KernelPort {
  TensorId tensor = kNoTensor;  // of the lowered graph
  std::string name;             // the user's name of the tensor, not yet an identifier
  DataType type{};
  Access access;
  bool written = false;
  std::int64_t alignment = 16;  // of the buffer, bytes: what the caller promises, a power of two
  // pointwise: elements that lie together at each place; the statements that load or store it say
  // which of them they mean.
  int together = 1;
};

struct KernelScalar {  // a pass-by-value tensor
  TensorId tensor = kNoTensor;
  std::string name;
  DataType type{};
  double value = 0;
  std::int64_t integer_value = 0;
};

// A value is the number of the statement that makes it. Its C++ type is float or double, as
// `arithmetic` says; operands of the other type are converted.
enum class StatementKind : std::uint8_t {
  load,         // port; outside the windows: args[0] where given, else 0
  scalar,       // scalars[port]
  index,        // the value of index `dim` of the domain
  pointwise,    // mode, args, params
  convert,      // args[0] rounded to `type` (GRAPH_JSON.md's conversion) and back
  random,       // rng; ports[port] is Seed and ports[port2] Offset (raw integers; when negative,
                // scalars[-1 - port]); `access` without windows gives the row-major logical index
  gather,       // one element of resample, resample_backward, page_gather or block_mask, see Gather
  accumulator,  // contraction epilogue: the sum over k of product `dim`
  reduced,      // the finished reduction number `port`
  partial,      // the same before it is finished: an average not divided, a norm2 not rooted; in
                // partial_type()
  inside,       // args[0] where the windows of ports[port] hold, else 0
  store,        // args[0] to port, converted to the port's type; makes no value
  reduce,       // args[0] into reduction number `port`, where the windows of `access` hold, if it
                // has any; makes no value
  column,       // args[0] into column reduction number `port`; makes no value
};

// An element that takes a loop or a table look-up of its own; its indices are the domain's. Operand
// ports are strided by their own tensors' dims.
struct Gather {
  OpKind op{};
  int output = 0;                   // which output of the node (resample: 0 Y, 1 Index)
  Attributes attributes;            // of the node, defaults not filled in
  std::vector<Dims> dims, strides;  // of each operand in `ports`
  std::vector<int> ports;           // by the node's input port; -1 where absent
  Dims output_dim;
  Dims indices;  // of the domain, for each of the node's dims; empty: in the node's order

  int index(int dim) const { return indices.empty() ? dim : static_cast<int>(indices[dim]); }
  bool resamples() const { return op == OpKind::resample || op == OpKind::resample_backward; }
};

struct Statement {
  StatementKind kind{};
  DataType arithmetic = DataType::f32;  // f32 or f64
  std::string label;                    // the user's tensor name, not yet an identifier
  std::vector<int> args;
  PointwiseMode mode{};
  std::array<double, 3> params{};
  int port = -1, port2 = -1;
  int element = 0;  // load, store: of KernelPort::together
  int dim = -1;
  DataType type{};       // convert
  int phase = 0;         // rowwise: the phase in which it runs; a value needed in several phases is
                         // recomputed in each, `phase` is the first
  bool per_row = false;  // rowwise: independent of the inner indices
  RngAttributes rng;
  Access access;
  int gather = -1;  // KernelSpec::gathers
};

struct Body {
  std::vector<Statement> statements;  // in an order in which every operand stands before its use
};

struct KernelReduction {
  ReductionMode mode{};
  DataType arithmetic = DataType::f32;
  std::int64_t length = 0;  // elements reduced, for avg
  int phase = 0;            // the phase that accumulates it
};

// A reduction that is complete only when the kernel has ended: it writes partial results to the
// written port `port`; `result` is where the finishing kernel puts the total (lib/planner/columns).
// rowwise: one value a column, reduced over all rows. There are `slots` partial results of each,
// `slots` rows one behind another.
// contraction: reduced over m, n or both. Partial results are of kReducedTogether rows, or columns.
struct ColumnReduction {
  ReductionMode mode{};
  DataType arithmetic = DataType::f32;
  std::int64_t length = 0;  // elements of a result, for avg
  std::string label;
  int port = -1;
  // contraction: from the partial result of some rows (columns) to the one of the next; 0 where it
  // is not reduced over m (n).
  std::int64_t slot_m = 0, slot_n = 0;
  DataType type{};  // of the result; `result` may store it narrower
  KernelPort result;
};

inline constexpr std::int64_t kReducedTogether = 16;

// The type in which a reduction runs until it is finished.
constexpr DataType partial_type(ReductionMode mode, DataType arithmetic) {
  return mode == ReductionMode::norm2 ? DataType::f64 : arithmetic;
}

// moe_grouped_matmul: batch index e is the expert; its rows m run over
// [offsets[e], offsets[e+1]); `index` renumbers rows of A (gather) or of the result (scatter).
struct GroupedRows {
  bool on = false;
  int offsets = -1, index = -1;  // ports with raw integers, packed
  MoeMode mode = MoeMode::none;
  bool gathers() const { return on && mode == MoeMode::gather; }
};

struct KernelSpec {
  Family family{};
  std::vector<NodeId> nodes;           // of the lowered graph, for explain
  Dims extent;                         // the domain
  int kept = 0;                        // rowwise
  int batch = 0, m = 0, n = 0, k = 0;  // contraction: how many indices each group has
  std::vector<KernelPort> ports;
  std::vector<KernelScalar> scalars;
  std::vector<Gather> gathers;
  std::vector<KernelReduction> reductions;
  std::vector<ColumnReduction> columns;
  std::int64_t slots = 0;  // partial results of the column reductions
  int rows_beside = 1;     // with slots: rows that one block takes side by side, each apart
  bool finishes = false;   // rowwise: what it reduces are partial results of the kernel before
  int phases = 1;
  Body body;
  Body a, b;                            // contraction; the last statement is the value
  Body b2;                              // contraction: b of a second product with the same a; empty
                                        // where there is one product
  DataType a_type{}, b_type{};          // contraction: what the operands' values may be rounded to
                                        // without a change of meaning: their tensors' types, a
                                        // 16-bit io type or tf32; none: they stay as computed
  DataType accumulate = DataType::f32;  // contraction: f32 or f64
  ZeroOf annihilates = ZeroOf::neither;  // contraction: whose zero makes a product zero, even with
                                         // an infinite or NaN factor
  GroupedRows rows;

  bool two_products() const { return !b2.statements.empty(); }
  // Down the columns.
  bool sums_doubles() const {
    return std::any_of(columns.begin(), columns.end(),
                       [](const auto& c) { return c.arithmetic == DataType::f64; });
  }
  std::array<Body*, 4> bodies() { return {&body, &a, &b, &b2}; }
  std::array<const Body*, 4> bodies() const { return {&body, &a, &b, &b2}; }
};

}  // namespace sinter
