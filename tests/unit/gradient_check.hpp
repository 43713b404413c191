// Gradients against central differences of the forward graph, everything in f64 on the CPU backend.
#pragma once
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lower/lower.hpp"
#include "reference/element.hpp"
#include "reference/reference.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

namespace sinter::test {

struct Array {
  Dims dim;
  std::vector<double> values;
  DataType type = f64;
};

// Normal numbers, the same on every run.
inline Array random_array(Dims dim, unsigned seed, double scale = 1) {
  std::mt19937 bits(seed);
  Array a{dim, std::vector<double>(static_cast<std::size_t>(count(dim))), f64};
  for (auto& v : a.values) {  // sum of uniforms: std::normal_distribution differs between libraries
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(bits()) / 4294967296.0;
    v = scale * sum;
  }
  return a;
}
inline Array integers(Dims dim, std::vector<double> values, DataType type = i32) {
  return {dim, std::move(values), type};
}

using Arrays = std::map<std::string, Array>;
using Tensors = std::map<std::string, Tensor>;

inline Tensors declare_inputs(Graph& g, const Arrays& arrays) {
  Tensors t;
  for (const auto& [name, a] : arrays)
    t[name] = g.tensor({.name = name, .dim = a.dim, .data_type = a.type});
  return t;
}

// Lowers the graph, runs it on the inputs and gives its outputs by name.
inline Arrays run_graph(Graph& g, const Arrays& inputs) {
  for (const auto& d : g.check()) FAIL(d.message());
  const Lowered lowered = lower(g);
  for (const auto& d : lowered.graph->check()) FAIL(d.message());
  const Graph& l = *lowered.graph;
  std::vector<std::vector<char>> storage(l.tensors().size());
  HostPointers memory;
  for (TensorId t = 0; t < static_cast<TensorId>(l.tensors().size()); ++t) {
    if (!l.is_input(t) && !l[t].output) continue;
    auto& bytes = storage[static_cast<std::size_t>(t)];
    bytes.resize(static_cast<std::size_t>(count(l[t].dim) * info(l.type(t)).bytes) + 16);
    memory[t] = bytes.data();
    if (l[t].output) continue;
    const auto& values = inputs.at(l[t].name).values;
    for (std::size_t i = 0; i < values.size(); ++i)
      store_element(l.type(t), bytes.data(), static_cast<std::int64_t>(i), values[i]);
  }
  const Status status = evaluate(l, memory);
  if (!status) FAIL(status.error().message());
  Arrays outputs;
  for (const auto& [t, pointer] : memory) {
    if (!l[t].output) continue;
    Array a{l[t].dim, std::vector<double>(static_cast<std::size_t>(count(l[t].dim))), l.type(t)};
    for (std::size_t i = 0; i < a.values.size(); ++i)
      a.values[i] = load_element(a.type, pointer, static_cast<std::int64_t>(i));
    outputs[l[t].name] = std::move(a);
  }
  return outputs;
}

using Forward = std::function<Tensor(Graph&, const Tensors&)>;
// Gradients by the name of the input that they belong to.
using Backward = std::function<Tensors(Graph&, const Tensors&, Tensor dy)>;

// The gradient of sum(dy * forward(inputs)) for a random dy.
inline void check_gradients(const Arrays& inputs, const Forward& forward,
                            const Backward& backward) {
  const GraphOptions options{.name = "g", .io = f64, .intermediate = f64, .compute = f64};
  Graph fg(options);
  fg.output(forward(fg, declare_inputs(fg, inputs)), "y");
  const Array y = run_graph(fg, inputs).at("y");
  const Array dy = random_array(y.dim, 77);
  const auto loss = [&](const Arrays& at) {
    const Array now = run_graph(fg, at).at("y");
    double sum = 0;
    for (std::size_t i = 0; i < now.values.size(); ++i) sum += dy.values[i] * now.values[i];
    return sum;
  };

  Graph bg(options);
  Arrays with_dy = inputs;
  with_dy["dy"] = dy;
  Tensors tensors = declare_inputs(bg, with_dy);
  const Tensor dy_tensor = tensors.at("dy");
  for (const auto& [name, t] : backward(bg, tensors, dy_tensor)) {
    REQUIRE(t);
    bg.output(t, "d_" + name);
  }
  for (const auto& [name, gradient] : run_graph(bg, with_dy)) {
    const std::string of = name.substr(2);
    const Array& x = inputs.at(of);
    REQUIRE(gradient.dim == x.dim);
    const std::size_t step = std::max<std::size_t>(1, x.values.size() / 24);
    double largest = 0;
    for (double v : gradient.values) largest = std::max(largest, std::abs(v));
    CHECK(largest > 0);  // a gradient that is zero everywhere would hide a missing term
    for (std::size_t i = 0; i < x.values.size(); i += step) {
      const double h = 1e-5;
      Arrays moved = inputs;
      moved[of].values[i] = x.values[i] + h;
      const double above = loss(moved);
      moved[of].values[i] = x.values[i] - h;
      const double difference = (above - loss(moved)) / (2 * h);
      INFO("gradient of " << of << " at " << i << " of " << to_string(x.dim));
      CHECK(std::abs(gradient.values[i] - difference) <= 1e-6 * (1 + std::abs(difference)));
    }
  }
}

}  // namespace sinter::test
