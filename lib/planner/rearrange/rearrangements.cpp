#include "planner/rearrange/rearrangements.hpp"

#include <algorithm>
#include <iterator>

#include "planner/rearrange/bf16_parts.hpp"
#include "planner/rearrange/block_diagonal.hpp"
#include "planner/rearrange/channels_last.hpp"
#include "planner/rearrange/empty_phases.hpp"
#include "planner/rearrange/few_filters_gradient.hpp"
#include "planner/rearrange/images_last.hpp"
#include "planner/rearrange/joined_pixels.hpp"
#include "planner/rearrange/space_to_depth.hpp"

namespace sinter {
namespace {

// The mma engine takes longer than is estimated for convolutions: filter's gradients of 100 to 100
// channels, 32 images of 33 x 33, 51 us on an H200 where 38 were estimated; of 37 to 51, 19 x 19,
// 24 and 19; of 80 to 512, 16 x 3000 pixels, 47 and 37. (With their channels together the first two
// take 37 and 15.)
constexpr double kOfMma = 1.25;

// TMA seems to take as long for pixels that it steps over within a line as for others. (Of few
// filters in blocks on an H200, us, estimated and measured: 1 x 128 x 512 x 512, 3 of 3 x 3 26.9
// and 47.6, as it is 72.7 and 62.1; 4 x 64 x 256 x 256, 3 16.3 and 19.5, 40.1 and 52.1; 16 x 32 x
// 16384, 1 of 7 14.2 and 18.2, 32.0 and 34.5; but 8 x 320 x 64 x 64, 4 16.4 and 18.8, 24.5
// and 12.5; 2 x 16 x 64 x 64 x 64, 16 of 3 x 3 x 3 48.4 and 76.1, 63.7 and 72.0.)
constexpr double kOfStridedPixels = 1.5;

// What a copy of a filter must gain, which is small beside the error of estimates.
constexpr double kOfCopiedFilter = 1.05;

std::vector<KernelSpec>::const_iterator product_in(const std::vector<KernelSpec>& kernels) {
  return std::find_if(kernels.begin(), kernels.end(),
                      [](const KernelSpec& kernel) { return kernel.as_contraction() != nullptr; });
}
// With channels together groups have engines of their own, or are joined: a filter in a kernel in
// front of the product, the diagonal of a gradient in one behind it. The last ways leave it to the
// product of joined groups to store results where they lie.
constexpr int kGroupsTogetherWays = 1 + 2 * kBlockDiagonalWays;
std::vector<KernelSpec> groups_together(const KernelSpec& spec, int way, Temporaries& temporaries) {
  std::vector<KernelSpec> kernels = groups_last(spec, way <= kBlockDiagonalWays, temporaries);
  if (way == 0 || kernels.empty()) return kernels;
  std::vector<KernelSpec> joined =
      block_diagonal(*product_in(kernels), (way - 1) % kBlockDiagonalWays, temporaries);
  return with_product(std::move(kernels), std::move(joined));
}

// Of the last ways what the product reads beside the copies has its channels put together, too.
template <auto make, int ways>
std::vector<KernelSpec> or_in_lines(const KernelSpec& spec, int way, Temporaries& temporaries) {
  std::vector<KernelSpec> kernels = make(spec, way % ways, temporaries);
  if (way < ways || kernels.empty()) return kernels;
  std::vector<KernelSpec> in_lines = channels_last(*product_in(kernels), false, temporaries);
  return with_product(std::move(kernels), std::move(in_lines));
}

std::vector<KernelSpec> taps_joined(const KernelSpec& spec, int, Temporaries& temporaries) {
  return few_filters_gradient(spec, temporaries);
}

constexpr Rearrangement kRearrangements[] = {
    {.make = [](const KernelSpec& spec, int way, Temporaries&) { return empty_phases(spec, way); },
     .text = {"pixels without products are computed from zeros apart"},
     .ways = kEmptyPhasesWays},
    {.make = [](const KernelSpec& spec, int, Temporaries& t) { return joined_pixels(spec, t); },
     .text = {"it has taps of pixels that are joined, with zeros where there are none"}},
    {.make = or_in_lines<space_to_depth, kSpaceToDepthWays>,
     .text = {"its few channels are joined with neighbouring pixels in memory first"},
     .ways = 2 * kSpaceToDepthWays},
    {.make = block_diagonal,
     .text = {"its groups are joined, with zeros between them in the filter"},
     .ways = kBlockDiagonalWays},
    {.make = groups_together,
     .text = {"its groups' channels are put together in memory first", kChannelsLast.fix},
     .always = false,
     .ways = kGroupsTogetherWays,
     .narrow = true,
     .first = kBlockDiagonalWays},
    {.make = [](const KernelSpec& spec, int way,
                Temporaries& t) { return channels_last(spec, way == 0, t); },
     .text = kChannelsLast,
     .always = false,
     .ways = 2,
     .of_mma = kOfMma,
     .first = 1,
     .again = true},
    {.make = [](const KernelSpec& spec, int, Temporaries& t) { return few_channels_last(spec, t); },
     .text = kChannelsLast},
    {.make = [](const KernelSpec& spec, int, Temporaries& t) { return filter_along_k(spec, t); },
     .text = {"its filter is copied with k the fastest, in whole lines"},
     .takes = kOfCopiedFilter},
    {.make = images_last,
     .text = {"its images are put together in memory first, pixel by pixel"},
     .always = false,
     .ways = kImagesLastWays},
    {.make = [](const KernelSpec& spec, int, Temporaries& t) { return bf16_parts(spec, t); },
     .text =
         {"its factors become sums of bf16 numbers first, whose products tensor cores add up as "
          "exactly"},
     .always = false,
     .matmuls = true},
    {.make = or_in_lines<blocks_of_results, kBlocksOfResultsWays>,
     .text = {"its filter is copied for blocks of results, whose columns tensor cores fill"},
     .ways = 2 * kBlocksOfResultsWays},
    {.make = or_in_lines<blocks_of_few_results, kBlocksOfResultsWays>,
     .text = {"its filter is copied for blocks of results, whose columns tensor cores fill"},
     .ways = 2 * kBlocksOfResultsWays,
     .takes = kOfStridedPixels},
    {.make = or_in_lines<taps_joined, 1>,
     .text = {"its few filters are joined with taps, which the result's gradient is copied for"},
     .ways = 2}};

}  // namespace

std::span<const Rearrangement> rearrangements() { return kRearrangements; }

const KernelSpec& product_of(const std::vector<KernelSpec>& kernels) {
  return *product_in(kernels);
}

std::vector<KernelSpec> with_product(std::vector<KernelSpec> kernels,
                                     std::vector<KernelSpec> products) {
  if (products.empty()) return {};
  kernels.insert(kernels.erase(product_in(kernels)), std::make_move_iterator(products.begin()),
                 std::make_move_iterator(products.end()));
  return kernels;
}

}  // namespace sinter
