// From a graph to numbers: plan it (no GPU needed), load the plan on a device, execute.
//
//   auto e = sinter::compile(graph, sinter::Device::current());
//   e->execute(stream, {{"x", dx}, {"y", dy}, {"lr", 0.01f}}, workspace);
#pragma once
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sinter/base/shared.hpp"
#include "sinter/graph.hpp"

namespace sinter {

// Where a plan runs: an NVIDIA GPU by ordinal, or the CPU backend (float64 arithmetic, threaded).
class Device {
 public:
  static Device cpu() { return {true, -1}; }
  static Device gpu(int ordinal) { return {false, ordinal}; }
  // The GPU of the calling thread's CUDA context or GPU 0; the CPU where there is no usable GPU.
  static Device current();
  bool is_cpu() const { return cpu_; }
  int ordinal() const { return ordinal_; }  // of the CPU -1
  // "sm_90a" and the like; an empty string for the CPU; an error without driver or device.
  Result<std::string> target() const;
  bool operator==(const Device&) const = default;

 private:
  Device(bool cpu, int ordinal) : cpu_(cpu), ordinal_(ordinal) {}
  bool cpu_;
  int ordinal_;
};

// Progress of planning and compiling, for a call that takes long.
struct PlanProgress {
  enum class Stage : std::uint8_t { planning, compiling } stage{};
  int done = 0, total = 0;  // kernels
};

struct PlanOptions {
  bool fuse = true;  // false: one kernel a node, for comparison and bisection
  // Results have the same bits in each run, as if each sdpa_backward node said so; gradients of
  // attention that are written out, too, which no node can say of. Costs time there.
  bool deterministic = false;
  // Compile machine code into the plan for these, e.g. "sm_90a".
  std::vector<std::string> targets{};
  // Whose engines the kernels use, e.g. "sm_90a". Empty: of Plan::make those of the target where
  // there is one alone, else what every GPU from sm_80 on has; of compile() the device's own.
  std::string architecture{};
  // Configurations that `sinter tune` measured, used where a kernel has the same problem to solve.
  // Empty: the file that SINTER_TUNING_FILE names, if it is set. A file that is absent holds
  // nothing.
  std::string tuning_file{};
  // Kernels are named after the user's nodes, too, for a profiler: sinter_q_proj_contraction_...
  // Else those that differ in names alone, as a model's equal layers do, are one, which is compiled
  // once.
  bool names_in_kernels = false;
  // Called as kernels are planned and compiled, from any of the threads that do so, one call at a
  // time. `progress_context` is handed to it.
  void (*progress)(void* context, const PlanProgress& at) = nullptr;
  void* progress_context = nullptr;
};

struct PlanData;

// An immutable, shareable plan. Making one runs the planner and the code generator, and NVRTC only
// for the targets asked for; it needs no GPU. Moving a plan or an executable copies the handle, so
// that the one moved from is still whole.
class Plan {
 public:
  // Inputs and outputs that execute() takes pointers for.
  struct TensorInfo {
    std::string name;
    DataType type;
    Dims dim, stride;    // elements
    std::int64_t bytes;  // that the pointer must reach
    bool written;
    bool by_value;      // takes a scalar, not memory
    bool read;          // an input that is not read may be left unbound
    std::string alias;  // of an output: the input whose memory it may be given, or empty
    std::optional<std::int64_t> uid;  // that the graph gave it
  };

  // Names the graph's unnamed tensors and changes nothing else of it.
  static Result<Plan> make(Graph& graph, PlanOptions options = {});
  // Refuses what is no plan of this version of the format, or whose kernels and tensors do not fit
  // each other; `file` is what errors name. Machine code and text of kernels are run as they are:
  // read plans that you trust.
  static Result<Plan> from_json(std::string_view text, std::string_view file = {});
  std::string to_json() const;  // canonical: reading it back and writing it gives the same bytes
  // With machine code for these, too; what the plan holds stays. Needs NVRTC.
  Result<Plan> with_targets(const std::vector<std::string>& targets) const;

  const std::string& name() const;
  std::vector<TensorInfo> tensors() const;
  std::int64_t workspace_bytes() const;
  int kernels() const;

  const PlanData& data() const { return *data_; }
  explicit Plan(Shared<const PlanData> data) : data_(std::move(data)) {}
  Plan(const Plan&) = default;
  Plan& operator=(const Plan&) = default;

 private:
  Shared<const PlanData> data_;
};

// A CUstream or cudaStream_t of the device's primary context, which the CUDA runtime uses (streams
// and pointers of other contexts do not fit); nullptr is the default stream. Unused on the CPU.
using Stream = void*;

class Memory;

struct Uid {  // that the graph gave a tensor
  std::int64_t value;
};
struct Index {  // of Plan::tensors()
  std::int64_t value;
};

// Which input or output a binding is for.
class TensorKey {
 public:
  enum class Kind : std::uint8_t { name, uid, index };
  TensorKey(const char* name) : name_(name) {}
  TensorKey(std::string_view name) : name_(name) {}
  TensorKey(const std::string& name) : name_(name) {}
  TensorKey(std::string&& name) = delete;  // the key is a view: the text has to outlive it
  TensorKey(int) = delete;  // Uid{7} or Index{0}; a 0 alone would be a name that is null
  TensorKey(std::nullptr_t) = delete;
  TensorKey(Uid uid) : kind_(Kind::uid), number_(uid.value) {}
  TensorKey(Index index) : kind_(Kind::index), number_(index.value) {}
  Kind kind() const { return kind_; }
  std::string_view name() const { return name_; }
  std::int64_t number() const { return number_; }  // the uid or the index

 private:
  Kind kind_ = Kind::name;
  std::string_view name_;
  std::int64_t number_ = 0;
};

// A scalar of an input that is passed by value. It is rounded to the tensor's data type.
struct Number {
  double value = 0;
  std::int64_t integer = 0;  // the same, exact, where it was given as an integer
  bool is_integer = false;
};

// The memory of one input or output: {"x", memory}, {"x", pointer, bytes} or {"x", pointer}; of an
// input that is passed by value the scalar: {"lr", 0.01f}. Memory of fewer bytes than the tensor
// needs (Plan::TensorInfo::bytes) is refused, where the size is known. So is memory that a tensor
// that is written shares with another one, but for an output that the graph declares an alias of
// an input: both may be given the same memory, or the output none of its own.
struct Binding {
  TensorKey tensor;
  // On the device (the host for the CPU backend). Of an input it is not written, unless an output
  // is its alias.
  void* pointer = nullptr;
  std::int64_t bytes = -1;  // negative: not known
  bool by_value = false;
  Number number{};
  Binding(TensorKey t, const void* p, std::int64_t b = -1)
      : tensor(t), pointer(const_cast<void*>(p)), bytes(b) {}
  Binding(TensorKey t, const Memory& m);
  template <class T>
  requires std::is_arithmetic_v<T> Binding(TensorKey t, T value) : tensor(t), by_value(true) {
    number.value = static_cast<double>(value);
    number.is_integer = std::is_integral_v<T>;
    if constexpr (std::is_integral_v<T>) number.integer = static_cast<std::int64_t>(value);
  }
};

// At least Executable::workspace_bytes(). Calls that may overlap in time need one each.
struct Workspace {
  void* pointer = nullptr;  // 256-byte aligned device memory
  std::int64_t bytes = 0;
  Workspace() = default;
  Workspace(void* p, std::int64_t b) : pointer(p), bytes(b) {}
  Workspace(const Memory& m);
};

// An executable and the memory it works on: argument structs and tensor maps are complete, so that
// execute() launches and does nothing else. It may be copied, kept longer than the executable, and
// used from any thread; calls that may overlap in time need memory of their own. It keeps pointers:
// tensors and workspace must outlive it.
class BoundExecutable {
 public:
  Status execute(Stream stream) const;
  // With other scalars than those bound, for this call: bound->execute(stream, {{"lr", 0.02f}}).
  Status execute(Stream stream, std::span<const Binding> scalars) const;
  Status execute(Stream stream, std::initializer_list<Binding> scalars) const;

  struct Impl;
  explicit BoundExecutable(Shared<const Impl> impl) : impl_(std::move(impl)) {}
  BoundExecutable(const BoundExecutable&) = default;
  BoundExecutable& operator=(const BoundExecutable&) = default;

 private:
  Shared<const Impl> impl_;
};

// A plan loaded on a device, whose machine code is unloaded with the last copy of this handle: it
// must outlive kernels that run and CUDA graphs that captured them. execute() is const and may run
// from any thread on any stream at once, given different workspaces; it allocates nothing and
// compiles nothing, so it can be captured. On a GPU it returns while kernels run; on the CPU
// backend when the results are there.
class Executable {
 public:
  Status execute(Stream stream, std::span<const Binding> bindings, Workspace workspace = {}) const;
  Status execute(Stream stream, std::initializer_list<Binding> bindings,
                 Workspace workspace = {}) const;
  // Checks the bindings and looks them up once, for calls that only launch.
  Result<BoundExecutable> bind(std::span<const Binding> bindings, Workspace workspace = {}) const;
  Result<BoundExecutable> bind(std::initializer_list<Binding> bindings,
                               Workspace workspace = {}) const;
  const Plan& plan() const;
  // The plan's. The CPU backend asks for it, too, so that a program that works there works on a
  // GPU.
  std::int64_t workspace_bytes() const;
  Device device() const;

  struct Impl;
  explicit Executable(Shared<const Impl> impl) : impl_(std::move(impl)) {}
  Executable(const Executable&) = default;
  Executable& operator=(const Executable&) = default;

 private:
  Shared<const Impl> impl_;
};

// Loads a plan: its own machine code where it fits the device, else the kernel cache, else NVRTC. A
// plan for another architecture is refused.
Result<Executable> load(const Plan& plan, Device device);
// Plan::make and load in one.
Result<Executable> compile(Graph& graph, Device device, PlanOptions options = {});

// A graph in two: what follows from inputs that are declared constant (weights that are folded,
// transposed, quantised) and is computed once, and the rest, which is computed with each call.
// Outputs of `constants` are inputs of `rest`, by the same names.
struct PreparedGraph {
  Shared<Graph> constants, rest;
};
Result<PreparedGraph> prepare(Graph& graph);
// The same as plans, and what planning adds: copies of constants that kernels need (filters turned,
// padded, joined with neighbouring pixels; operands widened to the type in which they are
// multiplied) are made by `constants` and are inputs of `rest`, which then does not read the
// constant itself: TensorInfo::read is false. So name in options.architecture the device that will
// run them. The CPU backend reads the constants, whatever the plans are for. `constants` is empty
// where nothing follows from constants alone.
struct Prepared {
  std::optional<Plan> constants;
  Plan rest;
};
Result<Prepared> prepare(Graph& graph, PlanOptions options);

// Memory on a device, for programs that have no allocator of their own. The CPU device uses the
// heap.
class Memory {
 public:
  // Aligned to 256 bytes.
  static Result<Memory> allocate(Device device, std::int64_t bytes);
  Memory(Memory&&) noexcept;
  Memory& operator=(Memory&&) noexcept;
  ~Memory();
  void* data() const { return pointer_; }
  std::int64_t bytes() const { return bytes_; }
  Status copy_in(const void* host, std::int64_t bytes);   // blocking
  Status copy_out(void* host, std::int64_t bytes) const;  // blocking

 private:
  Memory(Device device, void* pointer, std::int64_t bytes)
      : device_(device), pointer_(pointer), bytes_(bytes) {}
  Device device_;
  void* pointer_ = nullptr;
  std::int64_t bytes_ = 0;
};

inline Binding::Binding(TensorKey t, const Memory& m) : Binding(t, m.data(), m.bytes()) {}
inline Workspace::Workspace(const Memory& m) : Workspace(m.data(), m.bytes()) {}

Status synchronize(Device device);  // waits for all work of the device

}  // namespace sinter
