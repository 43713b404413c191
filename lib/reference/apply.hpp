// The one place that turns a PointwiseMode into the struct of pointwise.hpp that knows its formula.
#pragma once
#include <utility>

#include "reference/bounded_math.hpp"
#include "sinter/ops/attributes.hpp"
#include "sinter/ops/pointwise.hpp"

namespace sinter::reference {

// Calls f with the struct of the mode. gen_index has no formula and is not among them.
template <class F>
void with_formula(PointwiseMode mode, F&& f) {
  using M = PointwiseMode;
  switch (mode) {
    case M::identity:
      return f(op::Identity{});
    case M::add:
      return f(op::Add{});
    case M::sub:
      return f(op::Sub{});
    case M::mul:
      return f(op::Mul{});
    case M::div:
      return f(op::Div{});
    case M::pow:
      return f(op::Pow{});
    case M::mod:
      return f(op::Mod{});
    case M::min:
      return f(op::Min{});
    case M::max:
      return f(op::Max{});
    case M::add_square:
      return f(op::AddSquare{});
    case M::abs:
      return f(op::Abs{});
    case M::ceil:
      return f(op::Ceil{});
    case M::floor:
      return f(op::Floor{});
    case M::round:
      return f(op::Round{});
    case M::neg:
      return f(op::Neg{});
    case M::sqrt:
      return f(op::Sqrt{});
    case M::rsqrt:
      return f(op::Rsqrt{});
    case M::reciprocal:
      return f(op::Reciprocal{});
    case M::exp:
      return f(op::Exp{});
    case M::log:
      return f(op::Log{});
    case M::sin:
      return f(op::Sin{});
    case M::cos:
      return f(op::Cos{});
    case M::tan:
      return f(op::Tan{});
    case M::erf:
      return f(op::Erf{});
    case M::logical_and:
      return f(op::LogicalAnd{});
    case M::logical_or:
      return f(op::LogicalOr{});
    case M::logical_not:
      return f(op::LogicalNot{});
    case M::cmp_eq:
      return f(op::CmpEq{});
    case M::cmp_neq:
      return f(op::CmpNeq{});
    case M::cmp_gt:
      return f(op::CmpGt{});
    case M::cmp_ge:
      return f(op::CmpGe{});
    case M::cmp_lt:
      return f(op::CmpLt{});
    case M::cmp_le:
      return f(op::CmpLe{});
    case M::binary_select:
      return f(op::BinarySelect{});
    case M::gen_index:
      return;
    case M::atan2:
      return f(op::Atan2{});
    case M::relu_fwd:
      return f(op::ReluFwd{});
    case M::tanh_fwd:
      return f(op::TanhFwd{});
    case M::sigmoid_fwd:
      return f(op::SigmoidFwd{});
    case M::elu_fwd:
      return f(op::EluFwd{});
    case M::gelu_fwd:
      return f(op::GeluFwd{});
    case M::gelu_approx_tanh_fwd:
      return f(op::GeluApproxTanhFwd{});
    case M::softplus_fwd:
      return f(op::SoftplusFwd{});
    case M::swish_fwd:
      return f(op::SwishFwd{});
    case M::relu_bwd:
      return f(op::ReluBwd{});
    case M::tanh_bwd:
      return f(op::TanhBwd{});
    case M::sigmoid_bwd:
      return f(op::SigmoidBwd{});
    case M::elu_bwd:
      return f(op::EluBwd{});
    case M::gelu_bwd:
      return f(op::GeluBwd{});
    case M::gelu_approx_tanh_bwd:
      return f(op::GeluApproxTanhBwd{});
    case M::softplus_bwd:
      return f(op::SoftplusBwd{});
    case M::swish_bwd:
      return f(op::SwishBwd{});
  }
}

// The formula on an array of operands and an array of parameters.
template <class Formula, class T>
T apply(const T* operands, const T* params) {
  return [&]<std::size_t... I, std::size_t... P>(std::index_sequence<I...>,
                                                 std::index_sequence<P...>) {
    return Formula::apply(operands[I]..., params[P]...);
  }
  (std::make_index_sequence<Formula::arity>(), std::make_index_sequence<Formula::params>());
}

}  // namespace sinter::reference
