// Concatenations that need no memory: whoever reads one reads, at each element, the part in which
// it lies. That costs one load for each part, of which the element's own is the only one to move
// memory.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "lower/expansion.hpp"
#include "planner/memory/storage.hpp"
#include "schedule/packing.hpp"

namespace sinter {
namespace parts {

inline constexpr std::size_t kMostParts = 8;  // each takes a load and a select of every element
inline constexpr int kMostNested = 32;  // concatenations of concatenations that are looked through

// A part, or what a slice shows of one.
struct Piece {
  Part part;
  Dims dim;
  DataType type;
  Location at;
};

// Adds the pieces of a concatenation that begins at `start`. False where some part is not in
// memory.
template <class G>
bool collect(const G& g, NodeId id, const Dims& start, std::vector<Piece>& pieces, int nested = 0) {
  const Node& n = node_of(g, id);
  const TensorId y = n.outputs[0];
  if (g.type(y) == DataType::i64) return false;
  const int axis =
      lowering::positive_axis(*std::get_if<ConcatenateAttributes>(&n.attributes)->axis, g[y].dim);
  Dims at = start;
  for (TensorId x : n.inputs) {
    const Dims& dim = g[x].dim;
    const Dims from = at;
    at[axis] += dim[axis];
    if (count(dim) == 0) continue;
    const NodeId p = g[x].producer;
    if (g.is_virtual(x) && node_of(g, p).op == OpKind::concatenate) {
      const std::size_t first = pieces.size();
      if (nested == kMostNested || !collect(g, p, from, pieces, nested + 1)) return false;
      // Values skip the rounding to the type of the inner one.
      for (std::size_t i = first; i < pieces.size(); ++i)
        if (!holds(g.type(x), pieces[i].type)) return false;
      continue;
    }
    const auto where = location_of(g, x);
    if (!where || g.is_virtual(where->root) || g[where->root].has_value) return false;
    if (g.type(x) == DataType::i64 || pieces.size() == kMostParts) return false;
    pieces.push_back({{x, from}, dim, g.type(x), *where});
  }
  return true;
}

// Whether elements that lie together in all parts do so in pieces of 16 bytes of the narrowest
// type.
inline bool packs_stay_wide(const std::vector<Piece>& pieces, DataType type) {
  int bytes = info(type).bytes;
  for (const auto& p : pieces) bytes = std::min(bytes, info(p.at.type).bytes);
  const std::int64_t width = kMoveBytes / bytes;
  for (int i = 0; i < pieces[0].dim.size(); ++i)
    if (std::all_of(pieces.begin(), pieces.end(), [&](const Piece& p) {
          return p.at.stride[i] == 1 && p.dim[i] % width == 0 && p.part.start[i] % width == 0;
        }))
      return true;
  return false;
}

template <class G>
std::vector<Part> pieces_in_memory(const G& g, NodeId id, const SliceAttributes* slice) {
  const TensorId y = node_of(g, id).outputs[0];
  std::vector<Piece> pieces;
  if (!collect(g, id, Dims::filled(g[y].dim.size(), 0), pieces)) return {};
  if (slice) {
    for (auto& p : pieces)
      for (int i = 0; i < p.dim.size(); ++i) {
        const std::int64_t first = std::max(slice->start[i], p.part.start[i]),
                           end = std::min(slice->limit[i], p.part.start[i] + p.dim[i]);
        p.dim[i] = std::max<std::int64_t>(0, end - first);
        p.part.start[i] = first - slice->start[i];
      }
    std::erase_if(pieces, [](const Piece& p) { return count(p.dim) == 0; });
  }
  if (pieces.empty() || !packs_stay_wide(pieces, g.type(y))) return {};
  std::vector<Part> result;
  for (auto& p : pieces) result.push_back(p.part);
  return result;
}

}  // namespace parts

// The parts of a concatenation, those of the concatenations among them instead of these; empty
// where it is done part by part: where some part is not in memory anyway (the kernel that computes
// it writes it into the result), where no body value is exact (64-bit integers), or where packs
// would get narrow. `g`: a graph or a Rewriter. `slice`: the same of what a slice with steps of 1
// shows of the concatenation.
template <class G>
std::vector<Part> parts_in_memory(const G& g, NodeId concatenation,
                                  const SliceAttributes* slice = nullptr) {
  return parts::pieces_in_memory(g, concatenation, slice);
}

}  // namespace sinter
