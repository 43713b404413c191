#include "planner/rearrange/materialised_operands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "lower/op_kinds.hpp"
#include "plan/access.hpp"
#include "planner/match/pattern.hpp"
#include "planner/rearrange/aligned_biases.hpp"
#include "planner/rearrange/attention_backward.hpp"
#include "planner/rearrange/channels_last.hpp"
#include "planner/rearrange/narrowed_operands.hpp"
#include "planner/rearrange/rearrangements.hpp"
#include "planner/rearrange/single_products.hpp"
#include "planner/rearrange/widened.hpp"
#include "planner/rearrange/written_first.hpp"
#include "planner/spec/contraction_spec.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/attention_splits.hpp"
#include "planner/split/split_k.hpp"
#include "schedule/attention/backward.hpp"
#include "schedule/attention/forward.hpp"
#include "schedule/attention/forward_f8.hpp"
#include "schedule/attention/forward_parts.hpp"
#include "schedule/contraction/depthwise.hpp"
#include "schedule/contraction/held_type.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/mma.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

// The nodes of the operand go with it.
void divide_nodes(const FusionState& state, const OperandPlace& o, KernelSpec& first,
                  KernelSpec& contraction) {
  const NodeId node = contraction_of(state, contraction);
  collect_ancestors(state, contraction.nodes,
                    state.node(node).inputs[static_cast<std::size_t>(o.input)], first.nodes);
  std::erase_if(contraction.nodes, [&](NodeId n) { return contains(first.nodes, n); });
  if (first.nodes.empty()) first.nodes = {node};
}

// Of attention, the operands that the kernel cannot load are written to where it can.
std::vector<KernelSpec> load_as_typed(KernelSpec& spec, const DeviceModel& device,
                                      Temporaries& temporaries) {
  using A = AttentionSpec;
  std::vector<KernelSpec> kernels;
  for (ProductOperand A::*which : not_loadable(spec, device)) {
    A& a = spec.attention();
    ProductOperand& operand = a.*which;
    std::vector<int> indices;
    for (int i = 0; i < A::batch; ++i)
      if (depends_on(spec, operand.body, i)) indices.push_back(i);
    if (which == &A::q) indices.push_back(A::member);
    indices.push_back(which == &A::q ? A::query : A::n);
    indices.push_back(which == &A::v ? A::e : A::d);
    kernels.push_back(written_first(spec, operand, indices, operand.type, temporaries));
    kernels.back().nodes = {spec.nodes.front()};
  }
  return kernels;
}

// The same, multiplied as f8 where there is such a kernel.
std::vector<KernelSpec> load_attention(KernelSpec& spec, const DeviceModel& device,
                                       Temporaries& temporaries) {
  if (auto f8 = multiplied_as_f8(spec, device)) {
    Temporaries tried = temporaries;
    std::vector<KernelSpec> kernels = load_as_typed(*f8, device, tried);
    if (plan_attention(*f8, device)) {
      spec = std::move(*f8);
      temporaries = std::move(tried);
      return kernels;
    }
  }
  return load_as_typed(spec, device, temporaries);
}

// Whether prepare() will have the kernel run once for all calls: a copy of constants.
bool runs_once(const KernelSpec& kernel, const FusionState& state) {
  const Graph& graph = state.graph();
  const auto of_graph = [&](TensorId t) {
    return t < static_cast<TensorId>(graph.tensors().size());
  };
  const auto& ports = kernel.ports;
  return state.context().prepares &&
         std::any_of(ports.begin(), ports.end(), [](const KernelPort& p) { return !p.written; }) &&
         std::all_of(ports.begin(), ports.end(), [&](const KernelPort& p) {
           return p.written ? !of_graph(p.tensor) : of_graph(p.tensor) && graph[p.tensor].constant;
         });
}

// Whether strides say where all of a kernel's elements lie.
bool has_plain_places(const KernelSpec& spec) {
  return std::ranges::all_of(spec.ports, [](const KernelPort& p) {
    return p.access.windows.empty() && p.access.via.empty();
  });
}

// One kernel after another.
double microseconds_of(const std::vector<KernelSpec>& kernels, const FusionState& state) {
  double us = -state.device().launch_microseconds;
  for (const KernelSpec& kernel : kernels)
    if (!runs_once(kernel, state))
      us += state.device().launch_microseconds +
            (kernel.as_contraction() ? choose_split_k(kernel, state.context()).microseconds
                                     : schedule_kernel(kernel, state.context()).microseconds);
  return us;
}

constexpr const char* kRearrange =
    "declare it constant, where it is, so that prepare() stores it once; or give it the channels "
    "that the kernel wants, innermost and in multiples of 8";
bool reads_input(const KernelSpec& kernel, const FusionState& state) {
  return std::any_of(kernel.ports.begin(), kernel.ports.end(), [&](const KernelPort& p) {
    return !p.written && p.tensor < static_cast<TensorId>(state.graph().tensors().size()) &&
           state.graph().is_input(p.tensor);
  });
}

// Copies of groups must promise so much. (64 x 128 x 56 x 56, groups of 4 on an H100: 97 us on
// CUDA cores, 113 with copies where 111 and 101 were estimated.)
constexpr double kOfGroups = 0.8;

// Products of joined groups that store results channels first take longer than is estimated. (64
// images, 3 x 3, on an H100, us, with sums brought there by another kernel, and so: 512 x 28 x 28
// in groups of 16 with relu 178 and 132, 99 estimated; its data gradient 125 and 127, 99; 1024 x 14
// x 14 in groups of 32 with relu 89 and 91, 55; its data gradient 61 and 78, 55.)
constexpr double kChannelsFirst = 1.3;
// Those of a phase of a strided data gradient lie pixels of other phases apart, so that they leave
// one by one, and each sector of memory in parts: us of a million. (3 x 3 of stride 2 on an H200,
// us, measured and estimated: 128 x 128 x 56 x 56 in groups of 4 186 and 78, by loads on CUDA cores
// 86.1; 32 x 128 x 56 x 56 to 256 72.0 and 40.6; 64 x 1024 x 14 x 14 in 32 groups 78.1 and 36.1:
// 2.1, 2.4 and 3.3.)
constexpr double kPhasesChannelsFirst = 2.1;

double stored_channels_first(const KernelSpec& spec, double us, bool groups) {
  if (stores_phases_channels_first(spec)) {
    const Dims results = part_of(spec.extent, 0, spec.contraction().first_k());
    return us + static_cast<double>(count(results)) * kPhasesChannelsFirst * 1e-6;
  }
  return groups ? us * kChannelsFirst : us;
}

// `said`: why others of the kernels are there.
void say_why(const std::vector<KernelSpec>& kernels, const WrittenFirst& text, double us,
             double whole, const FusionState& state, std::vector<PlanCut>& cuts,
             std::vector<PlanCut> said = {}) {
  for (const KernelSpec& kernel : kernels) {
    if (&kernel == &product_of(kernels)) continue;
    const auto written = std::find_if(kernel.ports.begin(), kernel.ports.end(),
                                      [](const KernelPort& p) { return p.written; });
    if (std::ranges::find(said, written->name, &PlanCut::tensor) != said.end()) continue;
    cuts.push_back({"contraction",
                    state.graph().label(state.node(contraction_of(state, product_of(kernels)))),
                    written->name,
                    fmt::format("{}, for {}'s fastest engine: about {:.1f} us in all, {:.1f} us "
                                "as it is",
                                text.why, state.device().target, us, whole),
                    {},
                    std::string(reads_input(kernel, state) ? kRearrange : text.fix)});
  }
  std::ranges::move(said, std::back_inserter(cuts));
}

// Depthwise convolutions, channels first, that run faster once their channels lie together. Empty
// where they are faster as they are, unless `anyway`.
std::vector<KernelSpec> channels_last_if_faster(const KernelSpec& spec, const FusionState& state,
                                                bool anyway, Temporaries& temporaries,
                                                std::vector<PlanCut>& cuts) {
  Temporaries tried = temporaries;
  std::vector<KernelSpec> kernels = depthwise_last(spec, tried);
  if (kernels.empty() || !schedule_kernel(kernels.back(), state.context()).depthwise()) return {};
  const double us = microseconds_of(kernels, state),
               whole = choose_split_k(spec, state.context()).microseconds;
  if (us >= whole && !anyway) return {};
  say_why(kernels, kChannelsLast, us, whole, state, cuts);
  temporaries = std::move(tried);
  return kernels;
}

// Convolutions that tensor cores multiply faster once their operands lie otherwise. Empty where
// they are faster as they are. `in_lines`: what their channels were put together for already.
std::vector<KernelSpec> rearranged(const KernelSpec& spec, const FusionState& state, bool in_lines,
                                   Temporaries& temporaries, std::vector<PlanCut>& cuts) {
  // For tests on small shapes: the fastest way of each, or the first, or the last.
  const std::string& asked = state.device().overrides.rearrange;
  const bool first = asked == "first", last = asked == "last",
             anyway = first || last || asked == "on";
  if (!spec.as_contraction() || !state.device().has_wgmma || count(spec.extent) == 0) return {};
  const Node& node = state.node(contraction_of(state, spec));
  const bool matmul = is_matmul(node.op);
  const ScheduledKernel as_it_is = schedule_kernel(spec, state.context());
  if (!as_it_is.warpgroups() && state.device().overrides.depthwise.empty()) {
    // Of larger images the estimates of loads are too long. (7 x 7 on an H100: 64 x 768 x 14 x 14
    // 73 us by loads, 51 so; 64 x 384 x 28 x 28 72 and 94, 64 x 96 x 56 x 56 77 and 103.)
    const bool small = as_it_is.as<DepthwisePlanesConfig>() != nullptr;
    if (small || anyway)
      if (auto kernels = channels_last_if_faster(spec, state, anyway, temporaries, cuts);
          !kernels.empty())
        return kernels;
  }
  if (!matmul && plan_depthwise(spec, state.device())) return {};
  // Asked for by a test.
  if (state.device().overrides.depthwise == "mma" &&
      plan_groups_on_tensor_cores(spec, state.device()))
    return {};
  const auto by_wgmma = [&](const KernelSpec& kernel) {
    return schedule_kernel(kernel, state.context()).warpgroups() != nullptr;
  };
  const auto by_groups = [&](const KernelSpec& kernel) {
    return schedule_kernel(kernel, state.context()).multiplies_groups();
  };
  const bool by_mma = !matmul && as_it_is.mma() && !as_it_is.mma()->cuda_cores();
  std::optional<double> whole;
  struct {
    double us = HUGE_VAL;
    WrittenFirst text;
    std::vector<KernelSpec> kernels;
    Temporaries temporaries{0};
    std::vector<PlanCut> said = {};
  } best;
  for (const Rearrangement& r : rearrangements()) {
    if (anyway && !best.kernels.empty()) break;
    if ((matmul && !r.matmuls) || (in_lines && r.again) || (!r.always && by_wgmma(spec))) continue;
    Temporaries tried = temporaries;
    std::vector<KernelSpec> kernels;
    std::vector<PlanCut> said;
    double us = 0;
    for (int way = 0; way < r.ways; ++way) {
      Temporaries with = temporaries;
      std::vector<KernelSpec> made = r.make(spec, way, with);
      std::vector<PlanCut> reasons;
      if (r.again && !made.empty() && spec.contraction().batch == 0 && (first || !anyway)) {
        std::vector<KernelSpec> again = rearranged(product_of(made), state, true, with, reasons);
        if (!again.empty()) made = with_product(std::move(made), std::move(again));
      }
      if (made.empty() ||
          !(by_wgmma(product_of(made)) || (r.narrow && by_groups(product_of(made)))))
        continue;
      double takes = microseconds_of(made, state) * r.takes;
      if (way >= r.ways - r.first) takes = stored_channels_first(spec, takes, r.narrow);
      if (!kernels.empty() && (first || takes >= us) && !last) continue;
      us = takes;
      tried = std::move(with);
      kernels = std::move(made);
      said = std::move(reasons);
    }
    if (kernels.empty()) continue;
    if (!whole) whole = choose_split_k(spec, state.context()).microseconds;
    const bool leaves_mma =
        by_mma && r.of_mma > 1 && choose_split_k(product_of(kernels), state.context()).by_wgmma;
    if (us >= *whole * (leaves_mma ? r.of_mma : r.narrow ? kOfGroups : 1) && !anyway) continue;
    if (us < best.us) best = {us, r.text, std::move(kernels), std::move(tried), std::move(said)};
  }
  if (best.kernels.empty()) return {};
  say_why(best.kernels, best.text, best.us, *whole, state, cuts, std::move(best.said));
  temporaries = std::move(best.temporaries);
  return std::move(best.kernels);
}

// The short side of a product whose lines are less than a sector of memory, as eight columns that
// lie together: written along k first, where enough stages of the other side pass it by. Boxes of
// such lines take TMA 0.4 to 0.9 us a stage. (Columns together and along k on an H200: 300000 x 8 x
// 512 103.5 us and 76.4, 100000 x 8 x 128 16.0 and 8.7, 16384 x 8 x 768 12.7 and 7.9, but 300000 x
// 16 x 512 77.6 and 77.2.)
std::vector<KernelSpec> short_side_along_k(const KernelSpec& spec, const FusionState& state,
                                           Temporaries& temporaries, std::vector<PlanCut>& cuts) {
  constexpr std::int64_t kSector = 32, kMuch = 8 << 20;  // bytes; elements of the other side
  const ContractionSpec& c = spec.contraction();
  const NodeId node = contraction_of(state, spec);
  const int k = spec.extent.size() - 1;
  if (!is_matmul(state.node(node).op) || c.rows.on || c.k() != 1 || c.m != 1 || c.n != 1) return {};
  const OperandPlace sides[] = {{0, c.first_m(), 1}, {1, c.first_n(), 1}};
  for (std::size_t i : {0u, 1u}) {
    const OperandPlace& o = sides[i];
    const ProductOperand& operand = operand_at(spec, o);
    if (operand.body.statements.size() != 1 || !is_load(operand.body.statements[0])) continue;
    const Access& a = spec.ports[static_cast<std::size_t>(operand.body.statements[0].port)].access;
    bool of_batch = false;
    for (int b = 0; b < c.batch; ++b) of_batch |= depends_on(spec, operand.body, b);
    if (spec.extent[o.row] * info(operand.type).bytes >= kSector || a.stride[o.row] != 1 ||
        a.stride[k] <= 1 || of_batch || spec.extent[sides[1 - i].row] * spec.extent[k] < kMuch)
      continue;
    KernelSpec contraction = spec;
    KernelSpec first = written_first(contraction, operand_at(contraction, o), {o.row, k},
                                     operand.type, temporaries);
    divide_nodes(state, o, first, contraction);
    cuts.push_back({"contraction", state.graph().label(state.node(first.nodes.front())),
                    first.ports.back().name,
                    "its lines are too short for TMA, which is faster "
                    "where they lie along the summed index",
                    state.graph().label(state.node(node)), kStoreAsMultiplied});
    return {std::move(first), std::move(contraction)};
  }
  return {};
}

}  // namespace

bool can_run_attention_backward(const FusionState& state, KernelSpec spec) {
  narrow_alone(state, spec);
  Temporaries tried(static_cast<TensorId>(state.graph().tensors().size()));
  for (const KernelSpec& kernel :
       attention_backward_kernels(std::move(spec), state.context(), state.overwritten(), tried)) {
    if (!kernel.as_attention_backward()) continue;
    const auto plan = plan_attention_backward(kernel, state.device());
    if (!plan || gradients_expand_faster(kernel, plan->microseconds, state.device())) return false;
  }
  return true;
}

bool can_run_attention(const FusionState& state, KernelSpec spec) {
  narrow_alone(state, spec);
  Temporaries tried(static_cast<TensorId>(state.graph().tensors().size()));
  load_attention(spec, state.device(), tried);
  const auto plan = plan_attention(spec, state.device());
  return plan && !(rounds_divided(spec.attention().weight) &&
                   expands_faster(spec, plan->engine.microseconds, state.device()));
}

namespace {

std::vector<KernelSpec> attention_kernels(KernelSpec spec, const FusionState& state,
                                          Temporaries& temporaries) {
  std::vector<KernelSpec> kernels = load_attention(spec, state.device(), temporaries);
  for (KernelSpec& copy : align_biases(spec, state.device(), temporaries))
    kernels.push_back(std::move(copy));
  kernels.push_back(std::move(spec));
  return kernels;
}

std::vector<KernelSpec> kernels_of_types(KernelSpec spec, const FusionState& state,
                                         Temporaries& temporaries, std::vector<PlanCut>& cuts) {
  if (auto kernels = rearranged(spec, state, false, temporaries, cuts); !kernels.empty())
    return kernels;
  const ContractionSpec* const c = &spec.contraction();
  // Of several indices of k (patches of an image that do not overlap) written operands have one.
  const bool candidate = state.device().has_wgmma && !c->chained() && !reads_joined_indices(spec) &&
                         (c->k() == 1 || has_plain_places(spec));
  if (!candidate) return {std::move(spec)};
  // Rows of 32 bits that threads read, and lines that they shift, are for products that wait for
  // memory.
  const auto by_wgmma = [&](const KernelSpec& kernel, bool by_threads) {
    const ScheduledKernel k = schedule_kernel(kernel, state.context());
    return k.warpgroups() && (by_threads || !k.wgmma() || !loaded_by_threads(*k.wgmma()));
  };
  // (Of several indices of k parts may be another engine's.)
  if (by_wgmma(spec, false) && (c->k() == 1 || choose_split_k(spec, state.context()).by_wgmma)) {
    auto kernels = short_side_along_k(spec, state, temporaries, cuts);
    if (kernels.empty()) kernels.push_back(std::move(spec));
    return kernels;
  }
  const OperandPlace a{0, c->first_m(), c->m}, b{1, c->first_n(), c->n};
  // Integers that stay integers are multiplied and summed as such.
  const DataType held_a = held_type(spec, c->a().body), held_b = held_type(spec, c->b().body);
  const bool integers = !is_floating(held_a) && multiplied_as_bytes(held_a, held_b),
             as_they_are = integers || multiplied_as_bytes(c->a().type, c->b().type);
  const DataType factor = as_they_are ? DataType::none : factor_type(spec);
  if (!as_they_are && factor == DataType::none) return {std::move(spec)};
  const double fused = choose_split_k(spec, state.context()).microseconds;
  struct {
    double us;
    std::vector<KernelSpec> kernels;
    std::vector<PlanCut> reasons;
    Temporaries temporaries;
  } best{fused, {}, {}, temporaries};
  // One of them may do as it is. Rows that an index gathers are not those of the domain.
  for (const auto& operands : {std::vector{b}, {a}, {a, b}}) {
    if (c->rows.gathers() && operands.front().input == 0) continue;
    KernelSpec contraction = spec;
    Temporaries tried = temporaries;
    std::vector<KernelSpec> kernels;
    std::vector<PlanCut> reasons;
    double us = 0;
    for (const OperandPlace& o : operands) {
      const DataType type = integers      ? held_type(spec, operand_at(spec, o).body)
                            : as_they_are ? operand_at(spec, o).type
                                          : factor;
      const std::vector<int> indices = indices_of(contraction, o, type);
      const bool rows_last = c->k() > 1 && indices.back() < c->first_k();
      KernelSpec first = written_first(contraction, operand_at(contraction, o), indices, type,
                                       tried, rows_last ? o.rows : c->k());
      if (!runs_once(first, state)) us += schedule_kernel(first, state.context()).microseconds;
      divide_nodes(state, o, first, contraction);
      reasons.push_back({"contraction",
                         state.graph().label(state.node(first.nodes.front())),
                         first.ports.back().name,
                         {},
                         state.graph().label(state.node(contraction_of(state, contraction))),
                         kStoreAsMultiplied});
      kernels.push_back(std::move(first));
    }
    if (c->k() > 1) simplify_domain(contraction);
    if (!by_wgmma(contraction, true)) continue;
    us += choose_split_k(contraction, state.context()).microseconds;
    if (us > best.us) continue;
    for (auto& r : reasons)
      r.reason = fmt::format(
          "it is written to memory first, where {}'s fastest engine reads it: about {:.1f} us "
          "in all, {:.1f} us as part of that kernel",
          state.device().target, us, fused);
    kernels.push_back(std::move(contraction));
    best = {us, std::move(kernels), std::move(reasons), std::move(tried)};
  }
  if (best.kernels.empty()) return {std::move(spec)};
  std::move(best.reasons.begin(), best.reasons.end(), std::back_inserter(cuts));
  temporaries = std::move(best.temporaries);
  return std::move(best.kernels);
}

std::vector<KernelSpec> contraction_kernels(KernelSpec spec, const FusionState& state,
                                            Temporaries& temporaries, std::vector<PlanCut>& cuts) {
  constexpr WrittenFirst kWidened = {
      "its 8-bit factors are written as bf16 first, which tensor cores multiply"};
  constexpr double kGain = 1.05;  // what the copies must gain
  if (auto product = as_single_products(spec)) return {std::move(*product)};
  if (joins_products(spec)) return {std::move(spec)};
  Temporaries wide = temporaries;
  std::vector<KernelSpec> copies;
  if (state.device().has_wgmma && state.device().overrides.depthwise.empty() &&
      !is_matmul(state.node(contraction_of(state, spec)).op))
    copies = widened(spec, wide);
  auto kernels = kernels_of_types(spec, state, temporaries, cuts);
  if (copies.empty()) return kernels;
  std::vector<PlanCut> reasons;
  auto product = kernels_of_types(std::move(copies.back()), state, wide, reasons);
  copies.pop_back();
  std::move(product.begin(), product.end(), std::back_inserter(copies));
  const double us = microseconds_of(copies, state), whole = microseconds_of(kernels, state);
  const std::string& asked = state.device().overrides.rearrange;
  const bool anyway =
      asked == "last" ||
      (!asked.empty() && schedule_kernel(copies.back(), state.context()).depthwise());
  if (us * kGain > whole && !anyway) return kernels;
  say_why(copies, kWidened, us, whole, state, cuts);
  temporaries = std::move(wide);
  return copies;
}

}  // namespace

std::vector<KernelSpec> materialise_operands(KernelSpec spec, const FusionState& state,
                                             Temporaries& temporaries, std::vector<PlanCut>& cuts) {
  using Kernels = std::vector<KernelSpec>;
  return std::visit(
      Overloaded{[&](const ContractionSpec&) {
                   return contraction_kernels(std::move(spec), state, temporaries, cuts);
                 },
                 [&](const AttentionSpec&) {
                   return attention_kernels(std::move(spec), state, temporaries);
                 },
                 [&](const AttentionBackwardSpec&) {
                   return attention_backward_kernels(std::move(spec), state.context(),
                                                     state.overwritten(), temporaries);
                 },
                 [&](const auto&) { return Kernels{std::move(spec)}; }},
      spec.family);
}

double microseconds_of_all(KernelSpec spec, const FusionState& state) {
  Temporaries tried(static_cast<TensorId>(state.graph().tensors().size()));
  std::vector<PlanCut> none;
  narrow_alone(state, spec);
  return microseconds_of(materialise_operands(std::move(spec), state, tried, none), state);
}

}  // namespace sinter
