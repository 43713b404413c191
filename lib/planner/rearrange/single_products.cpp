#include "planner/rearrange/single_products.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {

std::optional<KernelSpec> as_single_products(const KernelSpec& spec) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || !is_single_product(*c) || c->marked_zeros || c->chained() || c->has_scale_blocks() ||
      !spec.cross_row_reductions.empty() || !spec.gathers.empty() || reads_joined_indices(spec))
    return {};
  const int results = c->first_k();
  const KernelPort *const a = loaded_as_it_is(spec, c->a().body), *const b = loaded_as_it_is(
                                                                      spec, c->b().body);
  if (!a || !b || count(spec.extent, results, spec.extent.size()) != 1) return {};

  KernelSpec r = spec;
  r.family = PointwiseSpec{};
  r.extent = part_of(spec.extent, 0, results);
  r.ports.clear();
  r.body.statements.clear();
  BodyCopy body(spec, r, results);
  const Statement& sum = spec.body.statements.front();
  Statement product = statement(StatementKind::pointwise, c->accumulate, "product");
  product.mode = PointwiseMode::mul;
  for (const KernelPort* factor : {a, b}) {
    KernelPort port = *factor;
    port.access.stride = part_of(port.access.stride, 0, results);
    for (Window& w : port.access.windows) w.coefficient = part_of(w.coefficient, 0, results);
    Statement load = statement(StatementKind::load, c->accumulate, port.name);
    load.port = body.add_port(std::move(port));
    product.args.push_back(body.add(std::move(load)));
  }
  // A sum begins at 0, which makes a 0 of a -0.
  Statement zero = statement(StatementKind::scalar, c->accumulate, "zero");
  zero.port = static_cast<int>(r.scalars.size());
  r.scalars.push_back({kNoTensor, "zero", c->accumulate, 0, 0});
  Statement total = statement(StatementKind::pointwise, c->accumulate, sum.label);
  total.mode = PointwiseMode::add;
  total.args = {body.add(std::move(product)), body.add(std::move(zero))};
  body.set(0, body.add(std::move(total)));
  for (int i = 0; i < static_cast<int>(spec.body.statements.size()); ++i)
    if (is_store(spec.body.statements[static_cast<std::size_t>(i)])) body.copy(i);
  drop_unused(r);
  simplify_domain(r);
  return r;
}

}  // namespace sinter
