// Rewriting a kernel onto another domain: what its indices are there, and operands that a kernel of
// their own writes to memory first.
#pragma once
#include <initializer_list>
#include <utility>

#include "planner/split/split.hpp"

namespace sinter {

// What lies last of a copied image, channels or images, starts at multiples of so many bytes.
inline constexpr std::int64_t kUnitBytes = 16;

// What an index of the old domain is on the new one. `bounded`: it may fall outside of its extent.
struct Affine {
  Dims coefficient;
  std::int64_t base = 0;
  bool bounded = false;
};

Affine affine(std::initializer_list<std::pair<int, std::int64_t>> terms, std::int64_t base = 0,
              bool bounded = false);

// The access on the new domain of `rank` indices, of which `old` says what the old ones are.
Access mapped(const Access& access, const Dims& old_extent, const std::vector<Affine>& old,
              int rank);

// Packed over these indices of a domain of `rank`, the outermost first, and their extents; the
// others do not move it.
Access packed_in_order(int rank, const std::vector<int>& indices, const Dims& extent);

// The port of an operand of 16-bit floats that is loaded as it lies, windows and all; else null.
const KernelPort* loaded_alone(const KernelSpec& spec, const ProductOperand& operand);

// Whether some value depends on where it stands in the domain: on an index, or as it is drawn
// there.
bool names_numbers(const KernelSpec& spec);

// Of a contraction's epilogue on its own, whose first statement is the sum: it is loaded from
// `port`, as f32.
void load_sum(KernelSpec& epilogue, KernelPort port);

// A kernel that writes what `load` reads to a temporary, packed over `extent` or, where it is
// given, over the larger `padded`, of which the rest is not written. `type`: in which it is
// written, none: as it is.
KernelSpec copy_kernel(const KernelSpec& from, const KernelPort& load, const Dims& extent,
                       const std::string& name, Temporaries& temporaries, KernelPort& written,
                       const Dims& padded = {}, DataType type = DataType::none);
// Of a copy whose port has windows (of a filter where it has taps, of results where there are any):
// zeros outside of them are negative, and no others are. Of its product, whose B it is: they are no
// factors, also of infinite pixels and NaN. So tensor cores multiply them as they are, and sums
// that are NaN are taken again without them (codegen/device/family/contraction_recompute.cuh).
void mark_zeros(KernelSpec& copy, KernelSpec& product);
// The operand reads what such a kernel has written.
void read_instead(KernelSpec& spec, ProductOperand& operand, const KernelPort& written,
                  Access access);

}  // namespace sinter
