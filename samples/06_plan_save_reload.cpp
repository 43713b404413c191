// A plan is data: make it once, compile machine code into it, keep it as text, load it in a process
// that needs no compiler. Where NVRTC is missing the plan holds sources alone.
//
// A plan is also code: what it holds is run. Load plans that you trust, as you would libraries.
#include "common.hpp"

using namespace samples;

namespace {

std::vector<float> run(const sinter::Plan& plan, sinter::Device device) {
  constexpr int rows = 8, width = 64;
  const auto executable = need(sinter::load(plan, device));
  const Array<float> x(device, uniform(rows * width, 3, 1)), y(device, rows * width);
  const Scratch scratch(executable);
  need(executable.execute(nullptr, {{"x", x}, {"y", y}}, scratch));
  need(sinter::synchronize(device));
  return y.get();
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  sinter::Graph graph({.name = "scaled_softmax"});
  auto x = graph.tensor("x", {8, 64});
  graph.output(softmax(x * 0.5), "y");

  const std::vector<std::string> targets = {device.is_cpu() ? std::string("sm_90a")
                                                            : need(device.target())};
  auto made = sinter::Plan::make(graph, {.targets = targets});
  const bool compiled = made.ok();
  if (!compiled) {
    if (made.error().rule != sinter::Rule::compiler_missing) need(std::move(made));
    std::printf("no machine code in the plan: %s\n", made.error().message().c_str());
    made = sinter::Plan::make(graph);
  }
  const auto plan = need(std::move(made));

  const std::string text = plan.to_json();
  const auto again = need(sinter::Plan::from_json(text, "memory"));
  std::printf("plan '%s': %d kernel(s), machine code for %s, %zu bytes of JSON\n",
              again.name().c_str(), again.kernels(), compiled ? targets[0].c_str() : "no target",
              text.size());

  Check check;
  check.that("reading a plan and writing it gives the same bytes", again.to_json() == text);
  check.that("a damaged plan is refused",
             !sinter::Plan::from_json(std::string_view(text).substr(0, text.size() / 2)).ok());
  const auto first = run(plan, device), second = run(again, device);
  for (std::size_t i = 0; i < first.size(); ++i)
    check.that("both plans give the same bits", first[i] == second[i]);
  for (int r = 0; r < 8; ++r) {
    double sum = 0;
    for (int c = 0; c < 64; ++c) sum += second[r * 64 + c];
    check.close("a row of the softmax sums to 1", sum, 1, 1e-5);
  }
  return check.verdict("06_plan_save_reload");
}
