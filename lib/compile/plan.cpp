// Plan::make: lower, partition, generate, and, for the targets asked for, compile.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <tuple>
#include <unordered_map>

#include "compile/kernel_nodes.hpp"
#include "compile/make_plan.hpp"
#include "compile/plan_class.hpp"
#include "emit/emit.hpp"
#include "plan/canonical_text.hpp"
#include "plan/plan_data.hpp"
#include "plan/tensor_names.hpp"
#include "planner/aliases.hpp"
#include "planner/kernel_work.hpp"
#include "planner/rewrite/pass.hpp"
#include "runtime/compiler.hpp"
#include "sinter/compile.hpp"
#include "sinter/json.hpp"
#include "target/target.hpp"
#include "tuning/tuning_file.hpp"

namespace sinter {
namespace {

bool runs_beside_before(const KernelSpec& spec) {
  const PointwiseSpec* const pointwise = spec.as_pointwise();
  return pointwise && pointwise->beside_before;
}

std::vector<PlanTensor> plan_tensors(const Graph& graph) {
  std::vector<PlanTensor> result;
  for (bool written : {false, true})
    for (std::size_t i = 0; i < graph.tensors().size(); ++i) {
      const auto id = static_cast<TensorId>(i);
      const TensorDesc& t = graph[id];
      if (written ? !t.output : !graph.is_input(id)) continue;
      const Dims stride = graph.stride(id);
      const DataType type = graph.type(id);
      PlanTensor p{t.name, type,        t.dim,
                   stride, t.alignment, span_elements(t.dim, stride) * info(type).bytes,
                   t.uid,  written};
      p.by_value = t.bound_value;
      p.read = written || t.read;
      for (std::size_t j = 0; written && t.alias >= 0 && j < result.size(); ++j)
        if (result[j].name == graph[t.alias].name) p.alias = static_cast<std::int64_t>(j);
      result.push_back(std::move(p));
    }
  return result;
}

// Behind the graph's inputs, or behind its outputs.
void add_kept(PlanData& data, const Partition& parts) {
  std::map<TensorId, PlanTensor> kept;
  for (const auto& spec : parts.kernels)
    for (const auto& port : spec.ports)
      if (const auto at = parts.kept.find(port.tensor); at != parts.kept.end()) {
        PlanTensor& t = kept[port.tensor];
        t.name = at->second.name;
        t.type = port.type;
        t.dim = {at->second.bytes / info(port.type).bytes};
        t.stride = {1};
        t.bytes = at->second.bytes;
        t.written |= port.written;
        t.kept = true;
      }
  for (auto& [id, t] : kept) {
    const auto place = std::find_if(data.tensors.begin(), data.tensors.end(),
                                    [&](const auto& of) { return of.written && !t.written; });
    data.tensors.insert(place, std::move(t));
  }
}

using Places = std::unordered_map<std::string_view, std::int64_t>;

// The user's node that a node of the lowered graph comes from.
const Node& origin_of(const Graph& graph, const Lowered& lowered, NodeId n) {
  const NodeId origin = lowered.origin[static_cast<std::size_t>(n)];
  return graph.nodes()[static_cast<std::size_t>(origin)];
}

// The user's nodes that these come from, each once, in order.
std::vector<const Node*> origins_of(const Graph& graph, const Lowered& lowered,
                                    const std::vector<NodeId>& nodes) {
  std::vector<const Node*> origins;
  for (NodeId n : nodes) origins.push_back(&origin_of(graph, lowered, n));
  std::sort(origins.begin(), origins.end());
  origins.erase(std::unique(origins.begin(), origins.end()), origins.end());
  return origins;
}

// For the kernel's own name: the first two names that the user gave.
std::string kernel_title(const std::vector<const Node*>& nodes) {
  std::string title;
  int names = 0;
  for (const Node* n : nodes) {
    if (n->name.empty() || ++names > 2) continue;
    title += (title.empty() ? "" : "_") + n->name;
  }
  return title;
}

// Of a tensor that rewrites have put in the place of one that the user's nodes hand to each other,
// in another shape or order: the user's name; of every other the label that it has.
std::string name_for_user(const Graph& graph, const TensorNames& names, const std::string& label) {
  std::string_view name = label;
  while (names.find(name) < 0) {
    const auto* const change = std::ranges::find_if(
        suffix::of_same_elements, [&](std::string_view c) { return name.ends_with(c); });
    if (change == std::end(suffix::of_same_elements)) return label;
    name.remove_suffix(change->size());
  }
  const TensorDesc& t = graph[names.find(name)];
  return t.producer < 0 || t.output ? label : std::string(name);
}

// What kernels hand to each other, in the user's names where it has them.
std::vector<PlanBuffer> plan_buffers(const Graph& graph, const Lowered& lowered,
                                     const Partition& partition,
                                     const std::vector<std::vector<NodeId>>& computed) {
  const auto label = [&](NodeId n) { return graph.label(origin_of(graph, lowered, n)); };
  const TensorNames names(graph);
  std::vector<PlanBuffer> result;
  for (const auto& l : partition.lifetimes) {
    PlanBuffer b{l.name, "", l.type, partition.workspace.at(l.tensor), l.bytes, l.first, l.last};
    if (partition.temporaries.count(l.tensor)) {
      // Of the nodes of who writes it the first that who reads it computes, too.
      const auto& nodes = computed[static_cast<std::size_t>(l.first)];
      const auto& read = computed[static_cast<std::size_t>(l.last)];
      const auto both = std::ranges::find_first_of(nodes, read);
      if (!nodes.empty()) b.inside = label(both == nodes.end() ? nodes.front() : *both);
    } else {
      b.name = name_for_user(graph, names, lowered.graph->label(l.tensor));
      if (names.find(b.name) < 0) b.inside = label((*lowered.graph)[l.tensor].producer);
    }
    result.push_back(std::move(b));
  }
  return result;
}

// The cuts in the user's names; those that say the same of parts of one node are one.
std::vector<PlanCut> plan_cuts(const Graph& graph, const Lowered& lowered,
                               const Partition& partition) {
  const TensorNames names(graph);
  std::unordered_map<std::string, std::string> labels;
  const auto& nodes = lowered.graph->nodes();
  for (std::size_t n = 0; n < nodes.size(); ++n)
    labels.emplace(lowered.graph->label(nodes[n]),
                   graph.label(origin_of(graph, lowered, static_cast<NodeId>(n))));
  const auto rename = [&](std::string& label) {
    if (const auto known = labels.find(label); known != labels.end()) label = known->second;
  };
  std::set<std::tuple<std::string, std::string, std::string, std::string, std::string>> listed;
  std::vector<PlanCut> result;
  for (PlanCut c : partition.cuts) {
    rename(c.node);
    rename(c.with);
    if (c.node == c.with) c.fix.clear();  // of what a rewrite made of one node
    c.tensor = name_for_user(graph, names, c.tensor);
    if (listed.emplace(c.pattern, c.node, c.with, c.tensor, c.reason).second)
      result.push_back(std::move(c));
  }
  return result;
}

using Positions = std::unordered_map<TensorId, std::int64_t>;  // in PlanData::buffers

// Of a tensor that the caller binds.
const std::string& bound_name(const Graph& lowered, const Partition& parts, TensorId t) {
  const auto kept = parts.kept.find(t);
  return kept != parts.kept.end() ? kept->second.name : lowered[t].name;
}

std::vector<PlanAccess> plan_accesses(const Graph& lowered, const KernelSpec& spec,
                                      const Partition& partition, const Positions& buffers,
                                      const Places& places) {
  std::vector<PlanAccess> result;
  for (const auto& t : compulsory_traffic(lowered, spec)) {
    if (const auto buffer = buffers.find(t.tensor); buffer != buffers.end())
      result.push_back(  // each element once, whatever the windows that reach it
          {true, buffer->second, t.written,
           std::min(t.bytes, partition.lifetimes[static_cast<std::size_t>(buffer->second)].bytes)});
    else if (const auto place = places.find(bound_name(lowered, partition, t.tensor));
             place != places.end())
      result.push_back({false, place->second, t.written, t.bytes});
  }
  return result;
}

// Where the memory behind a port is. `places`: of the caller's tensors, by name.
KernelArgument pointer(const EmittedArgument& a, const KernelSpec& spec, const Graph& lowered,
                       const Partition& partition, const Places& places) {
  const TensorId t = spec.ports[static_cast<std::size_t>(a.index)].tensor;
  if (const auto it = partition.workspace.find(t); it != partition.workspace.end())
    return {KernelArgument::Kind::workspace, it->second, 8};
  return {KernelArgument::Kind::tensor, places.at(bound_name(lowered, partition, t)), 8};
}

void add_argument(PlanKernel& k, const EmittedArgument& a, const KernelSpec& spec,
                  const Graph& lowered, const Partition& partition, const Places& places) {
  using enum KernelArgument::Kind;
  if (a.scalar) {
    const TensorId t =
        a.index < 0 ? kNoTensor : spec.scalars[static_cast<std::size_t>(a.index)].tensor;
    if (t >= 0 && lowered[t].bound_value)
      k.arguments.push_back({a.integer ? integer : number, places.at(lowered[t].name), a.bytes});
    else
      k.arguments.push_back({scalar, static_cast<std::int64_t>(a.bits), a.bytes});
    return;
  }
  const KernelArgument memory = pointer(a, spec, lowered, partition, places);
  if (!a.map) {
    k.arguments.push_back(memory);
    return;
  }
  k.arguments.push_back({tensor_map, static_cast<std::int64_t>(k.maps.size()), kTensorMapBytes});
  k.maps.push_back({memory.kind == workspace, memory.value, *a.map});
}

Status check_architecture(const Graph& graph, const std::string& architecture) {
  const bool valid = valid_target(architecture);
  if (architecture.empty() || (valid && target_fits(kOldestTarget, architecture))) return Done{};
  const std::string_view near = valid ? "" : nearest_target(architecture);
  return Diagnostic{
      .rule = Rule::plan_target,
      .attribute = fmt::format("the plan of '{}'", graph.options().name),
      .seen = fmt::format("architecture \"{}\"", architecture),
      .allowed = valid ? fmt::format("{} and later", kOldestTarget) : std::string(kTargetExamples),
      .fix = near.empty() ? "" : fmt::format("did you mean '{}'", near)};
}

Status check_target(const PlanData& plan, const std::string& target) {
  // What is no target at all is the compiler's to refuse.
  if (!valid_target(target) || target_fits(plan.architecture, target)) return Done{};
  return Diagnostic{
      .rule = Rule::plan_target,
      .attribute = fmt::format("the plan for {}", plan.architecture),
      .seen = fmt::format("target {}", target),
      .fix = fmt::format("plan the graph again for {} or for no architecture", target)};
}

bool takes_written_out(const Lowered& lowered, const Partition& parts) {
  const auto taken = [&](const Region& r) {
    return std::any_of(parts.kernels.begin(), parts.kernels.end(), [&](const KernelSpec& k) {
      return k.as_attention_backward() &&
             std::find(k.nodes.begin(), k.nodes.end(), r.nodes.back()) != k.nodes.end();
    });
  };
  return std::all_of(lowered.regions.begin(), lowered.regions.end(),
                     [&](const Region& r) { return !r.written_out || taken(r); });
}

}  // namespace

Partitioned partition_lowered(const Graph& graph, Lowered lowered, const PlanOptions& options,
                              const PlanContext& context, const std::set<std::string>& apart) {
  const auto parts_of = [&](Lowered& l) {
    for (Region& r : l.regions)
      r.attributes.deterministic = r.attributes.deterministic || options.deterministic;
    return partition(*l.graph, options.fuse, context, l.regions,
                     aliases_of(graph, *l.graph, apart));
  };
  if (options.fuse) lowered = rewritten(std::move(lowered), context.device);
  Partition parts = parts_of(lowered);
  if (!takes_written_out(lowered, parts)) {
    lowered = rewritten(lower(graph), context.device, false);
    parts = parts_of(lowered);
  }
  if (!lowered.wrong_rewrite.empty())
    parts.cuts.push_back({kWrongRewrite, "", "", lowered.wrong_rewrite});
  return Partitioned{std::move(lowered), std::move(parts)};
}

Result<Partitioned> partition_graph(Graph& graph, const PlanOptions& options,
                                    const PlanContext& context,
                                    const std::set<std::string>& apart) {
  auto valid = check_architecture(graph, options.architecture);
  SINTER_TRY(valid);
  if (Diagnostics d = graph.check(); !d.empty()) return d;
  Lowered lowered = lower(graph);
  // An expansion may need a tensor that is too large to address.
  if (Diagnostics d = lowered.graph->check(); !d.empty()) return d;
  return partition_lowered(graph, std::move(lowered), options, context, apart);
}

PlanData plan_head(Graph& graph, const PlanOptions& options) {
  PlanData data;
  data.version = SINTER_VERSION;
  data.graph_json = graph_to_json(graph);
  data.name = graph.options().name;
  data.architecture = options.architecture;
  data.tensors = plan_tensors(graph);
  return data;
}

Result<PlanData> plan_of(Graph& graph, const Lowered& lowered, const Partition& parts,
                         const PlanOptions& options, const PlanContext& context,
                         std::vector<KernelChoice>* choices, const PlanClass* of_class,
                         std::vector<ClassSource>* beside) {
  PlanData data = plan_head(graph, options);
  add_kept(data, parts);
  data.workspace_bytes = parts.workspace_bytes;
  data.cuts = plan_cuts(graph, lowered, parts);
  Places places;
  for (const auto& t : data.tensors)
    places.emplace(t.name, static_cast<std::int64_t>(places.size()));
  const auto computed = computed_nodes(*lowered.graph, parts);
  data.buffers = plan_buffers(graph, lowered, parts, computed);
  Positions buffers;
  for (const auto& l : parts.lifetimes)
    buffers.emplace(l.tensor, static_cast<std::int64_t>(buffers.size()));
  const auto like_of = of_class ? of_class->like(parts.kernels, context)
                                : std::vector<PlanClass::Like>(parts.kernels.size());
  std::vector<ScheduledKernel> kernels;
  kernels.reserve(parts.kernels.size());
  data.kernels.reserve(parts.kernels.size());
  for (const auto& spec : parts.kernels) {
    report_progress(options, PlanProgress::Stage::planning, kernels.size(), parts.kernels.size());
    const ClassKernel* const like = like_of[kernels.size()].kernel;
    std::optional<ScheduledKernel> decided;
    if (like) decided = schedule_as(like->decided, spec, context);
    kernels.push_back(decided ? std::move(*decided) : schedule_kernel(spec, context));
    // The kernel before waits for the one before itself.
    if (auto* const pointwise = std::get_if<PointwiseSpec>(&kernels.back().spec.family))
      pointwise->beside_before &=
          kernels.size() > 1 && !runs_beside_before(kernels[kernels.size() - 2].spec);
  }
  if (Diagnostics d = unsafe_aliases(graph, *lowered.graph, kernels, context.device); !d.empty())
    return d;
  for (const ScheduledKernel& scheduled : kernels) {
    const KernelSpec& spec = parts.kernels[data.kernels.size()];
    const auto [like, others] = like_of[data.kernels.size()];
    const std::string title =
        options.names_in_kernels ? kernel_title(origins_of(graph, lowered, spec.nodes)) : "";
    EmittedKernel e = emit_kernel(scheduled, title, like && like->text ? &*like->text : nullptr);
    for (std::size_t i = 0; beside && others && i < others->size(); ++i)
      if (const ClassKernel& other = (*others)[i]; &other != like) {
        EmittedKernel of_other = emit_kernel(other.decided, title, &*other.text);
        beside->push_back(
            {std::move(of_other.entry), canonical_text(of_other.source, of_other.names)});
      }
    if (choices)
      if (KernelChoice choice = scheduled.ranked_choice(); !choice.configurations.empty())
        choices->push_back(std::move(choice));
    PlanKernel k;
    k.entry = std::move(e.entry);
    k.family = family_of(spec);
    for (const Node* n : origins_of(graph, lowered, computed[data.kernels.size()]))
      k.nodes.push_back(graph.label(*n));
    k.config = std::move(e.config);
    k.source = std::move(e.source);
    k.names = std::move(e.names);
    k.grid = e.grid;
    k.block = e.block;
    k.shared_bytes = e.shared_bytes;
    k.grid_dependency_wait = e.grid_dependency_wait;
    for (const auto& a : e.arguments) add_argument(k, a, spec, *lowered.graph, parts, places);
    k.accesses = plan_accesses(*lowered.graph, spec, parts, buffers, places);
    for (const auto& a : k.accesses) k.bytes += a.bytes;
    k.flops = operations(spec);
    k.microseconds = scheduled.microseconds;
    data.kernels.push_back(std::move(k));
  }
  report_progress(options, PlanProgress::Stage::planning, data.kernels.size(), data.kernels.size());
  const TensorNames names(graph);
  for (PlanTensor& t : data.tensors)
    if (const TensorId id = names.find(t.name); id >= 0 && graph[id].constant)
      t.read = data.reads(t);
  return data;
}

Result<Plan> make_plan(Graph& graph, PlanOptions options, const Tuning& tuning,
                       std::vector<KernelChoice>* choices, const PlanClass* of_class,
                       std::vector<ClassSource>* beside) {
  const PlanContext context{
      device_model(options.architecture), tuning, {}, of_class ? of_class->decisions : Decisions{}};
  auto data = with_outputs_apart([&](const std::set<std::string>& apart) -> Result<PlanData> {
    auto planned = partition_graph(graph, options, context, apart);
    SINTER_TRY(planned);
    if (beside) beside->clear();
    return plan_of(graph, planned->lowered, planned->parts, options, context, choices, of_class,
                   beside);
  });
  SINTER_TRY(data);
  const Plan plan{Shared<const PlanData>::make(std::move(*data))};
  if (options.targets.empty()) return plan;
  return with_machine_code(plan, options.targets, options);
}

Result<Plan> Plan::make(Graph& graph, PlanOptions options) {
  auto tuning = read_tuning(options.tuning_file);
  SINTER_TRY(tuning);
  return make_plan(graph, with_architecture(std::move(options)), *tuning, nullptr);
}

Result<Plan> Plan::with_targets(const std::vector<std::string>& targets) const {
  return with_machine_code(*this, targets, {});
}

Result<Plan> with_machine_code(const Plan& plan, const std::vector<std::string>& targets,
                               const PlanOptions& options) {
  PlanData data = plan.data();
  for (const auto& target : targets) {
    auto fits = check_target(data, target);
    SINTER_TRY(fits);
  }
  std::vector<CompileRequest> requests;
  std::vector<PlanKernel*> kernels;
  std::deque<std::string> texts;
  for (auto& k : data.kernels) {
    texts.push_back(canonical_text(k));
    for (const auto& target : targets) {
      if (k.machine_code.count(target)) continue;
      requests.push_back({texts.back(), k.entry, target});
      kernels.push_back(&k);
    }
  }
  auto codes = compile_kernels(requests, options);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (!codes[i]) return with_names(codes[i].errors(), *kernels[i]);
    kernels[i]->machine_code.emplace(requests[i].target, std::move(*codes[i]));
  }
  return Plan{Shared<const PlanData>::make(std::move(data))};
}

const std::string& Plan::name() const { return data_->name; }
std::int64_t Plan::workspace_bytes() const { return data_->workspace_bytes; }
int Plan::kernels() const { return static_cast<int>(data_->kernels.size()); }

std::vector<Plan::TensorInfo> Plan::tensors() const {
  std::vector<TensorInfo> result;
  for (const auto& t : data_->tensors)
    result.push_back({t.name, t.type, t.dim, t.stride, t.bytes, t.written, t.by_value, t.read,
                      t.alias < 0 ? "" : data_->tensors[static_cast<std::size_t>(t.alias)].name,
                      t.uid});
  return result;
}

}  // namespace sinter
