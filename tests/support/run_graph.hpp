// A graph made ready to run: inputs with values, memory for the outputs, both between guard zones.
// Whatever then writes the outputs (the CPU backend, the plan interpreter, a device) is judged by
// the reference, and whatever it wrote besides is found.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/fills.hpp"
#include "sinter/compile.hpp"

namespace sinter::test {

// Host memory with a pattern before, behind and inside; aligned to so many bytes, up to 256, and to
// no more.
class GuardedBuffer {
 public:
  static constexpr std::size_t kAligned = 256;
  explicit GuardedBuffer(std::size_t bytes, std::int64_t alignment = kAligned);
  std::size_t beyond_aligned() const;  // bytes, of the data
  std::byte* data() { return storage_.data() + offset_; }
  const std::byte* data() const { return storage_.data() + offset_; }
  std::size_t size() const { return bytes_; }
  bool guards_intact() const;
  static constexpr std::byte kPattern{0xa5};
  static constexpr std::size_t kGuard = 4096;

 private:
  std::vector<std::byte> storage_;
  std::size_t offset_, bytes_;
};

class GraphCase {
 public:
  // `graph` must be valid. Lengths and offsets of rows, which the fills make full and even, are
  // ragged here. Throws std::runtime_error where the inputs cannot be made.
  GraphCase(Graph& graph, Fill fill, std::uint64_t seed);

  const Graph& lowered() const { return *lowered_.graph; }
  const Lowered& lowering() const { return lowered_; }
  // Inputs and outputs by tensor of the lowered graph.
  HostPointers memory();

  void clear_outputs();
  // The constants become another case's, and what a plan of constants wrote into its outputs.
  void take_constants(const GraphCase& from, const std::vector<Plan::TensorInfo>& written);
  // Runs a loaded plan of the same graph and fetches its outputs, all of them overwritten.
  Status execute(const Executable& executable);

  // The outputs as they stand; `samples` elements of each, 0 for all.
  Comparison judge(std::int64_t samples = 0) const;
  // Inputs that changed, gaps and guards that were written: a sentence, empty where there is none.
  std::string stray_write() const;

 private:
  HostPointers inputs() const;
  void make_ragged(const Graph& graph, TensorId tensor, std::uint64_t seed, std::byte* data);
  std::string gap_write(TensorId tensor, const GuardedBuffer& buffer) const;

  Lowered lowered_;
  std::map<TensorId, GuardedBuffer> inputs_, outputs_;
  std::map<TensorId, std::vector<std::byte>> originals_;  // of the inputs
  // What judge() asked for last, of these inputs: a test often runs several plans of one graph,
  // each in several orders.
  struct Asked {
    std::int64_t samples;
    std::map<TensorId, std::vector<std::byte>> inputs;
    Expected expected;
  };
  mutable std::optional<Asked> asked_;
};

}  // namespace sinter::test
