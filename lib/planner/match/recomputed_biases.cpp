#include "planner/match/recomputed_biases.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "planner/match/index_mask.hpp"
#include "schedule/attention/backward.hpp"
#include "sinter/ops/shapes_sdpa.hpp"

namespace sinter {
namespace {

using M = PointwiseMode;

// Picoseconds a pair of query and key. (On an H200: b16 h16 s512 d64 plain, with ALiBi's three
// operations, and with a bias of pairs in a box 46.8, 62 and 60.0 us; b32 h12 s512 d64 plain and
// with a mask of keys in a box 69 and 79; gradients of b16 h16 s512 d64 plain, with a box, element
// by element 156, 170 and 225.)
constexpr double kOperation = 0.05, kBox = 0.2, kBoxOfKeys = 0.1, kOfRow = 0.05, kElement = 0.8;
constexpr double kMostOperations = 24;                 // that registers and compilers bear
constexpr int kMostBoxes = 2;                          // loads_beside()
constexpr std::int64_t kLineBytes = 16;                // what boxes begin at
constexpr std::size_t kDBias = 3;                      // the output of sdpa_backward
constexpr std::int64_t kFewRows = 64, kFewKeys = 128;  // visits_seen_tiles()

// In additions' time.
double operations(M mode) {
  if (mode == M::identity || mode == M::gen_index) return 0;
  if (costs_an_addition(mode)) return 1;
  switch (mode) {
    case M::add_square:
    case M::ceil:
    case M::floor:
    case M::round:
    case M::relu_fwd:
      return 1;
    case M::exp:
    case M::sqrt:
    case M::rsqrt:
    case M::reciprocal:
    case M::div:
    case M::tanh_fwd:
    case M::sigmoid_fwd:
      return 8;
    default:
      return kMostOperations;
  }
}

class Biases {
 public:
  Biases(const FusionState& state, std::span<const TensorId> overwritten)
      : state_(state), g_(state.graph()), overwritten_(overwritten) {}

  std::vector<NodeId> run() {
    std::map<TensorId, std::vector<const Region*>> readers;
    for (const Region& r : state_.regions()) {
      const bool forward = r.op == OpKind::sdpa;
      const auto port = static_cast<std::size_t>(forward ? shapes::kSdpaPorts.bias
                                                         : shapes::kSdpaBackwardPorts.bias);
      if (r.written_out || r.inputs[port] < 0) continue;
      readers[r.inputs[port]].push_back(&r);
    }
    std::vector<NodeId> all;
    for (const auto& [bias, regions] : readers) {
      std::vector<NodeId> made = nodes_of(bias, regions);
      all.insert(all.end(), made.begin(), made.end());
    }
    return all;
  }

 private:
  // What `t` is made of, and what is read for it; false where a body cannot have it.
  struct Parts {
    std::set<NodeId> nodes;
    std::set<TensorId> read;
  };
  bool collect(TensorId t, Parts& parts) const {
    if (t < 0 || g_[t].has_value) return true;
    const NodeId p = g_[t].producer;
    if (p >= 0 && parts.nodes.contains(p)) return true;
    if (state_.producer(state_.storage()[t].root) < 0) {
      parts.read.insert(t);
      return fits_f32(state_.storage()[t].type) && !overwrites(t);
    }
    const Node& n = state_.node(p);
    if (n.op != OpKind::pointwise || !g_.is_virtual(t) || state_.storage()[t].root != t ||
        g_.arithmetic(n) != DataType::f32 || !fits_f32(g_.type(t)))
      return false;
    for (NodeId c : state_.consumers(t))
      if (state_.node(c).op != OpKind::pointwise) return false;
    parts.nodes.insert(p);
    const auto operands = state_.operands(p);
    return std::ranges::all_of(operands, [&](TensorId x) { return collect(x, parts); });
  }
  bool overwrites(TensorId t) const {
    return std::ranges::find(overwritten_, state_.storage()[t].root) != overwritten_.end();
  }

  // The extent of the last dim but `i`.
  std::int64_t from_last(TensorId t, int i) const {
    const Dims& dim = g_[t].dim;
    return i < dim.size() ? dim[dim.size() - 1 - i] : 1;
  }
  bool differs_in_head(TensorId t) const { return from_last(t, 0) > 1 || from_last(t, 1) > 1; }

  // Whether boxes of keys can be loaded.
  bool lies_in_lines(TensorId t) const {
    const Location& at = state_.storage()[t];
    const Dims& dim = g_[t].dim;
    const std::int64_t bytes = info(at.type).bytes;
    if (at.stride.back() != 1 || bytes > 4 || at.offset * bytes % kLineBytes != 0) return false;
    for (int i = 0; i + 1 < dim.size(); ++i)
      if (dim[i] > 1 && at.stride[i] * bytes % kLineBytes != 0) return false;
    return true;
  }

  // Picoseconds a pair of what is read; none where it may be read in many places.
  std::optional<double> of_reads(const Parts& parts, bool forward) const {
    double all = 0;
    int boxes = 0;
    for (TensorId t : parts.read) {
      const bool of_keys = from_last(t, 0) > 1, of_rows = from_last(t, 1) > 1;
      if (!of_keys) {
        all += !of_rows ? 0 : forward ? kOfRow : kElement;
        continue;
      }
      if (!lies_in_lines(t) || ++boxes > kMostBoxes) return {};
      const bool boxed = of_rows && boxes == 1 && info(state_.storage()[t].type).bytes == 2;
      all += forward ? (of_rows ? kBox : kBoxOfKeys) : boxed ? kBox : kElement;
    }
    return all;
  }

  // Whether a kernel looks at whole tiles for a mask by indices: see visits_seen_tiles() and
  // attention_of_region().
  bool skips_tiles(const Region& r) const {
    constexpr std::int64_t kWidest = 256;
    const Dims &q = g_[r.inputs[0]].dim, &k = g_[r.inputs[1]].dim, &v = g_[r.inputs[2]].dim;
    return state_.device().has_wgmma && !r.band.left && !r.band.right && q[2] > kFewRows &&
           k[2] > kFewKeys && std::max(q[3], v[3]) <= kWidest &&
           info(state_.storage()[r.inputs[0]].type).bytes < 4;
  }

  // Whether a quotient or a remainder has branches (divisions()): not that by a power of two, or in
  // f32 by a number from 1 on, if the quotient is as small as those of indices are.
  bool has_branches(const Node& n) const {
    const TensorDesc& by = g_[n.inputs[1]];
    int exponent;
    return !by.has_value || (std::get<PointwiseAttributes>(n.attributes).mode == M::div
                                 ? std::frexp(by.value, &exponent) != 0.5
                                 : g_.arithmetic(n) != DataType::f32 || by.value < 1);
  }

  // Whether it then computes the mask for few pairs, in forward always. Gradients whose condition
  // divides, with branches, what differs from pair to pair see few whole tiles. (h16 s8192 d128,
  // us, the mask in memory and computed: every other block of 512 keys 3,603 and 1,451; every
  // fourth key of a window of 2048, whose remainder has no branches, 1,076 and 790, and 1,387 where
  // it had.)
  bool computes_few(const Region& r, bool divides_pairs) const {
    if (r.op == OpKind::sdpa) return true;
    if (divides_pairs) return false;
    const Dims &q = g_[r.inputs[0]].dim, &v = g_[r.inputs[2]].dim;
    return !r.written_out && r.outputs[kDBias] < 0 && r.attributes.softcap == 0 &&
           !r.attributes.alibi_mask && v[2] > kFewKeysUnderMask &&
           masks_pairs(state_.storage()[r.inputs[0]].type, q[3], v[3], state_.device());
  }

  std::vector<NodeId> nodes_of(TensorId bias, const std::vector<const Region*>& regions) const {
    Parts parts;
    if (g_[bias].producer < 0 || state_.recomputed(g_[bias].producer) || !collect(bias, parts))
      return {};
    const double bytes = static_cast<double>(state_.bytes(bias));
    double made = 0, read = 0;
    bool divides_pairs = false;
    for (NodeId n : parts.nodes) {
      const TensorId t = state_.node(n).outputs[0];
      // What is one number a head is computed once a tile (OfHead).
      const M mode = std::get<PointwiseAttributes>(state_.node(n).attributes).mode;
      if (differs_in_head(t)) made += operations(mode);
      if ((mode == M::div || mode == M::mod) && from_last(t, 0) > 1 && from_last(t, 1) > 1 &&
          has_branches(state_.node(n)))
        divides_pairs = true;
    }
    for (TensorId t : parts.read) read += static_cast<double>(state_.bytes(t));
    if (is_index_mask(state_, bias) && std::ranges::all_of(regions, [&](const Region* r) {
          return skips_tiles(*r) && (made <= kMostOperations || computes_few(*r, divides_pairs));
        }))
      return {parts.nodes.begin(), parts.nodes.end()};
    if (made > kMostOperations || read > bytes) return {};
    const DeviceModel& device = state_.device();
    const double stored = device.kernel_microseconds() + 2 * bytes / device.memory_bandwidth;
    double again = 0, from_memory = stored * 1e6;  // in picoseconds
    for (const Region* r : regions) {
      const Dims &q = g_[r->inputs[0]].dim, &k = g_[r->inputs[1]].dim;
      const double pairs = static_cast<double>(q[0] * q[1] * q[2]) * static_cast<double>(k[2]);
      const auto reads = of_reads(parts, r->op == OpKind::sdpa);
      if (!reads) return {};
      again += pairs * (made * kOperation + *reads);
      from_memory += pairs * kBox;
    }
    if (again > from_memory) return {};
    return {parts.nodes.begin(), parts.nodes.end()};
  }

  const FusionState& state_;
  const Graph& g_;
  std::span<const TensorId> overwritten_;
};

}  // namespace

std::vector<NodeId> nodes_of_recomputed_biases(const FusionState& state,
                                               std::span<const TensorId> overwritten) {
  return Biases(state, overwritten).run();
}

}  // namespace sinter
