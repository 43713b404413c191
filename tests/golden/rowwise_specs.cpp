#include "golden/spec_builder.hpp"
#include "golden/specs.hpp"

namespace sinter::golden {
namespace {

using M = PointwiseMode;
using R = ReductionMode;

// softmax with stats: maximum, then the sum of exponentials, then the quotient.
KernelSpec softmax(std::int64_t rows, std::int64_t columns) {
  SpecBuilder b(Family::rowwise, {rows, columns});
  b.spec.rowwise().outer_rank = 1;
  const int x = b.packed("x", bf16);
  const int top = b.reduce("top", R::max, x);
  const int e = b.op("e", M::exp, {b.op("shifted", M::sub, {x, top})});
  const int sum = b.reduce("sum", R::add, e);
  b.store(b.op("y", M::div, {e, sum}), "y", bf16);
  const int stats = b.op("stats", M::add, {top, b.op("log_sum", M::log, {sum})});
  b.store(stats, b.port("Stats", f32, strided({1, 0}), true));
  return b.spec;
}

// The sum over all but the last dim of a matrix: neighbouring threads take neighbouring columns.
KernelSpec column_sum(std::int64_t columns, std::int64_t rows) {
  SpecBuilder b(Family::rowwise, {columns, rows});  // kept: columns; reduced: rows
  b.spec.rowwise().outer_rank = 1;
  const int x = b.load("dy", b.port("dy", bf16, strided({1, columns})));
  b.store(b.reduce("sum", R::add, x), b.port("dbias", f32, strided({1, 0}), true));
  return b.spec;
}

// Every reduction mode over everything, in f64.
KernelSpec all_modes() {
  SpecBuilder b(Family::rowwise, {33, 17});
  const int x = b.packed("x", f64);
  const int w = b.packed("w", f32);
  int place = 0;
  for (R mode :
       {R::add, R::mul, R::min, R::max, R::amax, R::avg, R::norm1, R::norm2, R::mul_no_zeros}) {
    const int r = b.reduce(std::string(name(mode)), mode, x, DataType::f64);
    b.store(r, b.port("result", f64, strided({0, 0}, place++), true));
  }
  b.store(b.reduce("norm", R::norm2, w), b.port("norm", f32, strided({0, 0}), true));
  return b.spec;
}

// A reduction over an extent of 0.
KernelSpec empty_rows() {
  SpecBuilder b(Family::rowwise, {5, 0});
  b.spec.rowwise().outer_rank = 1;
  b.store(b.reduce("least", R::min, b.packed("x", f16)), b.port("y", f16, strided({1, 0}), true));
  return b.spec;
}

// layernorm over the last two dims of a permuted tensor, with a scale along the row.
KernelSpec layernorm() {
  SpecBuilder b(Family::rowwise, {12, 20, 40});
  b.spec.rowwise().outer_rank = 1;
  const int x = b.load("x", b.port("x", f32, strided({800, 1, 20})));
  const int scale = b.load("scale", b.port("scale", f32, strided({0, 40, 1})));
  const int epsilon = b.scalar("epsilon", b.scalar_input("epsilon", f32, 1e-5));
  const int mean = b.reduce("mean", R::avg, x);
  const int centred = b.op("centred", M::sub, {x, mean});
  const int variance = b.reduce("variance", R::avg, b.op("square", M::mul, {centred, centred}));
  const int inverse = b.op("inv_variance", M::rsqrt, {b.op("sum", M::add, {variance, epsilon})});
  const int normal = b.op("normal", M::mul, {centred, inverse});
  b.store(b.op("y", M::mul, {normal, scale}), "y", f32);
  b.store(mean, b.port("mean", f32, strided({1, 0, 0}), true));
  b.store(inverse, b.port("row", f32, strided({1, 0, 0}), true));
  return b.spec;
}

// Of an rmsnorm: the gradients of its input and of its scale.
KernelSpec rmsnorm_gradients(std::int64_t rows, std::int64_t columns, std::int64_t slots) {
  SpecBuilder b(Family::rowwise, {rows, columns});
  b.spec.rowwise().outer_rank = 1;
  b.spec.rowwise().num_partials = slots;
  const int x = b.packed("x", bf16), dy = b.packed("dy", bf16);
  // A name that the text uses itself.
  const int scale = b.load("scale", b.port("width", bf16, strided({0, 1})));
  const int inverse = b.load("inv_variance", b.port("inv_variance", f32, strided({1, 0})));
  const int normal = b.op("normal", M::mul, {x, inverse});
  const int scaled = b.op("scaled", M::mul, {dy, scale});
  const int slope = b.reduce("slope", R::avg, b.op("both", M::mul, {scaled, normal}));
  b.column("dscale", R::add, b.op("dy_normal", M::mul, {dy, normal}));
  const int sloped = b.op("sloped", M::mul, {normal, slope});
  const int rest = b.op("rest", M::sub, {scaled, sloped});
  b.store(b.op("dx", M::mul, {rest, inverse}), "dx", bf16);
  return b.spec;
}

// An rmsnorm, quantised in blocks of 32.
KernelSpec norm_in_segments() {
  SpecBuilder b(Family::rowwise, {16384, 128, 32});
  b.spec.rowwise().outer_rank = 1;
  const int x = b.packed("x", bf16);
  const int epsilon = b.scalar("epsilon", b.scalar_input("epsilon", f32, 1e-5));
  const int square = b.reduce("mean_square", R::avg, b.op("square", M::mul, {x, x}));
  const int inverse = b.op("inv_variance", M::rsqrt, {b.op("sum", M::add, {square, epsilon})});
  const int normal = b.op("normal", M::mul, {x, inverse});
  const int top = b.reduce_segments("top", R::amax, normal);
  const int largest = b.scalar("largest", b.scalar_input("largest", f32, 448));
  const int scale = b.convert("scale", f8e8m0, b.op("ratio", M::div, {top, largest}));
  b.store(b.op("y", M::div, {normal, scale}), "y", f8e4m3);
  b.store(scale, b.port("Scale", f8e8m0, strided({128, 1, 0}), true));
  return b.spec;
}

// The largest of each of many rows of seven integers, and the sum of what they are multiplied by.
KernelSpec short_rows_odd() {
  SpecBuilder b(Family::rowwise, {300001, 7});
  b.spec.rowwise().outer_rank = 1;
  const int x = b.packed("x", i32);
  const int w = b.load("w", b.port("w", f32, strided({0, 1})));
  const int sum = b.reduce("sum", R::add, b.op("weighted", M::mul, {x, w}));
  b.store(b.reduce("top", R::max, x, DataType::f64), b.port("top", i32, strided({1, 0}), true));
  b.store(sum, b.port("sum", f32, strided({1, 0}), true));
  return b.spec;
}

}  // namespace

std::vector<NamedSpec> rowwise_specs() {
  return {{"softmax", softmax(300, 1000)},
          {"softmax_clusters", softmax(1024, 131072)},
          {"softmax_odd", softmax(2048, 50257)},
          {"column_sum", column_sum(768, 4096)},
          {"column_sum_odd", column_sum(100003, 131)},
          {"all_reduction_modes", all_modes()},
          {"empty_rows", empty_rows()},
          {"layernorm", layernorm()},
          {"norm_in_segments", norm_in_segments()},
          {"rmsnorm_gradients", rmsnorm_gradients(16384, 4096, 264)},
          {"rmsnorm_gradients_short", rmsnorm_gradients(100000, 128, 132)},
          {"rmsnorm_gradients_odd", rmsnorm_gradients(100000, 1001, 496)},
          {"short_rows_odd", short_rows_odd()}};
}

}  // namespace sinter::golden
