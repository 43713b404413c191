// Rows, columns and layouts of many lengths: around the widths of packs, warps, blocks and
// clusters, where a row stops fitting in registers, and where reductions are cut in parts. Random
// graphs are too small to meet these.
#include <span>

#include "gpu/gpu_support.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"
#include "support/norm_gradients.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

struct Rows {
  std::int64_t rows, columns;
};

using MakeRows = void (*)(Graph&, Rows);

void softmax_and_norm(Graph& g, Rows s) {
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.columns}});
  const auto bias = g.tensor({.name = "bias", .dim = {1, s.columns}});
  g.output(softmax(x), "probabilities");
  g.output(layernorm(x, scale, bias, 1e-3), "normalised");
}
void residual_norm(Graph& g, Rows s) {
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto r = g.tensor({.name = "r", .dim = {s.rows, s.columns}});
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.columns}, .data_type = f32});
  const auto sum = g.output(x + r, "sum");
  g.output(rmsnorm(sum, scale, Tensor{}, 1e-3), "y");
}
void layernorm_gradients(Graph& g, Rows s) {
  const auto d = norm_gradients(g, OpKind::layernorm_backward, s.rows, s.columns);
  g.output(d.dx, "dx");
  g.output(d.dscale, "dscale", {.data_type = f32});
  g.output(d.dbias, "dbias");
}
// A scale and a bias for each of six images, which lie one behind another or row by row.
void image_gradients(Graph& g, Rows s) {
  const auto image = [&](const char* name, Dims dim, DataType type = {}) {
    return g.tensor({.name = name, .dim = dim, .data_type = type});
  };
  const Dims all{6, s.rows, s.columns}, rows{6, s.rows, 1};
  const auto d = adaptive_layernorm_backward(
      image("dy", all), image("x", all), image("scale", {6, 1, s.columns}),
      image("mean", rows, f32), image("inv_variance", rows, f32));
  g.output(d.dx, "dx");
  g.output(d.dscale, "dscale", {.data_type = f32});
  g.output(d.dbias, "dbias");
}
void interleaved_image_gradients(Graph& g, Rows s) {
  const auto dy = g.tensor({.name = "dy", .dim = {s.rows, 6, s.columns}}),
             x = g.tensor({.name = "x", .dim = {s.rows, 6, s.columns}}),
             inv = g.tensor({.name = "inv", .dim = {s.rows, 6, 1}, .data_type = f32});
  const auto normalised = x * inv, product = dy * normalised;
  const auto slope = reduction(product, ReductionMode::avg, {s.rows, 6, 1});
  g.output((dy - normalised * slope) * inv, "dx");
  g.output(reduction(product, ReductionMode::add, {1, 6, s.columns}), "dscale");
}
// Normalised over channels, which are the second index but lie last.
void channel_gradients(Graph& g, Rows s) {
  const Dims all{2, s.columns, s.rows}, last{s.rows * s.columns, 1, s.columns};
  const auto dy = g.tensor({.name = "dy", .dim = all, .stride = last}),
             x = g.tensor({.name = "x", .dim = all, .stride = last}),
             scale = g.tensor({.name = "scale", .dim = {1, s.columns, 1}}),
             inv = g.tensor({.name = "inv", .dim = {2, 1, s.rows}, .data_type = f32});
  const auto normalised = x * inv, scaled = dy * scale;
  const auto slope = reduction(scaled * normalised, ReductionMode::avg, {2, 1, s.rows});
  g.output((scaled - normalised * slope) * inv, "dx", {.stride = last});
  g.output(reduction(dy * normalised, ReductionMode::add, {1, s.columns, 1}), "dscale");
  g.output(reduction(dy, ReductionMode::add, {1, s.columns, 1}), "dbias", {.data_type = f32});
}
void totals(Graph& g, Rows s) {
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  g.output(reduction(x, ReductionMode::add, {s.rows, 1}), "rows", {.data_type = f32});
  g.output(reduction(x, ReductionMode::avg, {1, s.columns}), "columns", {.data_type = f32});
  g.output(reduction(x, ReductionMode::amax, {1, 1}), "largest");
  g.output(reduction(x, ReductionMode::norm2, {1, s.columns}), "lengths", {.data_type = f32});
}
void transposed_sum(Graph& g, Rows s) {
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto y = g.tensor({.name = "y", .dim = {s.columns, s.rows}});
  const auto bias = g.tensor({.name = "bias", .dim = {1, s.rows}});
  g.output(relu(transpose(x, {1, 0}) + y + bias), "z");
  g.output(transpose(y, {1, 0}), "yt");
}

// Numbers that are drawn for a slice of what is larger start anywhere in a run of four.
Tensor random_numbers(Graph& g, Tensor seed, const Dims& dim, Distribution distribution,
                      bool sliced) {
  const auto offset = g.scalar(5, i64);
  RngAttributes a{.distribution = distribution, .probability = 0.7, .minimum = -1, .maximum = 1};
  if (!sliced) return rng(seed, offset, dim, a);
  return slice(rng(seed, offset, {dim[0], dim[1] + 3}, a),
               {.start = {0, 1}, .limit = {dim[0], dim[1] + 1}});
}
void dropout_norm(Graph& g, Rows s) {
  const auto seed = g.tensor({.name = "seed", .dim = {1}, .data_type = i64});
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto r = g.tensor({.name = "r", .dim = {s.rows, s.columns}});
  const auto kept = random_numbers(g, seed, x.dim(), Distribution::bernoulli, false);
  const auto sum = g.output(x * kept * (1 / 0.7) + r, "sum");
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.columns}});
  g.output(layernorm(sum, scale, scale, 1e-3), "y");
}
void noisy_softmax(Graph& g, Rows s) {
  const auto seed = g.tensor({.name = "seed", .dim = {1}, .data_type = i64});
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto noise = random_numbers(g, seed, x.dim(), Distribution::uniform, true);
  const auto kept = random_numbers(g, seed, x.dim(), Distribution::bernoulli, true);
  g.output(softmax(x + noise).y * kept, "probabilities");
}
void dropout_gradients(Graph& g, Rows s) {
  const auto seed = g.tensor({.name = "seed", .dim = {1}, .data_type = i64});
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto dy = g.tensor({.name = "dy", .dim = {s.rows, s.columns}});
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.columns}});
  const auto inv = g.tensor({.name = "inv_variance", .dim = {s.rows, 1}, .data_type = f32});
  const auto kept = random_numbers(g, seed, x.dim(), Distribution::bernoulli, false);
  const auto d = rmsnorm_backward(dy * kept, x, scale, inv);
  g.output(d.dx, "dx");
  g.output(d.dscale, "dscale", {.data_type = f32});
}
void dropout_across(Graph& g, Rows s) {
  const auto seed = g.tensor({.name = "seed", .dim = {1}, .data_type = i64});
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto y = g.tensor({.name = "y", .dim = {s.columns, s.rows}});
  const auto kept = random_numbers(g, seed, x.dim(), Distribution::bernoulli, false);
  g.output(reduction(x * kept, ReductionMode::add, {1, s.columns}), "columns", {.data_type = f32});
  g.output(transpose(y, {1, 0}) * kept, "transposed");
  g.output(x + random_numbers(g, seed, x.dim(), Distribution::normal, false), "noisy");
}

// Normalised over all rows, about a mean that is large beside the deviations.
void batchnorm_last(Graph& g, Rows s) {
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.columns}});
  const auto n = batchnorm(x + 1000.0, scale, scale, 1e-3);
  g.output(n.y, "y");
  g.output(n.mean, "mean", {.data_type = f32});
  g.output(n.inv_variance, "inv_variance", {.data_type = f32});
}
// Channels of 4 images, the columns being their pixels.
void batchnorm_first(Graph& g, Rows s) {
  const auto x = g.tensor({.name = "x", .dim = {4, s.rows, s.columns}});
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.rows, 1}});
  const auto n = batchnorm(x, scale, scale, 1e-3);
  g.output(n.y, "y");
  g.output(n.inv_variance, "inv_variance", {.data_type = f32});
}
void instancenorm_last(Graph& g, Rows s) {
  const auto x = g.tensor(
      {.name = "x", .dim = {2, s.columns, s.rows}, .stride = {s.rows * s.columns, 1, s.columns}});
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.columns, 1}});
  g.output(instancenorm(x, scale, scale, 1e-3), "y");
}
// 32 groups of channels that lie last, with a mean that is large beside the deviations.
void groupnorm_last(Graph& g, Rows s) {
  const Dims last{s.rows * s.columns, 1, s.columns};
  const auto x = g.tensor({.name = "x", .dim = {2, s.columns, s.rows}, .stride = last});
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.columns, 1}});
  const auto n = groupnorm(x + 1000.0, scale, scale, 1e-3,
                           {.forward_phase = ForwardPhase::training, .groups = 32});
  g.output(swish(n.y), "y", {.stride = last});
  g.output(n.mean, "mean", {.data_type = f32});
  g.output(n.inv_variance, "inv_variance", {.data_type = f32});
}

// Over the largest of each 32.
void segments_of_norm(Graph& g, Rows s) {
  const auto x = g.tensor({.name = "x", .dim = {s.rows, s.columns}});
  const auto scale = g.tensor({.name = "scale", .dim = {1, s.columns}});
  const Dims parts{s.rows, s.columns / 32, 32}, each{s.rows, s.columns / 32, 1};
  const auto y = reshape(layernorm(x, scale, scale, 1e-3).y, parts);
  const auto largest = reduction(y, ReductionMode::amax, each);
  g.output(largest, "largest", {.data_type = f32});
  g.output(y / largest, "y");
}

struct Kind {
  const char* name;
  MakeRows make;
};
constexpr Kind kRandomKinds[] = {{"dropout_norm", dropout_norm},
                                 {"noisy_softmax", noisy_softmax},
                                 {"dropout_gradients", dropout_gradients},
                                 {"dropout_across", dropout_across}};
constexpr Kind kFewResults[] = {{"batchnorm_last", batchnorm_last},
                                {"batchnorm_first", batchnorm_first},
                                {"instancenorm_last", instancenorm_last}};
constexpr Kind kSegments[] = {{"segments_of_norm", segments_of_norm}};
constexpr Kind kGroupnorm[] = {{"groupnorm_last", groupnorm_last}};
constexpr Kind kImageKinds[] = {{"image_gradients", image_gradients},
                                {"interleaved_image_gradients", interleaved_image_gradients},
                                {"channel_gradients", channel_gradients}};
constexpr Kind kKinds[] = {{"softmax_and_norm", softmax_and_norm},
                           {"residual_norm", residual_norm},
                           {"norm_gradients", layernorm_gradients},
                           {"totals", totals},
                           {"transposed_sum", transposed_sum}};
constexpr auto kSoftmaxAndNorms = std::span(kKinds).first(2);

std::vector<GraphSource> graphs(const std::vector<Rows>& shapes, std::span<const Kind> kinds) {
  std::vector<GraphSource> all;
  for (const auto& kind : kinds)
    for (const Rows s : shapes)
      for (const DataType io : {bf16, f32}) {
        const MakeRows make = kind.make;
        const std::string name = std::string(kind.name) + "_" + std::to_string(s.rows) + "x" +
                                 std::to_string(s.columns) + "_" + std::string(sinter::name(io));
        all.push_back({name, all.size(), [=] {
                         auto g = Shared<Graph>::make(
                             GraphOptions{.name = name, .io = io, .intermediate = f32});
                         make(*g, s);
                         return g;
                       }});
      }
  return all;
}

void check(const std::vector<Rows>& shapes, std::span<const Kind> kinds = kKinds) {
  Failures failures;
  const auto sources = graphs(shapes, kinds);
  const Totals t = run_graphs(sources, {.samples = 256, .repeatable = true}, failures);
  CHECK(t.graphs == static_cast<std::int64_t>(sources.size()));
  INFO(failures.text());
  CHECK(failures.all().empty());
}

}  // namespace

TEST_CASE("rows of every kind of length", "[shapes]") {
  check({{3, 1},     {70, 2},    {5, 7},      {600, 8},    {33, 31},    {1030, 64},  {513, 100},
         {300, 129}, {77, 255},  {130, 257},  {40, 1000},  {9, 1023},   {600, 1032}, {20, 2049},
         {15, 4097}, {8, 8200},  {530, 768},  {1100, 384}, {4, 16376},  {3, 20000},  {2, 33000},
         {5, 40008}, {2, 65544}, {2, 100000}, {1, 131080}, {3, 262152}, {2, 300007}, {1, 1048584}});
}

TEST_CASE("segments of rows of every kind of length", "[shapes]") {
  check({{33, 64},
         {70, 96},
         {300, 256},
         {9, 1056},
         {530, 2048},
         {7, 5120},
         {3, 8192},
         {3, 20000},
         {2, 33024},
         {2, 65536},
         {1, 98304}},
        kSegments);
}

// More of them than run at once; also such as start anywhere in memory.
TEST_CASE("many long rows", "[shapes][long]") {
  check({{140, 40008}, {67, 100000}, {30, 200008}, {16, 400008}, {265, 16393}, {140, 40009}},
        kSoftmaxAndNorms);
  check({{67, 65538}, {30, 131073}, {16, 300007}}, kSoftmaxAndNorms);
}

// Clusters of 2, 4 and 8 small blocks, with packs of eight or of four.
TEST_CASE("very many rows of small clusters", "[shapes][long]") {
  check({{517, 5120}, {1031, 8192}, {515, 10240}, {513, 32768}}, kSoftmaxAndNorms);
}

TEST_CASE("gradients of images", "[shapes]") {
  check({{16, 8},
         {20, 24},
         {33, 64},
         {300, 256},
         {129, 1152},
         {40, 2560},
         {25, 5120},
         {24, 12288},
         {19, 18432},
         {40, 100}},
        kImageKinds);
}

// Blocks that loop over many of them, with several rows each or one that is fetched by lanes.
TEST_CASE("gradients of many rows", "[shapes][long]") {
  constexpr auto kGradients = std::span(kKinds).subspan(2, 1);
  static_assert(std::string_view(kGradients[0].name) == "norm_gradients");
  check({{5400, 1152},
         {11000, 1160},
         {2700, 2305},
         {5400, 2560},
         {4000, 3072},
         {2800, 5120},
         {1400, 6144},
         {1333, 7001},
         {1400, 12288},
         {1330, 18432}},
        kGradients);
}

TEST_CASE("columns of every kind of length", "[shapes]") {
  check({{5000, 3},   {4097, 8},    {3000, 24},   {2051, 64},   {70000, 16},  {9000, 129},
         {1024, 256}, {1500, 1000}, {300, 4104},  {1000, 8192}, {200000, 1},  {65537, 40},
         {517, 2048}, {600, 5120},  {140, 16384}, {270, 12296}, {1 << 20, 2}, {1001, 1003},
         {517, 2047}, {2052, 1023}, {333, 5001},  {70, 18432},  {9, 50304},   {40, 12289},
         {33, 24573}, {800, 779},   {600, 334}});
}

TEST_CASE("random numbers in rows of every kind", "[shapes]") {
  check({{70, 2},
         {600, 8},
         {33, 31},
         {513, 100},
         {300, 130},
         {9, 1023},
         {600, 1032},
         {15, 4097},
         {140, 6144},
         {2, 33000},
         {5, 40008},
         {1100, 384},
         {1001, 1003},
         {4097, 8}},
        kRandomKinds);
}

// So many elements that statistics are those of parts.
TEST_CASE("norms with few large statistics", "[shapes]") {
  check({{1 << 17, 8}, {24576, 64}, {12544, 96}, {8200, 130}, {16 * 1009, 72}, {5, 256000}},
        kFewResults);
}

// Groups of 10, 3, 16 and 1 channels, and of so many that one kernel moves them.
TEST_CASE("groups of channels that lie last", "[shapes]") {
  check({{4096, 320}, {12544, 96}, {4096, 512}, {1 << 16, 32}, {1025, 2048}}, kGroupnorm);
}
