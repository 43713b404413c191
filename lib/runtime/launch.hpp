// Launching a kernel, on GPUs that can before the one ahead of it in the stream has ended: its
// blocks then take up SMs as they become free and are ready when their turn comes.
//
// That is safe because every kernel of ours waits for the end of the one before it, and sees its
// writes, before it reads or writes memory (hardware::grid_dependency_wait; a prefetch is neither),
// but for those that share nothing with it, which wait before they end: it has waited by then.
// So a kernel ends only after all that was before it in the stream has, and the one behind it has
// to wait for it alone. A caller's kernel or copy ahead of ours is waited for in the same way. One
// behind ours is launched without the attribute and starts when ours has ended, as usual. Captured
// into a graph, the attribute becomes an edge between kernels that means the same.
#pragma once
#include <string_view>

#include "plan/plan_data.hpp"
#include "runtime/driver.hpp"

namespace sinter {

struct Launch {
  CUfunction function = nullptr;
  CUlaunchConfig config{};  // without the stream
};

// Overlaps where the kernel waits for its turn, and driver and target know of it.
Launch make_launch(const Driver& driver, const PlanKernel& kernel, CUfunction function,
                   std::string_view target);

// Launches with the kernel's argument struct.
Status launch(const Driver& driver, const Launch& launch, CUstream stream, void* arguments);

}  // namespace sinter
