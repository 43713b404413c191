// Reductions that one kernel could only compute with most of a GPU idle, or not at all, become
// several kernels that hand each other partial results:
//   - few long rows are cut in parts, whose partial results a second kernel combines
//   (cut_rows.hpp);
//   - a kernel of several phases over few rows becomes a kernel a phase, but averages and squared
//     distances from them are made together, part by part (statistics.hpp);
//   - so are those of rows whose memory is many short pieces (a group's channels, which lie
//     together at each pixel), for each channel apart: then a kernel moves all that lies together;
//   - cross-row reductions of a rowwise kernel, and reductions of a contraction's results, are
//   finished
//     by a kernel of their own (columns.hpp).
// Parts and their order depend on the shapes alone, so results do not change from run to run.
#pragma once
#include <map>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {

// Tensors that the lowered graph does not have. They live in the workspace.
class Temporaries {
 public:
  explicit Temporaries(TensorId first) : next_(first) {}
  // A written port for the elements that `access` reaches, packed over `dim`.
  KernelPort add(std::string name, DataType type, const Dims& dim, Access access);
  const std::map<TensorId, std::int64_t>& bytes() const { return bytes_; }

 private:
  TensorId next_;
  std::map<TensorId, std::int64_t> bytes_;
};

// The fewest of a reduction that are worth a block of their own.
std::int64_t elements_of_block(const DeviceModel& device);

// The kernels that compute the spec, in order.
std::vector<KernelSpec> split(KernelSpec spec, const PlanContext& context,
                              Temporaries& temporaries);

}  // namespace sinter
