// Plan files carry their graph, so that whatever a command does to a graph it does to a plan as
// well.
#include "documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "array/file.hpp"
#include "console.hpp"
#include "json/graph_json.hpp"
#include "plan/plan_data.hpp"
#include "sinter/json.hpp"
#include "target/target.hpp"

namespace sinter::cli {
namespace {

void print_notes(const Graph& graph) {
  constexpr std::size_t kMost = 20;
  const Diagnostics notes = graph.notes();
  for (std::size_t i = 0; i < std::min(notes.size(), kMost); ++i)
    note("note: " + printable(notes[i].message()));
  if (notes.size() > kMost) note(fmt::format("note: and {} more", notes.size() - kMost));
}

}  // namespace

Result<Document> read_document(const std::string& path) {
  auto text = read_file(path, json::kMaxBytes);
  SINTER_TRY(text);
  Document document;
  auto tree = json::parse(*text, path);
  SINTER_TRY(tree);
  const json::Value* format = tree->find("format");
  if (format && format->text == "sinter.plan") {
    auto plan = Plan::from_json(*text, path);
    SINTER_TRY(plan);
    // Its lines would be those of the text inside the plan, which nobody reads.
    auto graph = graph_from_json(plan->data().graph_json);
    SINTER_TRY(graph);
    document.plan = std::move(*plan);
    document.graph = std::move(*graph);
    print_notes(*document.graph);
    return document;
  }
  auto graph = json::read_graph(*tree, path);
  SINTER_TRY(graph);
  document.graph = std::move(*graph);
  print_notes(*document.graph);
  return document;
}

std::string planning_problem(const Document& document, const PlanningOptions& options) {
  const std::string given = options.no_fuse                 ? "--no-fuse"
                            : options.deterministic         ? "--deterministic"
                            : !options.architecture.empty() ? "--arch"
                                                            : "";
  if (!document.plan || given.empty()) return {};
  return fmt::format(
      "{}: the document is a plan, whose kernels are chosen; give the graph that it is made of",
      given);
}

Result<Device> device_from(const std::string& text) {
  if (text.empty()) {
    const Device device = Device::current();
    if (device.is_cpu()) note("note: no usable GPU, this runs on the CPU (--device cpu)");
    return device;
  }
  if (text == "cpu") return Device::cpu();
  int ordinal = 0;
  std::from_chars(text.data(), text.data() + text.size(), ordinal);
  const Device device = Device::gpu(ordinal);
  auto target = device.target();  // fails where there is no such GPU
  SINTER_TRY(target);
  return device;
}

std::string device_problem(const std::string& text) {
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  if (text == "cpu" || (!text.empty() && text.size() < 6 && digits)) return {};
  return fmt::format("'{}' is no device; give cpu or the number of a GPU",
                     detail::shortened(text, 40));
}

std::string negative_problem(const std::string& text) {
  if (!text.starts_with('-')) return {};
  return fmt::format("'{}' is negative; give 0 or more", detail::shortened(text, 40));
}

std::string positive_problem(const std::string& text) {
  if (!text.starts_with('-') && text.find_first_not_of("0.") != std::string::npos) return {};
  return fmt::format("'{}' is not above 0", detail::shortened(text, 40));
}

std::string device_name(Device device) {
  if (device.is_cpu()) return "the CPU";
  const auto target = device.target();
  return fmt::format("GPU {} ({})", device.ordinal(), target ? *target : "?");
}

std::vector<std::string> split_targets(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string target_problem(const std::string& text) {
  const auto known = known_targets();
  for (const auto& part : split_targets(text)) {
    if (std::find(known.begin(), known.end(), part) != known.end()) continue;
    const auto near = nearest_target(part);
    return fmt::format(
        "'{}' is no target{} are {}", detail::shortened(part, 40),
        near.empty() ? "; targets" : fmt::format("; did you mean '{}'? Targets", near),
        fmt::join(known, ", "));
  }
  return {};
}

}  // namespace sinter::cli
