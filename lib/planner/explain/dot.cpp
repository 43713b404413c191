// Dataflow between kernels: a box for each kernel, an oval for each tensor that lies in memory.
#include <fmt/format.h>

#include "planner/explain/explain.hpp"

namespace sinter {
namespace {

// A quoted Graphviz string.
std::string quoted(std::string_view text) {
  std::string s = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return s + "\"";
}

std::string node_of(const PlanAccess& a) {
  return fmt::format("{}{}", a.workspace ? 'b' : 't', a.value);
}

}  // namespace

std::string explain_dot(const PlanData& p) {
  std::string s = "digraph " + quoted(p.name) + " {\n  node [shape=box];\n";
  for (std::size_t i = 0; i < p.tensors.size(); ++i)
    s += fmt::format("  t{} [shape=oval label={}];\n", i, quoted(p.tensors[i].name));
  for (std::size_t i = 0; i < p.buffers.size(); ++i)
    s += fmt::format("  b{} [shape=oval style=dashed label={}];\n", i, quoted(shown(p.buffers[i])));
  for (std::size_t i = 0; i < p.kernels.size(); ++i) {
    const auto& k = p.kernels[i];
    s += fmt::format(
        "  k{} [label={}];\n", i,
        quoted(fmt::format("kernel {} ({}): {}", i, name(k.family), listed(k.nodes, 12))));
    for (const auto& a : k.accesses)
      s +=
          a.written
              ? fmt::format("  k{} -> {} [label={}];\n", i, node_of(a), quoted(megabytes(a.bytes)))
              : fmt::format("  {} -> k{} [label={}];\n", node_of(a), i, quoted(megabytes(a.bytes)));
  }
  return s + "}\n";
}

}  // namespace sinter
