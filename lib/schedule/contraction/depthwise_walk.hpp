// The blocks of results that threads of CUDA cores compute of a depthwise convolution, and how
// they walk down the image: codegen/device/family/contraction_depthwise.cuh.
#pragma once
#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

// On CUDA cores, with pixels that threads load to registers.
struct DepthwiseWalkConfig : DepthwiseConfig {};

// Coordinates of the image that a block of `results` neighbours sees, as the device code's Axis has
// them.
int seen(const KernelSpec& spec, const std::optional<ImageDim>& dim, int results);

// From a block of `results` neighbours to the next: coordinates of the image.
int advance_of(const std::optional<ImageDim>& dim, int results);

// Blocks that see the coordinates which come with one: so many are summed at once.
int slots_of(const KernelSpec& spec, const std::optional<ImageDim>& dim, int results);

inline constexpr int kMostPhases = 4;  // of a strided data gradient, along one dim
// Multiplications of a thread's block, and places of the image that its steps pass, read or not:
// each is a statement of its own, which takes time to compile.
inline constexpr int kMostUnrolled = 1700;

// Where pixels of a line lie together: those of the image, and those of the result's gradient, that
// a thread loads at once. `in_shared`: pixels are there.
int line_pack(const KernelSpec& spec, const DepthwiseConfig& e, int columns, bool in_shared);
int gradient_pack(const KernelSpec& spec, const DepthwiseConfig& e, int columns);

// What an epilogue reads where lines lie together takes so much longer than pixels that are loaded
// ahead: it is waited for. (3 x 3 channels first on an H200, 64 x 384 x 28 x 28 alone, with one and
// two tensors 42.2, 71.9 and 89.2 us.)
inline constexpr double kReadLate = 1.73;

// Groups of several channels, which are looped over, or of several filters take so much longer than
// is counted, where lines lie together on CUDA cores and wherever there are strides: `lines` says
// the first. (64 x 128 x 56 x 56 in groups of 4, stride 2, channels first, on an H200: 58.0 us
// where 33.8 are counted, data gradient of 128 images 86.1 and 54.4. Channels last the estimates of
// joined groups are too long as well: data gradient 33 us joined, 55 estimated, 43 so; f32 72, 46
// estimated; forward 23 joined, 36 estimated.)
double longer_in_groups(const KernelSpec& spec, const std::vector<ImageDim>& looped,
                        const std::vector<ImageDim>& dims, bool lines);

// Rows and columns of a thread's block and its walk; nothing where filters are too large. `memory`:
// microseconds that memory takes.
std::optional<DepthwiseWalkConfig> walked_on_ordinary_cores(const KernelSpec& spec,
                                                            DepthwiseConfig parts,
                                                            const std::vector<ImageDim>& dims,
                                                            double memory,
                                                            const DeviceModel& device);

}  // namespace sinter
