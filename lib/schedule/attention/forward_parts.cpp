#include "schedule/attention/forward_parts.hpp"

#include <algorithm>
#include <cmath>

#include "plan/access.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {
namespace {

// A product of the kernel as a contraction of its own.
KernelSpec product(KernelSpec spec, ProductOperand a, ProductOperand b) {
  ContractionSpec c;
  c.batch = AttentionSpec::batch;
  c.m = 2;
  c.n = 1;
  c.k_indices = {KIndex::channels};
  c.products = {Product{std::move(a), std::move(b)}};
  spec.family = std::move(c);
  return spec;
}
}  // namespace

KernelSpec scores_of(const KernelSpec& spec) {
  const AttentionSpec& a = spec.attention();
  KernelSpec first = without_index(spec, AttentionSpec::e);
  const AttentionSpec own = first.attention();
  first.body = own.score;
  return product(std::move(first), a.q, a.k);
}
KernelSpec outputs_of(const KernelSpec& spec) {
  return product(without_index(spec, AttentionSpec::d), {}, spec.attention().v);
}

std::int64_t rows_of(const KernelSpec& spec) {
  return spec.extent[AttentionSpec::member] * spec.extent[AttentionSpec::query];
}

std::optional<BoxedOperand> paged(const KernelSpec& spec, const ProductOperand& operand, bool keys,
                                  bool widened) {
  const auto& body = operand.body.statements;
  if (body.empty() || body.size() > 2 || body[0].kind != StatementKind::gather ||
      (body.size() == 2 && body[1].kind != StatementKind::convert))
    return {};
  const Gather& g = spec.gathers[static_cast<std::size_t>(body[0].gather)];
  if (g.op != OpKind::page_gather) return {};
  const KernelPort& p = spec.ports[static_cast<std::size_t>(g.ports[0])];
  const Dims &dim = g.dims[0], &stride = g.strides[0];
  const std::int64_t bytes = info(p.type).bytes;
  if ((p.type != operand.type && !(widened && is_f8(p.type))) || p.alignment < 16 ||
      p.access.offset * bytes % 16 != 0 || (body.size() == 2 && body[1].type != p.type) ||
      (stride[3] != 1 && dim[3] > 1))
    return {};
  BoxedOperand o;
  o.source = BoxedOperand::Source::pages;
  o.gather = body[0].gather;
  o.page = dim[2];
  o.port = g.ports[0];
  o.k_fastest = keys;
  o.map.type = p.type;
  o.map.offset = p.access.offset * bytes;
  o.map.swizzle = 128;
  o.map.dim = {dim[3]};
  for (int i : {2, 1, 0}) {
    const std::int64_t step = dim[i] > 1 ? stride[i] * bytes : 16;
    if (step <= 0 || step % 16 != 0 || step >= std::int64_t{1} << 40) return {};
    o.map.dim.push_back(dim[i]);
    o.map.stride.push_back(step);
  }
  for (std::int64_t n : o.map.dim)
    if (n < 1 || n >= std::int64_t{1} << 31) return {};
  return o;
}

void set_swizzled_lines(BoxedOperand& o, int rows, int k) {
  o.map.box = Dims::filled(o.map.dim.size(), 1);
  o.map.box[0] = kLineBytes / info(o.map.type).bytes;
  o.map.box[1] = o.k_fastest ? rows : k;
  if (o.page > 0) o.map.box[1] = std::min(o.map.box[1], o.page);
}

// ForwardShape has the same.
int shared_bytes_of_warpgroups(const AttentionConfig& e, int depth, int width) {
  constexpr int kSwizzledRows = 8;
  const auto line = [](const BoxedOperand& o) { return kLineBytes / info(o.map.type).bytes; };
  const auto bytes = [&](const BoxedOperand& o, int rows, int k) {
    return rows * k * info(o.map.type).bytes;
  };
  const int columns = up(width, 16), q = bytes(e.q, kConsumerRows, up(depth, line(e.q))),
            k = bytes(e.k, up(e.tile_k, e.k.k_fastest ? kSwizzledRows : line(e.k)),
                      up(depth, line(e.k))),
            v = bytes(e.v, up(columns, line(e.v)),
                      up(e.tile_k, e.v.k_fastest ? line(e.v) : kSwizzledRows));
  // Values of f8 twice: as they come, and lines of keys.
  const bool turns = is_f8(e.v.map.type);
  const int turned = turns ? columns * up(e.tile_k, kLineBytes) + 16 : 0,
            taken = e.attention.tiles_taken >= 0 ? 2 * (16 + 32) : 0,  // tiles, with their barriers
      share = e.attention.parts >= 0 ? 4 * (4 + 20) : 0;               // where the CTA's begins
  return e.consumers * q + e.stages * (k + v + turned) + e.consumers * 4 * kSlabBytes + 16 +
         2 * 16 * e.stages + taken + share + 1023;
}

// WideForwardShape has the same.
int wide_shared_bytes(const AttentionConfig& e, int depth, int width) {
  constexpr int kLine = kLineBytes / 2;
  const int slabs_k = up(depth, kLine) / kLine, slabs_v = up(width, kLine) / kLine,
            slab = e.tile_k * kLine * 2;
  const int q = std::max(kConsumerRows * slabs_k * kLine * 2, e.consumers * 4 * kSlabBytes),
            weights = kConsumerRows * e.tile_k * 2;
  const bool weights_in_keys = e.values_in_keys && slabs_k > slabs_v && weights <= slab;
  const int rows = 2 * (2 * kConsumerRows * 4) + e.consumers * 128 * 2 * 4,
            pipes = std::min(slabs_k, 3) + (e.values_in_keys ? 0 : 1);  // of K's parts and V
  return q + e.stages * slab * (slabs_k + (e.values_in_keys ? 0 : slabs_v)) +
         (weights_in_keys ? 0 : 2 * weights) + rows + 16 + 2 * 16 + pipes * 16 * e.stages + 1023;
}

SharedParts shared_parts(const KernelSpec& spec, const AttentionConfig& e,
                         const DeviceModel& device) {
  const std::int64_t columns = up(spec.extent[AttentionSpec::e], 16),
                     tiles = count(spec.extent, 0, AttentionSpec::batch) *
                             ((rows_of(spec) + e.tile_q - 1) / e.tile_q);
  // PartsOfKeys::floats
  return {2LL * device.sms * e.consumers * e.part_rows * (columns + 2), tiles * e.consumers};
}

void share_keys(const KernelSpec& spec, double units, const DeviceModel& device,
                AttentionConfig& e) {
  constexpr double kMostIdle = 0.04;
  const auto heads = static_cast<int>(spec.extent[AttentionSpec::head]);
  e.share_lanes = 1;
  for (int n = 2; n <= std::min(heads, device.sms); ++n)
    if (heads % n == 0 && device.sms % n <= kMostIdle * device.sms) e.share_lanes = n;
  const double most = device.sms / e.share_lanes,
               ctas = std::clamp(std::floor(units / e.share_lanes), 1.0, most);
  e.grid = clamp_grid(ctas * e.share_lanes);
}

double microseconds_of_join(const AttentionConfig& e, int width) {
  // Each of 128 threads reads four columns of a row at a time. (On an H200, 8 rows of 128 columns,
  // 16 parts: 2 us.)
  constexpr double kCount = 1, kRead = 0.5, kAtOnce = 128 * 4;
  return kCount + kRead * e.part_rows * up(width, 16) / kAtOnce;
}

double bytes_of_attention(const KernelSpec& spec, const AttentionConfig& e) {
  using A = AttentionSpec;
  const std::int64_t group = e.attention.group;
  double bytes = bytes_moved(spec) / group;
  const double keys =
      static_cast<double>(count(spec.extent, 0, A::batch) / group * spec.extent[A::n]);
  if (e.k.page > 0)
    bytes += keys * static_cast<double>(spec.extent[A::d]) * info(e.k.map.type).bytes;
  if (e.values_in_keys) {
    if (e.v.page == 0)
      bytes -= static_cast<double>(elements_reached(
                   spec.extent, spec.ports[static_cast<std::size_t>(e.v.port)].access)) *
               info(e.v.map.type).bytes / group;
  } else if (e.v.page > 0)
    bytes += keys * static_cast<double>(spec.extent[A::e]) * info(e.v.map.type).bytes;
  return bytes;
}

}  // namespace sinter
