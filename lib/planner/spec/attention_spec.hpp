// The kernel of attention forward: from the product of q and k to the product with v, of an sdpa
// node's region of the lowered graph or written out by a user (attention_by_hand.hpp).
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "plan/kernel_spec.hpp"
#include "planner/match/fusion_state.hpp"
#include "planner/match/index_mask.hpp"
#include "planner/spec/body_builder.hpp"
#include "sinter/ops/shapes_sdpa.hpp"

namespace sinter {

//   q, k -> [ first ] -> sums -> .. -> score -> softmax -> probabilities -> .. -> weight
//                                                                     weight, v -> [ second ]
struct AttentionNodes {
  NodeId first = -1, second = -1;  // the products
  TensorId sums = kNoTensor, score = kNoTensor, probabilities = kNoTensor, weight = kNoTensor;
  TensorId stats = kNoTensor;                       // where somebody needs it
  TensorId largest = kNoTensor, total = kNoTensor;  // in place of stats, where gradients need them
  AttentionBand band;                               // what it masks is not part of the score
  // A mask that is part of `masked_score` alone, of blocks or of indices: kernels that look at
  // whole tiles for it take `score`.
  IndexMask mask;
  TensorId masked_score = kNoTensor;
  TensorId length_q = kNoTensor, length_kv = kNoTensor, sink = kNoTensor;
  TensorId offsets_q = kNoTensor, offsets_kv = kNoTensor;  // of packed sequences
  bool written_out = false, adds_stats = false;            // as in AttentionSpec
  bool zero_dominates = true;                              // AttentionSpec::zero_dominates
  bool f8_weights = false;                                 // AttentionSpec::f8_weights
  bool rounds_weights = false;  // behind their division: what `weight` ends with (rounds_divided)
  std::vector<NodeId> nodes;    // first, what lies between, second
  // Gathers in whose place the kernel loads pages, and the views between them and the products.
  NodeId pages_k = -1, pages_v = -1;
  std::vector<NodeId> views;
};

// The kernel's nodes without an epilogue.
std::vector<NodeId> nodes_of(const AttentionNodes& a);

// Whether a kernel of these nodes computes all that a tensor is made of, so that it reads nothing.
bool computes(const FusionState& state, const std::vector<NodeId>& nodes, TensorId t);

// The body of a mask, whose tensor `builder` gives it.
void put_mask(Body& to, BodyBuilder builder, const IndexMask& mask);

// Takes masks by indices from the score: bounds, and one other.
void take_index_masks(const FusionState& state, AttentionNodes& a);

// Whether the node is pointwise, of this mode.
bool has_mode(const Node& n, PointwiseMode mode);

// The 16-bit type in which an operand is multiplied (attention_factor_type).
DataType attention_operand_type(const FusionState& state, TensorId t);

// The type in which these products multiply: that of 16 bits that all operands have, else f32 or,
// where all compute in it, tf32; none where no kernel does. `terms`: the fewest of a sum.
DataType multiplied_type(const FusionState& state, std::span<const TensorId> operands,
                         std::span<const NodeId> products, std::int64_t terms);

// With ones in front: [entries, heads, rows, columns].
Dims attention_dims(const Dims& d);

// What both kinds ask of the tensors that they have found, and that nothing inside is of use to
// others.
bool is_attention(const FusionState& state, const AttentionNodes& a);

// Whether the tensor, where there is one, is in memory when a kernel starts: not one that is
// computed where it is read.
bool in_memory(const FusionState& state, TensorId t);

// Whether a kernel can read the offsets of a region's packed sequences, if it has such, and has all
// that depends on them; and what it knows of them.
bool reads_sequences(const FusionState& state, const Region& region,
                     const shapes::SdpaPorts& ports);
PackedSequences packed_sequences(const FusionState& state, KernelSpec& spec, TensorId offsets_q,
                                 TensorId offsets_kv);

// The attention whose second product a node is; nothing where it is none, or where what lies inside
// is of use to others. Its nodes may be taken. `can_run`: whether one kernel can compute it, once
// the operands that it cannot load have been written to where it can.
using CanRunAttention = bool (*)(const FusionState& state, KernelSpec attention);
std::optional<AttentionNodes> attention_at(const FusionState& state, NodeId second,
                                           CanRunAttention can_run);

// `nodes`: those of the attention and of the epilogue.
KernelSpec attention_spec(const FusionState& state, const AttentionNodes& attention,
                          const std::vector<NodeId>& nodes);

}  // namespace sinter
