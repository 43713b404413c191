// What planning decides by extents and what later decisions depend on. Plans of a class of extents
// (compile/plan_class.hpp) start with those of the class, which are taken as they are.
#pragma once
#include <cstdint>
#include <map>
#include <utility>

#include "sinter/graph.hpp"

namespace sinter {

// How the images of a filter's gradient are cut in parts that are summed side by side, where plans
// of a class have other numbers of both.
enum class ImageParts : std::int64_t {
  whole,        // not at all
  that_divide,  // as many as are estimated to be the fastest, of those that divide the images
  one,          // a single part: what numbers there are then differs from all other plans'
};

class Decisions {
 public:
  enum class Kind : std::uint8_t {
    heads_packed,  // of an attention: whether heads are rows of one product
    key_parts,     // of an attention
    query_parts,   // of its gradients
    stored_dq,     // of these: whether a tile of keys has all of dQ
    split_k,       // of a contraction
    joined,        // of a product: whether another one adds up its sums with its own
    images,        // of a filter's gradient: that it is summed over, before they are cut
    image_parts,   // of one in a class of any number of images: see ImageParts
    num_partials,  // of rows whose columns are reduced: blocks that walk over them
    rows_per_cta,  // of these: that a block takes
    row_length,    // of rows, before they are cut
    walked,        // of rows whose length changes: whether blocks walk over what they are summed of
    row_unit,      // of rows whose length changes: what divides all lengths; else 0
    part_size,     // of these: how long their parts are
    pooled,        // of max pooling: whether the convolution's kernel does it
    transposed,    // of rows: whether others transpose what lies across them
    grouped,       // of rows in groups, channels last: whether clusters hold them
    from_end,      // of all kernels: whether blocks may begin at the end of memory
  };
  // What was decided for the node, or else what `choose()` says.
  template <class Choose>
  std::int64_t decide(Kind kind, NodeId node, const Choose& choose) {
    const auto known = made_.find({kind, node});
    return known != made_.end() ? known->second
                                : made_.emplace(std::pair(kind, node), choose()).first->second;
  }

  // What was decided of this kind, by node.
  std::map<NodeId, std::int64_t> of(Kind kind) const {
    std::map<NodeId, std::int64_t> found;
    for (const auto& [key, value] : made_)
      if (key.first == kind) found.emplace(key.second, value);
    return found;
  }
  void forget(Kind kind) {
    std::erase_if(made_, [&](const auto& made) { return made.first.first == kind; });
  }

 private:
  std::map<std::pair<Kind, NodeId>, std::int64_t> made_;
};

}  // namespace sinter
