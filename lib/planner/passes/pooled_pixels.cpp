#include "planner/passes/pooled_pixels.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "plan/access.hpp"
#include "planner/passes/tensor_uses.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "sinter/ops/shapes_layout.hpp"

namespace sinter {
namespace {

constexpr int kTogether = 8;  // results of 16 bits that a lane stores

// A kernel that takes the largest of each 2 x 2 elements, or their average, and does nothing else
// with them.
struct Pooling {
  const Gather* gather;
  const KernelPort *from, *to;
  bool averages;
};
std::optional<Pooling> pooling(const KernelSpec& spec) {
  if (!spec.as_pointwise() || spec.gathers.size() != 1 || spec.body.statements.size() != 2)
    return {};
  const Gather& g = spec.gathers.front();
  const Statement &taken = spec.body.statements[0], &stored = spec.body.statements[1];
  const auto* const a = std::get_if<ResampleAttributes>(&g.attributes);
  if (!a || g.op != OpKind::resample || g.output != 0 || g.output_dim.size() != 4 ||
      taken.kind != StatementKind::gather || !is_store(stored))
    return {};
  const ResampleMode mode = a->mode.value_or(ResampleMode::maxpool);
  const bool averages = mode == ResampleMode::avgpool_include_padding ||
                        mode == ResampleMode::avgpool_exclude_padding;  // there is none
  if (!averages && mode != ResampleMode::maxpool) return {};
  const auto geometry = shapes::resample_geometry(*a, 4);
  const auto all = [](const Dims& dims, std::int64_t value) {
    return std::all_of(dims.begin(), dims.end(), [&](std::int64_t d) { return d == value; });
  };
  if (!all(geometry.window, 2) || !all(geometry.stride, 2) || !all(geometry.pre, 0) ||
      !all(geometry.post, 0))
    return {};
  const KernelPort &from = spec.ports[static_cast<std::size_t>(g.ports[0])],
                   &to = spec.ports[static_cast<std::size_t>(stored.port)];
  if (from.type != to.type || !to.access.windows.empty() || !to.access.via.empty() ||
      to.together != 1)
    return {};
  return Pooling{&g, &from, &to, averages};
}

// Where the results of windows lie, by the indices of the convolution that stores the pixels to
// `stored`; nothing where its pixels do not fall into whole windows along its last rows.
std::optional<Access> places_of_windows(const KernelSpec& convolution, const Access& stored,
                                        const KernelSpec& pool, const Pooling& p) {
  const ContractionSpec& c = convolution.contraction();
  const Gather& g = *p.gather;
  const Dims &dim = g.dims[0], &stride = g.strides[0];
  if (!stored.windows.empty() || !stored.via.empty() || stored.offset != p.from->access.offset ||
      c.m < 2 || c.n != 1)
    return {};
  Access windows;
  windows.stride = Dims::filled(convolution.extent.size(), 0);
  windows.offset = p.to->access.offset;
  if (windows.offset % kTogether != 0 || p.to->alignment < 16) return {};
  const int row = c.first_n() - 2, line = c.first_n() - 1, column = c.first_k() - 1;
  int found = 0;
  for (int d = 0; d < 4; ++d) {
    if (dim[d] == 1) continue;
    int index = -1;
    for (int i = 0; i < c.first_k(); ++i)
      if (convolution.extent[i] == dim[d] && stored.stride[i] == stride[d]) index = i;
    const int own = g.index(d);
    if (index < 0 || own < 0 || own >= pool.extent.size() || pool.extent[own] != g.output_dim[d])
      return {};
    const std::int64_t apart = p.to->access.stride[own];
    const bool along = d == 2 || d == 3;
    if ((d == 2) != (index == row) || (d == 3) != (index == line) || (d == 1) != (index == column))
      return {};
    if (d == 1 ? apart != 1 : apart % kTogether != 0) return {};
    if (along && dim[d] != 2 * g.output_dim[d]) return {};
    windows.stride[index] = along ? apart / 2 : apart;
    ++found;
  }
  for (int i = 0; i < c.first_k(); ++i) found -= convolution.extent[i] > 1;
  return found == 0 && dim[1] > 1 && dim[2] > 1 && dim[3] > 1 ? std::optional(windows)
                                                              : std::nullopt;
}

// The convolution with what `pool` does; nothing where it cannot be. `beside`: others read the
// pixels, too.
std::optional<KernelSpec> joined(const KernelSpec& convolution, const KernelSpec& pool,
                                 const Pooling& p, bool beside) {
  if (convolution.contraction().pooled.on()) return {};
  int of = -1;
  for (const Statement& s : convolution.body.statements) {
    if (!is_store(s)) continue;
    if (of >= 0) return {};
    of = s.port;
  }
  if (of < 0) return {};
  const KernelPort& stored = convolution.ports[static_cast<std::size_t>(of)];
  if (stored.tensor != p.from->tensor || stored.type != p.from->type) return {};
  auto windows = places_of_windows(convolution, stored.access, pool, p);
  if (!windows) return {};
  KernelSpec spec = convolution;
  KernelPort port = *p.to;
  port.access = std::move(*windows);
  spec.contraction().pooled = {of, beside ? static_cast<int>(spec.ports.size()) : of, p.averages};
  if (beside)
    spec.ports.push_back(std::move(port));
  else
    spec.ports[static_cast<std::size_t>(of)] = std::move(port);
  spec.nodes.insert(spec.nodes.end(), pool.nodes.begin(), pool.nodes.end());
  return spec;
}

bool pools_faster(const KernelSpec& joined, const KernelSpec& convolution, const KernelSpec& pool,
                  const PlanContext& context) {
  const auto plan = plan_wgmma(joined, context.device, context.tuning, context.tiles);
  return plan && plan->microseconds < schedule_kernel(convolution, context).microseconds +
                                          schedule_kernel(pool, context).microseconds +
                                          context.device.launch_microseconds;
}

}  // namespace

void pool_pixels(std::vector<KernelSpec>& kernels, const Graph& lowered, const PlanContext& context,
                 std::span<const Alias> aliases, std::vector<PlanCut>& cuts) {
  if (!context.device.has_wgmma) return;
  const auto uses = tensor_uses(kernels);
  std::set<const KernelSpec*> gone;
  for (const KernelSpec& pool : kernels) {
    const auto p = pooling(pool);
    if (!p || std::any_of(aliases.begin(), aliases.end(),
                          [&](const Alias& a) { return a.output == p->to->tensor; }))
      continue;
    const TensorId pixels = p->from->tensor;
    const TensorUses& use = uses.at(pixels);
    KernelSpec& convolution = kernels[use.writer];
    if (use.writes == 0 || !convolution.as_contraction()) continue;
    const bool in_graph = pixels < static_cast<TensorId>(lowered.tensors().size());
    auto whole =
        joined(convolution, pool, *p, use.reads > 1 || (in_graph && lowered[pixels].output));
    if (!whole) continue;
    const NodeId node = pool.nodes.front();
    const bool faster = context.decisions.decide(Decisions::Kind::pooled, node, [&] {
      return pools_faster(*whole, convolution, pool, context);
    });
    if (!faster || !plan_wgmma(*whole, context.device, context.tuning, context.tiles)) continue;
    if (in_graph) {
      const std::string tensor = lowered.label(pixels),
                        label = lowered.label(lowered.nodes()[static_cast<std::size_t>(node)]);
      std::erase_if(cuts, [&](const PlanCut& c) {
        return c.tensor == tensor && (c.node == label || c.with == label);
      });
    }
    convolution = std::move(*whole);
    gone.insert(&pool);
  }
  if (!gone.empty()) std::erase_if(kernels, [&](const KernelSpec& k) { return gone.contains(&k); });
}

}  // namespace sinter
