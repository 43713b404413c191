#include "schedule/wgmma_instructions.hpp"

#include <algorithm>
#include <set>

#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

using Instructions = std::vector<WgmmaInstruction>;
using Sums = WgmmaInstruction::Sums;

Instructions of(const Launch&, const KernelSpec&) { return {}; }

Instructions of(const WgmmaConfig& e, const KernelSpec&) {
  // Of a filter gradient the columns of some taps; of swapped products a consumer's pixels.
  const int columns = e.taps_each > 0     ? kStageLine / e.operand_bytes * e.taps_together
                      : swaps_products(e) ? rows_of_consumer(e.tile)
                                          : e.tile.n;
  return {{columns, Sums::named, e.integers}};
}

Instructions of(const ImageRowsConfig& e, const KernelSpec&) { return {{e.tile.n}}; }
Instructions of(const ChannelsGradientConfig& e, const KernelSpec&) {
  return {{e.product_columns, Sums::named}};
}
Instructions of(const RunsGradientConfig& e, const KernelSpec&) {
  return {{e.filters, Sums::held}};
}

Instructions of(const ChainedConfig& e, const KernelSpec&) {
  if (e.columns == e.middle) return {{e.middle}};
  return {{e.middle}, {e.columns}};
}

// The scores' product, and the one with the values.
Instructions of(const AttentionConfig& e, const KernelSpec& outputs) {
  if (e.by_warps) return {};
  const std::int64_t width = outputs.extent[AttentionSpec::e], whole = fill_up(width, 16);
  if (e.wide) {  // each consumer has columns of its own
    Instructions all{{e.tile_k}};
    for (const int columns : own_columns(width))
      if (std::ranges::none_of(all, [&](const auto& i) { return i.columns == columns; }))
        all.push_back({columns});
    return all;
  }
  // Results of f8 are summed tile by tile and added up in f32.
  const bool f8 = info(e.v.map.type).bytes == 1;
  return {{e.tile_k, Sums::named}, {whole, f8 ? Sums::values : Sums::held}};
}

// Scores and dP, of so many queries; dQ; and, of keys, dK and dV.
Instructions of(const AttentionBackwardConfig& e, const KernelSpec& spec) {
  using A = AttentionBackwardSpec;
  if (e.by_warps) return {};
  Instructions all;
  if (e.wide) {
    for (const int columns : std::set{e.tile_k / 2, e.tile_k, 64}) all.push_back({columns});
    return all;
  }
  const std::int64_t d = fill_up(spec.extent[A::d], 8), width = fill_up(spec.extent[A::e], 8);
  all.push_back({e.tile_q});
  if (e.last_queries > 0) all.push_back({e.last_queries});
  all.push_back({e.rows_of_dq() || e.parts_of_dq() ? d : 64, Sums::named});
  for (const std::int64_t columns : std::set{d, width}) all.push_back({columns, Sums::held});
  return all;
}

}  // namespace

std::vector<WgmmaInstruction> wgmma_instructions(const ScheduledKernel& kernel) {
  return std::visit([&](const auto& config) { return of(config, kernel.spec); }, kernel.config);
}

}  // namespace sinter
