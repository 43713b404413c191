#include "gpu/gpu_support.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "compile/make_plan.hpp"
#include "emulator/emulator.hpp"
#include "gpu/prepared.hpp"
#include "plan/plan_data.hpp"
#include "runtime/compiler.hpp"
#include "support/joined_kernels.hpp"
#include "support/on_all_cores.hpp"
#include "support/plan_interpreter.hpp"
#include "support/random.hpp"
#include "support/random_graph.hpp"

namespace sinter::test {
namespace {

// SINTER_TEST_DEVICE. interpreter, interpreter_sm_90a: the plan interpreter instead of the GPU, to
// see whether a failure is the planner's or the kernel's. emulator, emulator_sm_90a: the kernels'
// text on the host, to see whether it is the text's or the machine's. cpu: the CPU backend, to run
// the tests under host sanitizers.
std::string chosen_device() {
  const char* name = std::getenv("SINTER_TEST_DEVICE");
  const std::string device = name ? name : "";
  for (const char* known :
       {"", "cpu", "interpreter", "interpreter_sm_90a", "emulator", "emulator_sm_90a"})
    if (device == known) return device;
  throw std::runtime_error("SINTER_TEST_DEVICE: " + device);
}
bool interpreted() { return chosen_device().starts_with("interpreter"); }
// Every other graph is planned so that its results have the same bits in each run.
bool is_deterministic(const GraphSource& source) { return !source.plan && source.seed % 2 == 1; }
// Of each kernel that has a choice any one, so that not only those run which are estimated to be
// the fastest for small shapes.
Tuning drawn_configurations(Tuning tuning, const std::vector<KernelChoice>& choices,
                            std::uint64_t seed) {
  Random random(seed);
  for (const KernelChoice& c : choices)
    if (!c.configurations.empty()) tuning.best[c.problem] = random.pick(c.configurations);
  return tuning;
}
// Plans use the engines of the device that runs them.
Result<Plan> plan_for_device(Graph& graph, bool fuse, const Tuning& tuning,
                             const GraphSource* source = nullptr) {
  const auto target = test_target();
  SINTER_TRY(target);
  if (source && source->plan) return source->plan(graph, *target);
  const bool deterministic = source && is_deterministic(*source);
  const PlanOptions options{.fuse = fuse, .deterministic = deterministic, .architecture = *target};
  if (!source || !source->drawn) return make_plan(graph, options, tuning, nullptr);
  std::vector<KernelChoice> choices;
  const auto chosen = make_plan(graph, options, tuning, &choices);
  SINTER_TRY(chosen);
  return make_plan(graph, options, drawn_configurations(tuning, choices, source->seed), nullptr);
}

// The names of all tensors whose last bits may differ from run to run: dQ and dBias, which CTAs
// add to in any order (codegen/device/family/attention_backward.md, "Order of sums"), and what is
// computed of them. Of gradients that are written out no node says which these are.
std::set<std::string> unordered_tensors(const Graph& graph, const Plan& plan) {
  std::set<TensorId> unordered;
  const bool written_out =
      std::ranges::none_of(graph.nodes(),
                           [](const Node& n) { return n.op == OpKind::sdpa_backward; }) &&
      std::ranges::any_of(plan.data().kernels, [](const PlanKernel& k) {
        return k.family == sinter::Family::attention_backward;
      });
  for (TensorId t = 0; written_out && t < static_cast<TensorId>(graph.tensors().size()); ++t)
    unordered.insert(t);
  for (const Node& n : graph.nodes()) {
    const auto* const sdpa = std::get_if<SdpaAttributes>(&n.attributes);
    const bool free = n.op == OpKind::sdpa_backward && !(sdpa && sdpa->deterministic);
    const bool reads = std::any_of(n.inputs.begin(), n.inputs.end(),
                                   [&](TensorId t) { return unordered.contains(t); });
    for (std::size_t i = 0; i < n.outputs.size(); ++i) {
      const std::string_view port = free ? info(n.op).outputs[i].name : "";
      if (n.outputs[i] != kNoTensor && (reads || port == "dQ" || port == "dBias"))
        unordered.insert(n.outputs[i]);
    }
  }
  std::set<std::string> names;
  for (const TensorId t : unordered) names.insert(graph[t].name);
  return names;
}

// The bytes of all outputs but those in `unordered`, in order.
std::vector<std::byte> output_bytes(GraphCase& c, const std::set<std::string>& unordered) {
  std::vector<std::byte> bytes;
  const auto memory = c.memory();
  for (const auto& [t, pointer] : memory) {
    if (!c.lowered()[t].output || unordered.contains(c.lowered()[t].name)) continue;
    const auto* p = static_cast<const std::byte*>(pointer);
    bytes.insert(bytes.end(), p, p + host_bytes(c.lowered(), t));
  }
  return bytes;
}

// The sentence that says what is wrong, empty when nothing is.
std::string run(Graph& graph, GraphCase& c, const Result<Plan>& plan, bool deterministic = false) {
  if (!plan) return plan.error().message();
  if (interpreted()) {
    c.clear_outputs();
    interpret_fused(graph, {.deterministic = deterministic, .architecture = *test_target()},
                    c.lowered(), c.memory());
  } else if (emulated()) {
    c.clear_outputs();
    if (const Status s = emulate(*plan, c); !s) return s.error().message();
  } else {
    auto executable = load(*plan, test_device());
    if (!executable) return executable.error().message();
    if (const Status s = c.execute(*executable); !s) return s.error().message();
  }
  return {};
}
// Runs a plan and judges it.
std::string run_and_judge(Graph& graph, GraphCase& c, const Result<Plan>& plan,
                          const GraphSource& source, const GraphChecks& checks, Totals& totals) {
  if (const std::string wrong = run(graph, c, plan, is_deterministic(source)); !wrong.empty())
    return wrong;
  const Comparison r = c.judge(checks.samples);
  totals.kernels += plan->kernels();
  totals.compared += r.compared;
  totals.untrusted += r.untrusted;
  totals.exact += r.exact;
  totals.worst_ratio = std::max(totals.worst_ratio, r.wrong ? 0.0 : r.worst_ratio);
  if (!r.ok())
    return std::to_string(r.wrong) + " of " + std::to_string(r.compared) + " wrong, slope " +
           (r.slope_ok ? "ok" : "wrong") + ": " + r.first_wrong;
  if (r.untrusted * 100 > r.compared * source.most_untrusted)
    return std::to_string(r.untrusted) + " of " + std::to_string(r.compared) + " are not judged";
  return c.stray_write();
}

// What a rewrite was refused for, which costs speed and no result.
std::string wrong_rewrite(const Plan& plan) {
  for (const PlanCut& c : plan.data().cuts)
    if (c.pattern == kWrongRewrite) return "a rewrite made a graph that is not valid: " + c.reason;
  return {};
}

// A graph's plans, where they are made already.
struct MadePlans {
  std::optional<Plan> fused, plain;
  std::optional<Prepared> prepared;
};
// In the emulator fewer graphs: kernels of single nodes are many, and each takes a compiler run.
bool runs_unfused(const GraphSource& source, const GraphChecks& checks) {
  const int every = checks.unfused * (emulated() ? 16 : 1);
  return every && source.seed % static_cast<unsigned>(every) == 0;
}

bool has_prepared_plans(const Graph& graph, const GraphSource& source) {
  return !source.plan && std::ranges::any_of(graph.tensors(), &TensorDesc::constant);
}
Result<Prepared> prepare_for_device(Graph& graph, const GraphSource& source) {
  const auto target = test_target();
  SINTER_TRY(target);
  return prepare(graph, {.deterministic = is_deterministic(source), .architecture = *target});
}

// Of a graph with constants the two plans of prepare(), the second one called twice.
std::string prepared_wrong(Graph& graph, const GraphSource& source, const MadePlans& made,
                           const GraphChecks& checks) {
  if (!has_prepared_plans(graph, source)) return {};
  const Result<Prepared> plans =
      made.prepared ? Result<Prepared>(*made.prepared) : prepare_for_device(graph, source);
  if (!plans) return "prepared: " + plans.error().message();
  const Fill fill = source.fill.value_or(checks.fill);
  GraphCase cases[] = {{graph, fill, source.seed}, {graph, fill, source.seed + 1}};
  return run_prepared(*plans, cases, checks.samples);
}

void run_one(const GraphSource& source, const MadePlans& made, const GraphChecks& checks,
             Failures& failures, Totals& totals) {
  Shared<Graph> graph;
  try {
    graph = source.make();
    GraphCase c(*graph, source.fill.value_or(checks.fill), source.seed);
    const auto fail = [&](const std::string& what) {
      if (!what.empty()) failures.add(source.name, graph.get(), what);
      return !what.empty();
    };
    ++totals.graphs;
    const Result<Plan> fused = made.fused ? Result<Plan>(*made.fused)
                                          : plan_for_device(*graph, true, source.tuning, &source);
    // Where a kernel reads the input late, the alias is refused by name (GRAPH_JSON.md, "In
    // place").
    if (!fused && fused.error().rule == Rule::tensor_alias) {
      ++totals.refused;
      return;
    }
    if (fail(run_and_judge(*graph, c, fused, source, checks, totals))) return;
    if (fail(wrong_rewrite(*fused))) return;
    const auto reread = Plan::from_json(fused->to_json());
    if (fail(!reread                                 ? reread.error().message()
             : reread->to_json() != fused->to_json() ? "the plan read back is another"
                                                     : ""))
      return;
    if (interpreted()) return;
    if (fail(prepared_wrong(*graph, source, made, checks))) return;
    const auto unordered =
        is_deterministic(source) ? std::set<std::string>() : unordered_tensors(*graph, *fused);
    const auto bytes = output_bytes(c, unordered);
    const auto same = [&](const std::string& what, const Result<Plan>& plan) {
      if (!unordered.empty()) {
        if (fail(run_and_judge(*graph, c, plan, source, checks, totals))) return true;
      } else {
        if (!plan) return fail(plan.error().message());
        auto executable = load(*plan, test_device());
        if (!executable) return fail(executable.error().message());
        if (const Status s = c.execute(*executable); !s) return fail(s.error().message());
      }
      return output_bytes(c, unordered) != bytes && fail(what + " gave other bits");
    };
    if (!emulated()) {
      if (checks.repeatable && same("a second run", fused)) return;
      if (checks.reloaded && same("the reloaded plan", reread)) return;
    }
    if (!runs_unfused(source, checks)) return;
    const Result<Plan> plain =
        made.plain ? Result<Plan>(*made.plain) : plan_for_device(*graph, false, source.tuning);
    if (!plain && plain.error().rule == Rule::tensor_alias) {
      ++totals.refused;
      return;
    }
    if (fail(run_and_judge(*graph, c, plain, source, checks, totals))) return;
    if (checks.bit_equal && output_bytes(c, unordered) != bytes)
      fail("one kernel a node gave other bits than the fused plan");
  } catch (const std::exception& e) {
    failures.add(source.name, graph.get(), e.what());
  }
}

// What goes wrong here, run_one() reports.
std::vector<MadePlans> make_plans(std::span<const GraphSource> graphs, const GraphChecks& checks) {
  std::vector<MadePlans> plans(graphs.size());
  on_all_cores(graphs.size(), [&](std::size_t i) {
    const GraphSource& source = graphs[i];
    try {
      const Shared<Graph> graph = source.make();
      if (auto plan = plan_for_device(*graph, true, source.tuning, &source)) plans[i].fused = *plan;
      if (has_prepared_plans(*graph, source))
        if (auto prepared = prepare_for_device(*graph, source)) plans[i].prepared = *prepared;
      if (!runs_unfused(source, checks)) return;
      if (auto plan = plan_for_device(*graph, false, source.tuning)) plans[i].plain = *plan;
    } catch (const std::exception&) {
    }
  });
  return plans;
}
std::vector<Plan*> all_of(std::vector<MadePlans>& plans) {
  std::vector<Plan*> all;
  const auto add = [&](std::optional<Plan>& plan) {
    if (plan) all.push_back(&*plan);
  };
  for (MadePlans& made : plans) {
    add(made.fused);
    add(made.plain);
    if (!made.prepared) continue;
    add(made.prepared->constants);
    all.push_back(&made.prepared->rest);
  }
  return all;
}

// Kernels that include the same headers are compiled as one text, whose machine code each of their
// plans carries. What does not compile so is left for load() to compile alone.
void compile_joined(std::vector<MadePlans>& plans, const std::string& target) {
  std::map<std::string, std::string> codes;  // by source
  std::vector<const PlanKernel*> kernels;
  for (const Plan* plan : all_of(plans))
    for (const PlanKernel& k : plan->data().kernels)
      if (codes.try_emplace(k.source).second) kernels.push_back(&k);
  const auto parts = joinable(kernels, kMostJoinedOfPlans, [](const PlanKernel&) { return 0; });
  on_all_cores(parts.size(), [&](std::size_t i) {
    const std::string text = joined(parts[i]);
    const auto code = compile_uncached({text, parts[i].front()->entry, target});
    for (const PlanKernel* k : parts[i])
      if (code) codes.at(k->source) = *code;
  });
  for (Plan* plan : all_of(plans)) {
    PlanData data = plan->data();
    for (PlanKernel& k : data.kernels)
      if (const std::string& code = codes.at(k.source); !code.empty())
        k.machine_code[target] = code;
    *plan = Plan(Shared<const PlanData>::make(std::move(data)));
  }
}

}  // namespace

bool emulated() { return chosen_device().starts_with("emulator"); }

Device test_device() { return chosen_device() == "cpu" ? Device::cpu() : Device::gpu(0); }

std::string run_case(Graph& graph, GraphCase& c) {
  return run(graph, c, plan_for_device(graph, true, {}));
}

Result<std::string> test_target() {
  if (!interpreted() && !emulated()) return test_device().target();
  return std::string(chosen_device().ends_with("_sm_90a") ? "sm_90a" : "");
}

void Failures::add(const std::string& name, Graph* graph, const std::string& what) {
  const std::lock_guard lock(mutex_);
  all_.push_back(name + ": " + what);
  std::fprintf(stderr, "%s\n", all_.back().substr(0, 600).c_str());
  const char* folder = std::getenv("SINTER_FAILURE_DIR");
  if (!folder || !graph) return;
  std::string file = name;
  std::replace(file.begin(), file.end(), '/', '_');
  std::ofstream(std::filesystem::path(folder) / (file + ".json")) << graph_to_json(*graph);
}

std::string Failures::text() const {
  std::string s;
  for (std::size_t i = 0; i < all_.size() && i < 12; ++i) s += all_[i].substr(0, 600) + "\n";
  return s;
}

Totals run_graphs(const std::vector<GraphSource>& graphs, const GraphChecks& checks,
                  Failures& failures) {
  const bool on_gpu = !test_device().is_cpu() && !interpreted() && !emulated();
  // Of few at a time the machine code is held; a host's compiler takes all at once.
  const std::size_t at_once = on_gpu && checks.joined ? 64 : graphs.size();
  std::mutex mutex;
  Totals sum;
  for (std::size_t first = 0; first < graphs.size(); first += at_once) {
    const auto some = std::span(graphs).subspan(first, std::min(at_once, graphs.size() - first));
    std::vector<MadePlans> plans(some.size());
    if (emulated()) {
      plans = make_plans(some, checks);
      std::vector<Plan> made;
      for (const Plan* plan : all_of(plans)) made.push_back(*plan);
      prepare_emulation(made);
    } else if (on_gpu && checks.joined) {
      plans = make_plans(some, checks);
      if (const auto target = test_target()) compile_joined(plans, *target);
    }
    on_all_cores(some.size(), [&](std::size_t i) {
      Totals one;
      run_one(some[i], plans[i], checks, failures, one);
      const std::lock_guard lock(mutex);
      sum.graphs += one.graphs;
      sum.refused += one.refused;
      sum.kernels += one.kernels;
      sum.compared += one.compared;
      sum.untrusted += one.untrusted;
      sum.exact += one.exact;
      sum.worst_ratio = std::max(sum.worst_ratio, one.worst_ratio);
    });
  }
  return sum;
}

std::vector<GraphSource> corpus_graphs() {
  const auto folder = std::filesystem::path(source_tree()) / "tests" / "corpus";
  std::vector<GraphSource> result;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string name = entry.path().stem().string();
    // Attention's probabilities may be rounded before or behind the division by their sum, so that
    // its results are known to a rounding of 16 bits only; two more products and norms behind it
    // leave 52 % of the elements open.
    const int most_untrusted = name == "transformer_block" ? 60 : 35;
    // Of the name, so that its numbers stay whatever else is in the folder.
    const std::uint64_t seed = std::hash<std::string>()(name) % 1000;
    result.push_back({name,
                      seed,
                      [file = entry.path()] {
                        std::ifstream in(file);
                        const std::string text{std::istreambuf_iterator<char>(in), {}};
                        auto graph = graph_from_json(text, file.filename().string());
                        if (!graph) throw std::runtime_error(graph.error().message());
                        return std::move(*graph);
                      },
                      {},
                      most_untrusted});
  }
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return result;
}

std::vector<GraphSource> random_graphs(int count, std::uint64_t first_seed, bool exact_only) {
  std::vector<std::uint64_t> seeds;
  if (const char* list = std::getenv("SINTER_GPU_SEEDS")) {
    std::istringstream in(list);
    for (std::string one; std::getline(in, one, ',');) seeds.push_back(std::stoull(one));
  } else {
    for (int i = 0; i < count; ++i) seeds.push_back(first_seed + static_cast<std::uint64_t>(i));
  }
  const char* const chosen = std::getenv("SINTER_GPU_OFTEN");
  const std::string_view often = chosen ? chosen : "";
  std::vector<GraphSource> result;
  for (const std::uint64_t seed : seeds) {
    result.push_back(
        {(exact_only ? "exact_" : "random_") + std::to_string(seed), seed,
         [=] { return random_graph({.seed = seed, .exact_only = exact_only, .often = often}); }});
    result.back().drawn = seed >= kLayersVary && seed % 3 == 0;
    if (exact_only || seed < kTrainingVary) continue;
    if (seed % 8 == 1) result.back().fill = Fill::uniform;
    if (seed % 8 == 6) result.back().fill = Fill::heavy_tail;
  }
  return result;
}

}  // namespace sinter::test
