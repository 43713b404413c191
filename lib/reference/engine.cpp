// Demand is a list of boxes a tensor. Blocks are kept until the last node that reads them has run.
#include "reference/engine.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/parallel.hpp"
#include "reference/regions.hpp"
#include "reference/stored.hpp"

namespace sinter::reference {
namespace {

// Nodes that are looked at between a row's largest score and what is taken from the scores.
constexpr std::size_t kMostBehindMaximum = 16;
// Of softmax that is written out: half of f16's last place at 1, times 2^24 (error_of_scaling()).
constexpr double kMostWrittenOut = 8192;

bool holds_every_value(DataType wide, DataType narrow) {
  if (wide == narrow || wide == f64) return narrow != i64 || wide == narrow;
  return wide == f32 && fits_f32(narrow);
}

// Values and bounds through the rounding of their type.
void round_part(DataType type, std::int64_t n, double* v, double* e) {
  if (type == f64) return;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!e || e[i] == 0) {
      v[i] = round_to(type, v[i]);
      continue;
    }
    const Stored s = stored(type, v[i], e[i]);
    double change = std::max(distance(s.value, s.low), distance(s.high, s.value));
    // Zero for certain, of either sign: its reciprocal is open.
    if (change == 0 && std::signbit(s.low) != std::signbit(s.high) && info(type).floating)
      change = Arithmetic<double>::eta;
    v[i] = s.value;
    e[i] = s.trusted && change < kUntrusted ? change : kUntrusted;
  }
}

}  // namespace

Engine::Engine(const Graph& graph, const HostPointers& memory, bool judging)
    : graph_(graph), memory_(memory), judging_(judging) {
  const std::size_t n = graph.tensors().size();
  wanted_.resize(n);
  blocks_.resize(n);
  scalars_.resize(n);
  alias_.resize(n);
  target_.resize(n);
  readers_.resize(n);
  if (judging) find_exponentials_of_attention();
  for (std::size_t i = 0; i < n; ++i) {
    const auto& t = graph.tensors()[i];
    if (!graph.is_known(static_cast<TensorId>(i))) continue;
    const DataType type = graph.type(static_cast<TensorId>(i));
    scalars_[i] =
        round_to(type, type == i64 || type == i32 ? static_cast<double>(t.integer_value) : t.value);
  }
}

// A view of a graph input needs no copy where storing it would not change a value.
void Engine::resolve_aliases() {
  for (const Node& node : graph_.nodes()) {
    if (node.op != OpKind::transpose && node.op != OpKind::slice) continue;
    const TensorId x = node.inputs[0], y = node.outputs[0];
    if (!(graph_.is_input(x) || alias_[index(x)]) || target_[index(y)]) continue;
    if (holds_every_value(graph_.type(y), graph_.type(x))) alias_[index(y)] = &node;
  }
}

// Drops what other boxes hold; takes the whole tensor where that is not much more.
void Engine::simplify(TensorId tensor) {
  auto& boxes = wanted_[index(tensor)];
  std::erase_if(boxes, [](const Box& b) { return b.volume() == 0; });
  std::sort(boxes.begin(), boxes.end());
  boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
  const Box whole = Box::whole(graph_[tensor].dim);
  std::int64_t volume = 0;
  for (const Box& b : boxes) volume = std::min(volume + b.volume(), whole.volume());
  if (volume * 2 > whole.volume()) {
    boxes = {whole};
    return;
  }
  constexpr std::size_t most_compared = 1024;  // pairs of boxes are compared
  if (boxes.size() > most_compared) return;
  std::vector<Box> kept;
  for (const Box& b : boxes) {
    const bool inside = std::any_of(boxes.begin(), boxes.end(), [&](const Box& other) {
      return !(other == b) && other.contains(b);
    });
    if (!inside) kept.push_back(b);
  }
  boxes = std::move(kept);
}

void Engine::collect_demand() {
  const auto& nodes = graph_.nodes();
  for (std::size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    for (std::size_t port = 0; port < node.outputs.size(); ++port) {
      const TensorId y = node.outputs[port];
      if (y < 0 || wanted_[index(y)].empty()) continue;
      simplify(y);
      for (std::size_t input = 0; input < node.inputs.size(); ++input) {
        const TensorId x = node.inputs[input];
        if (x < 0) continue;
        ++readers_[index(x)];
        for (const Box& box : wanted_[index(y)]) {
          const Box in =
              needed_region(graph_, node, static_cast<int>(input), static_cast<int>(port), box);
          if (in.volume() > 0) wanted_[index(x)].push_back(in);
        }
      }
    }
  }
}

Status Engine::check_bindings() const {
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const auto t = static_cast<TensorId>(i);
    if (!graph_.is_input(t) || wanted_[i].empty()) continue;
    const auto bound = memory_.find(t);
    if (bound != memory_.end() && bound->second) continue;
    Diagnostic d;
    d.rule = bound == memory_.end() ? Rule::binding_missing : Rule::binding_null;
    d.tensor = graph_.label(t);
    return d;
  }
  return Done{};
}

const Block& Engine::block(TensorId tensor, const Box& box) const {
  const auto& blocks = blocks_[index(tensor)];
  const auto at = std::lower_bound(blocks.begin(), blocks.end(), box,
                                   [](const Block& b, const Box& x) { return b.box < x; });
  if (at != blocks.end() && at->box == box) return *at;
  return *std::find_if(blocks.begin(), blocks.end(),
                       [&](const Block& b) { return b.box.contains(box); });
}

// Through the movements that are views themselves, up to what is stored.
View Engine::view(TensorId tensor, const Box& box) {
  std::vector<const Node*> movements;
  Box region = box;
  while (region.volume() > 0 && !graph_[tensor].has_value && alias_[index(tensor)]) {
    movements.push_back(alias_[index(tensor)]);
    region = needed_region(graph_, *movements.back(), 0, 0, region);
    tensor = movements.back()->inputs[0];
  }
  View view = stored_view(tensor, region);
  for (; !movements.empty(); movements.pop_back()) {
    const Node& node = *movements.back();
    const View base = view;
    for (int i = 0; i < base.stride.size(); ++i) {
      if (node.op == OpKind::transpose) {
        const auto& p = std::get<TransposeAttributes>(node.attributes).permutation;
        view.stride[i] = base.stride[static_cast<int>(p[i])];
      } else {
        const auto& a = std::get<SliceAttributes>(node.attributes);
        view.offset += a.start[i] * base.stride[i];
        view.stride[i] *= a.step.empty() ? 1 : a.step[i];
      }
    }
  }
  return view;
}

View Engine::stored_view(TensorId tensor, const Box& box) {
  View view;
  const auto& desc = graph_[tensor];
  if (graph_.is_known(tensor)) {
    view.memory = &scalars_[index(tensor)];
    view.stride = Dims::filled(desc.dim.size(), 0);
    return view;
  }
  if (box.volume() == 0) {
    view.stride = Dims::filled(desc.dim.size(), 0);
    return view;
  }
  if (graph_.is_input(tensor)) {
    view.memory = memory_.at(tensor);
    view.type = graph_.type(tensor);
    view.stride = graph_.stride(tensor);
    return view;
  }
  const Block& b = block(tensor, box);
  view.memory = b.v.data();
  view.error = b.e.empty() ? nullptr : b.e.data();
  view.stride = packed_strides(b.box.size);
  for (int i = 0; i < desc.dim.size(); ++i) view.offset -= b.box.first[i] * view.stride[i];
  return view;
}

std::uint64_t Engine::raw_integer(TensorId tensor) {
  const auto& desc = graph_[tensor];
  if (graph_.is_known(tensor)) return static_cast<std::uint64_t>(desc.integer_value);
  const View v = view(tensor, Box::whole(desc.dim));
  if (v.type == i64) {
    std::uint64_t bits;
    std::copy_n(static_cast<const char*>(v.memory) + v.offset * 8, 8,
                reinterpret_cast<char*>(&bits));
    return bits;
  }
  const Dims zero = Dims::filled(desc.dim.size(), 0);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(v.element(zero).value));
}

// Exponentials of which an attention's weights, or the gradients of scores, are made in f32, and
// the differences that they are taken of: evaluate_pointwise() says what both may be off by. An
// attention that is written out runs as the same kernels: there they are of a difference from a
// row's largest score, and a product multiplies what is made of them.
void Engine::find_exponentials_of_attention() {
  std::vector<bool> seen(graph_.tensors().size());
  exponential_of_attention_.resize(seen.size());
  scaled_first_.resize(seen.size());
  std::vector<TensorId> weights, written_out;
  for (const Node& n : graph_.nodes())
    if (const auto* const m = std::get_if<MatmulAttributes>(&n.attributes))
      (m->of_attention ? weights : written_out).push_back(n.inputs[0]);
  const auto producer = [&](TensorId t) -> const Node* {
    const NodeId p = t >= 0 ? graph_[t].producer : -1;
    return p < 0 ? nullptr : &graph_.nodes()[static_cast<std::size_t>(p)];
  };
  const auto mode = [](const Node& n) {
    const auto* const pointwise = std::get_if<PointwiseAttributes>(&n.attributes);
    return pointwise ? std::optional(pointwise->mode) : std::nullopt;
  };
  const auto is_of_maximum = [&](TensorId t) {
    std::vector<TensorId> behind{t};
    for (std::size_t i = 0; i < behind.size() && i < kMostBehindMaximum; ++i) {
      const Node* const n = producer(behind[i]);
      const auto* const r = n ? std::get_if<ReductionAttributes>(&n->attributes) : nullptr;
      if (r && r->mode == ReductionMode::max) return true;
      if (n && mode(*n)) behind.insert(behind.end(), n->inputs.begin(), n->inputs.end());
    }
    return false;
  };
  const auto mark = [&](std::vector<TensorId> left, bool of_attention) {
    while (!left.empty()) {
      const TensorId t = left.back();
      left.pop_back();
      const Node* const n = producer(t);
      if (!n || seen[index(t)]) continue;
      seen[index(t)] = true;
      if (mode(*n) == PointwiseMode::exp) {
        const Node* const argument = producer(n->inputs[0]);
        const bool difference = argument && mode(*argument) == PointwiseMode::sub;
        if (graph_.arithmetic(*n) != f32 ||
            (!of_attention && !(difference && is_of_maximum(argument->inputs[1]))))
          continue;
        exponential_of_attention_[index(t)] = true;
        if (difference)
          scaled_first_[index(n->inputs[0])] =
              of_attention ? std::numeric_limits<double>::infinity() : kMostWrittenOut;
      } else if (mode(*n) || n->op == OpKind::transpose || n->op == OpKind::reshape) {
        left.insert(left.end(), n->inputs.begin(), n->inputs.end());
      }
    }
  };
  mark(std::move(weights), true);
  mark(std::move(written_out), false);
}

Job Engine::make_job(const Node& node, int port, const Box& box) {
  Job job;
  job.graph = &graph_;
  job.node = &node;
  job.output = port;
  job.box = box;
  job.dim = graph_[node.outputs[static_cast<std::size_t>(port)]].dim;
  job.arithmetic = graph_.arithmetic(node);
  job.precision = precision_of(job.arithmetic);
  job.judging = judging_;
  const std::size_t tensor = index(node.outputs[static_cast<std::size_t>(port)]);
  job.exponential_of_attention = judging_ && exponential_of_attention_[tensor];
  if (judging_) job.scaled_first = scaled_first_[tensor];
  std::vector<Box> needed;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    Operand operand;
    needed.emplace_back();
    if (const TensorId x = node.inputs[i]; x >= 0) {
      needed.back() = needed_region(graph_, node, static_cast<int>(i), port, box);
      operand.view = view(x, needed.back());
      operand.dim = graph_[x].dim;
      operand.present = true;
    }
    job.in.push_back(std::move(operand));
  }
  const bool contraction = node.op == OpKind::matmul || node.op == OpKind::conv_fprop ||
                           node.op == OpKind::conv_dgrad || node.op == OpKind::conv_wgrad ||
                           node.op == OpKind::moe_grouped_matmul;
  if (judging_ && contraction) prepare_contraction(job, needed);
  const bool sums = contraction || node.op == OpKind::reduction || node.op == OpKind::resample ||
                    node.op == OpKind::resample_backward;
  if (judging_ && sums)
    for (std::size_t i = 0; i < std::min<std::size_t>(contraction ? 2 : 1, job.in.size()); ++i)
      note_numbers(job.in[i], node.inputs[i], needed[i]);
  if (node.op == OpKind::moe_grouped_matmul) prepare_moe(job);
  if (node.op == OpKind::rng) {
    job.seed = raw_integer(node.inputs[0]);
    job.offset = raw_integer(node.inputs[1]);
  }
  return job;
}

void Engine::compute(std::vector<Job>& jobs, std::vector<Block>& blocks, DataType type) {
  struct Piece {
    std::size_t job;
    std::int64_t begin, end;
  };
  if (jobs.empty()) return;
  // All jobs are of one node.
  const double each = cost_per_element(graph_, *jobs[0].node, judging_);
  double total = 0;
  for (const Job& j : jobs) total += each * static_cast<double>(j.box.volume());
  const double per_piece = std::max(total / (16.0 * worker_threads()), 1e5);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::int64_t n = jobs[i].box.volume();
    auto step = static_cast<std::int64_t>(per_piece / each) + 1;
    const std::int64_t run = jobs[i].box.size[run_axis(jobs[i].box)];
    if (run > 0 && run <= 65536) step = (step + run - 1) / run * run;
    for (std::int64_t begin = 0; begin < n; begin += step)
      pieces.push_back({i, begin, std::min(n, begin + step)});
  }
  const auto work = [&](std::int64_t i) {
    const Piece& p = pieces[static_cast<std::size_t>(i)];
    double* v = blocks[p.job].v.data() + p.begin;
    double* e = judging_ ? blocks[p.job].e.data() + p.begin : nullptr;
    evaluate_part(jobs[p.job], p.begin, p.end, v, e);
    if (type != DataType::none) round_part(type, p.end - p.begin, v, e);
  };
  if (total < 2e5) {  // starting threads would cost more
    for (std::size_t i = 0; i < pieces.size(); ++i) work(static_cast<std::int64_t>(i));
  } else {
    parallel_for(static_cast<std::int64_t>(pieces.size()), work);
  }
}

void Engine::round(std::vector<Block>& blocks, DataType type) {
  constexpr std::int64_t kPiece = 1 << 14;
  for (Block& b : blocks) {
    const auto n = static_cast<std::int64_t>(b.v.size());
    parallel_for((n + kPiece - 1) / kPiece, [&](std::int64_t i) {
      const std::int64_t begin = i * kPiece;
      round_part(type, std::min(kPiece, n - begin), b.v.data() + begin,
                 b.e.empty() ? nullptr : b.e.data() + begin);
    });
  }
}

void Engine::evaluate(const Node& node, int port) {
  const TensorId y = node.outputs[static_cast<std::size_t>(port)];
  std::vector<Job> jobs;
  auto& blocks = blocks_[index(y)];
  for (const Box& box : wanted_[index(y)]) {
    jobs.push_back(make_job(node, port, box));
    Block b{box, std::vector<double>(static_cast<std::size_t>(box.volume())), {}};
    if (judging_) b.e.resize(b.v.size());
    blocks.push_back(std::move(b));
  }
  compute(jobs, blocks, judging_ && target_[index(y)] ? DataType::none : graph_.type(y));
  for (Block& b : blocks)
    if (std::all_of(b.e.begin(), b.e.end(), [](double e) { return e == 0; })) b.e = {};
  narrowed_.clear();
}

double Engine::cost() {
  for (std::size_t i = 0; i < wanted_.size(); ++i) target_[i] = !wanted_[i].empty();
  resolve_aliases();
  collect_demand();
  double steps = 0;
  for (const Node& node : graph_.nodes())
    for (const TensorId y : node.outputs) {
      if (y < 0 || alias_[index(y)]) continue;
      const double each = cost_per_element(graph_, node, judging_);
      for (const Box& b : wanted_[index(y)]) steps += each * static_cast<double>(b.volume());
    }
  return steps;
}

Status Engine::run(const std::function<void(TensorId, const Block&)>& finished) {
  for (std::size_t i = 0; i < wanted_.size(); ++i) target_[i] = !wanted_[i].empty();
  resolve_aliases();
  collect_demand();
  if (Status bound = check_bindings(); !bound) return bound;
  for (const Node& node : graph_.nodes()) {
    for (std::size_t port = 0; port < node.outputs.size(); ++port) {
      const TensorId y = node.outputs[port];
      if (y < 0 || wanted_[index(y)].empty()) continue;
      if (!alias_[index(y)]) evaluate(node, static_cast<int>(port));
      if (target_[index(y)]) {
        for (const Block& b : blocks_[index(y)]) finished(y, b);
        if (judging_ && readers_[index(y)] > 0) round(blocks_[index(y)], graph_.type(y));
      }
      for (const TensorId x : node.inputs)
        if (x >= 0 && --readers_[index(x)] == 0) blocks_[index(x)] = {};
      if (readers_[index(y)] == 0) blocks_[index(y)] = {};
    }
  }
  return Done{};
}

}  // namespace sinter::reference
