// What a plan does and what that costs, for people and for tools: once as data, from which each
// presentation is made.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/plan_data.hpp"
#include "sinter/graph.hpp"

namespace sinter {

// A tensor that moves more bytes than one kernel for the whole graph would: all of an intermediate
// one; of an input or output what is read again.
struct Crossing {
  std::string tensor;        // in the user's names
  std::string name, inside;  // as a plan has them, see PlanBuffer
  DataType type{};
  std::vector<int> writers, readers;  // kernels
  std::int64_t bytes = 0;             // of memory traffic
  double microseconds = 0;    // that they take, and one more launch: what one kernel in place of
                              // two would save
  std::vector<PlanCut> cuts;  // why; empty: no fusion pattern spans both sides
};

// An intermediate tensor in f32 of a graph whose inputs and outputs have 16 bits, and which of a
// comparison is exact as bool.
struct NarrowingHint {
  std::string tensor;
  DataType narrow{};       // the graph's io_data_type, or bool
  std::int64_t bytes = 0;  // of memory traffic that it would save
  double microseconds = 0;
};

struct Explanation {
  std::string device;              // whose figures the estimates are of, as in "an H200"
  double microseconds = 0;         // estimated, of all kernels
  double launch_microseconds = 0;  // of which each launch takes about so much
  std::int64_t bytes = 0;
  std::vector<std::string> lines;  // of each kernel: where its nodes stand, "12" or "12-17"
  std::string file;                // that the lines are of; empty: not known
  std::vector<std::vector<std::string>> again;  // by kernel, see computed_again()
  int peak_kernel = -1;  // during which most of the workspace is used; -1: none is
  std::int64_t peak_bytes = 0;
  std::vector<int> peak_buffers;     // positions in PlanData::buffers, the largest first
  std::vector<Crossing> crossings;   // the costliest first
  std::vector<NarrowingHint> hints;  // the same
};

// `graph`: the user's, which knows its types and, where it was not read from a plan, its lines;
// null: neither lines, hints nor nodes that are computed again.
Explanation explain(const PlanData& plan, const Graph* graph);

// How a kernel works and why, from what was chosen for it (lib/schedule).
std::string how_it_works(const PlanKernel& kernel, std::string_view gpu);

// The name of a buffer for people: one of the graph's tensors, or what a node has inside.
std::string shown(const PlanBuffer& buffer);
std::string sentence(const PlanCut& cut);   // "B stays out of the kernel of A: ..."
std::string megabytes(std::int64_t bytes);  // "50.3 MB", of 1,000,000 bytes
std::string listed(const std::vector<std::string>& parts, std::size_t most);
std::string kernels_listed(const std::vector<int>& kernels, std::size_t most);  // "kernels 0, 2"
// The labels of the nodes that these kernels compute.
std::set<std::string_view> nodes_of(const PlanData& plan, const std::vector<int>& kernels);

// `measured`: microseconds of each kernel; empty: not measured.
std::string explain_text(const PlanData& plan, const Graph* graph = nullptr,
                         const std::vector<double>& measured = {});
std::string explain_dot(const PlanData& plan);  // Graphviz: kernels, and the tensors between them

// By kernel: the labels of the nodes that none takes and that it computes, as it reads their
// results, which are cheaper to compute again than to store.
std::vector<std::vector<std::string>> computed_again(const PlanData& plan, const Graph& graph);
// Operations that readers do without a kernel, by where and how they read.
bool only_moves(const Node& node);

// The kernels that compute a node, by its label. `graph`: the user's; null: nodes that are computed
// again are in none.
std::vector<int> kernels_with(const PlanData& plan, const Graph* graph, const std::string& node);

// Whether two nodes of the plan are in one kernel, and why not, by their labels.
struct Apart {
  std::vector<int> kernels_a, kernels_b;  // that compute them
  std::vector<Crossing> between;          // what passes between those kernels
  std::vector<PlanCut> cuts;  // between the nodes or, where there is none, their kernels
  bool together = false;      // each kernel of one computes the other as well
};
Apart why_apart(const PlanData& plan, const Graph* graph, const std::string& a,
                const std::string& b);
std::string explain_why(const PlanData& plan, const Graph* graph, const std::string& a,
                        const std::string& b);

// What changes from one plan to another of the same graph or of a like one: the kernels, by
// position, of the same nodes.
struct Change {
  std::vector<std::string> nodes;
  std::vector<int> before, after;
  double microseconds = 0;  // that they take more
};
struct Changes {
  std::vector<Change> changes;  // the largest first
  std::size_t unchanged = 0;    // sets of nodes
};
Changes changes(const PlanData& before, const PlanData& after);
std::string explain_diff(const PlanData& before, const PlanData& after);

}  // namespace sinter
