// Block-scaled formats: one scale for each block of `block_size` elements along an axis.
#include "lower/expansion.hpp"

namespace sinter::lowering {

namespace {

// [.., n, ..] as [.., n / block_size, block_size, ..] and one value a block in the same rank.
struct Blocks {
  Dims values, scales;
  Blocks(const Dims& x, const BlockScaleAttributes& a) : values(x) {
    const int axis = positive_axis(a.axis, x);
    values[axis] /= a.block_size;
    scales = values;
    values.insert(axis + 1, a.block_size);
    scales.insert(axis + 1, 1);
  }
};

}  // namespace

// Scale = amax / largest of Y's type, 1 where the block is zero, rounded to its own type; Y is X
// over the rounded scale. Where a narrow type rounds the scale of a tiny block to 0, that 0 is
// used: the quotients are infinite and saturate, and 0 / 0 is NaN.
void block_scale_quantize(Expansion& e) {
  const Tensor x = e.input(0);
  const Blocks blocks(x.dim(), e.attributes<BlockScaleAttributes>());
  const Tensor values = e.named("blocks", reshape(x, blocks.values));
  const Tensor amax = e.named("amax", reduction(values, ReductionMode::amax, blocks.scales));
  const Tensor ratio = e.named("ratio", amax / info(e.output_type(0)).largest);
  const Tensor scale = e.typed(
      e.output_type(1), e.named("scale", select(e.mask("zero", equal(amax, 0.0)), 1.0, ratio)));
  if (e.wants(0)) e.result(0, reshape(e.named("quotient", values / scale), x.dim()));
  if (e.wants(1)) e.result(1, reshape(scale, e.output_dim(1)));
}

void block_scale_dequantize(Expansion& e) {
  const Tensor x = e.input(0);
  const Blocks blocks(x.dim(), e.attributes<BlockScaleAttributes>());
  const Tensor values = e.named("blocks", reshape(x, blocks.values));
  const Tensor scale = e.named("scale", reshape(e.input(1), blocks.scales));
  e.result(0, reshape(e.named("product", values * scale), x.dim()));
}

}  // namespace sinter::lowering
