// Convolutions in groups of several channels, or with several filters for each, on CUDA cores
// as depthwise ones are: a thread's channels are filters of one group, which see the same pixels,
// and the group's channels are taken one after another, as taps are. See
// codegen/device/family/contraction_depthwise.cuh.
#pragma once
#include "schedule/contraction/depthwise.hpp"

namespace sinter {

// The index of the domain that counts the filters of a channel, or group, where there are several;
// -1: none. Of specs that run as depthwise ones do.
int index_of_filters(const ContractionSpec& contraction);

// Where pixels of a line lie together: those of the image, and those of the result's gradient, that
// a thread loads at once.
int line_pack(const KernelSpec& spec, const DepthwiseConfig& e, int columns);
int gradient_pack(const KernelSpec& spec, const DepthwiseConfig& e, int columns);

// Nothing where the spec is no such convolution, or groups have many channels.
std::optional<DepthwisePlan> plan_channel_groups(const KernelSpec& spec, const DeviceModel& device);

}  // namespace sinter
