// sinter tune: times the configurations of a graph's kernels on this device, best estimates first,
// within a budget of seconds. The fastest go into the tuning file, which later planning uses, and
// into the plan.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "array/file.hpp"
#include "base/env.hpp"
#include "commands.hpp"
#include "compile/make_plan.hpp"
#include "documents.hpp"
#include "json/reader.hpp"
#include "runtime/timing.hpp"
#include "target/target.hpp"
#include "tensors.hpp"
#include "tuning/tuning_file.hpp"

namespace sinter::cli {
namespace {

struct TuneArguments {
  std::vector<std::string> documents;
  std::string device, tuning_file, output, architecture;
  bool json = false, dry_run = false;
  double seconds = 30;
  int most = 24;
};

constexpr std::int64_t kSamples = 2000;  // of each output, as in sinter bench

using Clock = std::chrono::steady_clock;

struct Candidate {
  std::string problem, configuration;
  Timing timing{};
  std::string error{};
};

void print_candidate(const TuneArguments& o, const std::string& graph, const Candidate& c,
                     double first) {
  if (o.json)
    fmt::print("{{\"graph\": {}, \"problem\": {}, \"configuration\": {}, {}}}\n",
               json::json_string(graph), json::json_string(c.problem),
               json::json_string(c.configuration),
               c.error.empty() ? fmt::format("\"us\": {:.5g}", c.timing.us)
                               : "\"error\": " + json::json_string(c.error));
  else if (c.error.empty())
    fmt::print("  {:>10.5g} us  {:+6.1f} %  {}\n", c.timing.us, (c.timing.us / first - 1) * 100,
               c.configuration);
  else
    fmt::print("  {:>10}     {:>8}  {}: {}\n", "failed", "", c.configuration, printable(c.error));
}

// One graph: its plan, memory, and the measurements.
class Tuner {
 public:
  Tuner(Graph& graph, Device device, const TuneArguments& options)
      : graph_(graph), device_(device), options_(options), begin_(Clock::now()) {}

  Result<Tuning> run() {
    auto target = device_.target();
    SINTER_TRY(target);
    target_ = *target;
    std::vector<KernelChoice> choices;
    auto plan = make_plan(graph_, options(), {}, &choices);
    SINTER_TRY(plan);
    auto ready = prepare(*plan);
    SINTER_TRY(ready);
    Tuning best;
    if (choices.empty()) note(graph_.options().name + ": no kernel with a choice to make");
    for (const auto& choice : choices) {
      auto chosen = measure(choice, best);
      SINTER_TRY(chosen);
    }
    auto right = check(best);
    SINTER_TRY(right);
    return best;
  }

 private:
  PlanOptions options(bool with_code = false) const {
    PlanOptions o{.architecture = target_};
    if (with_code) o.targets = {target_};
    return o;
  }
  bool in_time() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count() < options_.seconds;
  }

  Status prepare(const Plan& plan) {
    plan_.emplace(plan);  // its tensors describe the memory
    auto host = TensorSet::allocate(plan_->data().tensors, Device::cpu());
    SINTER_TRY(host);
    host_.emplace(std::move(*host));
    auto sets = rotating_sets(graph_, plan_->data().tensors, device_, *host_);
    SINTER_TRY(sets);
    sets_ = std::move(*sets);
    for (const auto& s : sets_) bindings_.push_back(s.bindings());
    return Done{};
  }

  // Compiles ahead on all cores, so that the kernels come from the cache when they are timed.
  void compile(const std::vector<Tuning>& tunings) {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < tunings.size() && in_time(); i = next++)
        (void)make_plan(graph_, options(true), tunings[i], nullptr);  // told again when it is timed
    };
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < std::min(16U, std::thread::hardware_concurrency()); ++i)
      threads.emplace_back(work);
    work();
    for (auto& t : threads) t.join();
  }

  Status measure(const KernelChoice& choice, Tuning& best) {
    if (best.best.count(choice.problem)) return Done{};  // another kernel with the same problem
    std::vector<Tuning> tunings;
    std::vector<Candidate> candidates;
    for (const auto& configuration : choice.configurations) {
      if (static_cast<int>(candidates.size()) == options_.most) break;
      candidates.push_back({.problem = choice.problem, .configuration = configuration});
      tunings.push_back(best);
      tunings.back().best[choice.problem] = configuration;
    }
    {
      const Progress progress(
          fmt::format("{}: compiling {} configurations", graph_.options().name, candidates.size()));
      compile(tunings);
    }
    if (!options_.json)
      fmt::print("{}: {}\n", printable(graph_.options().name), printable(choice.problem));
    // A device that was idle boosts its clock: what it runs first looks faster than it is.
    (void)time(tunings[0]);
    std::size_t fastest = 0, compared = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (i > 0 && !in_time()) {
        note(fmt::format("{} seconds used up after {} of {}", options_.seconds, i,
                         candidates.size()));
        break;
      }
      Candidate& c = candidates[i];
      const std::size_t cells = 24, full = i * cells / candidates.size();
      const Progress progress(fmt::format("[{}{}] {} of {}", std::string(full, '#'),
                                          std::string(cells - full, '.'), i, candidates.size()));
      auto timing = time(tunings[i]);
      if (timing) {
        c.timing = *timing;
        ++compared;
      } else {
        c.error = timing.error().message();
      }
      const Candidate& b = candidates[fastest];
      if (c.error.empty() && (!b.error.empty() || c.timing.us < b.timing.us)) fastest = i;
      print_candidate(options_, graph_.options().name, c, candidates[0].timing.us);
    }
    // One that met no other is no measured choice: it would hide later, better estimates.
    if (compared > 1 || (compared == 1 && candidates.size() == 1))
      best.best[choice.problem] = candidates[fastest].configuration;
    return Done{};
  }

  Result<Executable> loaded(const Tuning& tuning) {
    auto plan = make_plan(graph_, options(), tuning, nullptr);
    SINTER_TRY(plan);
    auto executable = load(*plan, device_);
    SINTER_TRY(executable);
    auto memory = Memory::allocate(device_, executable->workspace_bytes());
    SINTER_TRY(memory);
    workspace_.emplace(std::move(*memory));
    return executable;
  }

  Result<Timing> time(const Tuning& tuning) {
    auto executable = loaded(tuning);
    SINTER_TRY(executable);
    return time_calls(device_, static_cast<int>(sets_.size()), [&](int set, Stream stream) {
      return executable->execute(stream, bindings_[static_cast<std::size_t>(set)], *workspace_);
    });
  }

  // What is kept is right: the outputs of the fastest plan against the reference.
  Status check(const Tuning& tuning) {
    const Progress progress("checking the fastest");
    auto executable = loaded(tuning);
    SINTER_TRY(executable);
    const auto all =
        run_and_check(graph_, *executable, sets_.back(), *workspace_, *host_, kSamples);
    SINTER_TRY(all);
    if (!all->ok())
      return Diagnostic{.rule = Rule::tuning,
                        .seen = "a wrong result of the fastest: " + all->first_wrong};
    return Done{};
  }

  Graph& graph_;
  Device device_;
  const TuneArguments& options_;
  Clock::time_point begin_;
  std::string target_;
  std::optional<Plan> plan_;
  std::optional<TensorSet> host_;
  std::optional<Memory> workspace_;
  std::vector<TensorSet> sets_;
  std::vector<std::vector<Binding>> bindings_;
};

// What would be timed, with the estimates of planning; needs no GPU.
Status list_candidates(const std::string& path, const TuneArguments& o) {
  auto document = read_document(path);
  SINTER_TRY(document);
  const std::string& graph = document->graph->options().name;
  std::vector<KernelChoice> choices;
  {
    const Progress progress("planning " + graph);
    auto plan = make_plan(*document->graph, {.architecture = o.architecture}, {}, &choices);
    SINTER_TRY(plan);
  }
  if (choices.empty())
    note(fmt::format("{}: no kernel for {} with a choice to make", graph, o.architecture));
  std::set<std::string> listed;
  for (const auto& choice : choices) {
    if (!listed.insert(choice.problem).second) continue;  // another kernel with the same problem
    const std::size_t all = choice.configurations.size(),
                      most = std::min(all, static_cast<std::size_t>(o.most));
    if (!o.json)
      fmt::print("{}: {}: the {} fastest by estimate of {} configurations\n", printable(graph),
                 printable(choice.problem), most, all);
    for (std::size_t i = 0; i < most; ++i) {
      const double us = choice.microseconds[i];
      if (o.json)
        fmt::print(
            "{{\"graph\": {}, \"problem\": {}, \"configuration\": {}, \"estimated_us\": {:.5g}}}\n",
            json::json_string(graph), json::json_string(choice.problem),
            json::json_string(choice.configurations[i]), us);
      else
        fmt::print("  {:>10.5g} us estimated  {:+6.1f} %  {}\n", us,
                   (us / choice.microseconds[0] - 1) * 100, choice.configurations[i]);
    }
  }
  return Done{};
}

Status tune(const std::string& path, Device device, const TuneArguments& o) {
  auto document = read_document(path);
  SINTER_TRY(document);
  auto best = Tuner(*document->graph, device, o).run();
  SINTER_TRY(best);
  const std::string file = o.tuning_file.empty() ? env_value("SINTER_TUNING_FILE") : o.tuning_file;
  if (!file.empty()) {
    auto added = add_to_tuning(file, *best);
    SINTER_TRY(added);
  }
  if (file.empty() && o.output.empty())
    note("note: the fastest are kept nowhere; --tuning FILE or --output PLAN keeps them");
  if (o.output.empty()) return Done{};
  auto target = device.target();
  SINTER_TRY(target);
  auto plan =
      make_plan(*document->graph, {.targets = {*target}, .architecture = *target}, *best, nullptr);
  SINTER_TRY(plan);
  return write_file(o.output, plan->to_json());
}

int dry_run(const TuneArguments& o) {
  int code = kOk;
  for (const auto& path : o.documents) {
    const auto done = list_candidates(path, o);
    if (!done) code = std::max(code, report(done.errors()));
  }
  return code;
}

Result<int> run(TuneArguments o) {
  if (o.dry_run) {
    // As for the GPU that would measure; without one, the target whose kernels have choices.
    const auto here = Device::current().target();
    if (o.architecture.empty()) o.architecture = here && !here->empty() ? *here : kTunedTarget;
    return dry_run(o);
  }
  if (!o.output.empty() && o.documents.size() > 1) {
    print_error("--output takes the plan of one graph; --tuning takes the fastest of several");
    return kBadInput;
  }
  auto device = o.device.empty() ? Result<Device>(Device::current()) : device_from(o.device);
  SINTER_TRY(device);
  if (device->is_cpu())
    return Diagnostic{
        .rule = Rule::device_missing, .attribute = "a GPU to measure on", .seen = "the CPU"};
  int code = kOk;
  for (const auto& path : o.documents) {
    const auto done = tune(path, *device, o);
    if (!done) code = std::max(code, report(done.errors()));  // the other graphs have their turn
  }
  return code;
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<TuneArguments>();
  CLI::App* command =
      app.add_subcommand("tune", "Time the configurations of a graph's kernels, keep the fastest");
  command->add_option("documents", o->documents, "Graph files")->required();
  command->add_option("--tuning", o->tuning_file,
                      "File that takes the fastest (default: what SINTER_TUNING_FILE names)");
  command->add_option("-o,--output", o->output, "Plan file with the fastest, for one graph");
  command->add_option("--seconds", o->seconds, "Budget for each graph")
      ->check(negative_problem)
      ->capture_default_str();
  command->add_option("--most", o->most, "Configurations of a kernel to try")
      ->check(positive_problem)
      ->capture_default_str();
  command->add_option("--device", o->device, "The number of a GPU (default: the current)")
      ->check(device_problem);
  CLI::Option* dry_run = command->add_flag(
      "--dry-run", o->dry_run, "List the configurations with their estimates; needs no GPU");
  command
      ->add_option("--arch", o->architecture,
                   fmt::format("With --dry-run: the target to plan for (default: the current "
                               "GPU's, or {})",
                               kTunedTarget))
      ->check(target_problem)
      ->needs(dry_run);
  command->add_flag("--json", o->json, "One JSON object a line");
  command->callback([o, &exit_code] { exit_code = finish(run(*o)); });
}

}  // namespace sinter::cli
