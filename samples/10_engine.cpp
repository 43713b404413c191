// What a serving or training engine does beside describing graphs: weights prepared once a model,
// an executable bound once and called with other scalars, parameters updated in place, and a cache
// of plans for the batch sizes that come along.
#include "common.hpp"
#include "sinter/plan_cache.hpp"

using namespace samples;

namespace {

constexpr int kWidth = 32;
Check check;

// Momentum: v' = m v + g, p' = p - rate v', each in the memory of its old value. Rate and m are
// scalars of each call, no part of the plan.
void update_in_place(sinter::Device device) {
  sinter::Graph graph({.name = "update"});
  auto p = graph.tensor("p", {kWidth}), v = graph.tensor("v", {kWidth}),
       g = graph.tensor("g", {kWidth});
  auto rate = graph.scalar_input("rate"), m = graph.scalar_input("momentum");
  auto next = (v * m + g).named("velocity");
  graph.output(next, "next_v", {.alias = v});
  graph.output(p - rate * next, "next_p", {.alias = p});
  const auto executable = need(sinter::compile(graph, device));

  const Array<float> dp(device, kWidth, 1), dv(device, kWidth, 2), dg(device, kWidth, 4);
  const Scratch scratch(executable);
  // Names are looked up and memory is checked here, once. next_v and next_p take v's and p's.
  const auto step = need(executable.bind(
      {{"p", dp}, {"v", dv}, {"g", dg}, {"rate", 0.5}, {"momentum", 0.25}}, scratch));
  need(step.execute(nullptr));                    // v = 4.5, p = -1.25
  need(step.execute(nullptr, {{"rate", 0.25}}));  // v = 5.125, p = -2.53125
  need(sinter::synchronize(device));
  std::printf("updated in place: v = %g, p = %g\n", dv.get()[0], dp.get()[0]);
  check.that("v in place", dv.get()[7] == 5.125f);
  check.that("p in place, with the second rate", dp.get()[7] == -2.53125f);
}

// y = x (w scale): the product of weights is constant, so it is computed once.
void prepare_weights(sinter::Device device) {
  sinter::Graph graph({.name = "folded"});
  auto x = graph.tensor("x", {4, kWidth});
  auto w = graph.tensor({.name = "w", .dim = {kWidth, kWidth}, .constant = true});
  auto scale = graph.tensor({.name = "scale", .dim = {1, kWidth}, .constant = true});
  graph.output(matmul(x, (w * scale).named("folded_w")), "y");
  const auto parts = need(sinter::prepare(graph, {.architecture = need(device.target())}));
  check.that("there is a part of constants", parts.constants.has_value());
  if (!parts.constants) return;
  const auto fold = need(sinter::load(*parts.constants, device));
  const auto run = need(sinter::load(parts.rest, device));

  const Array<float> dx(device, 4 * kWidth, 1), dw(device, kWidth * kWidth, 2);
  const Array<float> dscale(device, kWidth, 0.5f), folded(device, kWidth * kWidth);
  const Array<float> dy(device, 4 * kWidth);
  need(fold.execute(nullptr, {{"w", dw}, {"scale", dscale}, {"folded_w", folded}}, Scratch(fold)));
  for (int call = 0; call < 2; ++call)
    need(run.execute(nullptr, {{"x", dx}, {"folded_w", folded}, {"y", dy}}, Scratch(run)));
  need(sinter::synchronize(device));
  std::printf("folded once: %d kernel(s), then %d a call\n", fold.plan().kernels(),
              run.plan().kernels());
  check.close("y of folded weights", dy.get()[5], kWidth, 1e-4);
}

// A convolution with channels first. The fastest kernel may want the filter in another order: then
// the plan of constants writes it so once, and the plan of the calls reads that and no filter.
void prepare_filter(sinter::Device device) {
  constexpr int channels = 64, side = 28;
  sinter::Graph graph({.name = "channels_first", .io = sinter::bf16});
  auto x = graph.tensor("x", {8, channels, side, side});
  auto w = graph.tensor({.name = "w", .dim = {channels, channels, 1, 1}, .constant = true});
  graph.output(conv_fprop(x, w), "y", {.data_type = sinter::f32});
  const auto parts = need(sinter::prepare(graph, {.architecture = need(device.target())}));

  const std::uint16_t one = 0x3f80;  // of bf16
  const Array<std::uint16_t> dx(device, 8 * channels * side * side, one);
  const Array<std::uint16_t> dw(device, channels * channels, one);
  const Array<float> dy(device, 8 * channels * side * side);
  std::vector<sinter::Memory> made;  // whatever the one plan hands to the other
  std::vector<std::string> names;
  if (parts.constants) {
    const auto once = need(sinter::load(*parts.constants, device));
    for (const auto& t : once.plan().tensors())
      if (t.written) {
        names.push_back(t.name);
        made.push_back(need(sinter::Memory::allocate(device, t.bytes)));
      }
    std::vector<sinter::Binding> bindings{{"w", dw}};
    for (std::size_t i = 0; i < made.size(); ++i) bindings.emplace_back(names[i], made[i]);
    need(once.execute(nullptr, bindings, Scratch(once)));
  }
  const auto run = need(sinter::load(parts.rest, device));
  std::vector<sinter::Binding> bindings{{"x", dx}, {"y", dy}};
  for (std::size_t i = 0; i < made.size(); ++i) bindings.emplace_back(names[i], made[i]);
  bool reads_filter = false;
  for (const auto& t : run.plan().tensors()) reads_filter |= t.name == "w" && t.read;
  if (reads_filter) bindings.emplace_back("w", dw);
  need(run.execute(nullptr, bindings, Scratch(run)));
  need(sinter::synchronize(device));
  std::printf("filter copied once: %s\n", reads_filter ? "not on this device" : "yes");
  check.close("y of a prepared filter", dy.get()[9], channels, 1e-4);
}

void describe(sinter::Graph& graph, std::span<const std::int64_t> extents) {
  auto x = graph.tensor("x", {extents[0], kWidth});
  graph.output(softmax(x, {}, {.name = "probabilities"}), "y");
}

void serve(sinter::PlanCache& cache, sinter::Device device, int batch) {
  const auto run = need(cache.get({batch}));
  const auto size = static_cast<std::size_t>(batch * kWidth);
  const Array<float> x(device, size, 1), y(device, size);
  need(run.execute(nullptr, {{"x", x}, {"y", y}}, Scratch(run)));
  need(sinter::synchronize(device));
  check.close("softmax of equal numbers", y.get()[size - 1], 1.0 / kWidth, 1e-6);
}

// One plan for each batch size, compiled when it is first asked for.
void serve_batches(sinter::Device device) {
  sinter::PlanCache cache(describe, {.device = device, .capacity = 8});
  for (const int batch : {1, 3, 1, 3, 3}) serve(cache, device, batch);
  const auto counts = cache.counts();
  std::printf("5 batches: %lld compiled, %lld found\n", static_cast<long long>(counts.compiles),
              static_cast<long long>(counts.hits));
  check.that("two batch sizes are two compilations", counts.compiles == 2 && counts.hits == 3);
}

// The same where the cache is told which extents come: one text serves all batch sizes of a class.
void serve_any_batch(sinter::Device device) {
  sinter::PlanCache cache(describe, {.device = device, .extents = {sinter::dyn("batch", 1, 64)}});
  for (const int batch : {2, 3, 7, 16, 64}) serve(cache, device, batch);
  const auto refused = cache.get({65});
  check.that("a batch out of range is refused",
             !refused && refused.error().rule == sinter::Rule::tensor_extent);
  const auto counts = cache.counts();
  std::printf("5 batch sizes of %lld classes: %lld compiled\n%s",
              static_cast<long long>(counts.classes), static_cast<long long>(counts.compiles),
              cache.explain().c_str());
  check.that("a class compiles once at the most", counts.compiles <= counts.classes);
}

// No batch waits for the fast kernels of its class: plain ones answer until a thread of the cache
// has compiled them. The CPU backend compiles nothing and needs none.
void serve_at_once(sinter::Device device) {
  sinter::PlanCache cache(
      describe, {.device = device, .background = true, .extents = {sinter::dyn("batch", 1, 64)}});
  serve(cache, device, 9);
  cache.wait();  // for this sample alone, to show what the next calls get
  const auto plain = cache.counts().plain;
  for (const int batch : {9, 5, 12}) serve(cache, device, batch);
  std::printf("compiled in the background: %lld batch(es) with plain kernels\n",
              static_cast<long long>(plain));
  check.that("the class is compiled", cache.counts().plain == plain && cache.failure().empty());
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  update_in_place(device);
  prepare_weights(device);
  prepare_filter(device);
  serve_batches(device);
  serve_any_batch(device);
  serve_at_once(device);
  return check.verdict("10_engine");
}
