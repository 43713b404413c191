#include "emit/config_constants.hpp"

namespace sinter {

void add_groups(const KernelSpec& spec, ConfigConstants& c) {
  const ContractionSpec& of = spec.contraction();
  c.insert(c.end(), {{"batch", of.batch}, {"m", of.m}, {"n", of.n}, {"k", of.k()}});
  if (!spec.cross_row_reductions.empty())
    c.push_back({"totals", static_cast<int>(spec.cross_row_reductions.size())});
}

void add_tile(const KernelSpec& spec, const WarpgroupConfig& e, int products, ConfigConstants& c) {
  add_groups(spec, c);
  c.insert(c.end(), {{"tile_m", e.tile.m},
                     {"tile_n", e.tile.n},
                     {"loaded_rows", e.loaded_rows},
                     {"stages", e.tile.stages},
                     {"cluster_m", e.tile.cluster_m},
                     {"cluster_n", e.tile.cluster_n},
                     {"split", e.tile.split},
                     {"group", e.tile.group},
                     {"products", products},
                     {"operand_bytes", e.operand_bytes},
                     {"producer_registers", e.producer_registers},
                     {"consumer_registers", e.consumer_registers},
                     {"alternate", e.tile.alternate, true},
                     {"promote_accumulators", e.promote_accumulators, true},
                     {"prefetch", e.prefetch, true},
                     {"ahead", e.ahead, true},
                     {"rotate", e.rotate},
                     {"n_fastest", e.n_fastest, true}});
}

ConfigConstants config_constants(const ScheduledKernel& kernel) {
  const KernelSpec& spec = kernel.spec;
  ConfigConstants c = {{"threads", kernel.launch().threads}};
  if (const Packing* const packing = kernel.packing()) {
    c.push_back({"unroll", kernel.unroll()});
    c.push_back({"width", packing->width});
  }
  std::visit([&](const auto& config) { add_constants(spec, config, c); }, kernel.config);
  return c;
}

}  // namespace sinter
