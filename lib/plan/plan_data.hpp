// The contents of a plan: everything that running it needs, as plain data.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "plan/tensor_map.hpp"

namespace sinter {

// A tensor that the caller binds.
struct PlanTensor {
  std::string name;
  DataType type{};
  Dims dim, stride;
  std::int64_t alignment = 16;
  std::int64_t bytes = 0;  // from the pointer to the end of the last element
  std::optional<std::int64_t> uid;
  bool written = false;
  // No tensor of the graph: what kernels make of constants, which one plan of prepare() hands to
  // the other. `dim` counts elements as they lie, filling included.
  bool kept = false;
  // What the graph and the kernels say, and no field of a plan file.
  bool by_value = false;    // takes a scalar, see KernelArgument::Kind::number
  bool read = true;         // false: an input that no node reads, a constant that no kernel reads
  std::int64_t alias = -1;  // of an output: the position of the input whose memory it may have
};

inline constexpr int kTensorMapBytes = 128;

// One member of a kernel's argument struct, in order, each aligned to its own size; tensor maps to
// 64 bytes.
struct KernelArgument {
  enum class Kind : std::uint8_t { tensor, workspace, scalar, tensor_map, number, integer } kind{};
  std::int64_t value = 0;  // tensor: position in PlanData::tensors; workspace: byte offset;
                           // scalar: the bits of the number, in the low `bytes` bytes;
                           // tensor_map: position in PlanKernel::maps;
                           // number, integer: position of a tensor that is passed by value, whose
                           // value of each call becomes a float, double or 64-bit integer
  int bytes = 8;           // tensor_map: kTensorMapBytes
};

// A tensor map and the memory behind it. It is encoded at each execute, when the pointer is known.
struct PlanMap {
  bool workspace = false;
  std::int64_t value = 0;  // position of the tensor, or byte offset in the workspace
  TensorMap map;
};

// A tensor that kernels hand to each other, in the workspace. Others may lie in the same bytes
// before `first` and after `last`, the positions of the kernels that touch it.
struct PlanBuffer {
  std::string name;
  std::string inside;  // label of the graph's node that needs it; empty: `name` is of the graph
  DataType type{};
  std::int64_t offset = 0, bytes = 0;
  std::int64_t first = 0, last = 0;
};

// What a kernel reads or writes of one tensor: compulsory traffic, each element once.
struct PlanAccess {
  bool workspace = false;
  std::int64_t value = 0;  // position in PlanData::tensors, or in PlanData::buffers
  bool written = false;
  std::int64_t bytes = 0;
};

// What CUDA launches at most: blocks along one dimension, threads of a block.
inline constexpr std::uint32_t kMaxGrid = 0x7fffffff, kMaxBlock = 1024;

struct PlanKernel {
  std::string entry;  // name of the __global__ function
  Family family = Family::pointwise;
  std::vector<std::string> nodes;                            // labels of the graph's nodes
  std::vector<std::pair<std::string, std::int64_t>> config;  // name and value, for people
  std::string source;
  std::vector<std::string> names;  // identifiers of `source` that are the user's: canonical_text()
  std::uint32_t grid = 1;
  std::uint32_t block = 1;
  std::uint32_t shared_bytes = 0;     // dynamic shared memory
  bool grid_dependency_wait = false;  // waits for the kernel before it, so that it may start early
  std::vector<KernelArgument> arguments;
  std::vector<PlanMap> maps;
  std::int64_t bytes = 0;  // compulsory traffic: the sum of `accesses`
  std::vector<PlanAccess> accesses;
  double flops = 0;
  double microseconds = 0;                          // that planning estimated, from launch to end
  std::map<std::string, std::string> machine_code;  // target such as "sm_90a" to cubin
};

// What runs the kernel: the file of the device library's device/family that its text calls, such as
// contraction_wgmma; empty where the plan has no text.
std::string_view engine_of(const PlanKernel& kernel);

// Why two neighbours are not in one kernel, or why a fusion was refused.
// `pattern` kWrongRewrite: a rewrite's result was no valid graph and not taken, a fault of ours.
inline constexpr char kWrongRewrite[] = "rewrite";
struct PlanCut {
  std::string pattern, node, tensor, reason;
  std::string with{};  // the node whose kernel `node` did not join; empty: a kernel was divided
  std::string fix{};   // the change of the graph that would remove it; empty: none is known
};

struct PlanData {
  std::string version;     // of the library that made it
  std::string graph_json;  // canonical text of the user's graph
  std::string name;
  std::string architecture;  // the target whose engines the kernels use, e.g. "sm_90a"; empty: they
                             // use what every GPU from sm_80 on has
  std::vector<PlanTensor> tensors;  // inputs, then outputs
  std::int64_t workspace_bytes = 0;
  std::vector<PlanBuffer> buffers;  // in the order of first use
  std::vector<PlanKernel> kernels;  // in the order they run
  std::vector<PlanCut> cuts;

  // Whether a kernel takes this one of the tensors.
  bool reads(const PlanTensor& tensor) const;
};

}  // namespace sinter
