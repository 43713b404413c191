// sinter explain: what a plan does and why; sinter check: whether a document is valid.
#include "planner/explain.hpp"

#include <fmt/format.h>

#include <memory>

#include "array/file.hpp"
#include "commands.hpp"
#include "documents.hpp"
#include "json/reader.hpp"
#include "plan/plan_data.hpp"

namespace sinter::cli {
namespace {

using json::json_string;

struct Options {
  std::string document, dot, architecture;
  bool json = false, no_fuse = false;
};

template <class List, class Text>
std::string array(const List& list, const char* separator, Text&& text) {
  std::string s;
  for (const auto& item : list) s += (s.empty() ? "" : separator) + text(item);
  return "[" + s + "]";
}

std::string explain_json(const PlanData& p) {
  const auto kernel = [](const PlanKernel& k) {
    std::string config;
    for (const auto& [key, value] : k.config)
      config += fmt::format("{}{}: {}", config.empty() ? "" : ", ", json_string(key), value);
    return fmt::format(
        "{{\"entry\": {}, \"family\": {}, \"nodes\": {}, \"config\": {{{}}}, \"grid\": {}, "
        "\"block\": {}, \"shared_bytes\": {}, \"bytes\": {}, \"flops\": {}, \"targets\": {}}}",
        json_string(k.entry), json_string(name(k.family)), array(k.nodes, ", ", json_string),
        config, k.grid, k.block, k.shared_bytes, k.bytes, json::number(k.flops),
        array(k.machine_code, ", ", [](const auto& m) { return json_string(m.first); }));
  };
  const auto cut = [](const PlanCut& c) {
    return fmt::format("{{\"pattern\": {}, \"node\": {}, \"tensor\": {}, \"reason\": {}}}",
                       json_string(c.pattern), json_string(c.node), json_string(c.tensor),
                       json_string(c.reason));
  };
  return fmt::format(
      "{{\"graph\": {}, \"architecture\": {}, \"workspace_bytes\": {},\n \"kernels\": {},\n "
      "\"cuts\": {}}}\n",
      json_string(p.name), json_string(p.architecture), p.workspace_bytes,
      array(p.kernels, ",\n  ", kernel), array(p.cuts, ",\n  ", cut));
}

Result<int> explain(const Options& o) {
  auto document = read_document(o.document);
  SINTER_TRY(document);
  if (!document->plan) {
    auto plan = Plan::make(*document->graph, {.fuse = !o.no_fuse, .architecture = o.architecture});
    SINTER_TRY(plan);
    document->plan = std::move(*plan);
  }
  const PlanData& plan = document->plan->data();
  if (!o.dot.empty()) {
    const std::string dot = explain_dot(plan);
    if (is_stdout(o.dot)) {
      fmt::print("{}", dot);
      return kOk;
    }
    auto written = write_file(o.dot, dot);
    SINTER_TRY(written);
  }
  if (o.json) {
    fmt::print("{}", explain_json(plan));
    return kOk;
  }
  const std::string text = explain_text(plan);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    fmt::print("{}\n", printable(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
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

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "Say what a graph's kernels are, and why");
  command->add_option("document", o->document, "Graph or plan file")->required();
  command->add_flag("--json", o->json, "For programs");
  command->add_option("--dot", o->dot, "Graphviz file to write, - for stdout");
  command
      ->add_option("--arch", o->architecture,
                   "Target whose engines the kernels of a graph use, such as sm_90a (default: "
                   "what every GPU has)")
      ->check(target_problem);
  command->add_flag("--no-fuse", o->no_fuse, "One kernel a node");
  command->callback([o, &exit_code] { exit_code = finish(explain(*o)); });
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
