// The public entries: the CPU backend and the judge, both on the engine.
#include <algorithm>
#include <new>
#include <numeric>
#include <stdexcept>

#include "reference/chunks.hpp"
#include "reference/engine.hpp"

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

// Takes what the elements of one tensor that are asked for need of its blocks.
class Picked {
 public:
  Picked(const Graph& graph, const JudgeRequest& request)
      : dim_(graph[request.tensor].dim),
        elements_(request.elements),
        order_(elements_.size()),
        judged_(elements_.size(), {0, reference::kUntrusted}) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(),
              [&](std::size_t a, std::size_t b) { return elements_[a] < elements_[b]; });
  }

  // Blocks come one after the other; each answers for the elements that it holds.
  void take(const Block& block) {
    Dims last = block.box.first;
    for (int i = 0; i < last.size(); ++i) last[i] += block.box.size[i] - 1;
    const std::int64_t low = reference::row_major(block.box.first, dim_),
                       high = reference::row_major(last, dim_);
    auto at = std::lower_bound(order_.begin(), order_.end(), low,
                               [&](std::size_t i, std::int64_t x) { return elements_[i] < x; });
    for (; at != order_.end() && elements_[*at] <= high; ++at) {
      Dims c = reference::coordinates(elements_[*at], dim_);
      bool inside = true;
      for (int i = 0; i < c.size(); ++i) {
        c[i] -= block.box.first[i];
        inside &= c[i] >= 0 && c[i] < block.box.size[i];
      }
      if (!inside) continue;
      const auto i = static_cast<std::size_t>(reference::row_major(c, block.box.size));
      judged_[*at] = {block.v[i], block.e.empty() ? 0 : block.e[i]};
    }
  }
  std::vector<Judged> result() { return std::move(judged_); }

 private:
  Dims dim_;
  std::span<const std::int64_t> elements_;
  std::vector<std::size_t> order_;
  std::vector<Judged> judged_;
};

void want(Engine& engine, const Graph& graph, const JudgeRequest& request) {
  for (const Box& b :
       boxes_of(graph[request.tensor].dim, {request.elements.begin(), request.elements.end()}))
    engine.want(request.tensor, b);
}

Result<std::vector<std::vector<Judged>>> judge_elements(const Graph& graph,
                                                        const HostPointers& inputs,
                                                        std::span<const JudgeRequest> requests) {
  Engine engine(graph, inputs, true);
  std::map<TensorId, std::size_t> place;
  std::vector<Picked> picked;
  for (const auto& request : requests) {
    place.emplace(request.tensor, picked.size());
    picked.emplace_back(graph, request);
    want(engine, graph, request);
  }
  Status done = engine.run(
      [&](TensorId tensor, const Block& block) { picked[place.at(tensor)].take(block); });
  if (!done) return done.errors();
  std::vector<std::vector<Judged>> results;
  for (Picked& p : picked) results.push_back(p.result());
  return results;
}

}  // namespace

Status evaluate(const Graph& lowered, const HostPointers& memory) {
  try {
    return reference::evaluate_in_chunks(lowered, memory, reference::chunks_needed(lowered));
  } catch (const std::bad_alloc&) {
    return out_of_memory(lowered);
  } catch (const std::length_error&) {
    return out_of_memory(lowered);
  }
}

Result<std::vector<std::vector<Judged>>> judge(const Graph& lowered, const HostPointers& inputs,
                                               std::span<const JudgeRequest> requests) {
  try {
    return judge_elements(lowered, inputs, requests);
  } catch (const std::bad_alloc&) {
    return out_of_memory(lowered);
  } catch (const std::length_error&) {
    return out_of_memory(lowered);
  }
}

Result<std::vector<Judged>> judge(const Graph& lowered, const HostPointers& inputs, TensorId tensor,
                                  std::span<const std::int64_t> elements) {
  const JudgeRequest request{tensor, elements};
  auto judged = judge(lowered, inputs, std::span(&request, 1));
  if (!judged) return judged.errors();
  return std::move(judged->front());
}

double judge_cost(const Graph& lowered, std::span<const JudgeRequest> requests) {
  const HostPointers nothing;
  Engine engine(lowered, nothing, true);
  for (const auto& request : requests) want(engine, lowered, request);
  return engine.cost();
}

}  // namespace sinter
