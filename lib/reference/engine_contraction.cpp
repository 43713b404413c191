// What the judge knows of the operands of a sum before it runs: whether the sums are exact, and
// which operands a kernel may narrow for the tensor cores.
#include <algorithm>
#include <bit>
#include <cmath>

#include "lower/region.hpp"
#include "reference/element.hpp"
#include "reference/engine.hpp"

namespace sinter::reference {
namespace {

// The exponent of the lowest set bit of a finite non-zero number.
int lowest_bit(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto field = static_cast<int>(bits >> 52 & 0x7ff);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (field) mantissa |= std::uint64_t{1} << 52;
  return std::countr_zero(mantissa) + std::max(field, 1) - 1075;
}

// Whether rounding a number of type `from` to floating type `to` changes nothing.
bool is_as_wide_a_float(DataType to, DataType from) {
  const auto &t = info(to), &f = info(from);
  return f.floating && t.precision >= f.precision && t.largest >= f.largest &&
         t.min_exponent - t.precision <= f.min_exponent - f.precision;
}
bool is_16_bit_float(DataType t) { return t == f16 || t == bf16; }
bool is_narrow_float(DataType t) { return is_floating(t) && info(t).precision <= 11; }

// Nothing but where an operand's elements are found, so that kernels read them where they lie:
// views, and copies for several heads.
bool is_view(const Node& n) {
  if (n.op == OpKind::transpose || n.op == OpKind::slice || n.op == OpKind::reshape) return true;
  return n.op == OpKind::pointwise &&
         std::get<PointwiseAttributes>(n.attributes).mode == PointwiseMode::identity;
}

// The narrowest type in which the operand's elements are found behind views of them, which are read
// where they lie, whatever type the view has; `pages`: and behind gathered pages.
DataType type_behind_views(const Graph& graph, TensorId x, bool pages) {
  DataType type = graph.type(x);
  while (graph.is_virtual(x)) {
    const Node& from = graph.nodes()[static_cast<std::size_t>(graph[x].producer)];
    if (!is_view(from) && !(pages && from.op == OpKind::page_gather)) break;
    x = from.inputs[0];
    if (is_as_wide_a_float(type, graph.type(x))) type = graph.type(x);
  }
  return type;
}
// How many factors, constant along k, 8-bit numbers are scaled with on the way to the operand; less
// than 0: it is none of that kind. `axis`: along which k lies in x; -1: not known.
int scales_of_bytes(const Graph& graph, TensorId x, int axis) {
  constexpr int kMost = 8;  // and no more are looked for
  int scales = 0;
  for (int steps = 0; steps < 4 * kMost; ++steps) {
    const DataType type = graph.type(x);
    if (info(type).bytes == 1 && type != DataType::f8e8m0) return scales;
    if (!graph.is_virtual(x) || scales == kMost) break;
    const Node& from = graph.nodes()[static_cast<std::size_t>(graph[x].producer)];
    const auto* const pointwise = std::get_if<PointwiseAttributes>(&from.attributes);
    const bool divided = pointwise && pointwise->mode == PointwiseMode::div;
    if (is_view(from)) {
      axis = -1;
      x = from.inputs[0];
      continue;
    }
    if (!divided && !(pointwise && pointwise->mode == PointwiseMode::mul)) break;
    const auto constant = [&](TensorId t) {
      const Dims& dim = graph[t].dim;
      return axis < 0 || axis >= dim.size() || dim[axis] == 1;
    };
    // The factor is the one that is no 8-bit number, nor made of one.
    const TensorId first = from.inputs[0], second = from.inputs[1];
    const auto bytes = [&](TensorId t) {
      return info(graph.type(t)).bytes == 1 || graph.is_virtual(t);
    };
    const bool swapped = !divided && !bytes(first) && bytes(second);
    if (!constant(swapped ? first : second)) break;
    x = swapped ? second : first;
    ++scales;
  }
  return -1;
}
bool eight_bits(const Graph& graph, TensorId x) {
  const DataType type = type_behind_views(graph, x, false);
  return type == f8e4m3 || type == f8e5m2;
}

}  // namespace

// Finds the operand's `numbers`.
void Engine::note_numbers(Operand& operand, TensorId tensor, const Box& box) {
  const auto [entry, fresh] = numbers_.try_emplace(std::tuple{tensor, box, operand.view.memory});
  if (!fresh) {
    operand.numbers = entry->second;
    return;
  }
  constexpr int useless = -200;  // no sum of anything this fine is exact
  const double least_normal = std::ldexp(1.0, info(f16).min_exponent);
  int lowest = 1000;
  Numbers found;
  bool& finite = found.finite;
  if (box.volume() > 0) {
    std::vector<double> line, errors;
    const int axis = run_axis(box);
    for_runs(box, axis, 0, box.volume(), [&](const Dims& at, std::int64_t n, std::int64_t) {
      line.resize(static_cast<std::size_t>(n));
      operand.view.read(operand.view.at(at), operand.view.stride[axis], n, line.data());
      if (operand.view.error) {  // what is not judged may be infinite or NaN
        errors.resize(line.size());
        operand.view.read_errors(operand.view.at(at), operand.view.stride[axis], n, errors.data());
        for (const double e : errors) finite &= e < kUntrusted;
      }
      for (const double x : line) {
        finite &= std::isfinite(x);
        if (x == 0 || !std::isfinite(x)) continue;
        lowest = std::min(lowest, lowest_bit(x));
        found.largest = std::max(found.largest, std::fabs(x));
        found.subnormal_as_f16 |= std::fabs(x) < least_normal;
      }
    });
  }
  found.unit = std::ldexp(1.0, std::clamp(lowest, useless, 500));
  operand.numbers = entry->second = found;
}

// The operand as a kernel may read it: rounded to `type`, by any rounding to a neighbour.
// `part_of_largest`: times a power of two of its own for each row, so that numbers that would be
// subnormal lose so much of the row's largest, and no number is known to be rounded to itself but
// zero.
Operand Engine::narrowed(const Operand& operand, TensorId tensor, const Box& box, DataType type,
                         double part_of_largest) {
  const auto [entry, fresh] = narrowed_.try_emplace(std::pair{tensor, box});
  Block& b = entry->second;
  if (fresh) {
    b.box = box;
    b.v.resize(static_cast<std::size_t>(box.volume()));
    b.e.resize(b.v.size());
    const double u = std::ldexp(1.0, -info(type).precision),
                 subnormal = std::ldexp(1.0, info(type).min_exponent - info(type).precision);
    const bool scaled = part_of_largest > 0;
    const int axis = run_axis(box);
    for_runs(box, axis, 0, box.volume(),
             [&](const Dims& at, std::int64_t n, std::int64_t position) {
               const View& view = operand.view;
               const std::int64_t start = view.at(at), step = view.stride[axis];
               double *v = b.v.data() + position, *e = b.e.data() + position;
               view.read(start, step, n, v);
               if (view.error) view.read_errors(start, step, n, e);
               double eta = subnormal;
               if (scaled) {
                 eta = 0;
                 for (std::int64_t i = 0; i < n; ++i) eta = std::fmax(eta, std::fabs(v[i]));
                 eta *= part_of_largest;
               }
               for (std::int64_t i = 0; i < n; ++i) {
                 const bool exact = scaled ? v[i] == 0 : round_to(type, v[i]) == v[i];
                 if (e[i] == 0 && (exact || v[i] != v[i])) continue;
                 const double reach = std::fabs(v[i]) + e[i];
                 e[i] = reach <= info(type).largest ? e[i] + u * reach + eta : kUntrusted;
               }
             });
    if (std::all_of(b.e.begin(), b.e.end(), [](double e) { return e == 0; })) b.e = {};
  }
  Operand narrow = operand;
  narrow.view = {};
  narrow.view.memory = b.v.data();
  narrow.view.error = b.e.empty() ? nullptr : b.e.data();
  narrow.view.stride = packed_strides(box.size);
  for (int i = 0; i < box.rank(); ++i) narrow.view.offset -= box.first[i] * narrow.view.stride[i];
  return narrow;
}

// Virtual f32 operands may be rounded to the graph's 16-bit io type, those of attention beside
// operands of 16 bits or fewer in any graph, and f32 ones to tf32 where the compute type says so
// (GRAPH_JSON.md).
void Engine::prepare_contraction(Job& job, const std::vector<Box>& needed) {
  const DataType io = graph_.options().io;
  const bool tf32_allowed = graph_.compute(*job.node) == tf32;
  const auto* const matmul = std::get_if<MatmulAttributes>(&job.node->attributes);
  const bool f8_weights = matmul && matmul->f8_weights && eight_bits(graph_, job.node->inputs[1]);
  for (std::size_t i = 0; i < 2; ++i) {
    const TensorId x = job.node->inputs[i];
    const DataType type = graph_.type(x);
    DataType narrow = DataType::none;
    double part_of_largest = 0;
    if (i == 0 && f8_weights) {
      // Kernels have the largest weight of a row at 2^5 or above.
      narrow = f8e4m3, part_of_largest = 0x1p-15;
    } else if (type == f32 && graph_.is_virtual(x) && is_16_bit_float(io))
      narrow = io;
    else if (type == f32 && graph_.is_virtual(x) && i == 0 && matmul && matmul->of_attention)
      narrow =
          attention_factor_type(type_behind_views(graph_, job.node->inputs[1], true), false, io);
    if (type == f32 && narrow == DataType::none && tf32_allowed) narrow = tf32;
    job.tensor_cores |= is_narrow_float(type) || narrow != DataType::none;
    job.f16_factors |= narrow == f16 || type_behind_views(graph_, job.node->inputs[i], true) == f16;
    if (tf32_allowed) job.tensor_core_depth = 8;
    // What is read in place from a graph input of a narrow type loses nothing.
    const bool exact = is_as_wide_a_float(narrow, job.in[i].view.type);
    if (narrow != DataType::none && !exact && needed[i].volume() > 0)
      job.in[i] = narrowed(job.in[i], x, needed[i], narrow, part_of_largest);
  }
  // Hopper's tensor cores align 32 products of 8-bit numbers and the sum so far to the largest of
  // the 33 and cut each off 13 bits behind its first (DeepSeek-V3 technical report, 3.3.2: "around
  // 14 bits"). Kernels add their results up in f32 every 128 terms, so that four such steps follow
  // one another: 4 * 33 * 2^-13 of the sum of magnitudes at most, in units of f32's round-off.
  // Sevenfold 2^-13 was seen on an H200.
  if ((f8_weights || eight_bits(graph_, job.node->inputs[0])) &&
      eight_bits(graph_, job.node->inputs[1])) {
    job.tensor_cores = true;  // through views of another type, too
    job.tensor_core_floor = 4 * 33 * 0x1p11;
    job.precision.integers = 0x1p13;  // sums up to here lose nothing
  }
  // Kernels multiply the sums with such factors: a product is rounded, and then its multiple.
  if (job.arithmetic == f32)
    for (int i = 0; i < 2; ++i) {
      const TensorId x = job.node->inputs[static_cast<std::size_t>(i)];
      const int rank = graph_[x].dim.size(), axis = matmul ? rank - 1 - i : -1;
      job.scaled_sums += std::max(0, scales_of_bytes(graph_, x, axis));
    }
  if (job.arithmetic == f64) job.tensor_cores = false;
}

}  // namespace sinter::reference
