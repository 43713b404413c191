// Runs the kernels of a plan without a GPU: their text is compiled for the host together with the
// device library, and the threads of each cluster run as fibers that switch where they wait. It
// checks what the plan interpreter cannot see: the generated text, the schedule and the device
// library, their barriers and asynchronous work. Machine instructions are replaced one by one, by
// what they are defined to do (device.hpp, hopper.hpp).
#pragma once
#include <span>
#include <string_view>

#include "plan/plan_data.hpp"
#include "sinter/compile.hpp"
#include "support/run_graph.hpp"

namespace sinter::test {

// `memory` holds the plan's tensors by name. Clusters run one after another, in turn with
// asynchronous work as late as the program allows and at once, and with threads in rising and
// falling order. The workspace and the shared memory that a launch asks for start as NaN patterns.
// Errors: what the compiler said; threads that wait for ever; lanes of a warp that meet for unlike
// things; work that nobody waits for, memory of a block that has ended, writes outside of the
// workspace or the launch's shared memory. `edit`: one place of the device library that is changed,
// the first `text` in `file`, which must be there; then the first cluster runs in each of these
// ways until a result is wrong, as a kernel of one cluster has but one of them. `last_first`:
// clusters run from the last one to the first.
struct Edit {
  std::string_view file, text, instead;
};
Status emulate(const Plan& plan, GraphCase& memory, const Edit& edit = {}, bool last_first = false);
// `tensors`: the memory of each of the plan's.
Status emulate(const Plan& plan, const std::vector<void*>& tensors);

// Compiles the kernels of plans for one device, so that emulate() finds them: those of several
// plans take fewer runs of the host's compiler.
void prepare_emulation(std::span<const Plan> plans);

// A kernel for sm_90a that belongs to no plan: its text, entry, config (of a cluster) and launch.
// `arguments`: its struct Args, with an emulator::BoxMap in place of each tensor map.
Status emulate_kernel(const PlanKernel& kernel, std::span<const std::byte> arguments,
                      const Edit& edit = {});

}  // namespace sinter::test
