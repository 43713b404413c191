// The plans of prepare(). Planning lets kernels make copies of their operands: filters turned,
// padded or joined with their neighbours, operands widened to the type in which they are
// multiplied. Those that read constants alone move to the plan of constants, and what they write
// becomes memory of the caller's, which the other plan reads. Their size does not matter here as it
// does for results of the graph's own nodes: each call would write and read the same bytes.
#include <algorithm>
#include <set>

#include "compile/make_plan.hpp"
#include "tuning/tuning_file.hpp"

namespace sinter {
namespace {

bool in_workspace(const Graph& lowered, TensorId t) {
  return t >= static_cast<TensorId>(lowered.tensors().size()) || lowered.is_virtual(t);
}

// Which kernels run once for all calls, by their place.
class Constant {
 public:
  Constant(const Graph& lowered, const std::vector<KernelSpec>& kernels)
      : lowered_(lowered), kernels_(kernels), constant_(kernels.size(), true) {
    while (leave_what_varies()) {
    }
    while (add_what_follows()) {
    }
    // What such a kernel reads and what it adds to is made before it.
    for (std::size_t k = kernels.size(); k-- > 0;)
      if (constant_[k] && writes(k, needed_)) take(k);
  }
  bool contains(std::size_t kernel) const { return taken_.contains(kernel); }

 private:
  bool leave_what_varies() {
    const std::size_t before = varying_.size();
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      if (constant_[k] && varies(kernels_[k])) constant_[k] = false;
      if (constant_[k]) continue;
      for (const KernelPort& p : kernels_[k].ports)
        if (p.written) varying_.insert(p.tensor);
    }
    return varying_.size() > before;
  }
  bool varies(const KernelSpec& spec) const {
    return std::any_of(spec.ports.begin(), spec.ports.end(),
                       [&](const KernelPort& p) {
                         if (in_workspace(lowered_, p.tensor)) return varying_.contains(p.tensor);
                         return p.written || !lowered_[p.tensor].constant;
                       }) ||
           std::any_of(spec.scalars.begin(), spec.scalars.end(), [&](const KernelScalar& s) {
             return s.tensor >= 0 && lowered_[s.tensor].bound_value;
           });
  }

  // A kernel that reads nothing, such as one of zeros, is cheap in itself.
  bool add_what_follows() {
    const std::size_t before = taken_.size();
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      if (!constant_[k] || taken_.contains(k)) continue;
      const auto& ports = kernels_[k].ports;
      if (std::any_of(ports.begin(), ports.end(), [&](const KernelPort& p) {
            return needed_.contains(p.tensor) || !in_workspace(lowered_, p.tensor);
          }))
        take(k);
    }
    return taken_.size() > before;
  }
  void take(std::size_t k) {
    taken_.insert(k);
    for (const KernelPort& p : kernels_[k].ports)
      if (in_workspace(lowered_, p.tensor)) needed_.insert(p.tensor);
  }
  bool writes(std::size_t k, const std::set<TensorId>& tensors) const {
    const auto& ports = kernels_[k].ports;
    return std::any_of(ports.begin(), ports.end(), [&](const KernelPort& p) {
      return p.written && tensors.contains(p.tensor);
    });
  }

  const Graph& lowered_;
  const std::vector<KernelSpec>& kernels_;
  std::vector<bool> constant_;
  std::set<TensorId> varying_, needed_;
  std::set<std::size_t> taken_;
};

struct Halves {
  Partition constants, rest;
};

// `taken`: whether a name is a tensor's already.
template <class Taken>
Halves divided(const Graph& lowered, Partition whole, const Taken& taken) {
  const Constant constant(lowered, whole.kernels);
  Halves h;
  h.constants.temporaries = h.rest.temporaries = whole.temporaries;
  h.rest.cuts = std::move(whole.cuts);
  std::set<TensorId> made;
  std::set<std::string> names;
  for (std::size_t k = 0; k < whole.kernels.size(); ++k) {
    Partition& half = constant.contains(k) ? h.constants : h.rest;
    for (const KernelPort& p : whole.kernels[k].ports) {
      if (&half == &h.constants && p.written) made.insert(p.tensor);
      if (&half == &h.constants || !made.contains(p.tensor) || h.rest.kept.contains(p.tensor))
        continue;
      const auto bytes = std::find_if(whole.lifetimes.begin(), whole.lifetimes.end(),
                                      [&](const Lifetime& l) { return l.tensor == p.tensor; });
      std::string name = p.name;
      while (taken(name) || !names.insert(name).second) name += "_";
      h.rest.kept[p.tensor] = {std::move(name), bytes->bytes};
    }
    half.kernels.push_back(std::move(whole.kernels[k]));
  }
  h.constants.kept = h.rest.kept;
  place_workspace(lowered, h.constants);
  place_workspace(lowered, h.rest);
  return h;
}

// Kernels of another plan come behind those of `to`, in the same workspace; both know the same
// names.
void append(PlanData& to, PlanData more) {
  std::vector<std::int64_t> places;
  for (PlanTensor& t : more.tensors) {
    const auto found = std::find_if(to.tensors.begin(), to.tensors.end(),
                                    [&](const PlanTensor& known) { return known.name == t.name; });
    places.push_back(found - to.tensors.begin());
    if (found == to.tensors.end() && t.kept) to.tensors.push_back(std::move(t));
  }
  const auto place = [&](std::int64_t& t) { t = places[static_cast<std::size_t>(t)]; };
  const auto buffers = static_cast<std::int64_t>(to.buffers.size()),
             kernels = static_cast<std::int64_t>(to.kernels.size());
  for (PlanBuffer& b : more.buffers) {
    b.first += kernels;
    b.last += kernels;
    to.buffers.push_back(std::move(b));
  }
  for (PlanKernel& k : more.kernels) {
    using enum KernelArgument::Kind;
    for (KernelArgument& a : k.arguments)
      if (a.kind == tensor || a.kind == number || a.kind == integer) place(a.value);
    for (PlanMap& m : k.maps)
      if (!m.workspace) place(m.value);
    for (PlanAccess& a : k.accesses) a.workspace ? void(a.value += buffers) : place(a.value);
    to.kernels.push_back(std::move(k));
  }
  to.workspace_bytes = std::max(to.workspace_bytes, more.workspace_bytes);
}

// Constants that kernels of the rest read reach them through the constants' graph.
void declare_constants(Graph& constants, const Graph& rest) {
  for (std::size_t i = 0; i < rest.tensors().size(); ++i) {
    TensorDesc t = rest[static_cast<TensorId>(i)];
    if (!t.constant || constants.find(t.name)) continue;
    t.read = false;
    detail::GraphEditor(constants).declare(std::move(t));
  }
}

bool has_output(const Graph& graph) {
  return std::any_of(graph.tensors().begin(), graph.tensors().end(),
                     [](const TensorDesc& t) { return t.output; });
}

Result<Plan> finished(Result<PlanData> data, const PlanOptions& options) {
  SINTER_TRY(data);
  const Plan plan{Shared<const PlanData>::make(std::move(*data))};
  return options.targets.empty() ? plan : with_machine_code(plan, options.targets, options);
}

}  // namespace

Result<Prepared> prepare(Graph& graph, PlanOptions options) {
  options = with_architecture(std::move(options));
  auto graphs = prepare(graph);
  SINTER_TRY(graphs);
  Graph &first = *graphs->constants, &second = *graphs->rest;
  auto tuning = read_tuning(options.tuning_file);
  SINTER_TRY(tuning);
  PlanContext context{device_model(options.architecture), *tuning};
  context.prepares = true;
  const auto taken = [&](const std::string& name) { return first.find(name) || second.find(name); };
  std::optional<Lowered> of_rest;
  Halves halves;
  auto rest = with_outputs_apart([&](const std::set<std::string>& apart) -> Result<PlanData> {
    auto whole = partition_graph(second, options, context, apart);
    SINTER_TRY(whole);
    const Lowered& lowered = of_rest.emplace(std::move(whole->lowered));
    halves = divided(*lowered.graph, std::move(whole->parts), taken);
    return plan_of(second, lowered, halves.rest, options, context);
  });
  auto of_calls = finished(std::move(rest), options);
  SINTER_TRY(of_calls);
  Prepared result{std::nullopt, *of_calls};
  const bool folds = has_output(first);
  if (!folds && halves.constants.kernels.empty()) return result;

  if (!halves.constants.kernels.empty()) declare_constants(first, second);
  PlanData data = plan_head(first, options);
  if (folds) {
    const PlanContext of_constants{context.device, *tuning};
    auto parts = partition_graph(first, options, of_constants);
    SINTER_TRY(parts);
    auto folded = plan_of(first, parts->lowered, parts->parts, options, of_constants);
    SINTER_TRY(folded);
    data = std::move(*folded);
  }
  auto copies = plan_of(second, *of_rest, halves.constants, options, context);
  SINTER_TRY(copies);
  append(data, std::move(*copies));
  for (PlanTensor& t : data.tensors)
    if (!t.written) t.read = data.reads(t);
  auto constants = finished(std::move(data), options);
  SINTER_TRY(constants);
  result.constants = std::move(*constants);
  return result;
}

}  // namespace sinter
