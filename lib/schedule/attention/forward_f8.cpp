#include "schedule/attention/forward_f8.hpp"

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "schedule/attention/forward_tile.hpp"

namespace sinter {
namespace {

using A = AttentionSpec;

// The f8 type of an operand that is loaded as it is; else none.
DataType loaded_f8(const KernelSpec& spec, const ProductOperand& operand) {
  const KernelPort* const p = plainly_loaded(spec, operand.body);
  return p && is_f8(p->type) ? p->type : DataType::none;
}

}  // namespace

std::optional<KernelSpec> multiplied_as_f8(const KernelSpec& spec, const DeviceModel& device) {
  const A& a = spec.attention();
  // Sums of f8 products are exact to some 14 bits: those of up to 128 elements are as exact as
  // other kernels', which add up partial sums of so many. Of one tile of rows, which other heads
  // share no keys with, the kernel by warps does not wait for products.
  constexpr std::int64_t kMostElements = 128;
  if (!has_warpgroups(device) || rows_of(spec) * a.group <= kConsumerRows ||
      spec.extent[A::d] > kMostElements || spec.extent[A::e] > 2 * kMostElements ||
      info(a.q.type).bytes != 2)
    return {};
  KernelSpec f8 = spec;
  A& to = f8.attention();
  to.q.type = loaded_f8(spec, a.q);
  to.k.type = loaded_f8(spec, a.k);
  if (to.q.type == DataType::none || to.k.type == DataType::none) return {};
  const DataType values = loaded_f8(spec, a.v);
  if (a.f8_weights && values != DataType::none && spec.extent[A::e] <= kMostElements &&
      a.weight.statements.empty() && a.sequences.count == 0)
    to.v.type = values;
  return f8;
}

bool is_scaled_sum(const KernelSpec& product, std::size_t value, const std::vector<int>& of_head) {
  const auto& statements = product.body.statements;
  const std::vector<bool> same = same_along(product, product.body, of_head);
  // Back to the sum, through products of which one factor is the same.
  while (statements[value].kind != StatementKind::accumulator) {
    const Statement& s = statements[value];
    if (s.kind != StatementKind::pointwise || s.mode != PointwiseMode::mul ||
        s.arithmetic != DataType::f32)
      return false;
    const auto x = static_cast<std::size_t>(s.args[0]), y = static_cast<std::size_t>(s.args[1]);
    if (same[x] == same[y]) return false;
    value = same[x] ? y : x;
  }
  return true;
}

}  // namespace sinter
