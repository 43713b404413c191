// Which operands of a depthwise convolution TMA can bring in boxes.
#pragma once
#include <algorithm>
#include <vector>

#include "schedule/contraction/depthwise_config.hpp"

namespace sinter {

// Gives the image, or the other operand of a gradient, a tensor map of channels, columns, rows and
// up to two other indices, without its box. `parts`: what is known of the spec, as in
// plan_depthwise_mma. False where it lies otherwise or is not aligned.
// `groups`: whose channels lie together; none: single channels.
bool set_map(const KernelSpec& spec, const DepthwiseConfig& parts, DepthwiseOperand& operand,
             const DepthwiseGroups* groups = nullptr);

// What a box brings of a row of a stage: of the `needed` pixels from `first` on, a row's first of
// the tensor's columns, those that may be there; where there is one tile of columns, none that lie
// behind the tensor.
std::int64_t box_pixels(const DepthwiseOperand& operand, int needed, std::int64_t first,
                        bool one_tile);

// Lines of `lanes` * 16 bytes of channels, of 4 and 8 lanes swizzled so that neighbouring pixels
// lie in other banks, as they do where lanes are odd; `line` of them are a row's place in shared
// memory.
void set_box(DepthwiseOperand& operand, int lanes, int line, int needed, std::int64_t first,
             bool one_tile);

// The one result, where nothing else is needed for it than the sums and, where the kernel `loads`,
// what belongs to a channel: TMA may store it in boxes, which set_result_box() gives their size,
// with lines of `lanes` * 16 bytes. `beside`: takes up to kMostBeside tensors that are read, too,
// and lie like the result; the first that is as wide comes to where the results will wait.
inline constexpr int kMostBeside = 3;
std::optional<DepthwiseOperand> result_in_boxes(const KernelSpec& spec,
                                                const DepthwiseConfig& parts, bool loads,
                                                std::vector<DepthwiseOperand>* beside = nullptr,
                                                const DepthwiseGroups* groups = nullptr);
void set_result_box(DepthwiseOperand& result, int lanes, int pixels, int planes);
// Steps that a warp may be ahead of others: rows of results are as many more in shared memory. The
// device code has the same, and asserts the bytes that follow from it.
inline constexpr int kStepsBehind = 1;
// Bytes of the rows of results that are in shared memory at once, of so many pixels.
int result_bytes(int lanes, int pixels);

// Clocks in which an SM's TMA brings a line of a box, whether it has 64 bytes or 128, and longer
// ones in proportion: inferred from filter gradients on an H200, of 128 x 144 x 56 x 56, 3 x 3, by
// lines of 64 bytes in 112 us, by those of 128 in 78.
inline constexpr double kClocksOfLine = 4.9;
inline double clocks_of_line(int lanes) { return kClocksOfLine * std::max(1.0, lanes / 8.0); }

// What pixels that come in boxes take of the time that kWindowsReach says. (128 x 144 x 56 x 56, 3
// x 3 on an H200 71.1 us, of which memory takes 52.5 at its best.)
inline constexpr double kBoxesStream = 0.8;

// Lines of a box's row: an odd number of times four, from `pixels` on, so that rows lie in other
// banks.
int line_of_box(int pixels);

}  // namespace sinter
