#include <limits>

#include "golden/spec_builder.hpp"
#include "golden/specs.hpp"

namespace sinter::golden {
namespace {

using M = PointwiseMode;

// relu(x * scale + bias) with a bias along the last dim, in bf16.
KernelSpec bias_relu() {
  SpecBuilder b(Family::pointwise, {512, 1024});
  const int x = b.packed("x", bf16);
  const int bias = b.load("bias", b.port("bias", bf16, strided({0, 1})));
  const int scale = b.scalar("scale", b.scalar_input("scale", f32, 0.125));
  const int scaled = b.op("scaled", M::mul, {x, scale});
  const int sum = b.op("sum", M::add, {b.convert("scaled", bf16, scaled), bias});
  const int y = b.op("y", M::relu_fwd, {sum}, {0, std::numeric_limits<double>::infinity(), 0.01});
  b.op("unused", M::exp, {x});  // dead, so it is not printed
  b.store(y, "y", bf16);
  return b.spec;
}

// Values of f32 and f64 arithmetic in one body, and a strided output.
KernelSpec mixed_precision() {
  SpecBuilder b(Family::pointwise, {7, 33});
  const int x = b.packed("x", f8e4m3);
  const int d = b.packed("d", f64);
  const int e = b.op("e", M::exp, {x});
  const int sum = b.op("sum", M::add_square, {e, d}, {}, DataType::f64);
  const int narrow = b.convert("sum", f16, sum);
  b.store(b.op("y", M::swish_fwd, {narrow}, {1.7}), "y", f8e5m2);
  b.store(sum, b.port("wide", f64, strided({40, 1}, 3), true));
  return b.spec;
}

// Integers and booleans; a mask from the index, with its upper bound a 64-bit scalar.
KernelSpec integer_mask() {
  SpecBuilder b(Family::pointwise, {5, 1000});
  const int x = b.packed("int", i32);
  const int limit = b.scalar("limit", b.scalar_input("limit", i64, 900, 900));
  const int column = b.index("column", 1);
  const int keep = b.op("keep", M::cmp_lt, {column, limit}, {}, DataType::f64);
  const int kept = b.convert("keep", boolean, keep);
  const int y = b.op("y", M::binary_select, {x, column, kept}, {}, DataType::f64);
  b.store(kept, "Mask!", boolean);
  b.store(y, "y", u8);
  return b.spec;
}

// A reshape that is no view: a transposed matrix read as a vector of rows.
KernelSpec reshape_copy() {
  SpecBuilder b(Family::pointwise, {6, 35});
  const int p =
      b.port("x", f16, Access{.stride = {1, 14}, .offset = 0, .windows = {}, .via = {14, 15}});
  b.store(b.load("x", p), "y", f16);
  return b.spec;
}

// Two parts along the second dim, the second one starting at 3.
KernelSpec concatenate() {
  SpecBuilder b(Family::pointwise, {4, 8, 16});
  const auto part = [](std::int64_t start, std::int64_t extent) {
    return Access{
        .stride = {16 * extent, 0, 1},
        .offset = 0,
        .windows = {{.coefficient = {0, 1, 0}, .base = -start, .extent = extent, .stride = 16}},
        .via = {}};
  };
  const int first = b.load("first", b.port("first", bf16, part(0, 3)));
  const int second = b.load("second", b.port("second", bf16, part(3, 5)), {first});
  b.store(second, "y", bf16);
  return b.spec;
}

// Dropout: a mask from device seed and a passed offset, and noise from passed seed and offset.
KernelSpec dropout() {
  SpecBuilder b(Family::pointwise, {64, 96});
  const int x = b.packed("x", f32);
  Statement mask;
  mask.kind = StatementKind::random;
  mask.label = "mask";
  mask.rng.probability = 0.9;
  mask.access.stride = {96, 1};
  mask.port = b.port("seed", i64, strided({0, 0}));
  mask.port2 = -1 - b.scalar_input("offset", i64, 77, 77);
  const int keep = b.add(mask);
  Statement noise = mask;
  noise.label = "noise";
  noise.rng.distribution = Distribution::normal;
  noise.rng.stddev = 0.1;
  noise.port = -1 - b.scalar_input("noise seed", i64, 5, 5);
  const int n = b.add(noise);
  noise.label = "jitter";
  noise.rng.distribution = Distribution::uniform;
  noise.rng.minimum = -0.5;
  noise.rng.maximum = 0.25;
  noise.arithmetic = DataType::f64;
  const int j = b.add(noise);
  const int kept = b.op("kept", M::mul, {x, keep});
  const int noisy = b.op("noisy", M::add, {kept, n});
  b.store(b.op("y", M::add, {noisy, j}, {}, DataType::f64), "y", f32);
  return b.spec;
}

// More than 2^31 elements: 64-bit indices.
KernelSpec huge() {
  SpecBuilder b(Family::pointwise, {1 << 20, 4096});
  const int x = b.packed("x", i8);
  b.store(b.op("y", M::neg, {x}), "y", i8);
  return b.spec;
}

KernelSpec empty_and_scalar_like() {
  SpecBuilder b(Family::pointwise, {0, 3});
  const int x = b.packed("", f8e8m0);
  b.store(b.op("", M::sqrt, {x}), "", f4e2m1);
  return b.spec;
}

// Names that are not identifiers, that collide, and that are the language's.
KernelSpec hostile_names() {
  SpecBuilder b(Family::pointwise, {});
  const int a = b.load("for", b.port("for\n#include \"/etc/passwd\"\\", f32, {}));
  const int c = b.load("while(1);", b.port("a_1", f32, {}));
  const int d = b.load("9lives", b.port("a1", f32, {}));
  const int sum = b.op("for", M::add, {a, c});
  const int total = b.op(std::string(300, 'x') + "*/", M::add, {sum, d});
  b.store(total, b.port("__syncthreads()", f32, {}, true));
  return b.spec;
}

}  // namespace

KernelSpec every_pointwise_mode() {
  SpecBuilder b(Family::pointwise, {128});
  const int x = b.packed("x", f32), y = b.packed("y", f32), z = b.packed("z", f32);
  for (DataType arithmetic : {DataType::f32, DataType::f64})
    for (int m = 0; m < static_cast<int>(std::size(EnumNames<M>::names)); ++m) {
      const M mode = static_cast<M>(m);
      if (mode == M::gen_index) continue;  // a statement kind of its own
      const int all[] = {x, y, z};
      const std::vector<int> args(all, all + info(mode).arity);
      b.store(b.op("value", mode, args, {0.5, 6, 0.25}, arithmetic), "out", f32);
    }
  return b.spec;
}

// Rows that start anywhere become a part of longer ones.
KernelSpec misaligned_rows() {
  SpecBuilder b(Family::pointwise, {4096, 1001});
  const int x = b.packed("x", bf16), scale = b.load("scale", b.port("scale", f32, strided({1, 0})));
  const int bias = b.load("bias", b.port("bias", bf16, strided({0, 1})));
  const int product = b.op("product", M::mul, {x, scale});
  b.store(b.op("sum", M::add, {product, bias}), b.port("y", bf16, strided({3048, 1}, 1001), true));
  return b.spec;
}

std::vector<NamedSpec> pointwise_specs() {
  return {{"bias_relu", bias_relu()},
          {"mixed_precision", mixed_precision()},
          {"integer_mask", integer_mask()},
          {"reshape_copy", reshape_copy()},
          {"misaligned_rows", misaligned_rows()},
          {"concatenate", concatenate()},
          {"dropout", dropout()},
          {"huge", huge()},
          {"empty", empty_and_scalar_like()},
          {"hostile_names", hostile_names()}};
}

}  // namespace sinter::golden
