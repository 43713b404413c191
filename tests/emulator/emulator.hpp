// Runs the kernels of a plan without a GPU: their text is compiled for the host together with the
// device library, and the threads of each block run as fibers that switch at barriers. It checks
// what the plan interpreter cannot see: the generated text, the schedule and the device library,
// their barriers and asynchronous copies. Machine instructions, tensor maps and clusters are not
// emulated: plans are those for any GPU.
#pragma once
#include "sinter/compile.hpp"
#include "support/run_graph.hpp"

namespace sinter::test {

// `memory` holds the plan's tensors by name. Blocks run one after another: the even ones with
// asynchronous copies as late as the program allows, the others at once, every other pair with its
// threads in falling order. The workspace starts as NaN patterns.
// Errors: what the compiler said, threads that wait for each other for ever.
Status emulate(const Plan& plan, GraphCase& memory);

}  // namespace sinter::test
