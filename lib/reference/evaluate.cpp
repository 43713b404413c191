// The public entries: the CPU backend and the judge, both on the engine.
#include <algorithm>
#include <new>
#include <stdexcept>

#include "reference/engine.hpp"
#include "reference/slabs.hpp"

namespace sinter {
namespace {

using reference::Block;
using reference::Box;
using reference::Engine;

Diagnostic out_of_memory(const Graph& graph) {
  Diagnostic d;
  d.rule = Rule::tensor_size;
  d.attribute = "graph '" + graph.options().name + "'";
  d.seen = "out of host memory while evaluating it";
  return d;
}

// Single elements of one row are asked for as one run where they lie close.
std::vector<Box> boxes_of(const Dims& dim, std::vector<std::int64_t> elements) {
  std::sort(elements.begin(), elements.end());
  std::vector<Box> boxes;
  const std::int64_t row = dim.back();
  for (std::size_t i = 0; i < elements.size();) {
    std::size_t last = i;
    while (last + 1 < elements.size() && elements[last + 1] / row == elements[i] / row &&
           elements[last + 1] - elements[last] <= 4)
      ++last;
    Box box{reference::coordinates(elements[i], dim), Dims::filled(dim.size(), 1)};
    box.size.back() = elements[last] - elements[i] + 1;
    boxes.push_back(box);
    i = last + 1;
  }
  return boxes;
}

Result<std::vector<Judged>> judge_elements(const Graph& graph, const HostPointers& inputs,
                                           TensorId tensor,
                                           std::span<const std::int64_t> elements) {
  std::vector<Judged> judged(elements.size(), {0, reference::kUntrusted});
  if (elements.empty()) return judged;
  const Dims& dim = graph[tensor].dim;
  Engine engine(graph, inputs, true, tensor);
  for (const Box& b : boxes_of(dim, {elements.begin(), elements.end()})) engine.want(tensor, b);
  // Blocks come one after the other; each answers for the elements that it holds.
  std::vector<std::size_t> order(elements.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return elements[a] < elements[b]; });
  Status done = engine.run([&](TensorId, const Block& block) {
    Dims last = block.box.first;
    for (int i = 0; i < last.size(); ++i) last[i] += block.box.size[i] - 1;
    const std::int64_t low = reference::row_major(block.box.first, dim),
                       high = reference::row_major(last, dim);
    auto at = std::lower_bound(order.begin(), order.end(), low,
                               [&](std::size_t i, std::int64_t x) { return elements[i] < x; });
    for (; at != order.end() && elements[*at] <= high; ++at) {
      Dims c = reference::coordinates(elements[*at], dim);
      bool inside = true;
      for (int i = 0; i < c.size(); ++i) {
        c[i] -= block.box.first[i];
        inside &= c[i] >= 0 && c[i] < block.box.size[i];
      }
      if (!inside) continue;
      const auto i = static_cast<std::size_t>(reference::row_major(c, block.box.size));
      judged[*at] = {block.v[i], block.e.empty() ? 0 : block.e[i]};
    }
  });
  if (!done) return done.errors();
  return judged;
}

}  // namespace

Status evaluate(const Graph& lowered, const HostPointers& memory) {
  try {
    return reference::evaluate_in_slabs(lowered, memory, reference::slabs_needed(lowered));
  } catch (const std::bad_alloc&) {
    return out_of_memory(lowered);
  } catch (const std::length_error&) {
    return out_of_memory(lowered);
  }
}

Result<std::vector<Judged>> judge(const Graph& lowered, const HostPointers& inputs, TensorId tensor,
                                  std::span<const std::int64_t> elements) {
  try {
    return judge_elements(lowered, inputs, tensor, elements);
  } catch (const std::bad_alloc&) {
    return out_of_memory(lowered);
  } catch (const std::length_error&) {
    return out_of_memory(lowered);
  }
}

}  // namespace sinter
