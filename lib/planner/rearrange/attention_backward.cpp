#include "planner/rearrange/attention_backward.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "plan/access.hpp"
#include "planner/rearrange/aligned_biases.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/rearrange/written_first.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "planner/split/zeros.hpp"
#include "schedule/attention/backward.hpp"

namespace sinter {
namespace {

using Backward = AttentionBackwardSpec;

Statement moved(StatementKind kind, int port, const std::string& label) {
  Statement s = statement(kind, DataType::f32, label);
  s.port = port;
  return s;
}

// From sums of f32 to where they are stored.
KernelSpec conversion(KernelPort from, KernelPort to, const Dims& extent) {
  KernelSpec kernel;
  kernel.extent = extent;
  const Statement load = moved(StatementKind::load, 0, from.name);
  Statement store = moved(StatementKind::store, 1, to.name);
  store.args = {0};
  kernel.ports = {std::move(from), std::move(to)};
  kernel.body.statements = {load, std::move(store)};
  simplify_domain(kernel);
  return kernel;
}

// dBias of rows in one order: sums of blocks of keys, which a kernel behind adds up. They start as
// zeros where some are not stored: those of tiles that are not visited, or of wide heads, whose
// warps sum more keys.
void sum_blocks(KernelSpec& spec, const KernelPort& result, bool all_stored,
                std::vector<KernelSpec>& before, std::vector<KernelSpec>& behind,
                Temporaries& temporaries) {
  Backward& a = spec.attention_backward();
  constexpr int kRows = Backward::m + 1;
  const std::int64_t blocks =
      (spec.extent[Backward::n] + Backward::keys_of_block - 1) / Backward::keys_of_block;
  Dims lines = part_of(spec.extent, 0, kRows);
  lines.push_back(blocks);
  Access packed;
  packed.stride = packed_strides(lines);
  KernelPort sums = temporaries.add("dbias_blocks", DataType::f32, lines, packed);
  if (!all_stored) before.push_back(zeros(sums, lines));

  KernelSpec total;
  total.family = RowwiseSpec{.outer_rank = kRows};
  total.nodes = spec.nodes;
  total.extent = lines;
  BodyCopy body(spec, total, kRows);
  const int sum = finish_parts(total, body, read_back(sums, packed), ReductionMode::add,
                               DataType::f32, blocks, sums.name);
  KernelPort to = result;
  to.access.stride = part_of(result.access.stride, 0, kRows);
  to.access.stride.push_back(0);
  body.add_store(sum, DataType::f32, to, true);
  drop_unused(total);
  simplify_domain(total);
  behind.push_back(std::move(total));

  // The kernel adds the number of the block.
  Dims stride = Dims::filled(spec.extent.size(), 0);
  for (int i = 0; i < kRows; ++i) stride[i] = packed.stride[i];
  sums.access.stride = stride;
  spec.ports[static_cast<std::size_t>(a.dbias)] = std::move(sums);
  a.dbias_of_blocks = true;
}

// What runs before and behind the kernel for dBias. Elements that pairs of query and key share
// start as zeros; they are sums of f32, which a kernel converts where the result has another type.
// Where each belongs to one pair, the kernel stores it, but not those of tiles that it does not
// visit.
void prepare_bias_gradient(KernelSpec& spec, const DeviceModel& device,
                           std::vector<KernelSpec>& before, std::vector<KernelSpec>& behind,
                           Temporaries& temporaries) {
  const Backward& a = spec.attention_backward();
  if (a.dbias < 0) return;
  const BiasGradient gradient = bias_gradient_of(spec);
  KernelPort& port = spec.ports[static_cast<std::size_t>(a.dbias)];
  std::vector<int> indices;  // none where all pairs share one element
  for (const int i : {0, static_cast<int>(Backward::head), static_cast<int>(Backward::m),
                      static_cast<int>(Backward::n)})
    if (moves_along(port.access, i)) indices.push_back(i);
  KernelPort result = port;
  result.access.stride = {};
  Dims extent;
  for (const int i : indices) {
    extent.push_back(spec.extent[i]);
    result.access.stride.push_back(port.access.stride[i]);
  }
  const bool shared = gradient.shared, leaves_out = a.band.left || a.band.right || a.band.padding ||
                                                    !a.mask.statements.empty();
  if (gradient.of_rows && a.deterministic) {
    const KernelPort of_rows = port;
    const auto plan = plan_attention_backward(spec, device);
    const bool all_stored = plan && !plan->wide && !leaves_out;
    return sum_blocks(spec, of_rows, all_stored, before, behind, temporaries);
  }
  if (!shared || port.type == DataType::f32) {
    if (shared || leaves_out) before.push_back(zeros(result, extent));
    return;
  }
  // Lines of keys begin at multiples of 32 bytes, which the eight keys of an addition then fill.
  constexpr std::int64_t kKeys = 8;
  Dims lines = extent;
  if (!indices.empty() && indices.back() == Backward::n)
    lines.back() = (lines.back() + kKeys - 1) / kKeys * kKeys;
  Access packed;
  packed.stride = packed_strides(lines);
  const KernelPort sums = temporaries.add("dbias_sums", DataType::f32, lines, packed);
  before.push_back(zeros(sums, lines));
  behind.push_back(conversion(read_back(sums, packed), result, extent));
  port = sums;
  port.access = packed_in_order(spec.extent.size(), indices, lines);
}

// What dQ's sums are multiplied with, where dQ is just that.
std::optional<double> factor_of_dq(const KernelSpec& spec) {
  using Kind = StatementKind;
  const std::vector<Statement>& body = spec.attention_backward().dq.statements;
  if (body.size() < 2 || body.front().kind != Kind::accumulator ||
      body.back().kind != Kind::store || body.back().args[0] + 2 != static_cast<int>(body.size()))
    return {};
  if (body.size() == 2) return 1.0;
  const Statement &number = body[1], &product = body[2];
  if (body.size() != 4 || number.kind != Kind::scalar || number.port < 0 ||
      product.kind != Kind::pointwise || product.mode != PointwiseMode::mul ||
      product.arithmetic != DataType::f32 || product.args[0] + product.args[1] != 1)
    return {};
  const KernelScalar& factor = spec.scalars[static_cast<std::size_t>(number.port)];
  return factor.bound ? std::nullopt : std::optional(factor.value);
}

// With dQ stored by the kernel, where one tile of keys has all of its sums and meets each of its
// rows, and dQ is of the operands' type. Not where it may lie in memory that the kernel reads.
std::optional<KernelSpec> storing_dq(const KernelSpec& spec, std::span<const TensorId> overwritten,
                                     const DeviceModel& device) {
  const Backward& a = spec.attention_backward();
  const std::optional<double> factor = factor_of_dq(spec);
  const AttentionBand& band = a.band;
  const std::int64_t shift =
      band.bottom_right ? spec.extent[Backward::n] - spec.extent[Backward::m] : 0;
  if (!factor || band.left || band.padding || band.chunk || a.sequences.count > 0 ||
      a.length_q >= 0 || a.length_kv >= 0 || !a.mask.statements.empty() ||
      (band.right && shift + *band.right < 0))
    return {};
  if (std::ranges::any_of(spec.ports, [&](const KernelPort& p) {
        return !p.written && std::ranges::find(overwritten, p.tensor) != overwritten.end();
      }))
    return {};
  KernelSpec stored = spec;
  Backward& to = stored.attention_backward();
  to.sums = a.dq.statements.back().port;
  to.dq = {};
  to.dq_factor = factor;
  if (info(a.q.type).bytes != 2 || stored.ports[static_cast<std::size_t>(to.sums)].type != a.q.type)
    return {};
  const auto plan = plan_attention_backward(stored, device);
  if (!plan || plan->by_warps || spec.extent[Backward::n] > plan->tile_k) return {};
  return stored;
}

// dQ's sums: zeros before the kernel that adds to them, and behind it dQ's body of them.
void sum_dq(KernelSpec& spec, std::vector<KernelSpec>& before, std::vector<KernelSpec>& behind,
            Temporaries& temporaries) {
  // Lines of the sums begin at multiples of 16 bytes.
  const std::vector<int> indices = {0, 1, Backward::m, Backward::d};
  KernelSpec last = over_indices(spec, spec.attention_backward().dq, indices);
  Dims lines = last.extent;
  lines.back() = (lines.back() + 3) / 4 * 4;
  if (spec.attention_backward().deterministic && lines.back() > 0)
    lines[2] += (2 * lines[2] + lines.back()) / lines.back();  // its counters
  Access of_lines;
  of_lines.stride = packed_strides(lines);
  const KernelPort sums = temporaries.add("dq_sums", DataType::f32, lines, of_lines);
  before.push_back(zeros(sums, lines));

  for (Statement& s : last.body.statements)
    if (s.kind == StatementKind::accumulator) {
      s.kind = StatementKind::load;
      s.dim = -1;
      s.port = static_cast<int>(last.ports.size());
    }
  last.ports.push_back(read_back(sums, of_lines));
  drop_unused(last);
  simplify_domain(last);

  KernelPort added = sums;
  added.access = packed_in_order(spec.extent.size(), indices, lines);
  spec.attention_backward().sums = static_cast<int>(spec.ports.size());
  spec.attention_backward().dq = {};
  spec.ports.push_back(std::move(added));
  behind.insert(behind.begin(), std::move(last));
}

std::int64_t elements_of(const KernelSpec& spec, int port, int column) {
  const Backward& a = spec.attention_backward();
  return port < 0 ? 0
                  : count(spec.extent, 0, Backward::batch) / a.group * spec.extent[Backward::n] *
                        spec.extent[column];
}

// How many CTAs share the queries of a tile of keys: where tiles of keys leave SMs idle, as those
// of one head of K, or of few keys, do.
int choose_parts(const KernelSpec& spec, const DeviceModel& device) {
  constexpr int kMost = 16;  // which one kernel adds up
  const Backward& a = spec.attention_backward();
  const auto whole = plan_attention_backward(spec, device);
  const auto plain = [&](int port) {
    if (port < 0) return true;
    const Access& access = spec.ports[static_cast<std::size_t>(port)].access;
    return access.windows.empty() && access.via.empty();
  };
  if (!whole || (!a.mask.statements.empty() && !a.masks_pairs) || (a.dk < 0 && a.dv < 0) ||
      !plain(a.dk) || !plain(a.dv))
    return 1;
  const double floats = static_cast<double>(elements_of(spec, a.dk, Backward::d) +
                                            elements_of(spec, a.dv, Backward::e));
  // Microseconds of a CTA, which begins with a tile of keys and ends with its f32 sums. (On an
  // H200, us, one CTA a tile of keys and parts, all kernels: h16 of 1, s2048, d32 499 and 70, d192
  // and 128 causal 1,406 and 181, d256 causal 1,898 and 288; h32 of 4, s1024, d128 causal 288
  // and 80.5; h32 of 8, s2048, d128 causal 311 and 238; h8, 4096 queries and 77 keys, d64 97.4
  // and 26.6. h8 s2048 d128 causal 83 whole; in two parts 90 in another run.)
  constexpr double kOfCta = 5;
  constexpr unsigned kMostRounds = 2;  // of CTAs; with more of them few SMs are idle
  if (whole->grid > kMostRounds * static_cast<unsigned>(device.sms)) return 1;
  int best = 1;
  double least = whole->microseconds;
  KernelSpec divided = spec;
  for (int n = 2; n <= kMost && n * floats < 0x1p30; ++n) {
    divided.attention_backward().parts = n;
    const auto plan = plan_attention_backward(divided, device);
    if (!plan) continue;
    const double us = plan->microseconds + device.kernel_microseconds() +
                      kOfCta * std::ceil(plan->grid / static_cast<double>(device.sms)) +
                      2 * sizeof(float) * n * floats / device.memory_bandwidth;
    if (us < least) least = us, best = n;
  }
  return best;
}

// A gradient of the keys becomes f32 sums, one for each part, which a kernel behind adds up in
// their order: the last one of `behind` where it has the same extents.
void sum_parts_of(KernelSpec& spec, int number, int column, std::string name, int parts,
                  std::vector<KernelSpec>& behind, Temporaries& temporaries) {
  const Backward& a = spec.attention_backward();
  KernelPort& port = spec.ports[static_cast<std::size_t>(number)];
  KernelPort to = port;
  to.access.stride = {};
  const std::vector<int> indices = {0, Backward::head, Backward::n, column};
  Dims extent;
  for (const int i : indices) {
    extent.push_back(i == Backward::head ? spec.extent[i] / a.group : spec.extent[i]);
    to.access.stride.push_back(port.access.stride[i]);
  }
  Dims lines = extent;
  lines.back() = (lines.back() + 3) / 4 * 4;  // begin at multiples of 16 bytes
  Dims all = lines;
  all[0] *= parts;
  Access packed;
  packed.stride = packed_strides(lines);
  KernelPort sums = temporaries.add(std::move(name), DataType::f32, all, packed);

  if (behind.empty() || behind.back().extent != extent) {
    behind.emplace_back();
    behind.back().extent = extent;
  }
  KernelSpec& kernel = behind.back();
  const auto add = [&](Statement s) {
    kernel.body.statements.push_back(std::move(s));
    return static_cast<int>(kernel.body.statements.size()) - 1;
  };
  const auto add_port = [&](KernelPort p) {
    kernel.ports.push_back(std::move(p));
    return static_cast<int>(kernel.ports.size()) - 1;
  };
  int total = -1;
  for (int i = 0; i < parts; ++i) {
    Access of_part = packed;
    of_part.offset = i * count(lines, 0, lines.size());
    const int loaded =
        add(moved(StatementKind::load, add_port(read_back(sums, of_part)), sums.name));
    Statement sum = statement(StatementKind::pointwise, DataType::f32, sums.name);
    sum.mode = PointwiseMode::add;
    sum.args = {total, loaded};
    total = i == 0 ? loaded : add(std::move(sum));
  }
  Statement store = moved(StatementKind::store, -1, to.name);
  store.args = {total};
  store.port = add_port(std::move(to));
  add(std::move(store));

  port = std::move(sums);
  port.access = packed_in_order(spec.extent.size(), indices, lines);
}

void sum_parts(KernelSpec& spec, int parts, std::vector<KernelSpec>& behind,
               Temporaries& temporaries) {
  Backward& a = spec.attention_backward();
  std::vector<KernelSpec> sums;
  if (a.dk >= 0) sum_parts_of(spec, a.dk, Backward::d, "dk_parts", parts, sums, temporaries);
  if (a.dv >= 0) sum_parts_of(spec, a.dv, Backward::e, "dv_parts", parts, sums, temporaries);
  for (KernelSpec& kernel : sums) {
    simplify_domain(kernel);
    behind.push_back(std::move(kernel));
  }
  a.parts = parts;
}

}  // namespace

std::vector<KernelSpec> attention_backward_kernels(KernelSpec spec, const PlanContext& context,
                                                   std::span<const TensorId> overwritten,
                                                   Temporaries& temporaries) {
  const DeviceModel& device = context.device;
  std::vector<KernelSpec> kernels;
  for (ProductOperand Backward::*which : not_loadable_backward(spec, device)) {
    Backward& a = spec.attention_backward();
    ProductOperand& operand = a.*which;
    std::vector<int> indices;
    for (int i = 0; i < Backward::batch; ++i)
      if (depends_on(spec, operand.body, i)) indices.push_back(i);
    indices.push_back(which == &Backward::q || which == &Backward::d_o ? Backward::m : Backward::n);
    indices.push_back(which == &Backward::q || which == &Backward::k ? Backward::d : Backward::e);
    kernels.push_back(written_first(spec, operand, indices, operand.type, temporaries));
  }

  std::optional<KernelSpec> bias = align_gradient_bias(spec, device, temporaries);

  std::vector<KernelSpec> behind;
  prepare_bias_gradient(spec, device, kernels, behind, temporaries);

  if (spec.attention_backward().wants_dq()) {
    auto stored = storing_dq(spec, overwritten, device);
    if (context.decisions.decide(Decisions::Kind::stored_dq, spec.nodes.front(),
                                 [&] { return stored.has_value(); }) &&
        stored)
      spec = std::move(*stored);
    else
      sum_dq(spec, kernels, behind, temporaries);
  }
  if (const auto parts = context.decisions.decide(Decisions::Kind::query_parts, spec.nodes.front(),
                                                  [&] { return choose_parts(spec, device); });
      parts > 1)
    sum_parts(spec, static_cast<int>(parts), behind, temporaries);
  // Behind the zeros, which the row kernel in front of them may write (write_zeros_beside).
  if (bias) kernels.push_back(std::move(*bias));
  drop_unused(spec);
  const NodeId node = spec.nodes.front();
  for (std::vector<KernelSpec>* const others : {&kernels, &behind})
    for (KernelSpec& k : *others) k.nodes = {node};
  kernels.push_back(std::move(spec));
  for (KernelSpec& k : behind) kernels.push_back(std::move(k));
  return kernels;
}

bool gradients_expand_faster(const KernelSpec& spec, double microseconds,
                             const DeviceModel& device) {
  using Backward = AttentionBackwardSpec;
  const Backward& a = spec.attention_backward();
  if (a.q.type != DataType::f32 || !a.plain() || !a.mask.statements.empty() || !a.wants_dq() ||
      a.dk < 0 || a.dv < 0)
    return false;
  const auto pairs = static_cast<double>(count(spec.extent, 0, Backward::batch) *
                                         spec.extent[Backward::m] * spec.extent[Backward::n]);
  // Of what the expansion has in memory at once, about 12 bytes a pair of query and key.
  constexpr double kBytes = 12, kMostBytes = 512 << 20;
  if (pairs * kBytes > kMostBytes) return false;
  const bool narrow = std::max(spec.extent[Backward::d], spec.extent[Backward::e]) <= 64;
  constexpr double kBeside = 15;  // the kernels before and behind it
  // The expansion's kernels, microseconds, and clocks of an SM a pair. (Of f32 on an H200.)
  constexpr double kKernels = 50, kKernelsNarrow = 25, kPair = 6.5, kPairNarrow = 9.1;
  const double clocks = pairs * (narrow ? kPairNarrow : kPair) / device.sms;
  return microseconds + kBeside > (narrow ? kKernelsNarrow : kKernels) + clocks / device.clock;
}

}  // namespace sinter
