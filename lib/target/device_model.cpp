#include "target/device_model.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>

#include "base/env.hpp"

namespace sinter {
namespace {

// Code for a target without a letter runs on all later GPUs, too (target_fits), of which those of
// 8.6, 8.9 and 12.0 have the least shared memory.
constexpr int kPortableShared = 100 << 10, kPortableSharedOfCta = 99 << 10;
constexpr int kLargeShared = 228 << 10, kLargeSharedOfCta = 227 << 10;
constexpr int kReserved = 1 << 10;
constexpr int kRegisters = 65536;

// Of an H200: memory bandwidth and launches as tools/calibrate measures them, which says of its
// other numbers how well the estimates fit; caches' rates as kernels that read from them alone
// reached; the clock is the one that it holds while it multiplies; clusters as its driver tells.
constexpr std::array<int, 8> kClustersOfH200 = {132, 66, 39, 30, 22, 17, 14, 14};

const DeviceModel kModels[] = {
    // An H200's figures stand for the unknown, with the shared memory and the threads that every
    // GPU has.
    {.target = "",
     .gpu = "an H200",
     .sms = 132,
     .enough_ctas = 512,
     .threads_per_sm = 2048,
     .registers_per_sm = kRegisters,
     .shared_per_sm = kPortableShared,
     .shared_reserved = kReserved,
     .shared_per_cta = kPortableSharedOfCta,
     .l2_bytes = 50 << 20,
     .clusters_at_once = kClustersOfH200,
     .clock = 1600,
     .memory_bandwidth = 4.0e6,
     .l2_bandwidth = 14.6e6,
     .sm_bandwidth = 8e4,
     .launch_microseconds = 2,
     .start_microseconds = 1,
     .tensor_operations = 4096,
     .mma_operations = 2400,
     .ordinary_operations = 256,
     .double_operations = 256},
    {.target = "sm_90a",
     .gpu = "an H200",
     .has_wgmma = true,
     .has_tma = true,
     .has_clusters = true,
     .sms = 132,
     .enough_ctas = 512,
     .threads_per_sm = 2048,
     .registers_per_sm = kRegisters,
     .shared_per_sm = kLargeShared,
     .shared_reserved = kReserved,
     .shared_per_cta = kLargeSharedOfCta,
     .l2_bytes = 50 << 20,
     .clusters_at_once = kClustersOfH200,
     .clock = 1600,
     .memory_bandwidth = 4.0e6,
     .l2_bandwidth = 14.6e6,
     .sm_bandwidth = 8e4,
     .launch_microseconds = 2,
     .start_microseconds = 1,
     .tensor_operations = 4096,
     .mma_operations = 2400,
     .ordinary_operations = 256,
     .double_operations = 256},
    // The others are from data sheets (bandwidths at nine tenths of the peak, clusters as many as
    // there is room for): nothing has been measured or tuned there.
    {.target = "sm_80",
     .gpu = "an A100",  // with 80 GB
     .sms = 108,
     .enough_ctas = 432,
     .threads_per_sm = 2048,
     .registers_per_sm = kRegisters,
     .shared_per_sm = kPortableShared,
     .shared_reserved = kReserved,
     .shared_per_cta = kPortableSharedOfCta,
     .l2_bytes = 40 << 20,
     .clusters_at_once = {108, 54, 36, 27, 21, 18, 15, 13},
     .clock = 1410,
     .memory_bandwidth = 1.8e6,
     .l2_bandwidth = 4.6e6,
     .sm_bandwidth = 5e4,
     .launch_microseconds = 2,
     .start_microseconds = 1,
     .tensor_operations = 2048,
     .mma_operations = 1850,  // not measured
     .ordinary_operations = 128,
     .double_operations = 128},
    {.target = "sm_89",
     .gpu = "an L40S",
     .sms = 142,
     .enough_ctas = 568,
     .threads_per_sm = 1536,
     .registers_per_sm = kRegisters,
     .shared_per_sm = kPortableShared,
     .shared_reserved = kReserved,
     .shared_per_cta = kPortableSharedOfCta,
     .l2_bytes = 96 << 20,
     .clusters_at_once = {142, 71, 47, 35, 28, 23, 20, 17},
     .clock = 2300,
     .memory_bandwidth = 0.78e6,
     .l2_bandwidth = 5e6,
     .sm_bandwidth = 4e4,
     .launch_microseconds = 2,
     .start_microseconds = 1,
     .tensor_operations = 1024,
     .mma_operations = 920,  // not measured
     .ordinary_operations = 256,
     .double_operations = 4},
    {.target = "sm_100a",
     .gpu = "a B200",
     .has_tma = true,
     .has_clusters = true,
     .sms = 148,
     .enough_ctas = 592,
     .threads_per_sm = 2048,
     .registers_per_sm = kRegisters,
     .shared_per_sm = kLargeShared,
     .shared_reserved = kReserved,
     .shared_per_cta = kLargeSharedOfCta,
     .l2_bytes = 126 << 20,
     .clusters_at_once = {148, 74, 49, 37, 29, 24, 21, 18},
     .clock = 1850,
     .memory_bandwidth = 7.2e6,
     .l2_bandwidth = 20e6,
     .sm_bandwidth = 9e4,
     .launch_microseconds = 2,
     .start_microseconds = 1,
     .tensor_operations = 8192,
     .mma_operations = 2400,  // not measured
     .ordinary_operations = 256,
     .double_operations = 128},
    {.target = "sm_120a",
     .gpu = "an RTX 5090",
     .has_tma = true,
     .has_clusters = true,
     .sms = 170,
     .enough_ctas = 680,
     .threads_per_sm = 1536,
     .registers_per_sm = kRegisters,
     .shared_per_sm = kPortableShared,
     .shared_reserved = kReserved,
     .shared_per_cta = kPortableSharedOfCta,
     .l2_bytes = 96 << 20,
     .clusters_at_once = {170, 85, 56, 42, 34, 28, 24, 21},
     .clock = 2400,
     .memory_bandwidth = 1.6e6,
     .l2_bandwidth = 8e6,
     .sm_bandwidth = 4e4,
     .launch_microseconds = 2,
     .start_microseconds = 1,
     .tensor_operations = 512,
     .mma_operations = 460,  // not measured
     .ordinary_operations = 256,
     .double_operations = 4},
};

// For tests: on a device so many times slower, of which a launch costs what it did, small shapes
// are planned as large ones are on the real one.
void slow_down(DeviceModel& model, double times) {
  for (double* rate :
       {&model.clock, &model.memory_bandwidth, &model.l2_bandwidth, &model.sm_bandwidth})
    *rate /= times;
  model.l2_bytes = static_cast<std::int64_t>(static_cast<double>(model.l2_bytes) / times);
}

PlanOverrides overrides_of_environment() {
  PlanOverrides o{env_value("SINTER_DEPTHWISE"), env_value("SINTER_REARRANGE"), {}};
  const std::string text = env_value("SINTER_SPLIT_ELEMENTS");
  std::int64_t elements = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), elements).ec == std::errc())
    o.split_elements = std::max<std::int64_t>(elements, 1);
  return o;
}

}  // namespace

DeviceModel device_model(std::string_view target) {
  const auto known = std::find_if(std::begin(kModels), std::end(kModels),
                                  [&](const DeviceModel& m) { return m.target == target; });
  DeviceModel model = known != std::end(kModels) ? *known : kModels[0];
  model.target = target;
  model.overrides = overrides_of_environment();
  if (const std::string times = env_value("SINTER_SLOW_DEVICE"); !times.empty())
    slow_down(model, std::max(1.0, std::atof(times.c_str())));
  return model;
}

std::vector<std::string_view> modelled_targets() {
  std::vector<std::string_view> targets;
  for (const DeviceModel& m : kModels) targets.push_back(m.target);
  return targets;
}

std::uint32_t most_shared_bytes() {
  int most = 0;
  for (const DeviceModel& m : kModels) most = std::max(most, m.shared_per_cta);
  return static_cast<std::uint32_t>(most);
}

}  // namespace sinter
