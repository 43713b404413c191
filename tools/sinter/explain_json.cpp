// Everything that `sinter explain` says as text, for programs.
#include "explain_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "emit/spelling.hpp"
#include "planner/explain/explain.hpp"
#include "target/device_model.hpp"

namespace sinter::cli {
namespace {

using Json = nlohmann::ordered_json;

Json kernel_json(const PlanData& p, std::size_t i, const Explanation& e,
                 const std::vector<double>& measured) {
  const PlanKernel& k = p.kernels[i];
  Json config = Json::object(), targets = Json::array(), accesses = Json::array();
  for (const auto& [key, value] : k.config) config[key] = value;
  for (const auto& [target, code] : k.machine_code)
    targets.push_back({{"target", target}, {"bytes", code.size()}});
  for (const auto& a : k.accesses) {
    const auto at = static_cast<std::size_t>(a.value);
    const PlanBuffer* buffer = a.workspace ? &p.buffers[at] : nullptr;
    const PlanTensor* tensor = a.workspace ? nullptr : &p.tensors[at];
    accesses.push_back({{"tensor", buffer ? buffer->name : tensor->name},
                        {"inside", buffer ? buffer->inside : ""},
                        {"data_type", name(buffer ? buffer->type : tensor->type)},
                        {"workspace", a.workspace},
                        {"written", a.written},
                        {"bytes", a.bytes}});
  }
  return {{"entry", k.entry},
          {"family", name(k.family)},
          {"engine", engine_of(k)},
          {"nodes", k.nodes},
          {"computed_again", e.again[i]},
          {"lines", e.lines[i]},
          {"estimated_us", k.microseconds},
          {"measured_us", measured.empty() ? Json() : Json(measured[i])},
          {"config", config},
          {"how", how_it_works(k, e.device)},
          {"grid", k.grid},
          {"block", k.block},
          {"shared_bytes", k.shared_bytes},
          {"bytes", k.bytes},
          {"accesses", accesses},
          {"flops", k.flops},
          {"source", k.source},
          {"targets", targets}};
}

Json cut_json(const PlanCut& c) {
  return {{"pattern", c.pattern}, {"node", c.node},     {"with", c.with},
          {"tensor", c.tensor},   {"reason", c.reason}, {"fix", c.fix}};
}

Json crossing_json(const Crossing& c) {
  Json reasons = Json::array();
  for (const auto& cut : c.cuts) reasons.push_back(cut_json(cut));
  return {{"tensor", c.tensor},        {"name", c.name},          {"inside", c.inside},
          {"data_type", name(c.type)}, {"written_by", c.writers}, {"read_by", c.readers},
          {"bytes", c.bytes},          {"us", c.microseconds},    {"cuts", reasons}};
}

// The tensors at a node's ports, as in its document. `numbered`: the ports are IN_0, IN_1, ...
Json ports_json(const Graph& g, const Ports& ports, bool numbered,
                const std::vector<TensorId>& tensors) {
  // Behind the others without a look at their keys: a concatenation may have 40,000 ports.
  std::vector<std::pair<const std::string, Json>> named;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i] != kNoTensor)
      named.emplace_back(numbered ? "IN_" + std::to_string(i) : std::string(ports[i].name),
                         g.label(tensors[i]));
  return Json::object_t(named.begin(), named.end());
}

std::string_view mode_of(const Node& n) {
  if (const auto* a = std::get_if<PointwiseAttributes>(&n.attributes)) return name(a->mode);
  if (const auto* a = std::get_if<ReductionAttributes>(&n.attributes))
    return a->mode ? name(*a->mode) : std::string_view();
  return {};
}

// The graph as the user wrote it, and which kernels compute each node.
Json nodes_json(const PlanData& p, const Graph& g) {
  std::unordered_map<std::string_view, std::vector<std::size_t>> kernels;
  for (std::size_t k = 0; k < p.kernels.size(); ++k)
    for (const auto& n : p.kernels[k].nodes) kernels[n].push_back(k);
  Json nodes = Json::array();
  for (const Node& n : g.nodes()) {
    const OpInfo& op = info(n.op);
    const std::string label = g.label(n);
    const auto in = kernels.find(label);
    nodes.push_back({{"name", label},
                     {"op", op.name},
                     {"mode", mode_of(n)},
                     {"line", *n.where.file ? n.where.line : 0},
                     {"inputs", ports_json(g, op.inputs, op.variadic, n.inputs)},
                     {"outputs", ports_json(g, op.outputs, false, n.outputs)},
                     {"kernels", in == kernels.end() ? Json::array() : Json(in->second)}});
  }
  return nodes;
}

// In the order of their names, as in the graph's canonical document.
Json tensors_json(const Graph& g) {
  std::vector<TensorId> ids(g.tensors().size());
  std::iota(ids.begin(), ids.end(), TensorId{0});
  std::sort(ids.begin(), ids.end(), [&](TensorId a, TensorId b) { return g[a].name < g[b].name; });
  Json tensors = Json::array();
  for (const TensorId id : ids) {
    const TensorDesc& t = g[id];
    Json dims = Json::array();
    for (int d = 0; d < t.dim.size(); ++d) dims.push_back(t.dim[d]);
    tensors.push_back({{"name", g.label(id)},
                       {"role", t.output         ? "output"
                                : t.has_value    ? "scalar"
                                : g.is_input(id) ? "input"
                                                 : "virtual"},
                       {"data_type", name(g.type(id))},
                       {"dim", dims},
                       {"identifier", Identifiers().add(t.name, "t")}});
  }
  return tensors;
}

// How much the device could do in a microsecond.
Json ceilings_json(const PlanData& p) {
  const DeviceModel d = device_model(p.architecture);
  const double clocks = d.clock * d.sms;  // of all SMs
  return {{"bytes_per_us", d.memory_bandwidth},
          {"tensor_operations_per_us", d.tensor_operations * clocks},
          {"ordinary_operations_per_us", d.ordinary_operations * clocks}};
}

// A plan in a few figures, and kernels of it, as --diff compares them.
Json plan_json(const PlanData& p) {
  const Explanation e = explain(p, nullptr);
  return {{"architecture", p.architecture},
          {"kernels", p.kernels.size()},
          {"estimated_us", e.microseconds},
          {"device", e.device},
          {"bytes", e.bytes},
          {"workspace_bytes", p.workspace_bytes}};
}

Json sides_json(const PlanData& p, const std::vector<int>& kernels) {
  Json all = Json::array();
  for (const int k : kernels) {
    const PlanKernel& kernel = p.kernels[static_cast<std::size_t>(k)];
    all.push_back({{"kernel", k},
                   {"entry", kernel.entry},
                   {"family", name(kernel.family)},
                   {"estimated_us", kernel.microseconds}});
  }
  return all;
}

std::string printed(const Json& all, int indent = 1) {
  return all.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string explain_json(const PlanData& p, const Graph* graph, const std::vector<double>& measured,
                         int indent) {
  const Explanation e = explain(p, graph);
  Json kernels = Json::array(), buffers = Json::array(), costs = Json::array(),
       hints = Json::array(), cuts = Json::array(), peak = Json::array();
  for (std::size_t i = 0; i < p.kernels.size(); ++i)
    kernels.push_back(kernel_json(p, i, e, measured));
  for (const auto& b : p.buffers)
    buffers.push_back({{"name", b.name},
                       {"inside", b.inside},
                       {"data_type", name(b.type)},
                       {"offset", b.offset},
                       {"bytes", b.bytes},
                       {"first", b.first},
                       {"last", b.last}});
  for (int b : e.peak_buffers) peak.push_back(p.buffers[static_cast<std::size_t>(b)].name);
  for (const auto& c : e.crossings) costs.push_back(crossing_json(c));
  for (const auto& h : e.hints)
    hints.push_back({{"tensor", h.tensor},
                     {"stored_as", "f32"},
                     {"narrow", name(h.narrow)},
                     {"saved_bytes", h.bytes},
                     {"saved_us", h.microseconds}});
  for (const auto& c : p.cuts) cuts.push_back(cut_json(c));
  const Json all = {
      {"graph", p.name},
      {"architecture", p.architecture},
      {"device", e.device},
      {"file", e.file},
      {"estimated_us", e.microseconds},
      {"launch_us", e.launch_microseconds},
      {"ceilings", ceilings_json(p)},
      {"bytes", e.bytes},
      {"workspace_bytes", p.workspace_bytes},
      {"peak", {{"kernel", e.peak_kernel}, {"bytes", e.peak_bytes}, {"tensors", peak}}},
      {"nodes", graph ? nodes_json(p, *graph) : Json::array()},
      {"tensors", graph ? tensors_json(*graph) : Json::array()},
      {"kernels", kernels},
      {"buffers", buffers},
      {"costs", costs},
      {"hints", hints},
      {"cuts", cuts}};
  return printed(all, indent);
}

std::string why_json(const PlanData& p, const Graph* graph, const std::string& a,
                     const std::string& b) {
  const Apart apart = why_apart(p, graph, a, b);
  Json between = Json::array(), cuts = Json::array();
  for (const auto& c : apart.between) between.push_back(crossing_json(c));
  for (const auto& c : apart.cuts) cuts.push_back(cut_json(c));
  return printed({{"nodes", {a, b}},
                  {"kernels", {apart.kernels_a, apart.kernels_b}},
                  {"together", apart.together},
                  {"between", between},
                  {"cuts", cuts}});
}

std::string diff_json(const PlanData& before, const PlanData& after) {
  const Changes all = changes(before, after);
  Json rows = Json::array();
  for (const auto& c : all.changes)
    rows.push_back({{"nodes", c.nodes},
                    {"us", c.microseconds},
                    {"before", sides_json(before, c.before)},
                    {"after", sides_json(after, c.after)}});
  return printed({{"before", plan_json(before)},
                  {"after", plan_json(after)},
                  {"changes", rows},
                  {"unchanged", all.unchanged}});
}

}  // namespace sinter::cli
