// Makes a failing graph small: outputs, then nodes are taken away as long as it still fails. What a
// removed node made becomes a graph input, so that every step is a valid graph again.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "sinter/graph.hpp"

namespace sinter::test {

// What is wrong with a graph; empty where nothing is. Exceptions count as failures.
using Failure = std::function<std::string(Graph&)>;

// The smallest graph found that still fails; a copy of `graph` where nothing can go.
std::unique_ptr<Graph> shrink(const Graph& graph, const Failure& failure);

// For a test's message: what is wrong with the shrunk graph, and its JSON. Empty where `graph`
// passes.
std::string smallest_failure(Graph& graph, const Failure& failure);

}  // namespace sinter::test
