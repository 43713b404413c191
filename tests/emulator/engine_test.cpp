// The parts of codegen/device/engine in small kernels: swizzles and layouts of operands, loaders,
// results stored by TMA. They compile for sm_90a without a complaint and are
// exact in the emulator, and wrong or refused there where a wait is left out.
#include <fmt/format.h>

#include "emulator/emulator.hpp"
#include "emulator/hand_written.hpp"
#include "runtime/compiler.hpp"
#include "support/can_compile.hpp"

namespace sinter::test {
namespace {

PlanKernel kernel_of(const std::string& name, std::string source, unsigned grid, unsigned threads,
                     unsigned shared_bytes) {
  PlanKernel k;
  k.entry = "sinter_" + name;
  k.source = std::move(source);
  k.grid = grid;
  k.block = threads;
  k.shared_bytes = shared_bytes + 1023;
  return k;
}

void check_compiles(const PlanKernel& k) {
  if (!test::can_compile()) return;
  std::string log;
  const auto code = compile_uncached({k.source, k.entry, "sm_90a"}, &log);
  if (!code) FAIL_CHECK(code.error().message());
  CAPTURE(log);
  CHECK(log.find("serialized") == std::string::npos);
  CHECK(log.find("spill") == std::string::npos);
}

// ---- loaders.cu: y[i, j] = sum over k of a[i, k] b[j, k], 64 x 64 x 200

enum class Source { boxes, gathered, computed, pages };
struct LoadersCase {
  int swizzle_a = 128, swizzle_b = 128;
  bool k_a = true, k_b = true;  // k is fastest
  Source a = Source::boxes, b = Source::boxes;
  int depth = 64;  // of a stage
};

std::string text_of(const LoadersCase& c) {
  const auto tile = [&](const char* name, bool k_fastest, int swizzle) {
    return Change{fmt::format("using {} = SharedTile<bf16, Major::k, 64, 64>;", name),
                  fmt::format("using {} = SharedTile<bf16, Major::{}, 64, {}, {}>;", name,
                              k_fastest ? "k" : "mn", c.depth, swizzle)};
  };
  std::vector<Change> changes = {tile("TileA", c.k_a, c.swizzle_a),
                                 tile("TileB", c.k_b, c.swizzle_b)};
  const auto turn = [&](const char* boxes, const char* map) {
    changes.push_back(
        {fmt::format("struct {} : Boxes {{", boxes),
         fmt::format("struct {} {{\n  static constexpr bool k_fastest = false;", boxes)});
    changes.push_back({fmt::format("args.{}, to, barrier, blocks, k, row)", map),
                       fmt::format("args.{}, to, barrier, blocks, row, k)", map)});
  };
  if (!c.k_a) turn("BoxesA", "map_a");
  if (!c.k_b) turn("BoxesB", "map_b");
  if (c.a == Source::gathered)
    changes.push_back({"using LoadA = TiledA", "using LoadA = Gathered"});
  if (c.a == Source::computed) changes.push_back({"using LoadA = TiledA", "using LoadA = Made"});
  if (c.b == Source::pages) changes.push_back({"using LoadB = TiledB", "using LoadB = Paged"});
  // What is not used need not fit the tiles.
  if (c.a != Source::gathered)
    changes.push_back({"using Gathered = GatheredRows<TileA, kDepth>;", "struct Gathered;"}),
        changes.push_back({"SINTER_DEVICE Gathered aimed_a",
                           "template <class Gathered> SINTER_DEVICE Gathered aimed_a"});
  return changed(device_text("loaders"), changes);
}

std::string run(const LoadersCase& c, const Edit& edit = {}, bool compile = false) {
  constexpr int kRows = 64, kDepth = 200, kPage = 16;
  constexpr unsigned kBlocks = 4;  // each is emulated in another of the four ways
  const Numbers a = small_integers(kRows * kDepth, 1), b = small_integers(kRows * kDepth, 2);
  // Element [i, k] lies at i * depth + k, or at k * rows + i.
  const auto at = [&](const Numbers& of, bool k_fastest, int i, int k) {
    return of.values[static_cast<std::size_t>(k_fastest ? i * kDepth + k : k * kRows + i)];
  };
  const auto map = [&](const Numbers& of, bool k_fastest, int swizzle) {
    return k_fastest
               ? box_map(of.bits.data(), {kDepth, kRows}, {1, kDepth}, {swizzle / 2, 64}, swizzle)
               : box_map(of.bits.data(), {kRows, kDepth}, {1, kRows}, {swizzle / 2, c.depth},
                         swizzle);
  };
  std::vector<std::int32_t> table;
  for (int i = 0; i < kRows; ++i)
    table.push_back(c.b == Source::pages ? (i * 7 + 3) % (kRows / kPage)
                                         : (i % 9 == 4 ? -1 : i * 37 % kRows));
  std::vector<float> y(kBlocks * kRows * kRows, -1);
  ArgumentImage arguments;
  arguments.add(map(a, c.k_a, c.swizzle_a));
  arguments.add(c.b == Source::pages
                    ? box_map(b.bits.data(), {kDepth, kPage, kRows / kPage},
                              {1, kDepth, kPage * kDepth}, {c.swizzle_b / 2, kPage, 1}, c.swizzle_b)
                    : map(b, c.k_b, c.swizzle_b));
  arguments.add(a.bits.data());
  arguments.add(table.data());
  arguments.add(y.data());
  const unsigned stage = static_cast<unsigned>(2 * 64 * c.depth * 2);
  const PlanKernel kernel = kernel_of("loaders", text_of(c), kBlocks, 256, 3 * stage + 48);
  if (compile) check_compiles(kernel);
  if (auto ran = emulate_kernel(kernel, arguments.bytes(), edit); !ran)
    return ran.error().message();
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kRows; ++j) {
      const int of_a = c.a == Source::gathered ? table[static_cast<std::size_t>(i)] : i,
                of_b = c.b == Source::pages
                           ? table[static_cast<std::size_t>(j / kPage)] * kPage + j % kPage
                           : j;
      double want = 0;
      for (int k = 0; k < kDepth && of_a >= 0; ++k)
        want += at(a, c.k_a, of_a, k) * at(b, c.k_b, of_b, k);
      for (unsigned block = 0; block < kBlocks; ++block) {
        const float got =
            y[block * kRows * kRows + static_cast<unsigned>(i) * kRows + static_cast<unsigned>(j)];
        if (got != static_cast<float>(want))
          return fmt::format("y[{}, {}, {}] is {}, not {}", block, i, j, got, want);
      }
    }
  return "";
}

TEST_CASE("engine: operands of every layout, swizzle and loader") {
  const LoadersCase cases[] = {
      {},
      {.swizzle_a = 64, .swizzle_b = 64, .depth = 32},
      {.swizzle_a = 32, .swizzle_b = 32, .depth = 16},
      {.k_a = false, .k_b = false},
      {.swizzle_a = 64, .swizzle_b = 32, .k_a = false, .k_b = false},
      {.swizzle_a = 64, .k_b = false, .depth = 32},
      {.a = Source::gathered},
      {.a = Source::computed},
      {.swizzle_a = 64, .swizzle_b = 64, .a = Source::computed, .depth = 32},
      {.b = Source::pages},
      {.a = Source::gathered, .b = Source::pages},
  };
  for (const LoadersCase& c : cases) {
    INFO("swizzle " << c.swizzle_a << ", " << c.swizzle_b << "; k fastest " << c.k_a << c.k_b
                    << "; loaders " << static_cast<int>(c.a) << static_cast<int>(c.b));
    CHECK(run(c, {}, true) == "");
  }
}

TEST_CASE("engine: the emulator finds what loaders leave out") {
  constexpr const char *kLoader = "sinter/device/engine/loader/loader.cuh",
                       *kPipeline = "sinter/device/engine/pipeline.cuh";
  const LoadersCase gathered{.a = Source::gathered};
  const Edit edits[] = {
      {kLoader, "warp_matrix::wait<most>();", ""},
      {kLoader, "warp_matrix::wait<0>();", ""},
      {kLoader, "pipeline.acquire(state);", ""},
      {kPipeline, "hopper::wait(full(s), s.parity);", ""},
  };
  for (const Edit& e : edits) {
    INFO("without " << e.text);
    CHECK(run(gathered, e) != "");
  }
}

// ---- stored.cu: a contraction whose results leave by TMA

// Tiles of 128 columns have two parts that leave by turns; those of 64 have one: then it is the
// tiles of a block whose results leave by turns.
std::string run_stored(const Edit& edit = {}, bool compile = false, bool narrow = false) {
  constexpr int kRows = 200, kColumns = 200, kDepth = 136;
  const Numbers a = small_integers(kRows * kDepth, 7), b = small_integers(kDepth * kColumns, 8);
  std::vector<std::uint16_t> y(kRows * kColumns, 0x7fff);
  ArgumentImage arguments;
  arguments.add(box_map(a.bits.data(), {kDepth, kRows}, {1, kDepth}, {64, 128}));
  arguments.add(box_map(b.bits.data(), {kColumns, kDepth}, {1, kColumns}, {64, 64}));
  arguments.add(box_map(y.data(), {kColumns, kRows}, {1, kColumns}, {64, 16}));
  arguments.add(a.bits.data());
  arguments.add(b.bits.data());
  arguments.add(y.data());
  const unsigned stage = 128 * (narrow ? 128 + 64 : 128 + 128), used = 2 * (stage + 16) + 8 * 4096;
  std::vector<Change> changes = {
      {"shared_bytes = 0", fmt::format("shared_bytes = {}", used + 1023)}};
  if (narrow)
    changes.insert(changes.end(), {{"SINTER_WGMMA_NAMED(128", "SINTER_WGMMA_NAMED(64"},
                                   {"tile_n = 128", "tile_n = 64"}});
  const PlanKernel kernel =
      kernel_of("stored", changed(device_text("stored"), changes), 2, 384, used);
  if (compile) check_compiles(kernel);
  if (auto ran = emulate_kernel(kernel, arguments.bytes(), edit); !ran)
    return ran.error().message();
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) {
      double sum = 3;
      for (int k = 0; k < kDepth; ++k)
        sum += a.values[static_cast<std::size_t>(i * kDepth + k)] *
               b.values[static_cast<std::size_t>(k * kColumns + j)];
      const std::uint16_t want = encoded(rounded(sum, 8), false),
                          got = y[static_cast<std::size_t>(i * kColumns + j)];
      if (got != want) return fmt::format("y[{}, {}] has {:04x}, not {:04x}", i, j, got, want);
    }
  return "";
}

TEST_CASE("engine: a contraction's results stored by TMA") {
  CHECK(run_stored({}, true) == "");
  constexpr const char *kStore = "sinter/device/family/contraction_store.cuh",
                       *kWgmma = "sinter/device/family/contraction_wgmma.cuh";
  const Edit edits[] = {
      {kStore, "hopper::wait_for_stores<1>();", ""},
      {kWgmma, "hopper::wait_for_stores<0>();", ""},
  };
  for (const Edit& e : edits) {
    INFO("without " << e.text);
    CHECK(run_stored(e) != "");
  }
  CHECK(run_stored({}, true, true) == "");
  CHECK(run_stored({kStore, "(number + turn) % 2", "number % 2"}, false, true) != "");
}

// ---- fragments.cu: y[i, n] = sum over p of (sum over k of a[i, k] b[p, k]) c[n, p]

TEST_CASE("engine: accumulators become operands of every width") {
  constexpr int kSize = 64, kDepth = 16;
  // One 1 in each row of a, so that all sums are small integers.
  std::vector<float> a(kSize * kDepth), b(kSize * kDepth), c(kSize * kSize), y(kSize * kSize, -1);
  const auto at = [](std::vector<float>& of, int row, int columns, int column) -> float& {
    return of[static_cast<std::size_t>(row * columns + column)];
  };
  const Numbers b_numbers = small_integers(kSize * kDepth, 12),
                c_numbers = small_integers(kSize * kSize, 13);
  for (int i = 0; i < kSize; ++i) at(a, i, kDepth, i * 5 % kDepth) = 1;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(b_numbers.values[i]);
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(c_numbers.values[i]);
  const std::pair<const char*, int> types[] = {
      {"bf16", 128}, {"f16", 64}, {"tf32", 128}, {"f8e4m3", 64}, {"f8e5m2", 32}};
  for (const auto& [type, swizzle] : types) {
    INFO(type);
    ArgumentImage arguments;
    for (const void* p : {a.data(), b.data(), c.data(), y.data()}) arguments.add(p);
    const PlanKernel kernel =
        kernel_of("fragments",
                  changed(device_text("fragments"),
                          {{"using Number = bf16;", fmt::format("using Number = {};", type)},
                           {"kSwizzle = 128", fmt::format("kSwizzle = {}", swizzle)}}),
                  1, 128, 4096 + 4096 + 16384);
    check_compiles(kernel);
    const auto ran = emulate_kernel(kernel, arguments.bytes());
    INFO((ran ? "" : ran.error().message()));
    REQUIRE(ran);
    int wrong = 0;
    for (int i = 0; i < kSize; ++i)
      for (int n = 0; n < kSize; ++n) {
        float want = 0;
        for (int p = 0; p < kSize; ++p)
          want += at(b, p, kDepth, i * 5 % kDepth) * at(c, n, kSize, p);
        wrong += at(y, i, kSize, n) != want;
      }
    CHECK(wrong == 0);
  }
}

// ---- attention.cu: 200 queries, 300 keys, 64 numbers each

TEST_CASE("engine: attention, two products a block with the softmax on the sums between them") {
  constexpr int kQueries = 200, kKeys = 300, kSize = 64;
  const Numbers q = small_integers(kQueries * kSize, 9), k = small_integers(kKeys * kSize, 10),
                v = small_integers(kKeys * kSize, 11);
  std::vector<float> y(kQueries * kSize, -100);
  ArgumentImage arguments;
  arguments.add(box_map(q.bits.data(), {kSize, kQueries}, {1, kSize}, {64, 128}));
  arguments.add(box_map(k.bits.data(), {kSize, kKeys}, {1, kSize}, {64, 128}));
  arguments.add(box_map(v.bits.data(), {kSize, kKeys}, {1, kSize}, {64, 128}));
  arguments.add(y.data());
  const PlanKernel kernel =
      kernel_of("attention", device_text("attention"), 2, 384, 5 * 16384 + 80);
  check_compiles(kernel);
  const auto ran = emulate_kernel(kernel, arguments.bytes());
  INFO((ran ? "" : ran.error().message()));
  REQUIRE(ran);
  const auto at = [](const Numbers& of, int row, int i) {
    return of.values[static_cast<std::size_t>(row * kSize + i)];
  };
  for (int i = 0; i < kQueries; ++i) {
    std::vector<double> weight;
    double largest = -1e300, total = 0;
    for (int j = 0; j < kKeys; ++j) {
      double score = 0;
      for (int d = 0; d < kSize; ++d) score += at(q, i, d) * at(k, j, d) / 8;
      weight.push_back(score);
      largest = std::fmax(largest, score);
    }
    for (double& w : weight) total += w = std::exp(w - largest);
    for (int d = 0; d < kSize; ++d) {
      double want = 0;
      for (int j = 0; j < kKeys; ++j)
        want += weight[static_cast<std::size_t>(j)] / total * at(v, j, d);
      // Each weight is rounded to 8 bits, by 2^-9 of itself at most, and no value is above 2;
      // weights and sums of f32 add less than as much again.
      const double got = y[static_cast<std::size_t>(i * kSize + d)];
      if (!(std::fabs(got - want) <= 2 * 2 * 0x1p-9)) {
        FAIL_CHECK("y[" << i << ", " << d << "] is " << got << ", not " << want);
        return;
      }
    }
  }
}

}  // namespace
}  // namespace sinter::test
