// Everything that `sinter explain` says as text, for programs.
#include "explain_json.hpp"

#include <nlohmann/json.hpp>

#include "planner/explain/explain.hpp"

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
    accesses.push_back({{"tensor", a.workspace ? p.buffers[at].name : p.tensors[at].name},
                        {"workspace", a.workspace},
                        {"written", a.written},
                        {"bytes", a.bytes}});
  }
  return {{"entry", k.entry},
          {"family", name(k.family)},
          {"nodes", k.nodes},
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
          {"targets", targets}};
}

Json cut_json(const PlanCut& c) {
  return {{"pattern", c.pattern}, {"node", c.node},     {"with", c.with},
          {"tensor", c.tensor},   {"reason", c.reason}, {"fix", c.fix}};
}

}  // namespace

std::string explain_json(const PlanData& p, const Graph* graph,
                         const std::vector<double>& measured) {
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
  for (const auto& c : e.crossings) {
    Json reasons = Json::array();
    for (const auto& cut : c.cuts) reasons.push_back(cut_json(cut));
    costs.push_back({{"tensor", c.tensor},
                     {"data_type", name(c.type)},
                     {"written_by", c.writers},
                     {"read_by", c.readers},
                     {"bytes", c.bytes},
                     {"us", c.microseconds},
                     {"cuts", reasons}});
  }
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
      {"bytes", e.bytes},
      {"workspace_bytes", p.workspace_bytes},
      {"peak", {{"kernel", e.peak_kernel}, {"bytes", e.peak_bytes}, {"tensors", peak}}},
      {"kernels", kernels},
      {"buffers", buffers},
      {"costs", costs},
      {"hints", hints},
      {"cuts", cuts}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sinter::cli
