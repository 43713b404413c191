// The operands of a convolution as a product of matrices (implicit_gemm.hpp), as TMA brings them:
// maps over the image, the filter and the gradient of the result. Boxes are set with the tile.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {

// The elements of indices that step as one, and how far apart these lie; 0 where they do not.
std::int64_t count_of(const KernelSpec& spec, const std::vector<int>& indices);
std::int64_t joint_stride(const KernelSpec& spec, const Access& access,
                          const std::vector<int>& indices);

// An operand's port, its number and what its indices are.
struct ConvolutionOperand {
  const KernelSpec& spec;
  const ConvolutionRoles& roles;
  const KernelPort& port;
  int number;
};

// The spatial dims, outermost first, and what else tells the pixels of an image apart.
struct ConvolutionImage {
  std::vector<ImageDim> dims;
  std::vector<WindowAxis> axes;  // innermost first
  int image_index = -1;
  std::int64_t offset = 0;  // of coordinate 0
};

// The image, whose channels lie together, as an im2col map.
std::optional<BoxedOperand> image_operand(const ConvolutionOperand& of,
                                          const ConvolutionImage& image);
// The filter: channels, the taps of each axis that has some, and its other side; of these channels
// or the other side lie together.
std::optional<BoxedOperand> filter_operand(const ConvolutionOperand& of,
                                           const std::vector<ImageDim>& dims);
// The gradient of the result, whose pixels are k: boxes of its channels and of joined pixels.
std::optional<BoxedOperand> gradient_operand(const ConvolutionOperand& of);
// Of a filter gradient whose images lie together, pixel by pixel: the image, or the gradient of the
// result, in boxes of images and of channels. Pixels beside the image are zero.
std::optional<BoxedOperand> images_of_image(const ConvolutionOperand& of,
                                            const ConvolutionImage& image);
std::optional<BoxedOperand> images_of_result(const ConvolutionOperand& of,
                                             const ConvolutionImage& image);

}  // namespace sinter
