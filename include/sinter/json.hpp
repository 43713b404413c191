// Graph JSON (GRAPH_JSON.md beside this file), on strings only.
#pragma once
#include <string>
#include <string_view>

#include "sinter/base/shared.hpp"
#include "sinter/graph.hpp"

namespace sinter {

// Reads a document strictly: duplicate keys, unknown fields, wrong types and numbers out of range
// are errors that name the place. The graph is checked; `file` is named in the errors.
Result<Shared<Graph>> graph_from_json(std::string_view text, std::string_view file = {});

// Canonical text: sorted tensors, defaults left out. Reading it back gives the same text.
std::string graph_to_json(Graph& graph);

}  // namespace sinter
