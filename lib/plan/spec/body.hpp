// The straight-line body of a kernel: named values, one statement each.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "plan/spec/access.hpp"

namespace sinter {

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
  cross_row_reduce,  // args[0] into cross-row reduction number `port`; makes no value
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

}  // namespace sinter
