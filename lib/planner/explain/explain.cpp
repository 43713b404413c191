#include "planner/explain/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "plan/tensor_names.hpp"
#include "target/device_model.hpp"

namespace sinter {
namespace {

constexpr double kLeastSaved = 0.05;  // microseconds that are worth a hint

// All accesses of one tensor, in the order of the kernels.
struct Uses {
  std::vector<int> writers, readers;
  std::int64_t read = 0, written = 0, largest_read = 0;
};

using Memory = std::pair<bool, std::int64_t>;  // PlanAccess::workspace, value

std::map<Memory, Uses> uses_of(const PlanData& p) {
  std::map<Memory, Uses> uses;
  for (std::size_t k = 0; k < p.kernels.size(); ++k)
    for (const auto& a : p.kernels[k].accesses) {
      Uses& u = uses[{a.workspace, a.value}];
      (a.written ? u.writers : u.readers).push_back(static_cast<int>(k));
      (a.written ? u.written : u.read) += a.bytes;
      if (!a.written) u.largest_read = std::max(u.largest_read, a.bytes);
    }
  return uses;
}

// The cuts by what they name, as a plan of many kernels has many of both.
class Cuts {
 public:
  explicit Cuts(const PlanData& p) : plan_(p) {
    for (std::size_t i = 0; i < p.cuts.size(); ++i) {
      by_tensor_[p.cuts[i].tensor].push_back(i);
      by_node_[p.cuts[i].node].push_back(i);
      if (p.cuts[i].with != p.cuts[i].node) by_node_[p.cuts[i].with].push_back(i);
    }
  }

  // The reasons for which a tensor is in memory: of the cuts through it those between who writes
  // and who reads it; where there is none, those between the same kernels through a view of it,
  // and then those between its readers. `inside`: the node whose part the tensor is, or empty.
  std::vector<PlanCut> of(const std::string& tensor, const std::string& inside,
                          const Uses& u) const {
    const auto written = nodes_of(plan_, u.writers), read = nodes_of(plan_, u.readers);
    std::vector<PlanCut> through, beside, readers;
    for (const std::size_t i : candidates(tensor, written)) {
      const PlanCut& c = plan_.cuts[i];
      const bool same = c.tensor == tensor;
      if (c.with.empty()) {  // a kernel was divided, as that is faster
        if (same || (c.tensor.empty() && c.node == inside)) through.push_back(c);
        continue;
      }
      const bool spans = (written.contains(c.node) && read.contains(c.with)) ||
                         (written.contains(c.with) && read.contains(c.node));
      if (same && spans) through.push_back(c);
      if (!same && spans) beside.push_back(c);
      if (same && !spans) readers.push_back(c);
    }
    return !through.empty() ? through : !beside.empty() ? beside : readers;
  }

 private:
  using Names = std::set<std::string_view>;
  using Index = std::unordered_map<std::string_view, std::vector<std::size_t>>;

  // Positions, in the order of the plan.
  std::set<std::size_t> candidates(const std::string& tensor, const Names& written) const {
    std::set<std::size_t> all;
    const auto add = [&](const Index& index, std::string_view name) {
      if (const auto found = index.find(name); found != index.end())
        all.insert(found->second.begin(), found->second.end());
    };
    add(by_tensor_, tensor);
    for (const auto n : written) add(by_node_, n);
    return all;
  }

  const PlanData& plan_;
  Index by_tensor_, by_node_;
};

// Whether all that these kernels read a node's part for is that node.
bool stays_inside(const PlanData& p, const std::string& node, const std::vector<int>& readers) {
  return !node.empty() && std::ranges::all_of(readers, [&](int k) {
    const auto& nodes = p.kernels[static_cast<std::size_t>(k)].nodes;
    return std::ranges::find(nodes, node) != nodes.end();
  });
}

void find_crossings(const PlanData& p, const std::map<Memory, Uses>& uses,
                    const DeviceModel& device, Explanation& e) {
  const Cuts cuts(p);
  for (const auto& [memory, u] : uses) {
    const auto position = static_cast<std::size_t>(memory.second);
    const PlanBuffer* buffer = memory.first ? &p.buffers[position] : nullptr;
    const PlanTensor* tensor = memory.first ? nullptr : &p.tensors[position];
    Crossing c;
    c.bytes = buffer ? u.read + u.written : tensor->written ? u.read : u.read - u.largest_read;
    if (c.bytes <= 0) continue;
    c.name = buffer ? buffer->name : tensor->name;
    if (buffer) c.inside = buffer->inside;
    c.cuts = cuts.of(c.name, c.inside, u);
    // Inputs are read where they are needed; parts of one operation are what it is made of.
    if (c.cuts.empty() && (!buffer || stays_inside(p, c.inside, u.readers))) continue;
    c.tensor = buffer ? shown(*buffer) : c.name;
    c.type = buffer ? buffer->type : tensor->type;
    c.writers = u.writers;
    c.readers = u.readers;
    c.microseconds = device.copy_microseconds(static_cast<double>(c.bytes));
    e.crossings.push_back(std::move(c));
  }
  std::stable_sort(e.crossings.begin(), e.crossings.end(),
                   [](const Crossing& a, const Crossing& b) { return a.bytes > b.bytes; });
}

// Whether all elements of a tensor are 0 or 1 and no engine of products reads them.
bool fits_bool(const Graph& graph, TensorId t) {
  if (t < 0 || graph[t].producer < 0) return false;
  const Node& n = graph.nodes()[static_cast<std::size_t>(graph[t].producer)];
  const auto* const pointwise = std::get_if<PointwiseAttributes>(&n.attributes);
  if (!pointwise) return false;
  const std::string_view mode = name(pointwise->mode);
  return (mode.starts_with("cmp_") || mode.starts_with("logical_")) &&
         std::ranges::all_of(graph.nodes(), [&](const Node& reader) {
           return reader.op == OpKind::pointwise || std::ranges::count(reader.inputs, t) == 0;
         });
}

void find_hints(const PlanData& p, const std::map<Memory, Uses>& uses, const Graph& graph,
                double bandwidth, Explanation& e) {
  const DataType narrow = graph.options().io;
  if (narrow != DataType::bf16 && narrow != DataType::f16) return;
  const TensorNames names(graph);
  for (const auto& [memory, u] : uses) {
    if (!memory.first) continue;
    const PlanBuffer& b = p.buffers[static_cast<std::size_t>(memory.second)];
    if (b.type != DataType::f32 || !b.inside.empty()) continue;
    const DataType enough = fits_bool(graph, names.find(b.name)) ? DataType::boolean : narrow;
    const std::int64_t saved = (u.read + u.written) / 4 * (4 - info(enough).bytes);
    const double us = static_cast<double>(saved) / bandwidth;
    if (us >= kLeastSaved) e.hints.push_back({b.name, enough, saved, us});
  }
  std::stable_sort(e.hints.begin(), e.hints.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

void find_peak(const PlanData& p, Explanation& e) {
  for (int k = 0; k < static_cast<int>(p.kernels.size()); ++k) {
    std::vector<int> alive;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < p.buffers.size(); ++i) {
      const PlanBuffer& b = p.buffers[i];
      if (b.first > k || b.last < k) continue;
      alive.push_back(static_cast<int>(i));
      bytes += b.bytes;
    }
    if (bytes <= e.peak_bytes) continue;
    std::stable_sort(alive.begin(), alive.end(), [&](int a, int b) {
      return p.buffers[static_cast<std::size_t>(a)].bytes >
             p.buffers[static_cast<std::size_t>(b)].bytes;
    });
    e.peak_kernel = k;
    e.peak_bytes = bytes;
    e.peak_buffers = std::move(alive);
  }
}

void find_lines(const PlanData& p, const Graph& graph, Explanation& e) {
  std::map<std::string, Where> places;
  for (const auto& n : graph.nodes()) places.emplace(graph.label(n), n.where);
  for (std::size_t k = 0; k < p.kernels.size(); ++k) {
    unsigned first = 0, last = 0;
    for (const auto& n : p.kernels[k].nodes) {
      const auto place = places.find(n);
      if (place == places.end() || !*place->second.file) continue;
      const unsigned line = place->second.line;
      if (e.file.empty()) e.file = place->second.file;
      first = first == 0 ? line : std::min(first, line);
      last = std::max(last, line);
    }
    e.lines[k] = first == 0      ? ""
                 : first == last ? std::to_string(first)
                                 : fmt::format("{}-{}", first, last);
  }
}

}  // namespace

Explanation explain(const PlanData& p, const Graph* graph) {
  const DeviceModel device = device_model(p.architecture);
  Explanation e;
  e.device = device.gpu;
  e.launch_microseconds = device.launch_microseconds;
  e.lines.resize(p.kernels.size());
  e.again.resize(p.kernels.size());
  for (const auto& k : p.kernels) {
    e.microseconds += k.microseconds;
    e.bytes += k.bytes;
  }
  const auto uses = uses_of(p);
  find_crossings(p, uses, device, e);
  find_peak(p, e);
  if (graph) {
    find_hints(p, uses, *graph, device.memory_bandwidth, e);
    find_lines(p, *graph, e);
    e.again = computed_again(p, *graph);
  }
  return e;
}

std::string shown(const PlanBuffer& b) {
  if (b.inside.empty()) return b.name;
  const bool prefixed = b.name.starts_with(b.inside + "/");
  return fmt::format("{} (inside {})", b.name.substr(prefixed ? b.inside.size() + 1 : 0), b.inside);
}

std::string sentence(const PlanCut& c) {
  if (c.with.empty()) return fmt::format("{}: {}", c.node, c.reason);
  if (c.node == c.with) return fmt::format("parts of {} stay apart: {}", c.node, c.reason);
  return fmt::format("{} stays out of the kernel of {}: {}", c.node, c.with, c.reason);
}

std::string megabytes(std::int64_t bytes) {
  const auto n = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1000000) return fmt::format("{:.1f} kB", n / 1e3);
  if (bytes < 1000000000) return fmt::format("{:.1f} MB", n / 1e6);
  return fmt::format("{:.1f} GB", n / 1e9);
}

std::string listed(const std::vector<std::string>& parts, std::size_t most) {
  std::string s;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == most) return s + fmt::format(", ... {} more", parts.size() - most);
    s += (i ? ", " : "") + parts[i];
  }
  return s;
}

std::string kernels_listed(const std::vector<int>& kernels, std::size_t most) {
  std::vector<std::string> numbers;
  for (int k : kernels) numbers.push_back(std::to_string(k));
  return (kernels.size() == 1 ? "kernel " : "kernels ") + listed(numbers, most);
}

std::set<std::string_view> nodes_of(const PlanData& p, const std::vector<int>& kernels) {
  std::set<std::string_view> names;
  for (int k : kernels)
    for (const auto& n : p.kernels[static_cast<std::size_t>(k)].nodes) names.insert(n);
  return names;
}

}  // namespace sinter
