// sinter explain: what a plan does and why; sinter check: whether a document is valid.
#include "planner/explain/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "array/file.hpp"
#include "base/edit_distance.hpp"
#include "commands.hpp"
#include "documents.hpp"
#include "explain_html.hpp"
#include "explain_json.hpp"
#include "json/reader.hpp"
#include "kernel_times.hpp"
#include "plan/plan_data.hpp"
#include "sinter/base/text.hpp"
#include "target/target.hpp"

namespace sinter::cli {
namespace {

using json::json_string;

struct ExplainArguments {
  std::string document, dot, html, architecture, device, other;
  std::vector<std::string> why;  // two nodes
  bool json = false, no_fuse = false, deterministic = false;
};

void print_lines(const std::string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    fmt::print("{}\n", printable(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
}

Result<Plan> planned(Graph& graph, const ExplainArguments& o, const std::string& architecture) {
  const Progress progress("planning");
  return Plan::make(
      graph, {.fuse = !o.no_fuse, .deterministic = o.deterministic, .architecture = architecture});
}

// The document's plan, or one that is made of its graph.
Result<Plan> plan_of(Document& document, const ExplainArguments& o,
                     const std::string& architecture) {
  if (document.plan) return *document.plan;
  return planned(*document.graph, o, architecture);
}

// What --diff names: a target to plan the same graph for, or another document.
Result<int> diff(const ExplainArguments& o, Document& document, const PlanData& before) {
  const auto show = [&](const Result<Plan>& after) -> Result<int> {
    SINTER_TRY(after);
    if (o.json)
      fmt::print("{}", diff_json(before, after->data()));
    else
      print_lines(explain_diff(before, after->data()));
    return kOk;
  };
  const auto targets = known_targets();
  if (std::find(targets.begin(), targets.end(), o.other) != targets.end())
    return show(planned(*document.graph, o, o.other));
  std::error_code error;
  if (o.other.starts_with("sm") && !std::filesystem::exists(o.other, error)) {
    print_error("--diff: no file of this name, and " + target_problem(o.other));
    return kBadInput;
  }
  auto other = read_document(o.other);
  SINTER_TRY(other);
  return show(plan_of(*other, o, o.architecture));
}

// Empty where a kernel computes the node.
std::string unknown_node(const PlanData& plan, const Graph& graph, const std::string& node) {
  if (!kernels_with(plan, &graph, node).empty()) return {};
  const auto& nodes = graph.nodes();
  if (const auto n =
          std::ranges::find(nodes, node, [&](const Node& of) { return graph.label(of); });
      n != nodes.end())
    return fmt::format("--why: no kernel computes '{}': {}", detail::shortened(node, 80),
                       only_moves(*n) ? "its readers read what it moves where that lies in memory"
                                      : "no output depends on it");
  std::vector<std::string> labels;
  for (const Node& n : nodes) labels.push_back(graph.label(n));
  const std::vector<std::string_view> known(labels.begin(), labels.end());
  std::string near = suggestion(node, known);
  if (!near.empty()) {
    near += "?";
  } else if (!known.empty()) {
    const std::size_t shown = std::min<std::size_t>(known.size(), 10);
    near = fmt::format(
        "nodes are {}{}", fmt::join(known.begin(), known.begin() + shown, ", "),
        shown < known.size() ? fmt::format(" and {} more", known.size() - shown) : std::string());
  }
  return fmt::format("--why: no kernel computes a node '{}'{}{}", detail::shortened(node, 80),
                     near.empty() ? "" : "; ", detail::shortened(near, 800));
}

Result<int> why(const ExplainArguments& o, const PlanData& plan, const Graph& graph) {
  for (const auto& node : o.why)
    if (const std::string problem = unknown_node(plan, graph, node); !problem.empty()) {
      print_error(problem);
      return kBadInput;
    }
  if (o.json)
    fmt::print("{}", why_json(plan, &graph, o.why[0], o.why[1]));
  else
    print_lines(explain_why(plan, &graph, o.why[0], o.why[1]));
  return kOk;
}

// Where an output goes to stdout it is all that is printed there: then true.
Result<bool> wrote_to_stdout(const std::string& path, const std::string& text) {
  if (is_stdout(path)) {
    fmt::print("{}", text);
    return true;
  }
  auto saved = write_file(path, text);
  SINTER_TRY(saved);
  return false;
}

Result<int> explain_document(const ExplainArguments& o) {
  auto document = read_document(o.document);
  SINTER_TRY(document);
  std::string architecture = o.architecture;
  std::optional<Device> device;
  if (!o.device.empty()) {
    auto found = device_from(o.device);
    SINTER_TRY(found);
    device = *found;
    auto target = device->target();
    SINTER_TRY(target);
    if (architecture.empty()) architecture = *target;
  }
  // With --diff they are of what is compared with.
  const PlanningOptions given{o.no_fuse, o.deterministic, o.architecture};
  if (const std::string problem = planning_problem(*document, given);
      o.other.empty() && !problem.empty()) {
    print_error(problem);
    return kBadInput;
  }
  const Graph* const graph = &*document->graph;
  auto made = plan_of(*document, o, architecture);
  SINTER_TRY(made);
  const PlanData& plan = made->data();
  if (!o.why.empty()) return why(o, plan, *graph);
  if (!o.other.empty()) return diff(o, *document, plan);
  if (!o.dot.empty()) {
    auto alone = wrote_to_stdout(o.dot, explain_dot(plan));
    SINTER_TRY(alone);
    if (*alone) return kOk;
  }
  std::vector<double> measured;
  if (device) {
    auto times = kernel_times(*document->graph, *made, *device);
    SINTER_TRY(times);
    measured = std::move(*times);
  }
  if (!o.html.empty()) {
    auto alone = wrote_to_stdout(o.html, explain_html(explain_json(plan, graph, measured, -1)));
    SINTER_TRY(alone);
    if (*alone) return kOk;
  }
  if (o.json)
    fmt::print("{}", explain_json(plan, graph, measured));
  else
    print_lines(explain_text(plan, graph, measured));
  return kOk;
}

// One line of `sinter check` about a document that is valid.
std::string valid_line(const std::string& path, const Document& document, bool json) {
  const Graph& g = *document.graph;
  std::size_t inputs = 0, outputs = 0;
  for (std::size_t i = 0; i < g.tensors().size(); ++i) {
    inputs += g.is_input(static_cast<TensorId>(i));
    outputs += g.tensors()[i].output;
  }
  const std::string& name = g.options().name;
  if (json)
    return fmt::format(
        "{{\"file\": {}, \"valid\": true, \"format\": \"{}\", \"name\": {}, \"nodes\": {}, "
        "\"inputs\": {}, \"outputs\": {}}}",
        json_string(path), document.plan ? "sinter.plan" : "sinter.graph", json_string(name),
        g.nodes().size(), inputs, outputs);
  return fmt::format("{}: valid {} '{}': {} nodes, {} inputs, {} outputs", printable(path),
                     document.plan ? "plan of" : "graph", printable_name(name), g.nodes().size(),
                     inputs, outputs);
}

Result<int> check(const std::vector<std::string>& paths, bool json) {
  int code = kOk;
  for (const auto& path : paths) {
    const auto document = read_document(path);
    if (!document) {
      code = report(document.errors());
      if (json)
        fmt::print("{{\"file\": {}, \"valid\": false, \"errors\": {}}}\n", json_string(path),
                   to_json(document.errors()));
      continue;
    }
    fmt::print("{}\n", valid_line(path, *document, json));
  }
  return code;
}

std::string gpu_problem(const std::string& text) {
  return text == "cpu" ? "the CPU runs whole graphs and no kernels; give the number of a GPU"
                       : device_problem(text);
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<ExplainArguments>();
  CLI::App* command = app.add_subcommand("explain", "Say what a graph's kernels are, and why");
  command->add_option("document", o->document, "Graph or plan file")->required();
  command->add_flag("--json", o->json, "All of it, for programs");
  CLI::Option* dot = command->add_option("--dot", o->dot, "Graphviz file to write, - for stdout");
  CLI::Option* html = command->add_option(
      "--html", o->html, "Page to write for a browser: graph, kernels, sources, - for stdout");
  CLI::Option* why =
      command->add_option("--why", o->why, "Two nodes: why they are not in one kernel")
          ->expected(2)
          ->excludes(dot)
          ->excludes(html);
  command
      ->add_option("--diff", o->other,
                   "What changes for another target, or from this document to another")
      ->excludes(dot)
      ->excludes(html)
      ->excludes(why);
  command->add_option("--device", o->device, "The number of a GPU, on which each kernel is timed")
      ->check(gpu_problem);
  command
      ->add_option("--arch", o->architecture,
                   "Target whose engines the kernels of a graph use, such as sm_90a (default: "
                   "what every GPU has)")
      ->check(target_problem);
  command->add_flag("--no-fuse", o->no_fuse, "One kernel a node");
  command->add_flag("--deterministic", o->deterministic, "The same bits in each run");
  command->callback([o, &exit_code] { exit_code = finish(explain_document(*o)); });
}

void add_check(CLI::App& app, int& exit_code) {
  auto paths = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("check", "Say whether documents are valid");
  command->add_option("documents", *paths, "Graph or plan files")->required();
  command->add_flag("--json", *json, "One JSON object a document, with every error in full");
  command->callback([paths, json, &exit_code] { exit_code = finish(check(*paths, *json)); });
}

}  // namespace sinter::cli
