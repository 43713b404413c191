#include "golden/spec_builder.hpp"
#include "golden/specs.hpp"

namespace sinter::golden {
namespace {

using M = PointwiseMode;

// y[i, j] = x[j, i]
KernelSpec transposed(DataType type, std::int64_t n, std::int64_t m) {
  SpecBuilder b(Family::pointwise, {n, m});
  b.store(b.load("x", b.port("x", type, strided({1, n}))), "y", type);
  return b.spec;
}

// A transposed operand, a plain one and a bias along the last dim.
KernelSpec transposed_add() {
  SpecBuilder b(Family::pointwise, {2048, 4096});
  const int x = b.load("x", b.port("x", bf16, strided({1, 2048})));
  const int z = b.packed("z", bf16);
  const int bias = b.load("bias", b.port("bias", f32, strided({0, 1})));
  const int sum = b.op("sum", M::add, {x, z});
  const int biased = b.op("biased", M::add, {sum, bias});
  b.store(b.op("y", M::relu_fwd, {biased}), "y", bf16);
  return b.spec;
}

// Two plain operands and a column-major result: the store is what is transposed.
KernelSpec stored_transposed() {
  SpecBuilder b(Family::pointwise, {1024, 3072});
  const int sum = b.op("sum", M::add, {b.packed("x", f16), b.packed("z", f8e5m2)});
  b.store(sum, b.port("y", f16, strided({1, 1024}), true));
  return b.spec;
}

// Channels from first to last: a batch index, and extents that tiles do not divide.
KernelSpec channels_last() {
  SpecBuilder b(Family::pointwise, {32, 28 * 28, 200});
  b.store(b.load("x", b.port("x", bf16, strided({28 * 28 * 200, 1, 28 * 28}))), "y", bf16);
  return b.spec;
}

// Three channels: whole rows of the tile follow one another in memory.
KernelSpec few_channels() {
  SpecBuilder b(Family::pointwise, {64, 224 * 224, 3});
  b.store(b.load("x", b.port("x", bf16, strided({224 * 224 * 3, 1, 224 * 224}))), "y", bf16);
  return b.spec;
}

// Many small matrices, several of which are one tile.
KernelSpec small_matrices(std::int64_t count, std::int64_t n) {
  SpecBuilder b(Family::pointwise, {count, n, n});
  b.store(b.load("x", b.port("x", bf16, strided({n * n, 1, n}))), "y", bf16);
  return b.spec;
}

// Runs of six, of which others lie beside each other where they are read than where they are
// written.
KernelSpec runs_turned() {
  SpecBuilder b(Family::pointwise, {3000, 2000, 6});
  b.store(b.load("x", b.port("x", bf16, strided({6, 18000, 1}))), "y", bf16);
  return b.spec;
}

}  // namespace

std::vector<NamedSpec> tiled_specs() {
  return {{"transpose_bf16", transposed(bf16, 16384, 8192)},
          {"transpose_f32", transposed(f32, 8192, 8192)},
          {"transpose_fp8", transposed(f8e4m3, 4096, 8192)},
          {"transpose_odd", transposed(bf16, 7003, 5001)},
          {"transposed_add", transposed_add()},
          {"stored_transposed", stored_transposed()},
          {"channels_last", channels_last()},
          {"few_channels", few_channels()},
          {"small_matrices", small_matrices(131072, 32)},
          {"small_matrices_odd", small_matrices(27950, 49)},
          {"runs_turned", runs_turned()}};
}

}  // namespace sinter::golden
