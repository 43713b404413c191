// Contraction: a matmul or convolution with the elementwise nodes after it (epilogue) and, where
// that reads no more than before, the ones that make an operand (prologue).
//
//     f(A') --\                                   f, g: prologue, applied as operands are loaded
//              contraction ----> epilogue ----> y, z, ...
//     g(B') --/        side inputs ----/ \       epilogue: any DAG over the result's dims
//                                         reduce ----> totals
//
// A second product with the same left operand may join where the epilogue uses both (gated units).
// Values of the epilogue may be reduced over all rows of the result, all columns or both (gradients
// of a bias, amax); such a total is complete only when the kernel has ended.
#include <fmt/format.h>

#include <algorithm>

#include "fusion_patterns/chained.hpp"
#include "fusion_patterns/growth.hpp"
#include "lower/op_kinds.hpp"
#include "planner/match/pattern.hpp"
#include "planner/rearrange/materialised_operands.hpp"
#include "planner/rearrange/narrowed_operands.hpp"
#include "planner/spec/contraction_spec.hpp"
#include "planner/spec/row_sums.hpp"
#include "planner/split/split_k.hpp"
#include "schedule/contraction/depthwise.hpp"

namespace sinter {
namespace {

// The operand's tensors that a prologue of these nodes would read at full size.
std::int64_t bytes_read(const FusionState& state, const std::vector<NodeId>& nodes) {
  std::int64_t bytes = 0;
  std::vector<TensorId> seen;
  for (NodeId n : nodes)
    for (TensorId t : state.node(n).inputs) {
      if (t < 0 || state.graph()[t].has_value) continue;
      const NodeId p = state.producer(t);
      if (p >= 0 && (contains(nodes, p) || state.recomputed(p))) continue;
      bool known = false;
      for (TensorId s : seen) known |= s == t;
      if (!known) bytes += state.bytes(t);
      seen.push_back(t);
    }
  return bytes;
}

// True when some tensor of these dims is loaded by the nodes: its access knows the padding.
bool loads_whole(const FusionState& state, const std::vector<NodeId>& nodes, const Dims& dim) {
  for (NodeId n : nodes)
    for (TensorId t : state.node(n).inputs)
      if (t >= 0 && !state.graph()[t].has_value && state.graph()[t].dim == dim &&
          !(state.producer(t) >= 0 &&
            (contains(nodes, state.producer(t)) || state.recomputed(state.producer(t)))))
        return true;
  return false;
}

// A node between two products joins one's kernel, and what it shares with the other is in memory:
// of this kernel what it reads of it or gives to it, of the other that one's sums. The other takes
// it where those are larger. (gelu's gradient from dy W2' and from x W1, which is stored in 16
// bits.)
Refusal left_to_other_product(const FusionState& state, const std::vector<NodeId>& nodes,
                              NodeId anchor, NodeId n) {
  std::int64_t own = 0, sums = 0;
  NodeId other = -1;
  for (TensorId t : state.node(n).inputs) {
    const NodeId p = t >= 0 ? state.producer(t) : -1;
    if (p < 0) continue;
    if (contains(nodes, p)) {
      own += state.bytes(t);
    } else if (is_contraction(state.node(p).op) && state.free(p) &&
               state.consumers(t).size() == 1 &&
               state.node(p).inputs[0] != state.node(anchor).inputs[0]) {
      sums += state.bytes(t);
      other = p;
    }
  }
  if (other < 0) return {};
  for (TensorId t : state.node(n).outputs) {
    if (t < 0) continue;
    const auto& readers = state.consumers(t);
    if (std::any_of(readers.begin(), readers.end(), [&](NodeId r) { return contains(nodes, r); }))
      own += state.bytes(t);
  }
  if (own >= sums || state.makes_cycle({other}, n)) return {};
  return "the kernel of " + state.graph().label(state.node(other)) +
         " takes it, whose sums are larger than what it shares with this one";
}

class ContractionPattern final : public Pattern {
 public:
  std::string_view name() const override { return "contraction"; }

  bool anchors(const FusionState& state, NodeId n) const override {
    return is_contraction(state.node(n).op);
  }

  std::optional<Match> propose(FusionState& state, NodeId anchor, bool explain) const override {
    // The most that some engine can do.
    Match m;
    for (const bool accelerated : {true, false}) {
      if (accelerated && !for_accelerator(state, anchor)) continue;
      for (const Extras extras :
           {Extras{true, true}, Extras{true, false}, Extras{false, true}, Extras{false, false}}) {
        m = grown(state, anchor, extras, explain);
        add_prologues(state, m, accelerated, explain);
        if (possible(state, m, accelerated)) {
          m.saved_bytes = saved_bytes(state, m.nodes);
          return m;
        }
      }
    }
    m.saved_bytes = saved_bytes(state, m.nodes);
    return m;
  }

  std::vector<KernelSpec> lower(const FusionState& state, const Match& m) const override {
    KernelSpec spec = contraction_spec(state, m.nodes, m.anchor);
    if (plan_depthwise(spec, state.device())) return {std::move(spec)};
    return {as_row_sums(std::move(spec))};
  }

 private:
  // What not every engine has: a second product with the same left operand, reduced results.
  struct Extras {
    bool product, reductions;
  };

  // Some prologues are taken by one engine alone, that of warpgroups.
  static bool for_accelerator(const FusionState& state, NodeId anchor) {
    return state.device().has_wgmma &&
           (only_accelerated(state, anchor, 0) || only_accelerated(state, anchor, 1));
  }

  // Whether scales of blocks may be a prologue of any engine: where another one with the operand in
  // memory takes less, it is written first (materialise_operands). Of few rows it is not. (i8 with
  // a scale for 128, 11008 x 4096 for 16 rows: the product that is written is 90 MB of 16 bits,
  // what it is made of 45.)
  static bool written_where_faster(const FusionState& state, NodeId product) {
    const DataType io = state.graph().options().io;
    return state.device().has_wgmma && state.node(product).op == OpKind::matmul &&
           (io == DataType::f16 || io == DataType::bf16);
  }

  bool possible(const FusionState& state, const Match& m, bool accelerated) const {
    const bool extra = accelerated || std::any_of(m.nodes.begin(), m.nodes.end(), [&](NodeId n) {
                         const OpKind op = state.node(n).op;
                         return n != m.anchor && (is_contraction(op) || op == OpKind::reduction);
                       });
    if (!extra) return true;
    KernelSpec spec = contraction_spec(state, m.nodes, m.anchor);
    narrow_alone(state, spec);
    return fits_one_kernel(spec, state.context(), accelerated ? Engines::fastest : Engines::any) &&
           !sums_cost_engine(state, m, spec);
  }

  // Of a convolution that has the engine of warpgroups once its operands are rearranged, but not
  // with reduced results, such as a strided gradient: whether it takes less with these in a kernel
  // of their own. (1-D, stride 2, 1280 channels, a filter of packed taps: 3,940 and 320 us by the
  // estimates.)
  static bool sums_cost_engine(const FusionState& state, const Match& m, const KernelSpec& with) {
    const DeviceModel& device = state.device();
    if (!device.has_wgmma || with.cross_row_reductions.empty() ||
        is_matmul(state.node(m.anchor).op))
      return false;
    const ScheduledKernel one = schedule_kernel(with, state.context());
    if (one.wgmma() || one.depthwise()) return false;
    std::vector<NodeId> nodes;
    double apart = 0;
    for (const NodeId n : m.nodes) {
      if (state.node(n).op != OpKind::reduction) {
        nodes.push_back(n);
        continue;
      }
      apart += static_cast<double>(state.bytes(state.node(n).inputs[0])) / device.memory_bandwidth +
               device.launch_microseconds;
    }
    apart += microseconds_of_all(contraction_spec(state, nodes, m.anchor), state);
    return microseconds_of_all(with, state) > apart;
  }

  Match grown(FusionState& state, NodeId anchor, Extras extras, bool explain) const {
    Match m{{anchor}, anchor, 0};
    const Dims domain = without_leading_ones(state.graph()[state.node(anchor).outputs[0]].dim);
    const auto grow_by = [&](bool reductions, bool explain_now) {
      grow(state, m.nodes, {.pattern = name(), .explain = explain_now},
           [&](NodeId other) -> Refusal {
             const Node& n = state.node(other);
             for (TensorId t : n.inputs) {
               const NodeId p = t >= 0 ? state.producer(t) : -1;
               if (p >= 0 && contains(m.nodes, p) && state.node(p).op == OpKind::reduction)
                 return {"it needs a total, which the kernel's end completes",
                         "take the total of the call before, as an input"};
             }
             if (n.op == OpKind::reduction) {
               if (!reductions)
                 return "a kernel that reduces its results would be slower, or has no engine";
               return reduction_refuses(state, m.nodes, anchor, other);
             }
             if (is_contraction(n.op) && extras.product)
               return product_refuses(state, m.nodes, anchor, other);
             if (reads_from_memory(n.op) || n.op == OpKind::concatenate)
               return refuse_product(n.op);
             if (Refusal r = refuse_other_domain(state, other, domain); !r.why.empty()) return r;
             if (Refusal r = left_to_other_product(state, m.nodes, anchor, other); !r.why.empty())
               return r;
             return epilogue_refuses(state, anchor, other);
           });
    };
    // Reductions last, since whether they join depends on what else the kernel gives.
    if (extras.reductions) grow_by(false, false);
    grow_by(extras.reductions, explain);
    return m;
  }

  // Of both operands; where the right one has one, also of that of a second product.
  void add_prologues(FusionState& state, Match& m, bool accelerated, bool explain) const {
    for (int port : {0, 1}) add_prologue(state, m, m.anchor, port, accelerated, explain);
    const TensorId right = prologue_tensor(state, m.nodes, m.anchor, 1);
    if (right < 0 || !contains(m.nodes, state.producer(right))) return;
    for (NodeId n : std::vector(m.nodes))
      if (n != m.anchor && is_contraction(state.node(n).op))
        add_prologue(state, m, n, 1, accelerated, explain);
  }

  // Walks up from an operand through elementwise nodes that nobody else needs.
  void add_prologue(FusionState& state, Match& m, NodeId product, int port, bool accelerated,
                    bool explain) const {
    const TensorId operand = state.node(product).inputs[static_cast<std::size_t>(port)];
    const TensorId source = prologue_tensor(state, m.nodes, product, port);
    if (source < 0) return;
    if (!accelerated && only_accelerated(state, product, port) &&
        !written_where_faster(state, product))
      return;
    if (const Blocks own = prologue_blocks(state, product, port); own.k > 0) {
      const auto other = prologue_blocks(state, m.anchor, 1 - port).k;
      if ((other > 0 && other != own.k) || own != prologue_blocks(state, m.anchor, port)) return;
    }
    const NodeId first = state.producer(source);
    if (first < 0 || !state.free(first)) return;
    // The views between source and operand are part of the kernel.
    std::vector<NodeId> views, nodes;
    for (TensorId t = operand; t != source; t = state.node(views.back()).inputs[0])
      views.push_back(state.producer(t));
    auto kernel = m.nodes;
    kernel.insert(kernel.end(), views.begin(), views.end());
    const auto refuse = [&](TensorId t, const Refusal& refusal) {
      if (explain) state.cut(name(), m.anchor, state.producer(t), t, refusal);
    };
    EndsBefore ends(*this, state, product, source);
    if (Refusal r = collect_prologue(state, kernel, ends, source, nodes); !r.why.empty())
      return refuse(source, {"as a prologue: " + std::string(r.why.text()), std::move(r.fix)});
    if (!loads_whole(state, nodes, state.graph()[source].dim))
      return refuse(source,
                    {"as a prologue: nothing of its size is loaded",
                     "make it from a tensor of its own size rather than from smaller ones"});
    if (bytes_read(state, nodes) > state.bytes(source) + (64 << 10))
      return refuse(source, {"as a prologue it would read more than the finished operand " +
                                 state.graph().label(operand),
                             "store what it is computed from in narrower types"});
    kernel.insert(kernel.end(), nodes.begin(), nodes.end());
    if (auto why = slower_engine(state, m, kernel, source); !why.empty())
      return refuse(source, {"as a prologue " + why, kStoreAsMultiplied});
    m.nodes = std::move(kernel);
  }

  // A convolution that computes its operand misses the engines that load it as it lies: whether
  // these, with the operand written and read once, take less.
  static std::string slower_engine(const FusionState& state, const Match& m,
                                   const std::vector<NodeId>& with, TensorId source) {
    if (is_matmul(state.node(m.anchor).op)) return {};
    const auto microseconds = [&](const std::vector<NodeId>& nodes) {
      return microseconds_of_all(contraction_spec(state, nodes, m.anchor), state);
    };
    const DeviceModel& device = state.device();
    const double apart = 2.0 * static_cast<double>(state.bytes(source)) / device.memory_bandwidth +
                         device.launch_microseconds + microseconds(m.nodes);
    const double fused = microseconds(with);
    if (fused <= apart) return {};
    return fmt::format("it would take the kernel to a slower engine: {:.1f} us, {:.1f} us apart",
                       fused, apart);
  }

  // The nodes with which kernels before this one end: those of contractions and reductions on the
  // way to the tensor. Found as far as is asked for, the nearest kernels first.
  class EndsBefore {
   public:
    EndsBefore(const ContractionPattern& pattern, FusionState& state, NodeId anchor,
               TensorId source)
        : pattern_(pattern), state_(state), seen_(state.marks()), ends_(state.marks()) {
      seen_.insert(anchor);
      reach(state.producer(source));
    }

    bool contains(NodeId n) {
      while (!ends_.contains(n) && next_ < open_.size() && next_ < kMostVisited)
        visit(open_[next_++]);
      return ends_.contains(n);
    }

   private:
    // A kernel has kMaxKernelNodes: what lies further away does not end here.
    static constexpr std::size_t kMostVisited = 4 * kMaxKernelNodes;

    void reach(NodeId n) {
      if (n >= 0 && (state_.free(n) || state_.no_kernel(n)) && seen_.insert(n)) open_.push_back(n);
    }

    void visit(NodeId n) {
      const OpKind op = state_.node(n).op;
      if (is_contraction(op)) {
        add(pattern_.grown(state_, n, {true, true}, false).nodes);
      } else if (op == OpKind::reduction) {
        if (const auto before = pattern_of(state_, n).propose(state_, n, false)) add(before->nodes);
      } else {
        for (TensorId t : state_.node(n).inputs)
          if (t >= 0) reach(state_.producer(t));
      }
    }

    void add(const std::vector<NodeId>& nodes) {
      for (NodeId n : nodes) ends_.insert(n);
    }

    const ContractionPattern& pattern_;
    FusionState& state_;
    MarkPool::Borrowed seen_, ends_;
    std::vector<NodeId> open_;
    std::size_t next_ = 0;
  };

  // `ends`: nodes of kernels before this one.
  Refusal collect_prologue(const FusionState& state, const std::vector<NodeId>& kernel,
                           EndsBefore& ends, TensorId t, std::vector<NodeId>& nodes) const {
    const NodeId p = state.producer(t);
    if (contains(nodes, p)) return {};
    const Node& n = state.node(p);
    if (n.op != OpKind::pointwise) return "it is not pointwise";
    if (ends.contains(p)) return "it ends the kernel before";
    // Padding and strides shift what a convolution's element is; an index has nothing to load
    // there.
    if (std::get_if<PointwiseAttributes>(&n.attributes)->mode == PointwiseMode::gen_index)
      return {"it is an index", "give the indices as a tensor"};
    if (contains(kernel, p))
      return {"it is part of the epilogue", "compute it a second time for the operand"};
    if (state.graph()[t].output) return "its result is a graph output";
    if (!nodes.empty())  // the operand itself was checked by prologue_tensor
      for (NodeId c : state.consumers(t))
        if (!contains(nodes, c)) return "its result is read by another kernel";
    auto joined = kernel;
    joined.insert(joined.end(), nodes.begin(), nodes.end());
    if (state.makes_cycle(joined, p)) return "a kernel between them needs its result";
    if (static_cast<int>(joined.size()) >= kMaxKernelNodes / 2) return "the kernel is full";
    nodes.push_back(p);
    const Dims& domain = state.graph()[t].dim;
    for (TensorId x : n.inputs) {
      if (x < 0) continue;
      const NodeId q = state.producer(x);
      if (q < 0 || !state.free(q) || state.graph()[x].dim != domain || contains(kernel, q))
        continue;
      // A producer that cannot join stays outside: its result is then loaded.
      std::vector<NodeId> attempt = nodes;
      if (collect_prologue(state, kernel, ends, x, attempt).why.empty()) nodes = std::move(attempt);
    }
    return {};
  }
};

}  // namespace

std::span<const Pattern* const> contraction_patterns() {
  static const ContractionPattern one_product;
  static const Pattern* const all[] = {&chained_pattern(), &one_product};
  return all;
}

}  // namespace sinter
