// What a plan costs first, then what to do about it, then each kernel in detail.
#include "sinter/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "planner/explain/explain.hpp"
#include "target/target.hpp"

namespace sinter {
namespace {

constexpr std::size_t kNodesWidth = 44, kMostKernels = 8, kMostReasons = 3, kMostCrossings = 10,
                      kMostBuffers = 8;

// As many names as fit into the column.
std::string fitted(const std::vector<std::string>& nodes) {
  for (std::size_t most = std::min<std::size_t>(nodes.size(), 4); most > 1; --most)
    if (std::string s = listed(nodes, most); s.size() <= kNodesWidth) return s;
  if (nodes.empty()) return "-";
  const std::string more =
      nodes.size() > 1 ? fmt::format(", ... {} more", nodes.size() - 1) : std::string();
  return std::string(detail::shortened(nodes[0], kNodesWidth - more.size())) + more;
}

std::string table(const PlanData& p, const Explanation& e, const std::vector<double>& measured) {
  std::size_t lines = 0;
  for (const auto& l : e.lines) lines = std::max(lines, l.size());
  if (lines > 0) lines = std::max<std::size_t>(lines, 4);
  const auto row = [&](std::string_view number, std::string_view family, std::string_view nodes,
                       std::string_view line, std::string_view us, std::string_view taken,
                       std::string_view share, std::string_view bytes) {
    std::string s = fmt::format("{:>3}  {:<18}  {:<{}}", number, family, nodes, kNodesWidth);
    if (lines > 0) s += fmt::format("  {:>{}}", line, lines);
    s += fmt::format("  {:>9}", us);
    if (!measured.empty()) s += fmt::format("  {:>11}", taken);
    return s + fmt::format("  {:>5}  {:>9}\n", share, bytes);
  };
  const auto us = [](double v) { return fmt::format("{:.1f}", v); };
  std::string s = row("#", "kernel", "nodes", "line", "us (est.)", "us measured", "share", "bytes");
  double total = 0;
  for (double v : measured) total += v;
  for (std::size_t i = 0; i < p.kernels.size(); ++i) {
    const auto& k = p.kernels[i];
    const double share = measured.empty() ? k.microseconds / std::max(e.microseconds, 1e-9)
                                          : measured[i] / std::max(total, 1e-9);
    s += row(std::to_string(i), name(k.family), fitted(k.nodes), e.lines[i], us(k.microseconds),
             measured.empty() ? "" : us(measured[i]), fmt::format("{:.0f} %", 100 * share),
             megabytes(k.bytes));
  }
  return s + row("", "total", "", "", us(e.microseconds), us(total), "", megabytes(e.bytes));
}

std::string workspace(const PlanData& p, const Explanation& e) {
  if (e.peak_kernel < 0) return "";
  std::string s = fmt::format("\nworkspace: most in use during kernel {}, {} of {}\n",
                              e.peak_kernel, megabytes(e.peak_bytes), megabytes(p.workspace_bytes));
  for (std::size_t i = 0; i < e.peak_buffers.size(); ++i) {
    if (i == kMostBuffers) {
      s += fmt::format("  ... {} smaller\n", e.peak_buffers.size() - i);
      break;
    }
    const auto& b = p.buffers[static_cast<std::size_t>(e.peak_buffers[i])];
    s += fmt::format("  {:>9}  {:<5} {}, kernels {} to {}\n", megabytes(b.bytes), name(b.type),
                     shown(b), b.first, b.last);
  }
  return s;
}

std::string crossing(const Crossing& c, bool fused) {
  std::string s = fmt::format("  {:>6.1f} us  {:>9}  {} ({})", c.microseconds, megabytes(c.bytes),
                              c.tensor, name(c.type));
  if (!c.writers.empty()) s += fmt::format(" from {}", kernels_listed(c.writers, kMostKernels));
  if (!c.readers.empty())
    s += fmt::format("{} {}", c.writers.empty() ? " is read by" : " to",
                     kernels_listed(c.readers, kMostKernels));
  s += "\n";
  if (c.cuts.empty())
    s += fused ? "      no fusion pattern covers both what writes it and what reads it\n"
               : "      each node is a kernel of its own\n";
  std::vector<std::string> said, fixes;
  for (const auto& cut : c.cuts) {
    const std::string line = sentence(cut);
    if (std::find(said.begin(), said.end(), line) == said.end()) said.push_back(line);
    if (!cut.fix.empty() && std::find(fixes.begin(), fixes.end(), cut.fix) == fixes.end())
      fixes.push_back(cut.fix);
  }
  for (std::size_t i = 0; i < std::min(said.size(), kMostReasons); ++i)
    s += fmt::format("      {}\n", said[i]);
  if (said.size() > kMostReasons)
    s += fmt::format("      ... {} more reasons (--json)\n", said.size() - kMostReasons);
  for (std::size_t i = 0; i < std::min(fixes.size(), kMostReasons); ++i)
    s += fmt::format("      to remove it: {}\n", fixes[i]);
  const bool chosen = std::any_of(c.cuts.begin(), c.cuts.end(),
                                  [](const PlanCut& cut) { return cut.with.empty(); });
  if (fixes.empty() && !chosen && !c.cuts.empty())
    s += "      no change of the graph is known that removes it\n";
  return s;
}

std::string advice(const PlanData& p, const Explanation& e) {
  std::string s;
  const bool fused = !p.cuts.empty() || std::ranges::any_of(p.kernels, [](const PlanKernel& k) {
    return k.nodes.size() > 1;
  });
  if (!e.crossings.empty())
    s += "\ncuts: tensors that pass through memory as their kernels are apart, worst first; the "
         "time is that of the traffic and of a launch\n";
  for (std::size_t i = 0; i < e.crossings.size(); ++i) {
    if (i == kMostCrossings) {
      s += fmt::format("  ... {} that cost less (--json)\n", e.crossings.size() - i);
      break;
    }
    s += crossing(e.crossings[i], fused);
  }
  for (std::size_t i = 0; i < std::min(e.hints.size(), kMostCrossings); ++i) {
    const auto& h = e.hints[i];
    s += fmt::format(
        "{}hint: tensor {} is stored as f32, {} would save {} ({:.1f} us): give it this "
        "data_type{}\n",
        i == 0 ? "\n" : "", h.tensor, name(h.narrow), megabytes(h.bytes), h.microseconds,
        h.narrow == DataType::boolean ? ", which holds it exactly"
                                      : " where its rounding does no harm");
  }
  return s;
}

// `first`: the number of the first kernel with the same code.
std::string in_detail(const PlanKernel& k, const std::vector<std::string>& again,
                      std::size_t number, std::size_t first, const std::string& gpu) {
  std::string s = fmt::format("\nkernel {}  {}\n  family  {}\n  nodes   {}", number, k.entry,
                              name(k.family), listed(k.nodes, 12));
  if (!again.empty()) s += fmt::format("; also computed here: {}", listed(again, 12));
  s += "\n";
  s += fmt::format("  launch  {} block{} of {} threads", k.grid, k.grid == 1 ? "" : "s", k.block);
  if (k.shared_bytes > 0) s += fmt::format(", {} bytes of shared memory", k.shared_bytes);
  if (first == number) {
    s += "\n  config ";
    for (const auto& [key, value] : k.config) s += fmt::format(" {}={}", key, value);
  }
  s += fmt::format(
      "\n  how     {}\n  moves   {} bytes",
      first < number ? fmt::format("the code of kernel {}", first) : how_it_works(k, gpu), k.bytes);
  if (k.flops > 0) s += fmt::format(", {:.6g} FLOP", k.flops);
  s += "\n";
  for (const auto& [target, code] : k.machine_code)
    s += fmt::format("  binary  {} ({} bytes)\n", target, code.size());
  return s;
}

}  // namespace

std::string explain_text(const PlanData& p, const Graph* graph,
                         const std::vector<double>& measured) {
  const Explanation e = explain(p, graph);
  std::string s = fmt::format("{}: {} kernel{}, workspace {} bytes", p.name, p.kernels.size(),
                              p.kernels.size() == 1 ? "" : "s", p.workspace_bytes);
  s += p.architecture.empty()
           ? fmt::format(", for every GPU from {} on (--arch plans for one)\n", kOldestTarget)
           : fmt::format(", for {}\n", p.architecture);
  s += fmt::format("estimated at {:.1f} us on {}, of which each launch takes about {:.1f}{}\n\n",
                   e.microseconds, e.device, e.launch_microseconds,
                   e.file.empty() ? "" : "; lines are of " + e.file);
  s += table(p, e, measured) + workspace(p, e) + advice(p, e);
  std::map<std::string_view, std::size_t> first;  // by entry, which ends in a digest of the code
  for (std::size_t i = 0; i < p.kernels.size(); ++i) {
    const PlanKernel& k = p.kernels[i];
    s += in_detail(k, e.again[i], i, first.try_emplace(k.entry, i).first->second, e.device);
  }
  return s;
}

}  // namespace sinter
