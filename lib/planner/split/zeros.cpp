#include "planner/split/zeros.hpp"

#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"

namespace sinter {

KernelSpec zeros(KernelPort to, const Dims& extent) {
  KernelSpec kernel;
  kernel.extent = extent;
  kernel.scalars = {{kNoTensor, "zero", DataType::f32, 0, 0}};
  Statement zero = statement(StatementKind::scalar, DataType::f32, "zero");
  zero.port = 0;
  Statement store = statement(StatementKind::store, DataType::f32, to.name);
  store.port = 0;
  store.args = {0};
  kernel.ports.push_back(std::move(to));
  kernel.body.statements = {std::move(zero), std::move(store)};
  simplify_domain(kernel);
  return kernel;
}

}  // namespace sinter
