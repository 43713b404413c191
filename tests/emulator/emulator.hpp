// Runs the kernels of a plan without a GPU: their text is compiled for the host together with the
// device library, and the threads of each cluster run as fibers that switch where they wait. It
// checks what the plan interpreter cannot see: the generated text, the schedule and the device
// library, their barriers and asynchronous work. Machine instructions are replaced one by one, by
// what they are defined to do (device.hpp, hopper.hpp).
#pragma once
#include <string_view>

#include "sinter/compile.hpp"
#include "support/run_graph.hpp"

namespace sinter::test {

// `memory` holds the plan's tensors by name. Clusters run one after another: the even ones with
// asynchronous work as late as the program allows, the others with it at once, every other pair
// with its threads in falling order. The workspace starts as NaN patterns.
// Errors: what the compiler said, threads that wait for each other for ever.
Status emulate(const Plan& plan, GraphCase& memory);

// The same with one place of the device library changed: the first `text` in `file`, which must be
// there.
struct Edit {
  std::string_view file, text, instead;
};
Status emulate(const Plan& plan, GraphCase& memory, const Edit& edit);

}  // namespace sinter::test
