#include "schedule/contraction/wgmma_orientation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/implicit_gemm.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/stored_rows.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

constexpr double kOfWindow = 0.25;  // what pooling leaves of 2 x 2 pixels

std::int64_t depth_of(const KernelSpec& spec) {
  return count(spec.extent, spec.extent.size() - spec.contraction().k(), spec.extent.size());
}

// What an epilogue does with memory.
void count_epilogue(const KernelSpec& spec, TileProblem& p) {
  for (const auto& s : spec.body.statements) {
    if (!is_load(s) && !is_store(s)) continue;
    const KernelPort& port = spec.ports[static_cast<std::size_t>(s.port)];
    p.reads |= of_whole_tile(spec, port);
    const bool pooled = s.port == spec.contraction().pooled.port;
    if (of_whole_tile(spec, port) || port.written)
      p.extra_bytes += info(port.type).bytes * (pooled ? kOfWindow : 1);
  }
  if (const PooledPixels& pooled = spec.contraction().pooled; pooled.port != pooled.of)
    p.extra_bytes += info(spec.ports[static_cast<std::size_t>(pooled.port)].type).bytes * kOfWindow;
  p.extra_bytes /= p.products;
  p.computes = spec.body.statements.size() > 2;
}

// Lines of it begin at odd multiples of 16 bytes, within what memory moves at once.
bool begins_unevenly(const BoxedOperand& operand) {
  constexpr std::int64_t kSector = 32;
  const TensorMap& map = operand.map;
  if (operand.source != BoxedOperand::Source::boxes) return false;
  return map.offset % kSector != 0 ||
         std::ranges::any_of(map.stride, [](std::int64_t s) { return s % kSector != 0; });
}

bool keep(ImplicitGemm& gemm, bool image_left, Pixels how) {
  if (how == Pixels::blocks)
    return keep_blocks(gemm, image_left) || keep_gradient_blocks(gemm, image_left);
  return keep_pixels(gemm, image_left) || keep_gradient_pixels(gemm, image_left);
}

}  // namespace

int m_index(const KernelSpec& s) {
  const ContractionSpec& c = s.contraction();
  return c.m > 0 ? c.first_n() - 1 : -1;
}
int n_index(const KernelSpec& s) {
  const ContractionSpec& c = s.contraction();
  return c.n > 0 ? c.first_k() - 1 : -1;
}
double extent(const KernelSpec& s, int i) { return i < 0 ? 1 : static_cast<double>(s.extent[i]); }

std::optional<Orientation> orient(KernelSpec spec, bool columns_together, bool swapped) {
  if (swapped) swap_operands(spec);
  const ContractionSpec& c = spec.contraction();
  const bool two = c.paired(), gathers = c.rows.gathers();
  const std::int64_t depth = depth_of(spec);
  WgmmaConfig e;
  // Rows of 32 bits that lie together reach the tensor cores by way of registers.
  const bool by_threads = c.a().type == DataType::tf32;
  auto a = boxed(spec, c.a(), m_index(spec), by_threads), b = boxed(spec, c.b(), n_index(spec));
  // Threads may load lines that begin anywhere.
  const bool plain = !c.rows.on && !two && !c.has_scale_blocks();
  if (!a && plain) a = shifted(spec, c.a(), m_index(spec));
  if (!b && plain) b = shifted(spec, c.b(), n_index(spec));
  if (!a || !b) return {};
  // Groups begin at any row, boxes of neighbouring rows at multiples of 16 bytes (load_box).
  if (c.rows.on && !a->k_fastest) return {};
  // Threads copy 16 bytes, and round nothing.
  if (gathers && (a->map.type == DataType::tf32 || depth * info(a->map.type).bytes % 16 != 0))
    return {};
  if (two) {
    e.b2 = boxed(spec, c.b(1), n_index(spec));
    if (!e.b2 || (e.b2->scale < 0) != (b->scale < 0) || e.b2->map.type != b->map.type ||
        e.b2->k_fastest != b->k_fastest)
      return {};
  }
  // Of 8-bit floats any two are multiplied, and of 8-bit integers; of others equal ones.
  if (a->map.type != b->map.type && !multiplied_as_bytes(a->map.type, b->map.type)) return {};
  e.a = *a;
  e.b = *b;
  if (!set_types(e, c, depth)) return {};
  // Each stage lies in one block, and its sums are those that are promoted.
  if (c.has_scale_blocks() && (!e.scaled() || e.integers || spec.extent.back() % kStageLine != 0))
    return {};
  e.n_fastest = columns_together != swapped;

  TileProblem p;
  p.products = two ? 2 : 1;
  p.batches = static_cast<double>(count(spec.extent, 0, c.batch));
  p.rows = extent(spec, m_index(spec));
  p.columns = extent(spec, n_index(spec)) * p.products;
  p.depth = static_cast<double>(depth);
  if (c.rows.on) p.groups = static_cast<double>(spec.extent[0]);
  p.gathered = gathers;
  p.a_shifted = e.a.source == BoxedOperand::Source::shifted;
  p.b_shifted = e.b.source == BoxedOperand::Source::shifted;
  p.a_uneven = !c.rows.on && begins_unevenly(e.a);
  p.b_uneven = !c.rows.on && begins_unevenly(e.b);
  p.bytes = e.operand_bytes;
  p.a_k_fastest = e.a.k_fastest;
  p.b_k_fastest = e.b.k_fastest;
  p.reduces = !spec.cross_row_reductions.empty();
  p.integers = e.integers;
  p.promote_accumulators = e.promote_accumulators;
  p.scaled = e.scaled();
  p.along_columns = e.n_fastest;
  count_epilogue(spec, p);
  store_tiles_as_summed(spec, e);
  p.stores_rows = e.stored_rows >= 0;
  return Orientation{std::move(spec), std::move(e), p};
}

std::optional<Orientation> orient_convolution(KernelSpec spec, bool image_is_a,
                                              bool columns_together, bool swapped, Pixels pixels) {
  if (swapped) swap_operands(spec);
  const bool image_left = image_is_a != swapped;
  auto gemm = implicit_gemm(spec, image_left);
  const bool resident = pixels != Pixels::each_tap;
  if (!gemm || (resident && !keep(*gemm, image_left, pixels))) return {};
  const bool images = gemm->image.source == BoxedOperand::Source::images;
  if (images ? image_left : !resident && has_parts(gemm->window)) return {};
  const ContractionSpec& c = gemm->spec.contraction();
  const ConvolutionWindow& window = gemm->window;
  WgmmaConfig e;
  e.a = image_left ? gemm->image : gemm->other;
  e.b = image_left ? gemm->other : gemm->image;
  if (!set_types(e, c, depth_of(gemm->spec))) return {};
  if (resident && e.promote_accumulators) return {};  // its kernel promotes none
  e.n_fastest = columns_together != swapped;
  TileProblem p;
  p.integers = e.integers;
  p.promote_accumulators = e.promote_accumulators;
  p.rows = static_cast<double>(count(gemm->spec.extent, c.first_m(), c.first_n()));
  p.columns = static_cast<double>(count(gemm->spec.extent, c.first_n(), c.first_k()));
  p.batches = static_cast<double>(count(gemm->spec.extent, 0, c.batch));
  p.bytes = e.operand_bytes;
  p.window = true;
  double taps = 1, steps = 1;  // of all phases together
  for (const WindowAxis& axis : window.axes) {
    taps *=
        static_cast<double>(std::accumulate(axis.taps.begin(), axis.taps.end(), std::int64_t{0}));
    steps *= static_cast<double>(axis.step);
  }
  if (window.taps_of == ConvolutionWindow::Taps::k) {
    const int line = kStageLine / e.operand_bytes;
    double phases = 1;
    for (const WindowAxis& axis : window.axes) phases *= axis.taps.size();
    p.phased = phases > 1;
    if (!deepest_first(window).empty()) {
      for (const std::int64_t of_phase : taps_of_phases(window))
        p.depths.push_back(static_cast<double>(of_phase) * phases / taps);
      std::sort(p.depths.rbegin(), p.depths.rend());
    }
    const std::int64_t lines = (window.channels + line - 1) / line,
                       step = line / 4;  // of an MMA
    p.depth = taps / phases * static_cast<double>(line * lines);
    p.zeros_of_k = taps / phases *
                   static_cast<double>(line * lines - (window.channels + step - 1) / step * step);
    if (resident) {
      p.taps = static_cast<int>(taps);
      p.reach = static_cast<int>(std::min<std::int64_t>(reach_of(window), tma::kMostPixels));
      p.planes = planes_of(window);
      for (const WindowAxis& axis : window.axes)
        if (axis.apart) p.frames *= static_cast<int>(axis.taps[0]);
      p.block = pixels == Pixels::blocks ? static_cast<int>(kBlockPixels) : 0;
      if (p.block > 0) p.block_lines = static_cast<int>(block_lines(gemm->image));
      if (pixels == Pixels::lines && p.planes == 1)
        p.zeros = p.rows / static_cast<double>(count(spec.extent, spec.contraction().first_m(),
                                                     spec.contraction().first_n())) -
                  1;
      e.resident = true;
    }
  } else {
    p.stepped = taps == 1;  // else they would be one dim
    p.depth = static_cast<double>(depth_of(gemm->spec));
    if (resident) {
      e.resident = true;
      p.gradient = true;
      for (const WindowAxis& axis : window.axes)
        if (axis.tap.index >= 0)
          p.tap_batches *= static_cast<double>(gemm->spec.extent[axis.tap.index]);
      p.block = pixels == Pixels::blocks ? kStageLine / p.bytes : 0;
      if (p.block > 0) p.block_lines = static_cast<int>(block_lines(gemm->image));
      p.taps = static_cast<int>(taps);
      p.reach = static_cast<int>(std::min<std::int64_t>(reach_of(window), tma::kMostPixels));
    }
    if (images && window.taps_of == ConvolutionWindow::Taps::columns)
      p.columns_together = static_cast<int>(window.channels);
  }
  (image_left ? p.a_again : p.b_again) = std::max(1.0, taps / steps);
  p.a_k_fastest = e.a.k_fastest;
  p.b_k_fastest = e.b.k_fastest;
  p.reduces = !gemm->spec.cross_row_reductions.empty();
  p.along_columns = e.n_fastest;
  count_epilogue(gemm->spec, p);
  store_tiles_as_summed(gemm->spec, e, gemm->window.bounds.empty() && !resident);
  const bool stored = e.stored_rows >= 0, in_pieces = stored && c.n > 1;
  p.stores_rows = stored && !in_pieces;
  p.stores_pieces = in_pieces && !p.gradient && p.columns <= kInstructionRows;
  const bool words =
      stored && info(gemm->spec.ports[static_cast<std::size_t>(e.stored_rows)].type).bytes == 2;
  p.swappable = e.resident && !p.gradient && e.row_sources.empty() && words &&
                (p.stores_rows || p.stores_pieces);
  e.window = std::move(gemm->window);
  return Orientation{std::move(gemm->spec), std::move(e), p};
}

}  // namespace sinter
