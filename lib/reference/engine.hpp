// Evaluates the parts of a lowered graph's tensors that are asked for. Two passes, neither
// recursive: backwards over the nodes, which parts of each tensor are needed; then forwards, those
// parts and no others. Asking for whole outputs is the CPU backend, asking for single elements with
// error bounds is the judge.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "reference/box.hpp"
#include "reference/job.hpp"

namespace sinter::reference {

// A computed part of a tensor, packed. `e` is empty where all elements are exact.
struct Block {
  Box box;
  std::vector<double> v, e;
};

class Engine {
 public:
  // With `judging`, error bounds are computed. Values are rounded to their tensor's type where they
  // are made; what was asked for is handed over before that where it is judged.
  Engine(const Graph& graph, const HostPointers& memory, bool judging);

  // Inputs that the wanted boxes depend on must be bound; the error names the one that is not.
  void want(TensorId tensor, Box box) { wanted_[index(tensor)].push_back(box); }
  Status run(const std::function<void(TensorId, const Block&)>& finished);
  // Steps (see cost_per_element) that run() would take; in its place, not before it.
  double cost();

 private:
  static std::size_t index(TensorId t) { return static_cast<std::size_t>(t); }
  void collect_demand();
  void resolve_aliases();
  void simplify(TensorId tensor);
  Status check_bindings() const;
  void evaluate(const Node& node, int port);
  // Rounds to `type` as well, where it is one.
  void compute(std::vector<Job>& jobs, std::vector<Block>& blocks, DataType type);
  static void round(std::vector<Block>& blocks, DataType type);
  void find_exponentials_of_attention();
  Job make_job(const Node& node, int port, const Box& box);
  View view(TensorId tensor, const Box& box);
  View stored_view(TensorId tensor, const Box& box);
  const Block& block(TensorId tensor, const Box& box) const;
  void prepare_contraction(Job& job, const std::vector<Box>& needed);
  Operand narrowed(const Operand& operand, TensorId tensor, const Box& box, DataType type,
                   double part_of_largest = 0);
  void note_numbers(Operand& operand, TensorId tensor, const Box& box);
  std::uint64_t raw_integer(TensorId tensor);

  const Graph& graph_;
  const HostPointers& memory_;
  bool judging_;
  std::vector<std::vector<Box>> wanted_;    // by tensor
  std::vector<std::vector<Block>> blocks_;  // by tensor, sorted by box
  std::vector<double> scalars_;             // by tensor: pass-by-value scalars
  // A transposed or sliced graph input is read in place: the node that makes it, by tensor.
  std::vector<const Node*> alias_;
  std::vector<bool> target_;
  std::vector<int> readers_;  // nodes that still have to read it
  std::map<std::tuple<TensorId, Box, const void*>, Numbers> numbers_;  // by memory of the view, too
  // By tensor, where it judges: find_exponentials_of_attention().
  std::vector<bool> exponential_of_attention_;
  std::vector<double> scaled_first_;  // Job::scaled_first, by tensor
  std::map<std::pair<TensorId, Box>, Block> narrowed_;
};

}  // namespace sinter::reference
