#include "planner/split/attention_backward.hpp"

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/operands.hpp"
#include "schedule/attention/backward.hpp"

namespace sinter {
namespace {

using A = AttentionBackwardSpec;

KernelSpec zeros(KernelPort to, const Dims& extent) {
  KernelSpec kernel;
  kernel.extent = extent;
  kernel.scalars = {{kNoTensor, "zero", DataType::f32, 0, 0}};
  Statement zero = statement(StatementKind::scalar, DataType::f32, "zero");
  zero.port = 0;
  Statement store = statement(StatementKind::store, DataType::f32, to.name);
  store.args = {0};
  store.port = 0;
  kernel.ports.push_back(std::move(to));
  kernel.body.statements = {std::move(zero), std::move(store)};
  simplify_domain(kernel);
  return kernel;
}

}  // namespace

std::vector<KernelSpec> attention_backward_kernels(KernelSpec spec, Temporaries& temporaries) {
  std::vector<KernelSpec> kernels;
  for (ProductOperand A::*which : not_loadable_backward(spec)) {
    A& a = spec.attention_backward();
    ProductOperand& operand = a.*which;
    std::vector<int> indices;
    for (int i = 0; i < A::batch; ++i)
      if (depends_on(spec, operand.body, i)) indices.push_back(i);
    indices.push_back(which == &A::q || which == &A::d_o ? A::m : A::n);
    indices.push_back(which == &A::q || which == &A::k ? A::d : A::e);
    kernels.push_back(written_first(spec, operand, indices, operand.type, temporaries));
  }

  // Lines of the sums begin at multiples of 16 bytes.
  const std::vector<int> indices = {0, 1, A::m, A::d};
  KernelSpec last = over_indices(spec, spec.attention_backward().dq, indices);
  Dims lines = last.extent;
  lines.back() = (lines.back() + 3) / 4 * 4;
  Access of_lines;
  of_lines.stride = packed_strides(lines);
  const KernelPort sums = temporaries.add("dq_sums", DataType::f32, lines, of_lines);
  kernels.push_back(zeros(sums, lines));

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
  drop_unused(spec);
  const NodeId node = spec.nodes.front();
  for (KernelSpec& k : kernels) k.nodes = {node};
  last.nodes = {node};
  kernels.push_back(std::move(spec));
  kernels.push_back(std::move(last));
  return kernels;
}

}  // namespace sinter
