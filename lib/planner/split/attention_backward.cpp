#include "planner/split/attention_backward.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/operands.hpp"
#include "planner/split/zeros.hpp"
#include "schedule/attention/backward.hpp"

namespace sinter {
namespace {

using A = AttentionBackwardSpec;

Statement moved(StatementKind kind, int port, const std::string& label) {
  Statement s = statement(kind, DataType::f32, label);
  s.port = port;
  return s;
}

// From sums of f32 to where they are stored.
KernelSpec conversion(KernelPort from, KernelPort to, const Dims& extent) {
  KernelSpec kernel;
  kernel.extent = extent;
  const Statement load = moved(StatementKind::load, 0, from.name);
  Statement store = moved(StatementKind::store, 1, to.name);
  store.args = {0};
  kernel.ports = {std::move(from), std::move(to)};
  kernel.body.statements = {load, std::move(store)};
  simplify_domain(kernel);
  return kernel;
}

// What runs before and behind the kernel for dBias. Elements that pairs of query and key share
// start as zeros; they are sums of f32, which a kernel converts where the result has another type.
// Where each belongs to one pair, the kernel stores it, but not those of tiles that it does not
// visit.
void prepare_bias_gradient(KernelSpec& spec, std::vector<KernelSpec>& before,
                           std::vector<KernelSpec>& behind, Temporaries& temporaries) {
  const A& a = spec.attention_backward();
  if (a.dbias < 0) return;
  KernelPort& port = spec.ports[static_cast<std::size_t>(a.dbias)];
  std::vector<int> indices;
  for (const int i : {0, static_cast<int>(A::head), static_cast<int>(A::m), static_cast<int>(A::n)})
    if (moves_along(port.access, i)) indices.push_back(i);
  if (indices.empty()) indices.push_back(0);
  KernelPort result = port;
  result.access.stride = {};
  Dims extent;
  for (const int i : indices) {
    extent.push_back(moves_along(port.access, i) ? spec.extent[i] : 1);
    result.access.stride.push_back(port.access.stride[i]);
  }
  const bool shared = bias_gradient_of(spec).shared;
  if (!shared || port.type == DataType::f32) {
    const bool leaves_out =
        a.band.left || a.band.right || a.band.padding || !a.block_mask.statements.empty();
    if (shared || leaves_out) before.push_back(zeros(result, extent));
    return;
  }
  Access packed;
  packed.stride = packed_strides(extent);
  const KernelPort sums = temporaries.add("dbias_sums", DataType::f32, extent, packed);
  before.push_back(zeros(sums, extent));
  behind.push_back(conversion(read_back(sums, packed), result, extent));
  port = sums;
  port.access.stride = Dims::filled(spec.extent.size(), 0);
  for (std::size_t i = 0; i < indices.size(); ++i)
    port.access.stride[indices[i]] = packed.stride[static_cast<int>(i)];
}

// dQ's sums: zeros before the kernel that adds to them, and behind it dQ's body of them.
void sum_dq(KernelSpec& spec, std::vector<KernelSpec>& before, std::vector<KernelSpec>& behind,
            Temporaries& temporaries) {
  // Lines of the sums begin at multiples of 16 bytes.
  const std::vector<int> indices = {0, 1, A::m, A::d};
  KernelSpec last = over_indices(spec, spec.attention_backward().dq, indices);
  Dims lines = last.extent;
  lines.back() = (lines.back() + 3) / 4 * 4;
  if (spec.attention_backward().deterministic)
    lines[2] += (2 * lines[2] + lines.back()) / lines.back();  // its counters
  Access of_lines;
  of_lines.stride = packed_strides(lines);
  const KernelPort sums = temporaries.add("dq_sums", DataType::f32, lines, of_lines);
  before.push_back(zeros(sums, lines));

  for (Statement& s : last.body.statements)
    if (s.kind == StatementKind::accumulator) {
      s.kind = StatementKind::load;
      s.dim = -1;
      s.port = static_cast<int>(last.ports.size());
    }
  last.ports.push_back(read_back(sums, of_lines));
  drop_unused(last);
  simplify_domain(last);

  KernelPort added = sums;
  added.access.stride = Dims::filled(spec.extent.size(), 0);
  for (std::size_t i = 0; i < indices.size(); ++i)
    added.access.stride[indices[i]] = of_lines.stride[static_cast<int>(i)];
  spec.attention_backward().sums = static_cast<int>(spec.ports.size());
  spec.attention_backward().dq = {};
  spec.ports.push_back(std::move(added));
  behind.insert(behind.begin(), std::move(last));
}

}  // namespace

std::vector<KernelSpec> attention_backward_kernels(KernelSpec spec, const DeviceModel& device,
                                                   Temporaries& temporaries) {
  std::vector<KernelSpec> kernels;
  for (ProductOperand A::*which : not_loadable_backward(spec, device)) {
    A& a = spec.attention_backward();
    ProductOperand& operand = a.*which;
    std::vector<int> indices;
    for (int i = 0; i < A::batch; ++i)
      if (depends_on(spec, operand.body, i)) indices.push_back(i);
    indices.push_back(which == &A::q || which == &A::d_o ? A::m : A::n);
    indices.push_back(which == &A::q || which == &A::k ? A::d : A::e);
    kernels.push_back(written_first(spec, operand, indices, operand.type, temporaries));
  }

  std::vector<KernelSpec> behind;
  prepare_bias_gradient(spec, kernels, behind, temporaries);

  if (spec.attention_backward().wants_dq()) sum_dq(spec, kernels, behind, temporaries);
  drop_unused(spec);
  const NodeId node = spec.nodes.front();
  for (std::vector<KernelSpec>* const others : {&kernels, &behind})
    for (KernelSpec& k : *others) k.nodes = {node};
  kernels.push_back(std::move(spec));
  for (KernelSpec& k : behind) kernels.push_back(std::move(k));
  return kernels;
}

bool expands_faster(const KernelSpec& spec, double microseconds) {
  using A = AttentionBackwardSpec;
  const A& a = spec.attention_backward();
  if (a.q.type != DataType::f32 || !a.score.statements.empty() || !a.weight.statements.empty() ||
      !a.block_mask.statements.empty() || !a.wants_dq() || a.dk < 0 || a.dv < 0)
    return false;
  const auto pairs =
      static_cast<double>(count(spec.extent, 0, A::batch) * spec.extent[A::m] * spec.extent[A::n]);
  // Of what the expansion has in memory at once, about 12 bytes a pair of query and key.
  constexpr double kBytes = 12, kMostBytes = 512 << 20;
  if (pairs * kBytes > kMostBytes) return false;
  const bool narrow = std::max(spec.extent[A::d], spec.extent[A::e]) <= 64;
  constexpr double kBeside = 15;  // the kernels before and behind it
  return microseconds + kBeside > (narrow ? 25 + 43e-6 * pairs : 50 + 31e-6 * pairs);
}

}  // namespace sinter
