// Zero points of quantised operands, behind the product of what lies in memory.
//
//     A8 - za --.              A8 --.
//               matmul -> C  =>     matmul -> - za * sums of (B8 - zb) -> - sums of A8 * zb -> C
//     B8 - zb --'              B8 --'
#include <algorithm>
#include <cmath>

#include "planner/rewrite/pass.hpp"

namespace sinter {
namespace {

bool is_byte(DataType t) { return t == DataType::i8 || t == DataType::u8; }
double largest_of(DataType t) { return std::max(-info(t).lowest, info(t).largest); }

// An operand as integers of 8 bits in memory, less a zero point.
struct Quantised {
  TensorId bytes = kNoTensor, zero = kNoTensor;
  double most = 0;  // of the difference, in absolute terms
};

// The most that a tensor holds, in absolute terms: of integers of 8 bits, and of a known value.
std::optional<double> most_of(const Rewriter& g, TensorId t) {
  if (is_byte(g.type(t))) return largest_of(g.type(t));
  const TensorDesc& d = g[t];
  if (!d.has_value || d.bound_value) return {};
  const double most = std::abs(d.value);
  if (!(most <= largest_of(DataType::u8)) || std::trunc(most) != most) return {};
  return most;
}

// What holds all differences of such integers.
bool holds_differences(DataType t) {
  return t == DataType::i32 || t == DataType::i64 || t == DataType::f32 || t == DataType::f64;
}

// Of a tensor whose values are multiplied along the axis.
std::optional<Quantised> quantised(const Rewriter& g, TensorId operand, int axis) {
  const Dims& dim = g[operand].dim;
  const auto converted = [&](TensorId t) {
    while (g.is_virtual(t) && holds_differences(g.type(t)) && !g.in_region(g.producer(t)) &&
           is_identity(g.node(g.producer(t))) && g[g.node(g.producer(t)).inputs[0]].dim == dim)
      t = g.node(g.producer(t)).inputs[0];
    return t;
  };
  Quantised q;
  TensorId t = converted(operand);
  if (g.is_virtual(t) && holds_differences(g.type(t)) && !g.in_region(g.producer(t))) {
    const Node& n = g.node(g.producer(t));
    if (n.op != OpKind::pointwise ||
        n.attributes != Attributes{PointwiseAttributes{.mode = PointwiseMode::sub}})
      return {};
    const Dims& zero = g[n.inputs[1]].dim;
    const auto most = most_of(g, n.inputs[1]);
    if (!most || (count(zero) != 1 && (zero.size() != dim.size() || zero[axis] != 1))) return {};
    q.zero = n.inputs[1];
    q.most = *most;
    t = converted(n.inputs[0]);
  }
  if (!is_byte(g.type(t)) || g[t].dim != dim) return {};
  q.bytes = t;
  q.most += largest_of(g.type(t));
  return q;
}

Dims broadcast(const Dims& a, const Dims& b) {
  if (a.size() != b.size()) return count(a) == 1 ? b : a;
  Dims both = a;
  for (int i = 0; i < a.size(); ++i) both[i] = std::max(a[i], b[i]);
  return both;
}

bool zero_points(MovedViews& views, NodeId id) {
  // CUDA cores, which take i32 in f64, are done with fewer terms before the sums are.
  constexpr std::int64_t kTerms = 128;
  constexpr double kLargestSum = 2147483647;
  Rewriter& g = views.g;
  const Node n = g.node(id);
  const TensorId y = n.outputs[0], a = n.inputs[0], b = n.inputs[1];
  const DataType compute = n.compute == DataType::none ? g.options().compute : n.compute;
  const int rank = g[y].dim.size(), along_a = rank - 1, along_b = rank - 2;
  if (compute != DataType::i32 || g.in_region(id) ||
      n.attributes != Attributes{MatmulAttributes{}} || rank < 2 || g[a].dim.size() != rank ||
      g[b].dim.size() != rank)
    return false;
  // One row or column is a sum along rows, which reads each operand once.
  if (g[y].dim[along_a] == 1 || g[y].dim[along_b] == 1) return false;
  const std::int64_t k = g[a].dim[along_a];
  const auto of_a = quantised(g, a, along_a), of_b = quantised(g, b, along_b);
  // No sum of them leaves i32, in whichever order they are taken.
  if (!of_a || !of_b || (of_a->zero < 0 && of_b->zero < 0) || k < kTerms ||
      static_cast<double>(k) * of_a->most * of_b->most > kLargestSum)
    return false;

  const auto sums = [&](TensorId x, int axis) {
    Dims dim = g[x].dim;
    dim[axis] = 1;
    const TensorId t = g.tensor_like(x, dim, DataType::i32, "_sums");
    g.make(t, OpKind::reduction, ReductionAttributes{.mode = ReductionMode::add}, {x}, id);
    return t;
  };
  const auto times = [&](TensorId x, TensorId zero) {
    const TensorId t =
        g.tensor_like(y, broadcast(g[zero].dim, g[x].dim), DataType::i32, "_of_zero_points");
    g.make(t, OpKind::pointwise, PointwiseAttributes{.mode = PointwiseMode::mul}, {x, zero}, id);
    return t;
  };
  std::vector<TensorId> behind;  // what is subtracted from the product
  if (of_a->zero >= 0) behind.push_back(times(sums(b, along_b), of_a->zero));
  if (of_b->zero >= 0) behind.push_back(times(sums(of_a->bytes, along_a), of_b->zero));
  TensorId last = g.tensor_like(y, g[y].dim, DataType::i32, "_of_bytes");
  g.make(last, n.op, n.attributes, {of_a->bytes, of_b->bytes}, id);
  for (std::size_t i = 0; i < behind.size(); ++i) {
    const TensorId next = i + 1 == behind.size()
                              ? y
                              : g.tensor_like(y, g[y].dim, DataType::i32, "_less_one_zero_point");
    g.make(next, OpKind::pointwise, PointwiseAttributes{.mode = PointwiseMode::sub},
           {last, behind[i]}, id);
    last = next;
  }
  return true;
}

}  // namespace

extern constinit const Pass zero_points_pass{
    "zero_points",
    "A product of i8 or u8 less their zero points is that of the bytes, which tensor cores "
    "multiply, less "
    "sums of either operand times the other's zero point; of so many terms that none leaves "
    "i32.",
    at_matmuls, zero_points};

}  // namespace sinter
