#include "schedule/contraction/wgmma_stages.hpp"

#include <algorithm>

#include "plan/kernel_spec.hpp"
#include "schedule/launch.hpp"
#include "schedule/packing.hpp"

namespace sinter {
namespace {

constexpr int kBarrierBytes = 16;  // two of a stage

int aligned(int bytes) {
  return (bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
}

int stage_bytes(const TileProblem& p, const Tile& t) {
  return ((p.taps > 0 ? 0 : loaded_rows(p, t)) + loaded_columns(t.n, p.b_k_fastest, p.bytes)) *
             kStageLine +
         kBarrierBytes;
}
// Of pixels that stay for all taps.
int window_bytes(const TileProblem& p, const Tile& t) {
  const int bytes = window_pixels(p, t) * kStageLine, order = p.planes > 1 ? 8 * p.taps : 0;
  return order + t.window_stages * (aligned(bytes) + kBarrierBytes);
}
int stages_in(int bytes, const TileProblem& p, const Tile& t) {
  return std::min((bytes - window_bytes(p, t)) / stage_bytes(p, t), kMostStages);
}
// Of shared memory besides the stages.
int fixed_bytes(const Tile& t) { return kLostToAlignment + t.consumers * 4 * kEpilogueTileBytes; }
// `blocks` share an SM, which keeps some for each.
int stages_beside_epilogue(const TileProblem& p, const Tile& t, int blocks,
                           const DeviceModel& device) {
  return stages_in(device.shared_per_sm / blocks - device.shared_reserved - fixed_bytes(t), p, t);
}

// No block has a second tile, for which its producer would fill the ring already; nor do
// MMAs read on past the last stage.
bool has_one_tile(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  const int cluster = cluster_blocks(t);
  return p.taps == 0 && p.groups == 0 && !p.scaled && t.split == 1 && !t.boxed() &&
         loaded_rows(p, t) + t.n >= t.m &&
         tiles_of(p, t) <= cluster * clusters_at_once(device, cluster);
}

// Of a filter gradient whose pixels stay: the result's gradient and the pixels of all taps.
int gradient_stage_bytes(const TileProblem& p) {
  const int pixels = gradient_pixels(p) * kStageLine;
  return kInstructionRows * kStageLine + aligned(pixels) + kBarrierBytes;
}

}  // namespace

int stages_that_fit(const TileProblem& p, const Tile& t, int blocks, const DeviceModel& device) {
  // Three are too few for memory; where there are more, waiting for all consumers before results
  // leave costs more than one more stage gains. (256 x 18944 x 3584 of bf16 on an H200: 59.3 us in
  // 3 stages of 256 x 144, 55.9 in 4; 3000 x 1536 x 1536 of tf32 45.5 and 43.8. 384 x 5120 x 13824:
  // 88.2 us in 6 stages of 128 x 120, 91.3 in 7; 1024 x 1024 x 1024 6.05 in 8 of 64 x 128, 6.23 in
  // 10.)
  constexpr int kEnough = 4;
  const int stages = stages_beside_epilogue(p, t, blocks, device);
  return stages >= kEnough || blocks > 1 || !has_one_tile(p, t, device)
             ? stages
             : stages_in(device.shared_per_sm - device.shared_reserved - kLostToAlignment, p, t);
}

int gradient_stages_that_fit(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  return std::min(
      (device.shared_per_sm - device.shared_reserved - fixed_bytes(t)) / gradient_stage_bytes(p),
      kMostStages);
}

bool leaves_through_ring(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  return has_one_tile(p, t, device) &&
         t.stages > stages_beside_epilogue(p, t, blocks_that_fit(p, t, device), device);
}

int shared_bytes(const TileProblem& p, const Tile& t, const DeviceModel& device) {
  if (p.gradient) return fixed_bytes(t) + t.stages * gradient_stage_bytes(p);
  return (leaves_through_ring(p, t, device) ? kLostToAlignment : fixed_bytes(t)) +
         window_bytes(p, t) + t.stages * stage_bytes(p, t);
}

}  // namespace sinter
