// Which operands of a contraction TMA can load in boxes of rows and one index of k.
#include <algorithm>

#include "plan/access.hpp"
#include "plan/tma_limits.hpp"
#include "schedule/contraction/held_type.hpp"
#include "schedule/contraction/wgmma.hpp"

namespace sinter {
namespace {

// Whether no sum of so many products of integers leaves 32 bits.
bool sums_fit(DataType a, DataType b, std::int64_t depth) {
  return static_cast<double>(depth) * largest_of(a) * largest_of(b) < 0x1p31;
}

// Whether a value of the body is the same wherever it stands along the index.
bool constant_along(const KernelSpec& spec, const Body& body, int value, int index) {
  const Statement& s = body.statements[static_cast<std::size_t>(value)];
  if (is_load(s)) {
    const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
    if (!s.args.empty() || !a.windows.empty() || !a.via.empty() || moves_along(a, index))
      return false;
  } else if (s.kind != StatementKind::scalar && s.kind != StatementKind::pointwise &&
             s.kind != StatementKind::convert) {
    return false;
  }
  return std::all_of(s.args.begin(), s.args.end(),
                     [&](int x) { return constant_along(spec, body, x, index); });
}

// An operand whose value is a plain load, or an 8-bit float times a scale that is the same for a
// whole block of k, its innermost index; of groups, whose results may be renumbered, for all of k.
// Tensor cores sum 8-bit products with fewer bits than f32 has: that is for products which may be
// rounded, too.
struct Loaded {
  const KernelPort* port = nullptr;
  int number = -1, scale = -1;  // of the port; statement
};
Loaded loaded(const KernelSpec& spec, const Body& body, DataType type) {
  const ContractionSpec& c = spec.contraction();
  if (const KernelPort* const p = plainly_loaded(spec, body))
    return {p, body.statements.front().port, -1};
  const Statement& last = body.statements.back();
  if (type == DataType::f32 || (!c.has_scale_blocks() && !c.rows.on) ||
      last.kind != StatementKind::pointwise || last.mode != PointwiseMode::mul ||
      last.arithmetic != DataType::f32)
    return {};
  for (int side : {0, 1}) {
    const Statement& s =
        body.statements[static_cast<std::size_t>(last.args[static_cast<std::size_t>(side)])];
    const int scale = last.args[static_cast<std::size_t>(1 - side)];
    if (!is_load(s) || !s.args.empty() ||
        !constant_along(spec, body, scale, spec.extent.size() - 1))
      continue;
    const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
    if (p.access.windows.empty() && p.access.via.empty() && multiplied_as_bytes(p.type, p.type) &&
        is_floating(p.type))
      return {&p, s.port, scale};
  }
  return {};
}

std::optional<BoxedOperand> boxed_part(const KernelSpec& spec, const ProductOperand& operand,
                                       int row, bool any_major) {
  const auto& [body, type] = operand;
  const ContractionSpec& c = spec.contraction();
  const Loaded from = loaded(spec, body, type);
  if (!from.port) return {};
  const KernelPort& p = *from.port;
  const int k = spec.extent.size() - 1;
  const Access& a = p.access;
  const std::int64_t bytes = info(p.type).bytes;
  const bool either = any_major || takes_either_major(p.type);
  const bool single = multiplied_as_bytes(p.type, p.type);
  const bool rounded = p.type == DataType::f32 && type == DataType::tf32;
  if (!either && !single && !rounded) return {};
  if (p.alignment < tma::kUnit || a.offset * bytes % tma::kUnit != 0) return {};
  BoxedOperand o;
  o.port = from.number;
  o.scale = from.scale;
  o.one_scale = row < 0 || (from.scale >= 0 && constant_along(spec, body, from.scale, row));
  o.map.type = rounded ? DataType::tf32 : p.type;  // TMA rounds
  o.map.offset = a.offset * bytes;
  o.map.swizzle = kStageLine;
  const auto steps = [&](std::int64_t stride) { return tma::takes_step(stride * bytes); };
  const bool one_row = row < 0 || !varies(spec, row);
  const std::int64_t rows = row < 0 ? 1 : spec.extent[row],
                     depth = count(spec.extent, spec.extent.size() - c.k(), spec.extent.size());
  const std::int64_t of_row = row < 0 ? 0 : a.stride[row], of_k = a.stride[k];
  if (c.has_scale_blocks() && a.stride[k - 1] != of_k * spec.extent[k])
    return {};  // blocks lie apart
  if (of_k == 1 && (one_row || steps(of_row))) {
    o.k_fastest = true;
    o.map.dim = {depth, rows};
    o.map.stride = {one_row ? tma::any_step(depth * bytes) : of_row * bytes};
  } else if (either && of_row == 1 && (depth == 1 || steps(of_k))) {
    o.k_fastest = false;
    o.map.dim = {rows, depth};
    o.map.stride = {depth == 1 ? tma::any_step(rows * bytes) : of_k * bytes};
  } else {
    return {};
  }
  for (int i = c.batch - 1; i >= 0; --i) {
    if (a.stride[i] == 0 || spec.extent[i] == 1) continue;
    if (!steps(a.stride[i]) || o.map.dim.size() == tma::kMostDims) return {};
    o.batch.push_back(i);
    o.map.dim.push_back(spec.extent[i]);
    o.map.stride.push_back(a.stride[i] * bytes);
  }
  for (std::int64_t n : o.map.dim)
    if (n < 1 || n >= tma::kCoordinateEnd) return {};
  return o;
}

}  // namespace

std::optional<BoxedOperand> boxed(const KernelSpec& spec, const ProductOperand& operand, int row,
                                  bool any_major) {
  const auto parts = joined_parts(spec, operand.body);
  if (parts.empty()) return boxed_part(spec, operand, row, any_major);
  // A stage lies in one part: all but the last one fill theirs.
  std::optional<BoxedOperand> whole;
  KernelSpec part = spec;
  for (const JoinedPart& p : parts) {
    part.extent[spec.extent.size() - 1] = p.extent;
    part.ports[static_cast<std::size_t>(p.port)].access = p.access;
    Statement load;
    load.kind = StatementKind::load;
    load.port = p.port;
    auto o = boxed_part(part, {{{load}}, operand.type}, row, any_major);
    if (!o || p.from * info(o->map.type).bytes % kStageLine != 0) return {};
    if (whole && (o->k_fastest != whole->k_fastest || o->map.type != whole->map.type)) return {};
    o->from = p.from;
    if (whole)
      whole->behind.push_back(std::move(*o));
    else
      whole = std::move(o);
  }
  return whole;
}

std::optional<BoxedOperand> shifted(const KernelSpec& spec, const ProductOperand& operand,
                                    int row) {
  const KernelPort* const p = plainly_loaded(spec, operand.body);
  if (!p || !takes_either_major(p->type) || row < 0 || !varies(spec, row)) return {};
  const Access& a = p->access;
  const int k = spec.extent.size() - 1;
  const bool forward = std::all_of(a.stride.begin(), a.stride.end(),
                                   [](std::int64_t stride) { return stride >= 0; });
  const bool k_fastest = a.stride[k] == 1;
  if (p->alignment < tma::kUnit) return {};
  const bool countable = std::all_of(spec.extent.begin(), spec.extent.end(), [](std::int64_t n) {
    return n >= 1 && n < tma::kCoordinateEnd;
  });
  if (!forward || !countable || (!k_fastest && a.stride[row] != 1) || a.stride[k] == 0 ||
      a.stride[row] == 0)
    return {};
  BoxedOperand o;
  o.source = BoxedOperand::Source::shifted;
  o.port = operand.body.statements.front().port;
  o.k_fastest = k_fastest;
  o.map.type = p->type;
  return o;
}

std::optional<BoxedOperand> boxed_port(const KernelSpec& spec, int number, int batch,
                                       IndexRange rows, int column, SharedIndex shared) {
  const KernelPort& p = spec.ports[static_cast<std::size_t>(number)];
  const Access& a = p.access;
  const std::int64_t bytes = info(p.type).bytes, columns = spec.extent[column];
  if (!a.windows.empty() || !a.via.empty() || p.alignment < tma::kUnit ||
      a.offset * bytes % tma::kUnit != 0)
    return {};
  const auto steps = [&](int i) { return tma::takes_step(a.stride[i] * bytes); };
  int row = -1;  // the innermost index of which there is more than one
  for (int i = rows.first; i < rows.end; ++i) {
    if (spec.extent[i] == 1) continue;
    if (row >= 0 && a.stride[row] != a.stride[i] * spec.extent[i]) return {};
    row = i;
  }
  if ((a.stride[column] != 1 && columns > 1) || (row >= 0 && !steps(row))) return {};
  BoxedOperand o;
  o.port = number;
  o.map.type = p.type;
  o.map.offset = a.offset * bytes;
  o.map.swizzle = kStageLine;
  o.map.dim = {columns, count(spec.extent, rows.first, rows.end)};
  o.map.stride = {row >= 0 ? a.stride[row] * bytes : tma::any_step(columns * bytes)};
  for (int i = batch - 1; i >= 0; --i) {
    const std::int64_t n = i == shared.index ? spec.extent[i] / shared.group : spec.extent[i];
    if (n == 1 || a.stride[i] == 0) continue;
    if (!steps(i) || o.map.dim.size() == tma::kMostDims) return {};
    o.batch.push_back(i);
    o.map.dim.push_back(n);
    o.map.stride.push_back(a.stride[i] * bytes);
  }
  for (std::int64_t n : o.map.dim)
    if (n < 1 || n >= tma::kCoordinateEnd) return {};
  return o;
}

std::optional<BoxedOperand> boxed_result(const KernelSpec& spec, int number, int batch,
                                         IndexRange rows, int column, SharedIndex shared) {
  constexpr std::int64_t kPiece = 16;  // bytes
  auto o = boxed_port(spec, number, batch, rows, column, shared);
  return o && o->map.dim[0] * info(o->map.type).bytes % kPiece == 0 ? o : std::nullopt;
}

void set_box(BoxedOperand& o, int rows) {
  for (BoxedOperand& part : o.behind) set_box(part, rows);
  const int elements = kStageLine / info(o.map.type).bytes;
  if (o.source == BoxedOperand::Source::blocks) return;   // has one
  if (o.source == BoxedOperand::Source::shifted) return;  // needs none
  const bool pixels = o.source == BoxedOperand::Source::pixels;
  o.map.box = Dims::filled(pixels ? 2 : o.map.dim.size(), 1);
  o.map.box[0] = elements;
  o.map.box[1 + static_cast<int>(o.filter_axes.size())] = o.k_fastest ? rows : elements;
}

bool set_types(WgmmaConfig& e, const ContractionSpec& c, std::int64_t depth) {
  const DataType a = e.a.map.type, b = e.b.map.type;
  e.operand_bytes = info(a).bytes;
  e.integers = !is_floating(a);
  e.promote_accumulators = c.promote_accumulators || (e.operand_bytes == 1 && !e.integers);
  return e.integers ? sums_fit(a, b, depth) : c.accumulate == DataType::f32;
}

bool takes_either_major(DataType t) { return t == DataType::bf16 || t == DataType::f16; }

bool multiplied_as_bytes(DataType a, DataType b) {
  const auto of_floats = [](DataType t) { return t == DataType::f8e4m3 || t == DataType::f8e5m2; };
  const auto of_integers = [](DataType t) { return t == DataType::i8 || t == DataType::u8; };
  return (of_floats(a) && of_floats(b)) || (of_integers(a) && of_integers(b));
}

}  // namespace sinter
