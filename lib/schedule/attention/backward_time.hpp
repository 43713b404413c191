// What estimates of attention's gradients count beside the products' time.
#pragma once
#include "schedule/attention/backward.hpp"

namespace sinter {

// Microseconds of a CTA of one consumer: what it waits for, beside as many, and a tile of queries.
double microseconds_of_few_keys(const AttentionBackwardConfig& e, const KernelSpec& spec,
                                double grid, const DeviceModel& device);

// And of what it adds to dBias where pairs of several entries or heads share an element, which the
// second-level cache takes one by one (tools/benchmarks/decisions/attention.md).
double microseconds_of_dbias(const KernelSpec& spec, double entries);

// CTAs, each of which takes so many batch entries of a head in turn.
double heads_of_windows(const KernelSpec& spec, int windows);

}  // namespace sinter
