// What planning knows of a GPU: what its architecture has, and how fast and how large its parts
// are. A plain value that is passed to all that decides; no other file compares architectures or
// holds a figure of a device. Numbers that were fitted by measurement to one estimate (how much of
// a limit a kernel reaches, what a step costs) stand with that estimate.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sinter {

// What tests ask of planning in place of what is estimated to be the fastest, so that small shapes
// are planned as large ones are: variables of the environment, read where a model is made.
struct PlanOverrides {
  // SINTER_DEPTHWISE: the cores that depthwise convolutions run on where they can, `mma`, `rows`,
  // `planes` or `ordinary`.
  std::string depthwise;
  // SINTER_REARRANGE: operands of convolutions are rearranged wherever they can be, in the fastest
  // way (`on`), in the `first` or in the `last`.
  std::string rearrange;
  // SINTER_SPLIT_ELEMENTS: the fewest elements of a reduction that are worth a block; sums of
  // products are cut however small they are.
  std::optional<std::int64_t> split_elements;
};

struct DeviceModel {
  std::string target;  // whose engines kernels may use; empty: what every GPU from sm_80 on has
  std::string gpu;     // the one that the figures are of, as in "an H200"

  // ---- what the architecture has
  bool has_wgmma = false;     // MMAs of a warpgroup out of shared memory
  bool has_tma = false;       // the tensor memory accelerator, which copies boxes of tensors
  bool has_clusters = false;  // thread blocks that reach each other's shared memory

  // ---- how much of it there is
  int sms = 0;               // streaming multiprocessors
  int enough_ctas = 0;       // thread blocks that keep all of them busy, about four on each
  int threads_per_sm = 0;    // at once
  int registers_per_sm = 0;  // of 32 bits
  // Shared memory, bytes: of an SM, what it keeps of that for each thread block, and what one
  // thread block can have.
  int shared_per_sm = 0, shared_reserved = 0, shared_per_cta = 0;
  std::int64_t l2_bytes = 0;  // the second-level cache
  // Clusters of 1 to 8 thread blocks that run at once where each fills an SM. Blocks of a cluster
  // lie in one group of SMs, of which larger clusters leave some over.
  std::array<int, 8> clusters_at_once{};

  // ---- how fast it is: bytes a microsecond unless it says otherwise
  double clock = 0;                // MHz, under load
  double memory_bandwidth = 0;     // that a streaming kernel reaches
  double l2_bandwidth = 0;         // from the second-level cache to all SMs
  double sm_bandwidth = 0;         // from memory to one SM
  double launch_microseconds = 0;  // that the launch of one more kernel costs
  double start_microseconds = 0;   // until what a kernel loads first has come

  // ---- what its cores could do at most, as data sheets say: multiplications and additions of an
  // SM in a clock. The share that an engine reaches was measured and stands with its estimate.
  int tensor_operations = 0;    // on tensor cores, of 16-bit operands; of 8-bit ones twice as many
  int mma_operations = 0;       // that mma.sync reaches of these, which older GPUs have alone
  int ordinary_operations = 0;  // on CUDA cores, in f32
  int double_operations = 0;    // in f64, on tensor cores where they have it

  PlanOverrides overrides{};

  // ---- what follows, in microseconds
  // One more kernel of a graph, whatever it does.
  double kernel_microseconds() const { return launch_microseconds + start_microseconds; }
  // A kernel of many CTAs, behind one another's loads, that moves so many bytes.
  double copy_microseconds(double bytes) const {
    return launch_microseconds + bytes / memory_bandwidth;
  }
};

// The model of a target that target.hpp calls valid, or of the empty one. A target without a table
// of its own (sm_86, sm_103a) has the figures of the empty one, and none of the capabilities.
DeviceModel device_model(std::string_view target = {});

// The targets that have tables, the empty one first.
std::vector<std::string_view> modelled_targets();

// The shared memory of one thread block, bytes, where it has the most of all that have tables.
std::uint32_t most_shared_bytes();

}  // namespace sinter
