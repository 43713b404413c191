// A convolution as a product of matrices (implicit GEMM) whose operands TMA brings: pixels of the
// image by im2col maps, the filter and the gradient of the result in boxes. Read from the spec's
// accesses alone: nothing here knows which direction of a convolution it is.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// Nothing where no operand is an image with its channels fastest, or where TMA cannot walk over it:
// corners, offsets and steps have limits (plan/tma_limits.hpp). `image_is_a`: which operand it is.
struct ImplicitGemm {
  KernelSpec spec;  // the given one, its indices in the order that the kernel wants
  ConvolutionWindow window;
  BoxedOperand image, other;
};
std::optional<ImplicitGemm> implicit_gemm(const KernelSpec& spec, bool image_is_a);

// resident_pixels.cpp: makes it one whose pixels stay in shared memory for all taps
// (contraction_window_resident.cuh): rows run over the zeros beside the image, too. False where
// that cannot be.
bool keep_pixels(ImplicitGemm& gemm, bool image_is_a);
// The same where tiles of kBlockPixels rows are blocks of the image, of any shape where only its
// rows have taps, and else 8 pixels wide.
inline constexpr std::int64_t kBlockPixels = 256;
bool keep_blocks(ImplicitGemm& gemm, bool image_is_a);
// The same of a filter gradient (contraction_window_gradient.cuh): k runs over the zeros, too, and
// columns are lines of channels, taps and channels. Rows of a filter that has more taps are batch
// entries.
bool keep_gradient_pixels(ImplicitGemm& gemm, bool image_is_a);
// And in blocks, each of which is a stage; parts of an image may be batch entries.
bool keep_gradient_blocks(ImplicitGemm& gemm, bool image_is_a);
// Lines of pixels that its taps reach over, and planes of pixels in which its strides have taps.
std::int64_t reach_of(const ConvolutionWindow& window);
// Lines that a block takes, those beside it that its taps reach included.
std::int64_t block_lines(const BoxedOperand& image);
// Whether batch entries are parts of an image.
bool has_parts(const ConvolutionWindow& window);
int planes_of(const ConvolutionWindow& window);
// The taps of each phase, in the order in which batch entries number phases.
std::vector<std::int64_t> taps_of_phases(const ConvolutionWindow& window);
// The phases, those of the most taps first; empty where all have as many.
std::vector<std::int64_t> deepest_first(const ConvolutionWindow& window);

// As which type wgmma multiplies an operand of the type `operand` that is stored as `stored`, where
// it lies in memory as it is multiplied.
std::optional<DataType> multiplied_type(DataType stored, DataType operand);

// Whether the spec may be one, for its indices.
bool may_be_convolution(const ContractionSpec& contraction);

}  // namespace sinter
