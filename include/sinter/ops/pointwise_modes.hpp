// THE list of pointwise modes, one row each. The enumeration, the names in graph JSON, the operands,
// the builders, the reference and the table of GRAPH_JSON.md are made from it. The formula of a row
// is the struct of pointwise.hpp that it names: the mode's name in PascalCase, as generated kernels
// write it.
//
// UNARY(mode, struct, builder, "what it computes")   one operand, no parameters; the builder is the
// BINARY(mode, struct, builder, "what it computes")  function of operations.hpp
// OTHER(mode, struct, operands, parameters, "what it computes")
//   parameters: the attributes that the formula takes after its operands, a row of
//   pointwise_parameters in op_table.hpp. The builder is written by hand in operations.hpp.
// INDEX(mode, "what it computes")                    gen_index, which has no formula
//
// The operands are a, b, c (IN_0, IN_1, IN_2). New rows go to the end.
#pragma once

// clang-format off
#define SINTER_POINTWISE_MODES(UNARY, BINARY, OTHER, INDEX) \
  UNARY(identity, Identity, identity, "a") \
  BINARY(add, Add, add, "a + b") \
  BINARY(sub, Sub, sub, "a - b") \
  BINARY(mul, Mul, mul, "a b") \
  BINARY(div, Div, div, "a / b") \
  BINARY(pow, Pow, pow, "a to the power b") \
  BINARY(mod, Mod, mod, "the remainder of a / b, with the sign of a (C's fmod)") \
  BINARY(min, Min, min, "the smaller; NaN where one is NaN") \
  BINARY(max, Max, max, "the larger; NaN where one is NaN") \
  BINARY(add_square, AddSquare, add_square, "a + b^2") \
  UNARY(abs, Abs, abs, "the absolute value") \
  UNARY(ceil, Ceil, ceil, "the least integer not below a") \
  UNARY(floor, Floor, floor, "the largest integer not above a") \
  UNARY(round, Round, round, "the nearest integer, ties to even") \
  UNARY(neg, Neg, negate, "-a") \
  UNARY(sqrt, Sqrt, sqrt, "the square root") \
  UNARY(rsqrt, Rsqrt, rsqrt, "1 / sqrt(a)") \
  UNARY(reciprocal, Reciprocal, reciprocal, "1 / a") \
  UNARY(exp, Exp, exp, "e to the power a") \
  UNARY(log, Log, log, "the natural logarithm") \
  UNARY(sin, Sin, sin, "the sine of radians") \
  UNARY(cos, Cos, cos, "the cosine of radians") \
  UNARY(tan, Tan, tan, "the tangent of radians") \
  UNARY(erf, Erf, erf, "the error function") \
  BINARY(logical_and, LogicalAnd, logical_and, "1 where a and b are true (not 0; NaN is true), else 0") \
  BINARY(logical_or, LogicalOr, logical_or, "1 where a or b is true, else 0") \
  UNARY(logical_not, LogicalNot, logical_not, "1 where a is 0, else 0") \
  BINARY(cmp_eq, CmpEq, equal, "1 where a = b, else 0") \
  BINARY(cmp_neq, CmpNeq, not_equal, "0 where a = b, else 1") \
  BINARY(cmp_gt, CmpGt, greater, "1 where a > b, else 0") \
  BINARY(cmp_ge, CmpGe, greater_equal, "1 where a >= b, else 0") \
  BINARY(cmp_lt, CmpLt, less, "1 where a < b, else 0") \
  BINARY(cmp_le, CmpLe, less_equal, "1 where a <= b, else 0") \
  OTHER(binary_select, BinarySelect, 3, none, "a where c is not 0, else b") \
  INDEX(gen_index, "the index along the attribute `axis`, in the dims of a") \
  BINARY(atan2, Atan2, atan2, "the angle of the point (b, a)") \
  OTHER(relu_fwd, ReluFwd, 1, relu, "lower + slope (a - lower) where a <= lower, upper where a >= upper, else a") \
  UNARY(tanh_fwd, TanhFwd, tanh, "the hyperbolic tangent") \
  UNARY(sigmoid_fwd, SigmoidFwd, sigmoid, "1 / (1 + exp(-a))") \
  OTHER(elu_fwd, EluFwd, 1, elu, "a where a >= 0, else alpha (exp(a) - 1)") \
  UNARY(gelu_fwd, GeluFwd, gelu, "a P(a), P being the normal distribution function") \
  UNARY(gelu_approx_tanh_fwd, GeluApproxTanhFwd, gelu_tanh, "a (1 + tanh(sqrt(2 / pi) (a + 0.044715 a^3))) / 2") \
  OTHER(softplus_fwd, SoftplusFwd, 1, softplus, "log(1 + exp(beta a)) / beta") \
  OTHER(swish_fwd, SwishFwd, 1, swish, "a / (1 + exp(-beta a))") \
  OTHER(relu_bwd, ReluBwd, 2, relu, "slope a where b <= lower, 0 where b >= upper, else a") \
  BINARY(tanh_bwd, TanhBwd, tanh_backward, "a times the derivative of tanh_fwd at b") \
  BINARY(sigmoid_bwd, SigmoidBwd, sigmoid_backward, "a times the derivative of sigmoid_fwd at b") \
  OTHER(elu_bwd, EluBwd, 2, elu, "a times the derivative of elu_fwd at b") \
  BINARY(gelu_bwd, GeluBwd, gelu_backward, "a times the derivative of gelu_fwd at b") \
  BINARY(gelu_approx_tanh_bwd, GeluApproxTanhBwd, gelu_tanh_backward, "a times the derivative of gelu_approx_tanh_fwd at b") \
  OTHER(softplus_bwd, SoftplusBwd, 2, softplus, "a times the derivative of softplus_fwd at b") \
  OTHER(swish_bwd, SwishBwd, 2, swish, "a times the derivative of swish_fwd at b")
// clang-format on
