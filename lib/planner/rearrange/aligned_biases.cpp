#include "planner/rearrange/aligned_biases.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/rearrange/written_first.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/attention/backward.hpp"
#include "schedule/attention/forward.hpp"

namespace sinter {
namespace {

using A = AttentionSpec;

int boxes_of(const AttentionPlan& plan) {
  const auto& loads = plan.engine.loads_beside;
  return static_cast<int>(std::count_if(
      loads.begin(), loads.end(), [](const LoadBeside& load) { return load.box.has_value(); }));
}

// The indices that tell the elements of a copy apart; none where its keys do not lie together.
std::vector<int> indices_of_copy(const KernelSpec& spec, const KernelPort& p) {
  if (p.access.stride[A::n] != 1 || !p.access.windows.empty() || !p.access.via.empty()) return {};
  std::vector<int> indices;
  const auto moves = [&](int i) { return spec.extent[i] > 1 && p.access.stride[i] != 0; };
  for (int i = 0; i < A::e; ++i)
    if (moves(i) || (i == A::member && spec.extent[i] > 1 && moves(A::query))) indices.push_back(i);
  indices.push_back(A::n);
  return indices;
}

// Microseconds of the kernel that copies them.
double microseconds_of_copy(const KernelSpec& spec, const KernelPort& p,
                            const std::vector<int>& indices, const DeviceModel& device) {
  double bytes = 2 * info(p.type).bytes;
  for (const int index : indices) bytes *= static_cast<double>(spec.extent[index]);
  return device.copy_microseconds(bytes);
}

}  // namespace

std::vector<KernelSpec> align_biases(KernelSpec& spec, const DeviceModel& device,
                                     Temporaries& temporaries) {
  // Microseconds that a box saves of each score. (b4 h16, 777 queries and keys, d64, a bias of
  // heads on an H200: 85.5 us, with the copy 60.0.) Of few keys several CTAs wait for elements
  // beside each other (windows of 49, b1024 h3, with a mask: 27.9 us, with copies 34.1).
  constexpr double kOfScore = 0.6e-6;
  constexpr std::int64_t kFewKeys = 128;
  std::vector<KernelSpec> kernels;
  auto plan = plan_attention(spec, device);
  if (!plan || plan->engine.by_warps || plan->engine.wide || spec.extent[A::n] <= kFewKeys)
    return kernels;
  const auto scores = static_cast<double>(count(spec.extent, 0, A::e) * spec.extent[A::n]);
  for (std::size_t i = 0; i < spec.attention().score.statements.size(); ++i) {
    const Statement& s = spec.attention().score.statements[i];
    const auto beside = [&](const LoadBeside& load) {
      return load.statement == static_cast<int>(i);
    };
    const auto& loads = plan->engine.loads_beside;
    if (s.kind != StatementKind::load || std::any_of(loads.begin(), loads.end(), beside)) continue;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
    const auto indices = indices_of_copy(spec, p);
    if (indices.empty() || microseconds_of_copy(spec, p, indices, device) > kOfScore * scores)
      continue;
    KernelSpec changed = spec;
    Temporaries tried = temporaries;
    KernelSpec copy =
        copied_first(changed, changed.attention().score, static_cast<int>(i), indices, tried);
    copy.nodes = {spec.nodes.front()};
    auto with = plan_attention(changed, device);
    if (!with || boxes_of(*with) <= boxes_of(*plan)) continue;
    spec = std::move(changed), temporaries = std::move(tried), plan = std::move(with);
    kernels.push_back(std::move(copy));
  }
  return kernels;
}

std::optional<KernelSpec> align_gradient_bias(KernelSpec& spec, const DeviceModel& device,
                                              Temporaries& temporaries) {
  using B = AttentionBackwardSpec;
  // Microseconds that the box saves of each score (tools/benchmarks/decisions/attention.md).
  constexpr double kOfScore = 0.8e-6;
  const auto plan = plan_attention_backward(spec, device);
  if (!plan || plan->by_warps || plan->wide || plan->beside) return {};
  const auto scores = static_cast<double>(count(spec.extent, 0, B::d));
  const std::vector<Statement>& score = spec.attention_backward().score.statements;
  for (std::size_t i = 0; i < score.size(); ++i) {
    if (score[i].kind != StatementKind::load) continue;
    const int port = score[i].port;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(port)];
    if (p.access.stride[B::n] != 1 || !p.access.windows.empty() || !p.access.via.empty()) continue;
    std::vector<int> indices;
    for (int d = 0; d < B::n; ++d)
      if (moves_along(p.access, d)) indices.push_back(d);
    indices.push_back(B::n);
    if (microseconds_of_copy(spec, p, indices, device) > kOfScore * scores) continue;
    KernelSpec changed = spec;
    Temporaries tried = temporaries;
    B& a = changed.attention_backward();
    std::vector<Statement*> read_again;  // by the score's gradient
    for (Statement& s : a.gradient.statements)
      if (is_load(s) && s.port == port) read_again.push_back(&s);
    KernelSpec copy = copied_first(changed, a.score, static_cast<int>(i), indices, tried);
    for (Statement* const s : read_again) s->port = a.score.statements[i].port;
    drop_unused(changed);
    const auto with = plan_attention_backward(changed, device);
    if (!with || !with->beside) continue;
    spec = std::move(changed), temporaries = std::move(tried);
    return copy;
  }
  return {};
}

}  // namespace sinter
