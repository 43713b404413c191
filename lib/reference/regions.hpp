// Which part of an operand a part of a result depends on, for every primitive. It may name more
// than is read, never less.
#pragma once
#include "reference/box.hpp"
#include "sinter/graph.hpp"

namespace sinter::reference {

// The part of input port `input` that box `out` of output port `output` needs; empty where none is.
Box needed_region(const Graph& graph, const Node& node, int input, int output, const Box& out);

}  // namespace sinter::reference
