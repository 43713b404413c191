// What the GPU tests share: a list of graphs run by several threads, with every failure collected
// as a sentence (Catch's assertions belong to one thread) and its graph written out.
#pragma once
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plan/tuning.hpp"
#include "sinter/sinter.hpp"
#include "support/environment.hpp"
#include "support/run_graph.hpp"

namespace sinter::test {

struct GraphSource {
  std::string name;
  std::uint64_t seed = 0;  // of the inputs
  std::function<Shared<Graph>()> make;
  Tuning tuning{};           // configurations to take
  int most_untrusted = 100;  // per cent of the elements whose bound of the error judges nothing
  // Plans the graph for an architecture where that is not plainly done.
  std::function<Result<Plan>(Graph&, const std::string&)> plan{};
  bool drawn = false;          // each kernel in any of the configurations that it could have
  std::optional<Fill> fill{};  // of the inputs, where it is not that of the checks
};

class Failures {
 public:
  // `graph` may be null. With SINTER_FAILURE_DIR set, its JSON is written there.
  void add(const std::string& name, Graph* graph, const std::string& what);
  std::vector<std::string> all() const { return all_; }
  // The first few, one a line.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

// What one graph is put through.
struct GraphChecks {
  Fill fill = Fill::normal;
  std::int64_t samples = 512;
  int unfused = 0;          // of every so many graphs, one: one kernel a node must agree too
  bool bit_equal = false;   // and with the fused plan bit for bit (exact graphs)
  bool repeatable = false;  // a second run gives the same bits
  bool reloaded = false;    // so does the plan through its file
  // On a GPU kernels of several graphs are compiled as one text, which takes two thirds of the
  // time.
  bool joined = false;
};

struct Totals {
  std::int64_t refused = 0;  // graphs, fused or not, for an output in place
  std::int64_t graphs = 0, kernels = 0, compared = 0, untrusted = 0, exact = 0;
  double worst_ratio = 0;
};

// Runs all graphs on as many threads as there are cores.
Totals run_graphs(const std::vector<GraphSource>& graphs, const GraphChecks& checks,
                  Failures& failures);

// Plans and runs the case of a graph; the sentence that says what went wrong, empty where nothing
// did.
std::string run_case(Graph& graph, GraphCase& c);

// What runs the kernels: the emulator, or a device.
bool emulated();
Device test_device();
// Whose engines plans use: those of the device that runs the tests.
Result<std::string> test_target();

std::vector<GraphSource> corpus_graphs();
// SINTER_GPU_SEEDS=1,2,3 replaces the range, to look at single graphs again.
std::vector<GraphSource> random_graphs(int count, std::uint64_t first_seed, bool exact_only);

}  // namespace sinter::test
