// The two plans of prepare() on the device of the tests.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "sinter/compile.hpp"
#include "support/run_graph.hpp"

namespace sinter::test {

// Runs the plan of the constants once and that of the rest for each case of the graph, which all
// get the first one's constants. The sentence that says what is wrong, empty where nothing is.
std::string run_prepared(const Prepared& plans, std::span<GraphCase> cases, std::int64_t samples);

}  // namespace sinter::test
