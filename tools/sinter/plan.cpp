// sinter plan: a graph to a plan file, with machine code for the targets asked for. No GPU needed.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <thread>

#include "array/file.hpp"
#include "commands.hpp"
#include "compile/make_plan.hpp"
#include "documents.hpp"
#include "plan/plan_data.hpp"
#include "runtime/nvrtc.hpp"

namespace sinter::cli {
namespace {

struct PlanArguments {
  std::string document, output, source;
  std::vector<std::string> targets;
  bool no_fuse = false, deterministic = false;
};

Status write_sources(const PlanData& plan, const std::string& folder) {
  std::error_code error;  // what could not be made fails as a file that cannot be written
  std::filesystem::create_directories(folder, error);
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    const auto& k = plan.kernels[i];
    auto written = write_file(fmt::format("{}/{}_{}.cu", folder, i, k.entry), k.source);
    SINTER_TRY(written);
  }
  return Done{};
}

Result<int> run(const PlanArguments& o) {
  // NVRTC is opened while the graph is read and planned.
  std::jthread opening;
  if (!o.targets.empty()) opening = std::jthread([] { (void)nvrtc(); });
  auto document = read_document(o.document);
  SINTER_TRY(document);
  if (const std::string problem = planning_problem(*document, {o.no_fuse, o.deterministic});
      !problem.empty()) {
    print_error(problem);
    return kBadInput;
  }
  std::vector<std::string> targets;
  for (const auto& list : o.targets)
    for (auto& target : split_targets(list)) targets.push_back(std::move(target));
  if (!document->plan) {
    const Progress progress("planning");
    PlanOptions options = with_architecture(
        {.fuse = !o.no_fuse, .deterministic = o.deterministic, .targets = targets});
    options.targets.clear();  // compiled below, with a progress of its own
    auto plan = Plan::make(*document->graph, progress.following(options));
    SINTER_TRY(plan);
    document->plan = std::move(*plan);
  }
  if (!targets.empty()) {
    const Progress progress("compiling");
    auto plan = with_machine_code(*document->plan, targets, progress.following({}));
    SINTER_TRY(plan);
    document->plan = std::move(*plan);
  }
  const Plan& plan = *document->plan;
  if (!o.source.empty()) {
    auto written = write_sources(plan.data(), o.source);
    SINTER_TRY(written);
  }
  const std::string text = plan.to_json();
  if (is_stdout(o.output)) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kOk;
  }
  auto written = write_file(o.output, text);
  SINTER_TRY(written);
  fmt::print("{}: {} kernel{}, workspace {} bytes, written to {}\n", printable_name(plan.name()),
             plan.kernels(), plan.kernels() == 1 ? "" : "s", plan.workspace_bytes(),
             printable(o.output));
  return kOk;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "Write the plan of a graph; needs no GPU");
  command->add_option("document", o->document, "Graph file, or a plan file to add targets to")
      ->required();
  command->add_option("-o,--output", o->output, "Plan file to write, - for stdout")->required();
  command
      ->add_option("--arch", o->targets,
                   "Targets to compile for, such as sm_90a, commas between; for one the plan uses "
                   "all that it has, for several what every GPU has")
      ->check(target_problem)
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  command->add_option("--source", o->source, "Folder for the source of each kernel");
  command->add_flag("--no-fuse", o->no_fuse, "One kernel a node");
  command->add_flag("--deterministic", o->deterministic, "The same bits in each run");
  command->callback([o, &exit_code] { exit_code = finish(run(*o)); });
}

}  // namespace sinter::cli
