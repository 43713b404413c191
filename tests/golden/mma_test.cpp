// What the portable tensor-core engine is chosen for, and how it brings the operands.
#include "schedule/contraction/mma.hpp"

#include "golden/spec_builder.hpp"
#include "golden/specs.hpp"
#include "support/catch.hpp"

namespace sinter::golden {
namespace {

// A product of 256 x 256 x `depth`; B lies along k as A does. `declared`: what A may be rounded to.
KernelSpec product(DataType a, DataType b, std::int64_t depth, DataType declared = DataType::none) {
  SpecBuilder s(Family::contraction, {256, 256, depth});
  s.spec.contraction().m = s.spec.contraction().n = 1;
  s.spec.contraction().k_indices = {KIndex::channels};
  s.spec.contraction().a().type = declared;
  s.into(s.spec.contraction().a().body).load("a", s.port("a", a, strided({depth, 0, 1})));
  s.into(s.spec.contraction().b().body).load("b", s.port("b", b, strided({0, depth, 1})));
  s.into(s.spec.body);
  s.store(s.accumulator("c"), s.port("c", f32, strided({256, 1, 0}), true));
  return s.spec;
}

DataType number(const KernelSpec& spec) {
  const auto plan = plan_mma(spec, device_model());
  return plan ? plan->engine.number : DataType::none;
}

const KernelSpec& named(const std::vector<NamedSpec>& specs, std::string_view name) {
  for (const auto& s : specs)
    if (s.name == name) return s.spec;
  FAIL("no spec " << name);
  return specs.front().spec;
}

TEST_CASE("products run in the narrowest type that holds both operands") {
  CHECK(number(product(bf16, bf16, 64)) == bf16);
  CHECK(number(product(f16, f8e5m2, 64)) == f16);
  CHECK(number(product(f8e4m3, f8e4m3, 64)) == f16);
  CHECK(number(product(i8, f16, 64)) == f16);
  CHECK(number(product(u8, bf16, 64)) == bf16);
  CHECK(number(product(f8e4m3, bf16, 64)) == bf16);
  CHECK(number(product(f16, bf16, 64)) == tf32);
  CHECK(number(product(f32, bf16, 64, bf16)) == bf16);
  CHECK(number(product(f32, bf16, 64, tf32)) == tf32);
}

TEST_CASE("what tensor cores would round stays on CUDA cores") {
  CHECK(number(product(f32, f32, 64)) == DataType::none);
  CHECK(number(product(f32, bf16, 64)) == DataType::none);
  CHECK(number(product(f64, f16, 64)) == DataType::none);
  CHECK(number(product(i32, f16, 64)) == DataType::none);
  // Sums of integers fit 32 bits.
  CHECK(number(product(i8, i8, 131071)) == f16);
  CHECK(number(product(i8, i8, 131072)) == DataType::none);
  KernelSpec spec = product(bf16, bf16, 64);
  spec.contraction().zero_dominates = ZeroOf::a;
  CHECK(plan_mma(spec, device_model()));
  spec.gathers.emplace_back();
  CHECK_FALSE(plan_mma(spec, device_model()));
  spec.gathers.clear();
  spec.contraction().accumulate = f64;
  CHECK_FALSE(plan_mma(spec, device_model()));
}

TEST_CASE("f32 that must not be rounded has an engine on CUDA cores") {
  const auto plan = [](const KernelSpec& spec) { return plan_fma(spec, device_model(), {}); };
  const auto of_f32 = plan(product(f32, f32, 64));
  REQUIRE(of_f32);
  CHECK(of_f32->engine.cuda_cores());
  CHECK(of_f32->engine.a.copied);
  CHECK_FALSE(of_f32->tuned);
  const auto mixed = plan(product(f32, bf16, 64));
  REQUIRE(mixed);
  CHECK_FALSE(mixed->engine.b.copied);
  CHECK_FALSE(plan(product(bf16, bf16, 64)));  // tensor cores do not round these
  CHECK_FALSE(plan(product(f64, f16, 64)));
  CHECK_FALSE(plan(product(i32, f32, 64)));
  KernelSpec wide = product(f32, f32, 64);
  wide.contraction().accumulate = f64;
  CHECK_FALSE(plan(wide));
}

TEST_CASE("a measured tile of f32 is taken") {
  const KernelSpec spec = product(f32, f32, 640);
  const auto likeliest = plan_fma(spec, device_model(), {});
  REQUIRE(likeliest);
  const KernelChoice choice = likeliest->choice.ranked();
  REQUIRE(choice.configurations.size() > 10);
  Tuning tuning;
  tuning.best[choice.problem] = choice.configurations.back();
  const auto measured = plan_fma(spec, device_model(), tuning);
  REQUIRE(measured);
  CHECK(measured->tuned);
  CHECK(measured->microseconds == likeliest->microseconds);
  CHECK(measured->engine.microseconds > likeliest->engine.microseconds);
}

TEST_CASE("sums of integers leave f32 before it would round them") {
  const auto steps_before = [](DataType a, DataType b, std::int64_t depth) {
    KernelSpec spec = product(a, b, depth);
    spec.contraction().accumulate = f64;  // as for i32
    const auto plan = plan_mma(spec, device_model());
    REQUIRE(plan);
    return plan->engine.promote_every * plan->engine.tile.line / 2;  // elements of k
  };
  CHECK(steps_before(i8, i8, 1024) == 0);  // 2^24: all are exact
  CHECK(steps_before(i8, i8, 1025) == 1024);
  CHECK(steps_before(u8, u8, 258) == 0);
  CHECK(steps_before(u8, u8, 259) == 256);  // whole steps of at most 258
  CHECK(steps_before(u8, i8, 2000) == 512);
  CHECK(steps_before(boolean, i8, 131072) == 0);
}

// A product of `rows` of bf16 with weights of a type.
MmaConfig engine_past(std::int64_t rows, DataType weights, std::int64_t depth, bool along_k,
                      std::int64_t columns = 4096) {
  SpecBuilder s(Family::contraction, {rows, columns, depth});
  s.spec.contraction().m = s.spec.contraction().n = 1;
  s.spec.contraction().k_indices = {KIndex::channels};
  s.into(s.spec.contraction().a().body).load("a", s.port("a", bf16, strided({depth, 0, 1})));
  s.into(s.spec.contraction().b().body)
      .load("b", s.port("b", weights, along_k ? strided({0, depth, 1}) : strided({0, 1, columns})));
  s.into(s.spec.body);
  s.store(s.accumulator("c"), s.port("c", f32, strided({columns, 1, 0}), true));
  const auto plan = plan_mma(s.spec, device_model("sm_90a"));
  REQUIRE(plan);
  return plan->engine;
}
MmaTile tile_past(std::int64_t rows, DataType weights, std::int64_t depth = 4096,
                  bool along_k = true) {
  return engine_past(rows, weights, depth, along_k).tile;
}

TEST_CASE("weights of 8 bits that lie along k stream past few rows") {
  const MmaConfig few = engine_past(5, i8, 4096, true);
  CHECK(few.b.streamed);
  CHECK(few.b.packing.width == 16);
  CHECK(few.tile.held_steps == 1);
  CHECK(few.tile.line == 256);  // bytes of the copied operand, 128 of what streams
  CHECK(std::pair(few.tile.m, few.tile.n) == std::pair(16, 128));
  CHECK(few.grid == 32);
  const MmaConfig pairs =
      engine_past(5, i8, 4096, true, 14336);  // the tiles are nearly as many as SMs
  CHECK(pairs.tile.split == 2);
  CHECK(pairs.grid == 112 * 2);
  CHECK(engine_past(5, i8, 512, true, 14336).tile.split == 1);  // few steps in all
  CHECK(tile_past(17, f8e4m3).m == 32);
  CHECK(tile_past(64, u8).m == 64);
  CHECK_FALSE(engine_past(65, i8, 4096, true).b.streamed);
  CHECK(tile_past(16, i8, 4096 + 64).line == 128);  // half a line is left
  CHECK_FALSE(engine_past(16, bf16, 4096, true).b.streamed);
  CHECK_FALSE(engine_past(16, i8, 4096 + 16, true).b.streamed);  // no whole stages
  CHECK_FALSE(engine_past(16, i8, 4096, false).b.streamed);
}

TEST_CASE("registers hold several steps of weights of 8 bits that lie along n") {
  const auto held = [](std::int64_t rows, DataType weights, std::int64_t depth = 4096) {
    return tile_past(rows, weights, depth, false);
  };
  const MmaTile few = held(5, i8);
  CHECK(few.held_steps == 4);
  CHECK(few.line == 128);
  CHECK(std::pair(few.m, few.n) == std::pair(16, 64));
  CHECK(held(17, f8e4m3).m == 32);
  CHECK(held(17, f8e4m3).held_steps == 4);
  CHECK(held(64, u8).held_steps == 2);
  CHECK(held(65, i8).held_steps == 1);
  CHECK(held(16, i8, 256).held_steps == 2);        // few steps in all
  CHECK(tile_past(16, i8, 4100).held_steps == 1);  // rows of no whole packs
}

TEST_CASE("operands are copied where they lie as the tensor cores want them") {
  const auto copied = plan_mma(product(bf16, bf16, 64), device_model());
  REQUIRE(copied);
  CHECK(copied->engine.a.copied);
  CHECK(copied->engine.a.packing.width == 8);
  CHECK_FALSE(copied->engine.a.ragged);
  const auto narrow = plan_mma(product(bf16, bf16, 66), device_model());  // 4 bytes at a time
  REQUIRE(narrow);
  CHECK(narrow->engine.a.copied);
  CHECK(narrow->engine.a.packing.width == 2);
  const auto odd = plan_mma(product(bf16, f8e4m3, 67), device_model());
  REQUIRE(odd);
  for (const MmaOperand* o : {&odd->engine.a, &odd->engine.b}) {
    CHECK_FALSE(o->copied);
    CHECK(o->plain);
    CHECK(o->ragged);
    CHECK(o->packing.width == 8);
  }
  CHECK(odd->engine.a.packing.ports[0].kind == PortPack::Kind::shifted);
  CHECK(odd->engine.b.packing.ports[1].kind == PortPack::Kind::shifted);
}

TEST_CASE("an operand that is computed passes through registers") {
  const auto specs = contraction_specs();
  const auto widened = plan_mma(named(specs, "widened"), device_model());
  REQUIRE(widened);
  CHECK_FALSE(widened->engine.a.copied);
  CHECK_FALSE(widened->engine.a.plain);
  CHECK(widened->engine.a.packing.ports[0].kind == PortPack::Kind::pack);
  CHECK(widened->engine.a.packing.ports[1].kind == PortPack::Kind::same);
  CHECK(widened->engine.b.plain);
}

TEST_CASE("filters are read along k as if it were one index") {
  const auto specs = contraction_specs();
  const auto conv = plan_mma(named(specs, "conv_channels_first"), device_model());
  REQUIRE(conv);
  CHECK(conv->engine.b.joined);
  CHECK(conv->engine.b.copied);
  CHECK(conv->engine.b.packing.width == 8);
  CHECK_FALSE(conv->engine.a.joined);
  CHECK_FALSE(conv->engine.a.k_fastest);
  CHECK(conv->engine.a.packing.ports[0].kind == PortPack::Kind::each);
}

TEST_CASE("tiles fit in shared memory and registers") {
  for (const auto& [name, spec] : contraction_specs()) {
    const auto plan = plan_mma(spec, device_model());
    if (!plan) continue;
    INFO("kernel " << name);
    const MmaConfig& e = plan->engine;
    CHECK(e.shared_bytes <= 160u << 10);
    CHECK(e.threads <= 256);
    CHECK(e.tile.m * e.tile.n / e.threads <= 128);
  }
}

}  // namespace
}  // namespace sinter::golden
