#include "golden/spec_builder.hpp"
#include "golden/specs.hpp"

namespace sinter::golden {
namespace {

using M = PointwiseMode;

// Sizes of the index groups batch, m, n, k.
SpecBuilder contraction(Dims extent, int batch, int m, int n, int k) {
  SpecBuilder b(Family::contraction, extent);
  ContractionSpec& c = b.spec.contraction();
  c.batch = batch;
  c.m = m;
  c.n = n;
  c.k_indices.assign(static_cast<std::size_t>(k), KIndex::channels);
  return b;
}

// gelu(a @ b + bias), B as k x n.
KernelSpec matmul_bias_gelu() {
  auto b = contraction({3, 100, 130, 72}, 1, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", bf16, strided({7200, 72, 0, 1})));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", bf16, strided({9360, 0, 1, 130})));
  b.into(b.spec.body);
  const int product = b.convert("product", bf16, b.accumulator("product"));
  const int bias = b.load("bias", b.port("bias", bf16, strided({0, 0, 1, 0})));
  const int y = b.op("y", M::gelu_approx_tanh_fwd, {b.op("sum", M::add, {product, bias})});
  b.store(y, b.port("y", bf16, strided({13000, 130, 1, 0}), true));
  return b.spec;
}

// A scaled and rounded operand, products of doubles, result stored transposed.
KernelSpec prologue_f64() {
  auto b = contraction({65, 63, 17}, 0, 1, 1, 1);
  b.spec.contraction().accumulate = DataType::f64;
  b.into(b.spec.contraction().a().body);
  const int a = b.load("a", b.port("a", f8e4m3, strided({1, 0, 65})));
  const int half = b.scalar("half", b.scalar_input("half", f32, 0.5));
  b.convert("scaled", f16, b.op("scaled", M::mul, {a, half}));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", f64, strided({0, 17, 1})));
  b.into(b.spec.body);
  b.store(b.accumulator("c"), b.port("c", f64, strided({1, 65, 0}), true));
  return b.spec;
}

// f32 that nothing may round: A as it lies, along m; B halved; a bias.
KernelSpec exact_f32() {
  auto b = contraction({100, 72, 52}, 0, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", f32, strided({1, 0, 100})));
  b.into(b.spec.contraction().b().body);
  const int half = b.scalar("half", b.scalar_input("half", f32, 0.5));
  b.op("halved", M::mul, {b.load("b", b.port("b", f32, strided({0, 52, 1}))), half});
  b.into(b.spec.body);
  const int bias = b.load("bias", b.port("bias", f32, strided({0, 1, 0})));
  b.store(b.op("c", M::add, {b.accumulator("sum"), bias}),
          b.port("c", f32, strided({72, 1, 0}), true));
  return b.spec;
}

// Attention's second product: a masked probability of zero reads nothing.
KernelSpec zero_dominates() {
  auto b = contraction({8, 70, 64, 200}, 1, 1, 1, 1);
  b.spec.contraction().zero_dominates = ZeroOf::a;
  b.into(b.spec.contraction().a().body).load("p", b.port("p", f16, strided({14000, 200, 0, 1})));
  b.into(b.spec.contraction().b().body).load("v", b.port("v", f16, strided({12800, 0, 1, 64})));
  b.into(b.spec.body);
  b.store(b.accumulator("o"), b.port("o", f16, strided({4480, 64, 1, 0}), true));
  return b.spec;
}

// Channels-last image 2 x 16 x 14 x 14 with 32 filters of 3 x 3, stride 2, padding 1.
// Indices: m = image, p, q; n = filter; k = r, s, channel. A prologue makes x + 1, zero outside.
KernelSpec conv_fprop() {
  auto b = contraction({2, 7, 7, 32, 3, 3, 16}, 0, 3, 1, 3);
  b.into(b.spec.contraction().a().body);
  const int port = b.port(
      "x", bf16,
      {.stride = {3136, 0, 0, 0, 0, 0, 1},
       .offset = 0,
       .windows = {{.coefficient = {0, 2, 0, 0, 1, 0, 0}, .base = -1, .extent = 14, .stride = 224},
                   {.coefficient = {0, 0, 2, 0, 0, 1, 0}, .base = -1, .extent = 14, .stride = 16}},
       .via = {}});
  const int one = b.scalar("one", b.scalar_input("one", f32, 1));
  b.inside(b.op("moved", M::add, {b.load("x", port), one}), port);
  b.into(b.spec.contraction().b().body)
      .load("w", b.port("w", bf16, strided({0, 0, 0, 144, 48, 16, 1})));
  b.into(b.spec.body);
  b.store(b.accumulator("y"), b.port("y", bf16, strided({1568, 224, 32, 1, 0, 0, 0}), true));
  return b.spec;
}

// A filter of 3 x 3 for each of 72 channels, stride 2, with a bias; indices: channel; image, p, q;
// r, s.
KernelSpec depthwise_fprop() {
  auto b = contraction({72, 2, 7, 8, 3, 3}, 1, 3, 0, 2);
  b.spec.contraction().k_indices = {KIndex::filter_tap, KIndex::filter_tap};
  b.into(b.spec.contraction().a().body)
      .load("x",
            b.port(
                "x", bf16,
                {.stride = {1, 16128, 0, 0, 0, 0},
                 .offset = 0,
                 .windows =
                     {{.coefficient = {0, 0, 2, 0, 1, 0}, .base = -1, .extent = 14, .stride = 1152},
                      {.coefficient = {0, 0, 0, 2, 0, 1}, .base = -1, .extent = 16, .stride = 72}},
                 .via = {}}));
  b.into(b.spec.contraction().b().body).load("w", b.port("w", bf16, strided({9, 0, 0, 0, 3, 1})));
  b.into(b.spec.body);
  const int sum = b.accumulator("sum");
  const int bias = b.load("bias", b.port("bias", bf16, strided({1, 0, 0, 0, 0, 0})));
  b.store(b.op("y", M::add, {sum, bias}),
          b.port("y", bf16, strided({1, 4032, 576, 72, 0, 0}), true));
  return b.spec;
}

// A filter of 7 x 7 for each of 384 channels, with a residual: on tensor cores.
KernelSpec depthwise_mma() {
  auto b = contraction({384, 64, 28, 28, 7, 7}, 1, 3, 0, 2);
  b.spec.contraction().k_indices = {KIndex::filter_tap, KIndex::filter_tap};
  b.into(b.spec.contraction().a().body)
      .load(
          "x",
          b.port(
              "x", bf16,
              {.stride = {1, 301056, 0, 0, 0, 0},
               .offset = 0,
               .windows =
                   {{.coefficient = {0, 0, 1, 0, 1, 0}, .base = -3, .extent = 28, .stride = 10752},
                    {.coefficient = {0, 0, 0, 1, 0, 1}, .base = -3, .extent = 28, .stride = 384}},
               .via = {}}));
  b.into(b.spec.contraction().b().body).load("w", b.port("w", bf16, strided({49, 0, 0, 0, 7, 1})));
  b.into(b.spec.body);
  const int sum = b.accumulator("sum");
  const Access image = strided({1, 301056, 10752, 384, 0, 0});
  const int residual = b.load("residual", b.port("residual", bf16, image));
  b.store(b.op("y", M::add, {sum, residual}), b.port("y", bf16, image, true));
  return b.spec;
}

// The gradient of such filters, stride 1; indices: channel; r, s; image, p, q.
KernelSpec depthwise_wgrad() {
  auto b = contraction({72, 3, 3, 2, 14, 16}, 1, 0, 2, 3);
  b.spec.contraction().k_indices = {KIndex::pixels, KIndex::pixels, KIndex::pixels};
  b.into(b.spec.contraction().a().body)
      .load("dy", b.port("dy", bf16, strided({1, 0, 0, 16128, 1152, 72})));
  b.into(b.spec.contraction().b().body)
      .load("x",
            b.port(
                "x", bf16,
                {.stride = {1, 0, 0, 16128, 0, 0},
                 .offset = 0,
                 .windows =
                     {{.coefficient = {0, 1, 0, 0, 1, 0}, .base = -1, .extent = 14, .stride = 1152},
                      {.coefficient = {0, 0, 1, 0, 0, 1}, .base = -1, .extent = 16, .stride = 72}},
                 .via = {}}));
  b.into(b.spec.body);
  b.store(b.accumulator("dw"), b.port("dw", f32, strided({9, 3, 1, 0, 0, 0}), true));
  return b.spec;
}

// The gradient of that image: p = (h + 1 - r) / 2 where the division is exact.
KernelSpec conv_dgrad() {
  auto b = contraction({2, 14, 14, 16, 32, 3, 3}, 0, 3, 1, 3);
  b.into(b.spec.contraction().a().body)
      .load("dy", b.port("dy", bf16,
                         {.stride = {1568, 0, 0, 0, 1, 0, 0},
                          .offset = 0,
                          .windows = {{.coefficient = {0, 1, 0, 0, 0, -1, 0},
                                       .base = 1,
                                       .divisor = 2,
                                       .extent = 7,
                                       .stride = 224},
                                      {.coefficient = {0, 0, 1, 0, 0, 0, -1},
                                       .base = 1,
                                       .divisor = 2,
                                       .extent = 7,
                                       .stride = 32}},
                          .via = {}}));
  b.into(b.spec.contraction().b().body)
      .load("w", b.port("w", bf16, strided({0, 0, 0, 1, 144, 48, 16})));
  b.into(b.spec.body);
  b.store(b.accumulator("dx"), b.port("dx", bf16, strided({3136, 224, 16, 1, 0, 0, 0}), true));
  return b.spec;
}

KernelSpec moe(MoeMode mode) {
  auto b = contraction({4, 150, 96, 80}, 1, 1, 1, 1);
  b.spec.contraction().rows = {
      .on = true, .offsets = 0, .index = mode == MoeMode::none ? -1 : 1, .mode = mode};
  b.port("first_token_offset", i32, strided({0, 0, 0, 0}));
  if (mode != MoeMode::none) b.port("token_index", i64, strided({0, 0, 0, 0}));
  b.into(b.spec.contraction().a().body)
      .load("token", b.port("token", bf16, strided({0, 80, 0, 1})));
  b.into(b.spec.contraction().b().body)
      .load("weight", b.port("weight", bf16, strided({7680, 0, 1, 96})));
  b.into(b.spec.body);
  b.store(b.accumulator("y"), b.port("y", bf16, strided({0, 96, 1, 0}), true));
  return b.spec;
}

// Rows that start anywhere: A is cut out of aligned words, B copied.
KernelSpec odd_rows() {
  auto b = contraction({300, 512, 111}, 0, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", bf16, strided({111, 0, 1})));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", bf16, strided({0, 1, 512})));
  b.into(b.spec.body);
  b.store(b.accumulator("c"), b.port("c", bf16, strided({512, 1, 0}), true));
  return b.spec;
}

// A scaled f8 operand, and integers: both become f16 on the way.
KernelSpec widened() {
  auto b = contraction({96, 128, 80}, 0, 1, 1, 1);
  b.into(b.spec.contraction().a().body);
  const int a = b.load("a", b.port("a", f8e4m3, strided({80, 0, 1})));
  const int scale = b.load("scale", b.port("scale", f32, strided({1, 0, 0})));
  b.convert("scaled", f16, b.op("scaled", M::mul, {a, scale}));
  b.spec.contraction().a().type = f16;
  b.into(b.spec.contraction().b().body).load("b", b.port("b", i8, strided({0, 80, 1})));
  b.into(b.spec.body);
  b.store(b.accumulator("c"), b.port("c", f32, strided({128, 1, 0}), true));
  return b.spec;
}

// Image 2 x 8 x 16 x 16 with 24 filters of 3 x 3, channels first: neighbours leave the image one by
// one, filters are as if k were one index.
KernelSpec conv_channels_first() {
  auto b = contraction({2, 16, 16, 24, 8, 3, 3}, 0, 3, 1, 3);
  b.into(b.spec.contraction().a().body)
      .load(
          "x",
          b.port(
              "x", f16,
              {.stride = {2048, 0, 0, 0, 256, 0, 0},
               .offset = 0,
               .windows =
                   {{.coefficient = {0, 1, 0, 0, 0, 1, 0}, .base = -1, .extent = 16, .stride = 16},
                    {.coefficient = {0, 0, 1, 0, 0, 0, 1}, .base = -1, .extent = 16, .stride = 1}},
               .via = {}}));
  b.into(b.spec.contraction().b().body)
      .load("w", b.port("w", f16, strided({0, 0, 0, 72, 9, 3, 1})));
  b.into(b.spec.body);
  b.store(b.accumulator("y"), b.port("y", f16, strided({6144, 16, 1, 256, 0, 0, 0}), true));
  return b.spec;
}

// No products at all: the result is zeros.
KernelSpec empty_sum() {
  auto b = contraction({5, 6, 0}, 0, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", f32, strided({1, 0, 1})));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", f32, strided({0, 1, 6})));
  b.into(b.spec.body);
  b.store(b.accumulator("c"), b.port("c", f32, strided({6, 1, 0}), true));
  return b.spec;
}

// relu(a @ b + bias) + residual, b as n x k.
KernelSpec hopper_residual() {
  auto b = contraction({4, 1000, 3000, 528}, 1, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", bf16, strided({528000, 528, 0, 1})));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", bf16, strided({0, 0, 528, 1})));
  b.into(b.spec.body);
  const int bias = b.load("bias", b.port("bias", bf16, strided({0, 0, 1, 0})));
  const int sum = b.op("sum", M::add, {b.accumulator("product"), bias});
  const int residual = b.load("residual", b.port("residual", bf16, strided({3000000, 3000, 1, 0})));
  const int y = b.op("y", M::add, {b.op("active", M::relu_fwd, {sum}), residual});
  b.store(y, b.port("y", bf16, strided({3000000, 3000, 1, 0}), true));
  return b.spec;
}

// gelu(a @ b + bias): TMA stores it.
KernelSpec hopper_stored() {
  auto b = contraction({4, 1000, 3072, 528}, 1, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", bf16, strided({528000, 528, 0, 1})));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", bf16, strided({0, 0, 528, 1})));
  b.into(b.spec.body);
  const int bias = b.load("bias", b.port("bias", bf16, strided({0, 0, 1, 0})));
  const int sum = b.op("sum", M::add, {b.accumulator("product"), bias});
  b.store(b.op("y", M::gelu_approx_tanh_fwd, {sum}),
          b.port("y", bf16, strided({3072000, 3072, 1, 0}), true));
  return b.spec;
}

// 16 rows of f16, weights as k x n: the operands change places, and parts of k are added up.
KernelSpec hopper_few_rows() {
  auto b = contraction({16, 1024, 8192}, 0, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("token", b.port("token", f16, strided({8192, 0, 1})));
  b.into(b.spec.contraction().b().body)
      .load("weight", b.port("weight", f16, strided({0, 1, 1024})));
  b.into(b.spec.body);
  b.store(b.accumulator("y"), b.port("y", f16, strided({1024, 1, 0}), true));
  return b.spec;
}

}  // namespace

KernelSpec hopper_columns(std::int64_t columns) {
  auto b = contraction({64, columns, 64}, 0, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", bf16, strided({64, 0, 1})));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", bf16, strided({0, 64, 1})));
  b.into(b.spec.body);
  b.store(b.accumulator("y"), b.port("y", bf16, strided({columns, 1, 0}), true));
  return b.spec;
}

namespace {

// Numbers of 8 bits, result stored transposed in f32.
KernelSpec hopper_bytes() {
  auto b = contraction({512, 768, 4096}, 0, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", f8e4m3, strided({4096, 0, 1})));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", f8e5m2, strided({0, 4096, 1})));
  b.into(b.spec.body);
  b.store(b.accumulator("y"), b.port("y", f32, strided({1, 512, 0}), true));
  return b.spec;
}

// swish(a @ b) * (a @ b2) + residual, whose columns are added up in parts of 16 rows.
KernelSpec hopper_pair() {
  auto b = contraction({1000, 704, 528}, 0, 1, 1, 1);
  b.into(b.spec.contraction().a().body).load("a", b.port("a", bf16, strided({528, 0, 1})));
  b.into(b.spec.contraction().b().body).load("gate", b.port("gate", bf16, strided({0, 528, 1})));
  b.spec.contraction().products.emplace_back();
  b.into(b.spec.contraction().b(1).body).load("up", b.port("up", bf16, strided({0, 528, 1})));
  b.into(b.spec.body);
  const int gate = b.accumulator("gated", 0), up = b.accumulator("raised", 1);
  const int h = b.op("h", M::mul, {b.op("active", M::swish_fwd, {gate}), up});
  const int y = b.op("y", M::add, {h, b.load("x", b.port("x", f32, strided({704, 1, 0})))});
  b.store(y, b.port("y", f32, strided({704, 1, 0}), true));
  b.spec.cross_row_reductions.push_back(
      {.mode = ReductionMode::add,
       .length = 1000,
       .label = "total",
       .port = b.port("total_parts", f32, strided({0, 1, 0}), true),
       .partial_stride_m = 704,
       .type = f32,
       .result = {}});
  Statement total;
  total.kind = StatementKind::cross_row_reduce;
  total.port = 0;
  total.args = {y};
  b.spec.body.statements.push_back(total);
  return b.spec;
}

// i8 into i32.
KernelSpec integers() {
  auto b = contraction({512, 768, 4096}, 0, 1, 1, 1);
  b.spec.contraction().accumulate = f64;
  b.into(b.spec.contraction().a().body).load("a", b.port("a", i8, strided({4096, 0, 1})));
  b.into(b.spec.contraction().b().body).load("b", b.port("b", i8, strided({0, 4096, 1})));
  b.into(b.spec.body);
  b.store(b.accumulator("y"), b.port("y", i32, strided({768, 1, 0}), true));
  return b.spec;
}

}  // namespace

// Both operands have a scale for every 128 of k.
KernelSpec hopper_blocks() {
  auto b = contraction({300, 272, 5, 128}, 0, 1, 1, 2);
  const auto scaled = [&](Body& body, const char* name, Dims values, const char* scale,
                          Dims scales) {
    b.into(body);
    const int x = b.load(name, b.port(name, f8e4m3, strided(values)));
    b.op(std::string(name) + "_scaled", M::mul,
         {x, b.load(scale, b.port(scale, f32, strided(scales)))});
  };
  b.spec.contraction().k_indices = {KIndex::scale_block, KIndex::channels};
  scaled(b.spec.contraction().a().body, "a", {640, 0, 128, 1}, "of_a", {5, 0, 1, 0});
  scaled(b.spec.contraction().b().body, "b", {0, 640, 128, 1}, "of_b", {0, 1, 272, 0});
  b.into(b.spec.body);
  b.store(b.accumulator("c"), b.port("c", bf16, strided({272, 1, 0, 0}), true));
  return b.spec;
}

std::vector<NamedSpec> hopper_specs() {
  return {{"hopper_residual", hopper_residual()},   {"hopper_stored", hopper_stored()},
          {"hopper_few_rows", hopper_few_rows()},   {"hopper_bytes", hopper_bytes()},
          {"hopper_pair", hopper_pair()},           {"hopper_zero_dominates", zero_dominates()},
          {"hopper_groups", moe(MoeMode::scatter)}, {"hopper_gathered_rows", moe(MoeMode::gather)},
          {"hopper_blocks", hopper_blocks()},       {"hopper_integers", integers()}};
}

std::vector<NamedSpec> contraction_specs() {
  return {{"matmul_bias_gelu", matmul_bias_gelu()},
          {"prologue_f64", prologue_f64()},
          {"exact_f32", exact_f32()},
          {"zero_dominates", zero_dominates()},
          {"conv_fprop", conv_fprop()},
          {"conv_dgrad", conv_dgrad()},
          {"depthwise_fprop", depthwise_fprop()},
          {"depthwise_mma", depthwise_mma()},
          {"depthwise_wgrad", depthwise_wgrad()},
          {"odd_rows", odd_rows()},
          {"widened", widened()},
          {"integers", integers()},
          {"conv_channels_first", conv_channels_first()},
          {"moe", moe(MoeMode::none)},
          {"moe_gather", moe(MoeMode::gather)},
          {"moe_scatter", moe(MoeMode::scatter)},
          {"empty_sum", empty_sum()}};
}

std::vector<NamedSpec> all_specs() {
  std::vector<NamedSpec> all;
  for (auto specs :
       {pointwise_specs(), tiled_specs(), gather_specs(), rowwise_specs(), contraction_specs()})
    all.insert(all.end(), specs.begin(), specs.end());
  return all;
}

}  // namespace sinter::golden
