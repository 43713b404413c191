// sinter bench: time graphs as others are timed (a captured graph of calls that rotate over input
// sets larger than the cache), after a check of the result; one line each.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>

#include "commands.hpp"
#include "documents.hpp"
#include "json/reader.hpp"
#include "runtime/timing.hpp"
#include "tensors.hpp"
#include "work.hpp"

namespace sinter::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> documents;
  std::string device, output;
  bool json = false, no_fuse = false, deterministic = false, no_check = false;
  double seconds = 0;
  std::int64_t samples = 2000;
};

struct Row {
  std::string graph;
  Timing timing;
  double tflops = 0, gbps = 0;
  int kernels = 0;
  std::int64_t workspace_bytes = 0;
  double plan_ms_cold = 0, plan_ms_warm = 0;
  bool checked = false;
  double max_rel_err = 0;
  std::string error;
};

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Five significant digits are what a measurement is worth.
std::string short_number(double v) { return fmt::format("{:.5g}", v); }

std::string row_json(const Row& r) {
  const std::string head =
      fmt::format("{{\"graph\": {}, \"peer\": \"sinter\"", json::json_string(r.graph));
  if (!r.error.empty()) return head + fmt::format(", \"error\": {}}}", json::json_string(r.error));
  const auto number = [](double v) { return v - v == 0 ? short_number(v) : json::number(v); };
  return head + fmt::format(
                    ", \"us\": {}, \"us_min\": {}, \"us_max\": {}, \"tflops\": {}, \"gbps\": {}, "
                    "\"kernels\": {}, \"workspace_bytes\": {}, \"plan_ms_cold\": {}, "
                    "\"plan_ms_warm\": {}, \"host_us\": {}, \"checked\": {}, \"max_rel_err\": {}}}",
                    number(r.timing.us), number(r.timing.us_min), number(r.timing.us_max),
                    number(r.tflops), number(r.gbps), r.kernels, r.workspace_bytes,
                    number(r.plan_ms_cold), number(r.plan_ms_warm), number(r.timing.host_us),
                    r.checked, number(r.max_rel_err));
}

std::string row_text(const Row& r) {
  if (!r.error.empty())
    return fmt::format("{:<40} error: {}", printable_name(r.graph), printable(r.error));
  return fmt::format(
      "{:<40} {:>10} us ({} to {}), {} TFLOP/s, {} GB/s, {} kernel{}, workspace {} bytes, plan {} "
      "ms cold and {} ms warm, host {} us, {}",
      printable_name(r.graph), short_number(r.timing.us), short_number(r.timing.us_min),
      short_number(r.timing.us_max), short_number(r.tflops), short_number(r.gbps), r.kernels,
      r.kernels == 1 ? "" : "s", r.workspace_bytes, short_number(r.plan_ms_cold),
      short_number(r.plan_ms_warm), short_number(r.timing.host_us),
      r.checked ? "checked, max relative error " + short_number(r.max_rel_err) : "not checked");
}

// One graph on one device, from the plan to the time.
class Case {
 public:
  Case(Graph& graph, const Plan* given, Device device, const BenchArguments& options)
      : graph_(graph), given_(given), device_(device), options_(options) {}

  // false: the result is wrong, and `row.error` says so.
  Result<bool> run(Row& row) {
    auto planned = plan(row);
    SINTER_TRY(planned);
    auto host = TensorSet::allocate(tensors(), Device::cpu());
    SINTER_TRY(host);
    auto sets = rotating_sets(graph_, tensors(), device_, *host);
    SINTER_TRY(sets);
    sets_ = std::move(*sets);
    auto right = options_.no_check ? Result<bool>(true) : check(*host, row);
    SINTER_TRY(right);
    if (!*right) return false;
    const Progress progress("timing " + row.graph);
    std::vector<std::vector<Binding>> bindings;
    for (const auto& s : sets_) bindings.push_back(s.bindings());
    auto timing = time_calls(device_, static_cast<int>(sets_.size()), [&](int set, Stream stream) {
      return executable_->execute(stream, bindings[static_cast<std::size_t>(set)], scratch());
    });
    SINTER_TRY(timing);
    row.timing = *timing;
    row.tflops = operations(graph_) / row.timing.us / 1e6;
    row.gbps = static_cast<double>(bound_bytes(graph_)) / row.timing.us / 1e3;
    return true;
  }

 private:
  std::span<const PlanTensor> tensors() const { return executable_->plan().data().tensors; }
  Workspace scratch() const { return *workspace_; }

  // Twice: the second time every kernel comes from the cache.
  Status plan(Row& row) {
    const Progress progress("compiling " + row.graph);
    for (double* ms : {&row.plan_ms_cold, &row.plan_ms_warm}) {
      const auto begin = Clock::now();
      auto made =
          given_ ? load(*given_, device_)
                 : compile(graph_, device_,
                           {.fuse = !options_.no_fuse, .deterministic = options_.deterministic});
      SINTER_TRY(made);
      *ms = milliseconds_since(begin);
      executable_.emplace(std::move(*made));
    }
    row.kernels = executable_->plan().kernels();
    row.workspace_bytes = executable_->workspace_bytes();
    auto memory = Memory::allocate(device_, executable_->workspace_bytes());
    SINTER_TRY(memory);
    workspace_.emplace(std::move(*memory));
    return Done{};
  }

  Result<bool> check(TensorSet& host, Row& row) {
    const Progress progress("checking " + row.graph);
    const auto all =
        run_and_check(graph_, *executable_, sets_.back(), scratch(), host, options_.samples);
    SINTER_TRY(all);
    row.checked = all->ok();
    row.max_rel_err = all->max_rel_error;
    if (!all->ok()) row.error = "wrong result: " + all->first_wrong;
    return all->ok();
  }

  Graph& graph_;
  const Plan* given_;
  Device device_;
  const BenchArguments& options_;
  std::optional<Executable> executable_;
  std::optional<Memory> workspace_;
  std::vector<TensorSet> sets_;
};

int bench_one(const std::string& path, Device device, const BenchArguments& o, bool in_time,
              Row& row) {
  auto document = read_document(path);
  if (!document) {
    row.graph = path;
    row.error = document.error().message();
    return report(document.errors());
  }
  row.graph = document->graph->options().name;
  if (row.error = planning_problem(*document, {o.no_fuse, o.deterministic}); !row.error.empty()) {
    print_error(row.error);
    return kBadInput;
  }
  if (!in_time) {
    row.error = "not started: --seconds used up";
    return kOk;
  }
  const Plan* given = document->plan ? &*document->plan : nullptr;
  const auto done = Case(*document->graph, given, device, o).run(row);
  if (!done) {
    row.error = done.error().message();
    return report(done.errors());
  }
  if (*done) return kOk;
  note("error: " + row.graph + ": " + row.error);
  return kWrong;
}

Result<int> run(const BenchArguments& o) {
  // Only a process that starts without compiled kernels can say what a first plan costs.
  setenv("SINTER_CACHE", "off", 1);
  auto device = device_from(o.device);
  SINTER_TRY(device);
  const auto begin = Clock::now();
  int code = kOk;
  for (const auto& path : o.documents) {
    Row row;
    const bool in_time = o.seconds <= 0 || milliseconds_since(begin) <= o.seconds * 1000;
    code = std::max(code, bench_one(path, *device, o, in_time, row));
    fmt::print("{}\n", o.json ? row_json(row) : row_text(row));
    std::fflush(stdout);
  }
  return code;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto o = std::make_shared<BenchArguments>();
  CLI::App* command = app.add_subcommand("bench", "Check and time graphs, one line each");
  command->add_option("documents", o->documents, "Graph or plan files")->required();
  command->add_option("--device", o->device, "cpu or the number of a GPU (default: the current)")
      ->check(device_problem);
  command->add_flag("--json", o->json, "One JSON object a line");
  command->add_option("--seconds", o->seconds, "Start no new graph after this many seconds");
  command->add_option("--samples", o->samples, "Elements to check of each output, 0: all")
      ->check(negative_problem);
  command->add_flag("--no-check", o->no_check, "Do not compare with the float64 reference");
  command->add_flag("--no-fuse", o->no_fuse, "One kernel a node");
  command->add_flag("--deterministic", o->deterministic, "The same bits in each run");
  command->callback([o, &exit_code] { exit_code = finish(run(*o)); });
}

}  // namespace sinter::cli
