#include "planner/explain.hpp"

#include <fmt/format.h>

namespace sinter {
namespace {

std::string joined(const std::vector<std::string>& parts, std::size_t most) {
  std::string s;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == most) return s + fmt::format(", ... {} more", parts.size() - most);
    s += (i ? ", " : "") + parts[i];
  }
  return s;
}

// A quoted Graphviz string.
std::string quoted(std::string_view text) {
  std::string s = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return s + "\"";
}

}  // namespace

std::string explain_text(const PlanData& p) {
  std::string s = fmt::format("{}: {} kernel{}, workspace {} bytes\n", p.name, p.kernels.size(),
                              p.kernels.size() == 1 ? "" : "s", p.workspace_bytes);
  for (std::size_t i = 0; i < p.kernels.size(); ++i) {
    const auto& k = p.kernels[i];
    s += fmt::format("\nkernel {}  {}\n  family  {}\n  nodes   {}\n", i, k.entry, name(k.family),
                     joined(k.nodes, 12));
    s += fmt::format("  launch  {} blocks of {} threads\n  config ", k.grid, k.block);
    for (const auto& [key, value] : k.config) s += fmt::format(" {}={}", key, value);
    s += fmt::format("\n  moves   {} bytes", k.bytes);
    if (k.flops > 0) s += fmt::format(", {:.6g} operations", k.flops);
    s += "\n";
    for (const auto& [target, code] : k.machine_code)
      s += fmt::format("  binary  {} ({} bytes)\n", target, code.size());
  }
  if (!p.cuts.empty()) s += "\ncuts: why neighbours are not in one kernel\n";
  for (const auto& c : p.cuts)
    s += fmt::format("  {} | {}{}: {}\n", c.pattern, c.node,
                     c.tensor.empty() ? "" : " through " + c.tensor, c.reason);
  return s;
}

std::string explain_dot(const PlanData& p) {
  std::string s = "digraph " + quoted(p.name) + " {\n  node [shape=box];\n";
  for (std::size_t i = 0; i < p.kernels.size(); ++i) {
    const auto& k = p.kernels[i];
    s += fmt::format("  subgraph cluster_{} {{\n    label={};\n", i, quoted(k.entry));
    for (const auto& n : k.nodes)
      s += fmt::format("    {} [label={}];\n", quoted(fmt::format("{}:{}", i, n)), quoted(n));
    s += fmt::format("    k{} [label={} shape=ellipse];\n  }}\n", i,
                     quoted(fmt::format("kernel {}", i)));
  }
  for (const auto& t : p.tensors)
    s += fmt::format("  {} [shape=oval];\n", quoted(t.name));
  for (std::size_t i = 0; i < p.kernels.size(); ++i)
    for (const auto& a : p.kernels[i].arguments) {
      if (a.kind == KernelArgument::Kind::scalar) continue;
      if (a.kind == KernelArgument::Kind::tensor) {
        const auto& t = p.tensors[static_cast<std::size_t>(a.value)];
        s += t.written ? fmt::format("  k{} -> {};\n", i, quoted(t.name))
                       : fmt::format("  {} -> k{};\n", quoted(t.name), i);
      } else {
        s += fmt::format("  k{} -> {} [dir=none style=dashed];\n", i,
                         quoted(fmt::format("workspace+{}", a.value)));
      }
    }
  return s + "}\n";
}

}  // namespace sinter
