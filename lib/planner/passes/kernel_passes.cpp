#include "planner/passes/kernel_passes.hpp"

#include <algorithm>
#include <iterator>

#include "planner/passes/block_order.hpp"
#include "planner/passes/flat_rows.hpp"
#include "planner/passes/joined_products.hpp"
#include "planner/passes/pooled_pixels.hpp"
#include "planner/passes/rows_of_one.hpp"
#include "planner/passes/siblings.hpp"
#include "planner/passes/transposed_rows.hpp"
#include "planner/rearrange/materialised_operands.hpp"
#include "planner/rearrange/narrowed_operands.hpp"
#include "planner/split/split_k.hpp"

namespace sinter {
namespace {

// Puts what `of` makes of each kernel in its place, in order.
template <class Of>
void replace_each(std::vector<KernelSpec>& kernels, const Of& of) {
  std::vector<KernelSpec> result;
  for (KernelSpec& spec : kernels) of(std::move(spec), result);
  kernels = std::move(result);
}

void transpose_rows(KernelList& list) {
  replace_each(list.kernels, [&](KernelSpec spec, std::vector<KernelSpec>& to) {
    TransposedRows copies = transpose_rows(spec, list.state.context(), list.temporaries);
    std::ranges::move(copies.before, std::back_inserter(to));
    to.push_back(std::move(spec));
    std::ranges::move(copies.behind, std::back_inserter(to));
  });
}

void split_reductions(KernelList& list) {
  replace_each(list.kernels, [&](KernelSpec spec, std::vector<KernelSpec>& to) {
    for (auto& part : split(std::move(spec), list.state.context(), list.temporaries))
      if (!has_no_results(part)) to.push_back(std::move(part));
  });
}

void flatten_rows(KernelList& list) {
  for (KernelSpec& spec : list.kernels) flatten_rows(spec);
}

void narrow_operands(KernelList& list) { narrow_operands(list.state.graph(), list.kernels); }

void join_products(KernelList& list) {
  join_products(list.kernels, list.state, list.overwritten, list.temporaries);
}

void rearrange_products(KernelList& list) {
  replace_each(list.kernels, [&](KernelSpec spec, std::vector<KernelSpec>& to) {
    for (auto& whole :
         materialise_operands(std::move(spec), list.state, list.temporaries, list.cuts))
      std::ranges::move(split_depth(std::move(whole), list.state, list.temporaries, list.cuts),
                        std::back_inserter(to));
  });
}

void pool_pixels(KernelList& list) {
  pool_pixels(list.kernels, list.state.graph(), list.state.context(), list.aliases, list.cuts);
}

void merge_siblings(KernelList& list) {
  merge_siblings(list.kernels, list.state.graph(), list.aliases, list.state.context().device);
}

void write_zeros_beside(KernelList& list) { write_zeros_beside(list.kernels); }

void order_blocks(KernelList& list) {
  order_blocks(list.kernels, list.state.graph(), list.state.context());
}

void make_elementwise(KernelList& list) {
  for (KernelSpec& spec : list.kernels) make_elementwise(spec);
}

constexpr KernelPass kPasses[] = {
    {"make_elementwise", "A reduction over one element is that element.",
     "First, as the others take rows for rows.", false, make_elementwise},
    {"transpose_rows",
     "A tensor that lies across a rowwise kernel's rows is transposed by a kernel of its own.",
     "It decides where rows lie, of which the next one counts how many run at once.", true,
     transpose_rows},
    {"split_reductions",
     "Reductions too long or too few for the SMs are cut in parts, which a second kernel adds up.",
     "Parts are rows, whose runs of memory the next one looks at.", false, split_reductions},
    {"flatten_rows",
     "Short runs of memory that start anywhere and follow each other are one, in aligned packs.",
     "Behind whatever makes elementwise and rowwise kernels of others.", false, flatten_rows},
    {"narrow_operands",
     "Virtual f32 operands of products are stored in the 16 bits to which these round them.",
     "Behind the splits, whose kernels store them, too.", false, narrow_operands},
    {"join_products", "Products whose results are added are one product along both k.",
     "Operands must have the type in which they are multiplied.", true, join_products},
    {"rearrange_products",
     "Operands that no engine loads fast are copied first; a long k is cut in parts, which a "
     "second "
     "kernel adds up: where the estimates say so, of one kernel after the other.",
     "Joined products have other operands and another k.", false, rearrange_products},
    {"pool_pixels", "Pooling joins the convolution whose pixels it reads.",
     "Only blocks of pixels with halos can, which the pass before may have chosen.", true,
     pool_pixels},
    {"merge_siblings",
     "Elementwise or row kernels over one domain, of which neither reads or overwrites what the "
     "other writes, are one: small ones, and of any size those that make outputs of inputs element "
     "by element; also past kernels that do not depend on them.",
     "Behind the passes that make such kernels.", true, merge_siblings},
    {"write_zeros_beside",
     "Zeros of dQ's sums are written by the row kernel before theirs that has as many elements.",
     "Behind the passes that make kernels of rows.", true, write_zeros_beside},
    {"order_blocks",
     "A kernel that reads more than the second-level cache holds begins where the one before it "
     "ended.",
     "Last, when it is known which kernels follow each other.", false, order_blocks},
};

}  // namespace

std::span<const KernelPass> kernel_passes() { return kPasses; }

void run_kernel_passes(KernelList& list, bool fuse) {
  for (const KernelPass& pass : kPasses)
    if (fuse || !pass.fuses) pass.run(list);
}

bool has_no_results(const KernelSpec& spec) {
  std::int64_t results = 1;
  const int named = spec.result_rank();
  for (int i = 0; i < named; ++i) results *= spec.extent[i];
  return results == 0;
}

}  // namespace sinter
