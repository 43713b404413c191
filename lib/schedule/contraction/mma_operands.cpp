#include "schedule/contraction/mma_operands.hpp"

#include <algorithm>

#include "plan/access.hpp"
#include "schedule/contraction/index_order.hpp"

namespace sinter {
namespace {

// How many neighbours along the group's last index stay together, at most `widest`.
template <class Works>
int widest_pack(const KernelSpec& spec, Group along, int widest, const Works& works) {
  if (along.size == 0) return 1;
  int width = widest;
  // The last pack of a single index may be a part; those of several would reach into the next line.
  while (width > 1 && !((along.size == 1 || spec.extent[along.last] % width == 0) && works(width)))
    width /= 2;
  return width;
}

// An operand that asynchronous copies can bring: as stored, 4 bytes or more at a time.
bool copy_operand(const KernelSpec& spec, const Body& body, DataType number, Group along,
                  int most_bytes, MmaOperand& o) {
  const Statement& s = body.statements[0];
  if (body.statements.size() != 1 || !is_load(s) || !s.args.empty()) return false;
  const KernelPort& p = spec.ports[static_cast<std::size_t>(s.port)];
  if (p.type != (number == DataType::tf32 ? DataType::f32 : number)) return false;
  const int bytes = info(p.type).bytes;
  const int width = widest_pack(spec, along, most_bytes / bytes, [&](int w) {
    return common_step(spec, p.access, along.last, w) == 1 &&
           alignment(spec, p, along.last, w) == w;
  });
  if (width * bytes < 4) return false;
  o.copied = true;
  o.packing.width = width;
  o.packing.ports[static_cast<std::size_t>(s.port)] = {.kind = PortPack::Kind::pack,
                                                       .aligned = width};
  return true;
}

bool only_forward(const Access& a) {
  const auto forward = [](std::int64_t n) { return n >= 0; };
  return std::all_of(a.stride.begin(), a.stride.end(), forward) &&
         std::all_of(a.windows.begin(), a.windows.end(),
                     [](const Window& w) { return w.stride >= 0; });
}

// How a thread holds `width` neighbours of a port until they are used.
PortPack hold_port(const KernelSpec& spec, const KernelPort& p, Group along, int width,
                   bool renumbered) {
  using Kind = PortPack::Kind;
  const std::int64_t step = along.size ? common_step(spec, p.access, along.last, width) : -1;
  if (step == 0) return {.kind = Kind::same};
  if (step != 1) return {.kind = Kind::each};
  int aligned = alignment(spec, p, along.last, width);
  while (spec.extent[along.last] % aligned != 0) aligned /= 2;  // moves do not end in mid-air
  const int bytes = info(p.type).bytes;
  // Where rows are renumbered, it is not known where the buffer ends.
  if (aligned * bytes < 4 && (width * bytes == 8 || width * bytes == 16) && !renumbered &&
      only_forward(p.access))
    return {.kind = Kind::shifted};
  return {.kind = Kind::pack, .aligned = aligned};
}

// An operand that passes through registers.
void hold_operand(const KernelSpec& spec, const Body& body, DataType number, Group along,
                  bool renumbered, MmaOperand& o) {
  o.packing.width =
      widest_pack(spec, along, kMoveBytes / info(number).bytes, [](int) { return true; });
  for (const auto& s : body.statements)
    if (is_load(s))
      o.packing.ports[static_cast<std::size_t>(s.port)] = hold_port(
          spec, spec.ports[static_cast<std::size_t>(s.port)], along, o.packing.width, renumbered);
  const Statement& s = body.statements.back();
  o.plain = body.statements.size() == 1 && is_load(s) && info(number).bytes == 2 &&
            o.packing.width > 1 &&
            o.packing.ports[static_cast<std::size_t>(s.port)].kind != PortPack::Kind::each &&
            o.packing.ports[static_cast<std::size_t>(s.port)].kind != PortPack::Kind::same;
}

// Instructions that bring an element, roughly.
double load_cost(const MmaOperand& o) {
  if (o.copied) return 0;
  double sum = 0;
  for (const PortPack& p : o.packing.ports)
    if (p.kind == PortPack::Kind::apart)
      continue;
    else if (o.packing.width == 1)
      sum += 3;
    else if (p.kind == PortPack::Kind::each)
      sum += 1.5;
    else if (p.kind == PortPack::Kind::shifted)
      sum += 0.5;
    else if (p.kind == PortPack::Kind::pack)
      sum += 1.0 / p.aligned;
    else if (p.kind == PortPack::Kind::same)
      sum += 1.0 / o.packing.width;
  return sum;
}

// Whether all that the body knows of the indices of k is how far they are behind one another.
bool joins_depth(const KernelSpec& spec, const Body& body) {
  const int first = spec.extent.size() - spec.contraction().k();
  for (const auto& s : body.statements) {
    if (s.kind == StatementKind::index || s.kind == StatementKind::random ||
        s.kind == StatementKind::gather || s.kind == StatementKind::inside)
      return false;
    if (!is_load(s)) continue;
    const Access& a = spec.ports[static_cast<std::size_t>(s.port)].access;
    if (!a.via.empty()) return false;
    for (int i = first; i < spec.extent.size(); ++i) {
      if (i > first && a.stride[i - 1] != a.stride[i] * spec.extent[i]) return false;
      for (const auto& w : a.windows)
        if (w.coefficient[i] != 0) return false;
    }
  }
  return spec.contraction().k() > 1;
}

// The spec with one index of k.
KernelSpec with_joined_depth(KernelSpec spec) {
  const int last = spec.extent.size() - 1, first = last - spec.contraction().k() + 1;
  const std::int64_t depth = count(spec.extent, first, last + 1);
  for (int i = first; i < last; ++i) spec.extent[i] = 1;
  spec.extent[last] = depth;
  return spec;
}

}  // namespace

void order_depth(KernelSpec& spec) {
  if (spec.contraction().k() < 2 || reads_joined_indices(spec)) return;
  const int first = spec.extent.size() - spec.contraction().k();
  int best = -1, most = 0;
  for (int i = first; i < spec.extent.size(); ++i) {
    int weight = 0;
    const ContractionSpec& c = spec.contraction();
    for (const Body* body : {&c.a().body, &c.b().body})
      for (const auto& s : body->statements)
        if (is_load(s) && step(spec.ports[static_cast<std::size_t>(s.port)].access, i) == 1)
          weight += body == &c.a().body ? 2 : 1;
    if (weight >= most && weight > 0) most = weight, best = i;
  }
  if (best < 0) return;
  std::vector<int> order;
  for (int i = 0; i < spec.extent.size(); ++i)
    if (i != best) order.push_back(i);
  order.push_back(best);
  reorder(spec, order);
}

MmaOperand choose_operand(const KernelSpec& given, const Body& body, DataType number, Group rows,
                          bool renumbered, bool transposed) {
  const bool joined = joins_depth(given, body);
  const KernelSpec spec = joined ? with_joined_depth(given) : given;
  const int k = spec.contraction().k() > 0 ? spec.extent.size() - 1 : -1;
  const auto along = [&](bool k_fastest) {
    MmaOperand o;
    o.k_fastest = k_fastest;
    o.joined = joined;
    o.transposed = transposed && k_fastest;
    // Rows of a table are no neighbours.
    const Group group = k_fastest    ? Group{k, joined ? 1 : spec.contraction().k()}
                           : renumbered ? Group{rows.last, 0}
                                     : rows;
    o.packing.dim = group.last;
    o.packing.ports.resize(spec.ports.size());
    const int most_bytes = o.transposed ? info(number).bytes : kMoveBytes;
    if (!copy_operand(spec, body, number, group, most_bytes, o))
      hold_operand(spec, body, number, group, renumbered, o);
    o.ragged = group.size > 0 && spec.extent[group.last] % o.packing.width != 0;
    return o;
  };
  const bool k_fastest = !prefers(spec, body, k, rows.last, is_load);
  const MmaOperand usual = along(k_fastest), other = along(!k_fastest);
  return load_cost(other) < load_cost(usual) ? other : usual;
}

std::optional<MmaOperand> stream_operand(const KernelSpec& given, const Body& body,
                                         const MmaOperand& held, int depth) {
  const KernelSpec spec = held.joined ? with_joined_depth(given) : given;
  const int k = held.packing.dim;
  if (!held.plain || !held.k_fastest || spec.extent[k] % kMoveBytes != 0 ||
      count(spec.extent, spec.contraction().first_k(), spec.extent.size()) % depth != 0)
    return {};
  MmaOperand o = held;
  o.copied = o.streamed = true;
  o.packing.width = kMoveBytes;
  const auto port = static_cast<std::size_t>(body.statements[0].port);
  const KernelPort& p = spec.ports[port];
  PortPack& pack = o.packing.ports[port];
  pack = hold_port(spec, p, {k, 1}, kMoveBytes, false);
  if (pack.kind != PortPack::Kind::pack || pack.aligned != kMoveBytes || info(p.type).bytes != 1 ||
      p.together != 1 || !p.access.windows.empty() || !p.access.via.empty())
    return {};
  return o;
}

OperandWeight weigh(const KernelSpec& spec, const Body& body, const MmaOperand& o) {
  OperandWeight weight;
  if (o.copied) return weight;
  auto& [held, code, narrow, streamed] = weight;
  for (const PortPack& p : o.packing.ports) {
    const KernelPort& port = spec.ports[static_cast<std::size_t>(&p - o.packing.ports.data())];
    const double bytes = info(port.type).bytes;
    if (p.kind == PortPack::Kind::apart) continue;
    narrow |= p.kind == PortPack::Kind::pack && bytes == 1 && p.aligned == o.packing.width &&
              o.packing.width == 8 && port.access.windows.empty() && port.access.via.empty();
    if (o.packing.width == 1)  // each has an address of its own
      held += std::max(1.0, bytes / 4), code += 15;
    else if (p.kind == PortPack::Kind::pack)
      held += bytes / 4, code += 1.0 / p.aligned;
    else if (p.kind == PortPack::Kind::shifted)
      held += bytes / 2, code += 4;
    else if (p.kind == PortPack::Kind::same)
      held += 1.0 / o.packing.width, code += 0.5;
    else
      held += std::max(1.0, bytes / 4), code += 6;
  }
  if (o.plain) return weight;
  for (const auto& s : body.statements)
    code += s.kind == StatementKind::gather || s.kind == StatementKind::random ? 100
            : s.kind == StatementKind::inside                                  ? 6
                                                                               : 1;
  held = std::max(held, 1.0 / 64);  // it is no copy
  return weight;
}

}  // namespace sinter
