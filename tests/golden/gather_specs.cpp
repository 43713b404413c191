#include "golden/spec_builder.hpp"
#include "golden/specs.hpp"

namespace sinter::golden {
namespace {

// A kernel whose domain is the node's output, storing one gathered value.
KernelSpec gather_kernel(Gather g, const std::vector<std::pair<std::string, DataType>>& operands,
                         DataType result) {
  SpecBuilder b(Family::pointwise, g.output_dim);
  std::size_t next = 0;
  for (auto& p : g.ports)
    if (p >= 0) {
      const auto& [name, type] = operands[next++];
      p = b.port(name, type, strided(Dims::filled(g.output_dim.size(), 0)));
    }
  b.store(b.gather("y", std::move(g)), "y", result);
  return b.spec;
}

Gather make(OpKind op, std::vector<Dims> dims, Dims output, Attributes a = NoAttributes{}) {
  Gather g;
  g.op = op;
  g.attributes = std::move(a);
  g.output_dim = output;
  for (const auto& d : dims) {
    g.strides.push_back(packed_strides(d));
    g.ports.push_back(d.empty() ? -1 : 0);
  }
  g.dims = std::move(dims);
  return g;
}

constexpr auto kMaxpool = ResampleMode::maxpool;

}  // namespace

std::vector<NamedSpec> gather_specs() {
  const Dims x{2, 3, 9, 7}, pooled{2, 3, 5, 4};
  const ResampleAttributes pool{.mode = kMaxpool,
                                .window = {3, 3},
                                .stride = {2, 2},
                                .pre_padding = {1, 1},
                                .post_padding = {1, 1}};
  ResampleAttributes average = pool, edge = pool, up{.mode = ResampleMode::bilinear};
  average.mode = ResampleMode::avgpool_exclude_padding;
  edge.mode = ResampleMode::avgpool_include_padding;
  edge.padding_mode = PaddingMode::edge_val_pad;
  Gather index = make(OpKind::resample, {x}, pooled, pool);
  index.output = 1;
  Gather channels_last = make(OpKind::resample, {x}, pooled, pool);
  channels_last.strides = {{3 * 9 * 7, 1, 3 * 7, 3}};
  return {
      {"maxpool", gather_kernel(channels_last, {{"x", bf16}}, bf16)},
      {"maxpool_index", gather_kernel(index, {{"x", bf16}}, i8)},
      {"avgpool", gather_kernel(make(OpKind::resample, {x}, pooled, average), {{"x", f32}}, f32)},
      {"bilinear",
       gather_kernel(make(OpKind::resample, {{1, 2, 5, 6}}, {1, 2, 13, 4}, up), {{"x", f16}}, f16)},
      {"nearest", gather_kernel(make(OpKind::resample, {{1, 2, 5}}, {1, 2, 13},
                                     ResampleAttributes{.mode = ResampleMode::nearest}),
                                {{"x", f32}}, f32)},
      {"maxpool_backward",
       gather_kernel(make(OpKind::resample_backward, {pooled, {}, {}, pooled}, x, pool),
                     {{"dy", bf16}, {"index", i32}}, bf16)},
      {"avgpool_backward_edge",
       gather_kernel(make(OpKind::resample_backward, {pooled, {}, {}, {}}, x, edge), {{"dy", f32}},
                     f32)},
      {"bilinear_backward",
       gather_kernel(make(OpKind::resample_backward, {{1, 2, 13, 4}}, {1, 2, 5, 6}, up),
                     {{"dy", f32}}, f32)},
      {"page_gather",
       gather_kernel(make(OpKind::page_gather, {{10, 2, 16, 64}, {3, 1, 4, 1}}, {3, 2, 64, 64}),
                     {{"k", bf16}, {"page_table", i32}}, bf16)},
      {"block_mask", gather_kernel(make(OpKind::block_mask, {{2, 4, 3, 2}}, {2, 4, 300, 1100}),
                                   {{"block_mask", u8}}, f32)},
  };
}

}  // namespace sinter::golden
