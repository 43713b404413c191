#include "planner/spec/body_builder.hpp"

#include <algorithm>
#include <bit>

#include "lower/expansion.hpp"
#include "lower/lower.hpp"
#include "plan/access.hpp"
#include "plan/workspace_alignment.hpp"
#include "reference/element.hpp"
#include "sinter/ops/shapes_contraction.hpp"

namespace sinter {

Coordinate index_coordinate(int indices, int i) {
  Coordinate c;
  c.coefficient = Dims::filled(indices, 0);
  c.coefficient[i] = 1;
  return c;
}

int add_port(KernelSpec& spec, KernelPort port) {
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const auto& p = spec.ports[i];
    if (p.tensor == port.tensor && p.written == port.written && p.access == port.access)
      return static_cast<int>(i);
  }
  spec.ports.push_back(std::move(port));
  return static_cast<int>(spec.ports.size()) - 1;
}

int add_port(KernelSpec& spec, const Graph& graph, TensorId t, const Location& at, Access access,
             bool written) {
  // Workspace is aligned to more than any kernel asks for.
  const std::int64_t alignment =
      graph.is_virtual(at.root) ? kWorkspaceAlignment : graph[at.root].alignment;
  return add_port(spec, {at.root, graph[t].name, at.type, std::move(access), written, alignment});
}

Access BodyBuilder::access(const Dims& dim, const Location& at) const {
  Access a;
  a.offset = at.offset;
  a.stride = Dims::filled(spec_.extent.size(), 0);
  const int skip = domain_.size() - dim.size();
  for (int i = 0; i < dim.size(); ++i) {
    // A tensor may have more leading ones than the domain has dims.
    if (i + skip < 0) continue;
    const Coordinate& c = coordinates_[static_cast<std::size_t>(i + skip)];
    const bool broadcast = dim[i] == 1 && domain_[i + skip] != 1;
    const std::int64_t stride = broadcast ? 0 : at.stride[i];
    if (c.window) {
      a.windows.push_back({c.coefficient, c.base, c.divisor, c.extent, stride});
      continue;
    }
    if (dim[i] == 1) continue;
    a.offset += c.base * stride;
    for (int j = 0; j < a.stride.size(); ++j) a.stride[j] += c.coefficient[j] * stride;
  }
  return a;
}

int BodyBuilder::port(TensorId t, bool written) {
  const Location& at = state_.storage()[t];
  return add_port(spec_, state_.graph(), t, at, access(state_.graph()[t].dim, at), written);
}

BodyBuilder::Same BodyBuilder::same(const Statement& s) {
  std::array<std::uint64_t, 3> params{};
  for (std::size_t i = 0; i < params.size(); ++i)
    params[i] = std::bit_cast<std::uint64_t>(s.params[i]);
  return {s.kind, s.arithmetic, s.mode, params, s.port, s.dim, s.type, s.args};
}

int BodyBuilder::known(const Statement& s) const {
  const auto at = known_.find(same(s));
  return at == known_.end() ? -1 : at->second;
}

// Phase and level follow from the operands; loads and indices set theirs before.
int BodyBuilder::add(Statement s) {
  const bool repeats = spec_.as_rowwise() &&
                       (is_load(s) || s.kind == StatementKind::scalar ||
                        s.kind == StatementKind::convert || s.kind == StatementKind::pointwise);
  if (repeats) {
    if (const int before = known(s); before >= 0) return before;
    known_[same(s)] = static_cast<int>(body_.statements.size());
  }
  const bool leaf = s.args.empty();
  if (!leaf && !is_load(s)) s.per_row = true;
  for (int a : s.args) {
    const auto& operand = body_.statements[static_cast<std::size_t>(a)];
    s.phase = std::max(s.phase, operand.phase);
    s.per_row = s.per_row && operand.per_row;
  }
  if (!spec_.as_rowwise()) s.per_row = false;
  body_.statements.push_back(std::move(s));
  return static_cast<int>(body_.statements.size()) - 1;
}

int BodyBuilder::value(TensorId t) {
  if (auto it = value_.find(t); it != value_.end()) return it->second;
  const int v = raw(t);
  const DataType type = state_.graph().type(t);
  const DataType arithmetic = body_.statements[static_cast<std::size_t>(v)].arithmetic;
  const auto kind = body_.statements[static_cast<std::size_t>(v)].kind;
  const bool exact = (kind == StatementKind::load && loaded_as_is(t)) ||
                     kind == StatementKind::scalar || type == DataType::f64 ||
                     (type == DataType::f32 && arithmetic == DataType::f32);
  int result = v;
  if (!exact) {
    Statement s;
    s.kind = StatementKind::convert;
    s.arithmetic = fits_f32(type) ? DataType::f32 : DataType::f64;
    s.type = type;
    s.label = state_.graph()[t].name;
    s.args = {v};
    result = add(std::move(s));
  }
  value_[t] = result;
  return result;
}

void BodyBuilder::store(TensorId t) {
  Statement s;
  s.kind = StatementKind::store;
  s.port = port(t, true);
  // Stored in the tensor's own type, the unrounded value is rounded once by the store.
  const bool own_type = state_.storage()[t].type == state_.graph().type(t);
  s.args = {own_type && !value_.count(t) ? raw(t) : value(t)};
  s.arithmetic = body_.statements[static_cast<std::size_t>(s.args[0])].arithmetic;
  s.label = state_.graph()[t].name;
  const int statement = add(std::move(s));
  // A value that is the same along a row is still written to every element of the row, of which a
  // tensor without elements has none, whatever its strides are.
  Statement& stored = body_.statements[static_cast<std::size_t>(statement)];
  const Access& to = spec_.ports[static_cast<std::size_t>(stored.port)].access;
  for (int i = outer_rank(spec_); i < to.stride.size(); ++i)
    if (to.stride[i] != 0) stored.per_row = false;
  if (count(state_.graph()[t].dim) == 0) stored.per_row = false;
}

int BodyBuilder::value_inside_windows(TensorId t) {
  const int v = value(t);
  bool windowed = false;
  for (const auto& c : coordinates_) windowed |= c.window;
  // A plain load already gives zero outside.
  if (!windowed || body_.statements[static_cast<std::size_t>(v)].kind == StatementKind::load)
    return v;
  Statement s;
  s.kind = StatementKind::inside;
  s.arithmetic = body_.statements[static_cast<std::size_t>(v)].arithmetic;
  s.label = state_.graph()[t].name;
  s.args = {v};
  // The load with the most windows: a tensor of lower rank has none for the leading dims.
  std::size_t most = 0;
  for (const auto& other : body_.statements) {
    if (other.kind != StatementKind::load) continue;
    const auto windows = spec_.ports[static_cast<std::size_t>(other.port)].access.windows.size();
    if (windows > most) most = windows, s.port = other.port;
  }
  return add(std::move(s));
}

int BodyBuilder::raw(TensorId t) {
  if (auto it = raw_.find(t); it != raw_.end()) return it->second;
  const TensorDesc& desc = state_.graph()[t];
  int v;
  if (desc.has_value) {
    v = scalar(t);
  } else if (desc.producer < 0 ||
             !(contains(inside_, desc.producer) || state_.recomputed(desc.producer))) {
    v = load(t, fits_f32(state_.graph().type(t)) ? DataType::f32 : DataType::f64);
  } else {
    const Node& n = state_.node(desc.producer);
    switch (n.op) {
      case OpKind::pointwise:
        v = pointwise(n);
        break;
      case OpKind::reduction:
        v = reduction(n);
        break;
      case OpKind::rng:
        v = random(n);
        break;
      case OpKind::concatenate:
        v = joined(desc.producer);
        break;
      default:
        v = gather(n, t);
        break;
    }
  }
  raw_[t] = v;
  return v;
}

int BodyBuilder::load(TensorId t, DataType arithmetic) {
  return load(t, arithmetic, access(state_.graph()[t].dim, state_.storage()[t]), {});
}

int BodyBuilder::load(TensorId t, DataType arithmetic, Access at, std::vector<int> otherwise) {
  Statement s;
  s.kind = StatementKind::load;
  s.arithmetic = arithmetic;
  s.label = state_.graph()[t].name;
  s.args = std::move(otherwise);
  s.per_row = at.via.empty();
  for (int i = outer_rank(spec_); i < at.stride.size(); ++i)
    s.per_row = s.per_row && !moves_along(at, i);
  s.port = add_port(spec_, state_.graph(), t, state_.storage()[t], std::move(at), false);
  return add(std::move(s));
}

int BodyBuilder::joined(NodeId n) {
  const Graph& g = state_.graph();
  const Dims& whole = g[state_.node(n).outputs[0]].dim;
  const auto& parts = state_.storage().parts(n);
  const bool narrow = std::all_of(parts.begin(), parts.end(),
                                  [&](const Part& p) { return fits_f32(g.type(p.tensor)); });
  std::vector<int> value;
  for (const auto& [t, start] : parts) {
    const Dims& dim = g[t].dim;
    Location at = state_.storage()[t];
    std::vector<Window> windows;
    for (int i = 0; i < dim.size(); ++i) {
      if (dim[i] == whole[i]) continue;
      const Coordinate& c =
          coordinates_[static_cast<std::size_t>(i + domain_.size() - whole.size())];
      windows.push_back({c.coefficient, c.base - start[i], c.divisor, dim[i], at.stride[i]});
      at.stride[i] = 0;
    }
    Access a = access(whole, at);
    a.windows = std::move(windows);
    value = {load(t, narrow ? DataType::f32 : DataType::f64, std::move(a), std::move(value))};
  }
  return value[0];
}

// What is loaded has the tensor's type; parts of a concatenation may still have to be rounded.
bool BodyBuilder::loaded_as_is(TensorId t) const {
  const NodeId p = state_.producer(t);
  if (p < 0 || state_.node(p).op != OpKind::concatenate || !contains(inside_, p)) return true;
  const Graph& g = state_.graph();
  const auto& parts = state_.storage().parts(p);
  return std::all_of(parts.begin(), parts.end(),
                     [&](const Part& x) { return holds(g.type(t), g.type(x.tensor)); });
}

int BodyBuilder::scalar(TensorId t) {
  const TensorDesc& desc = state_.graph()[t];
  Statement s;
  s.kind = StatementKind::scalar;
  s.per_row = true;
  const DataType type = state_.graph().type(t);
  s.arithmetic = fits_f32(type) ? DataType::f32 : DataType::f64;
  s.label = desc.name;
  const double value = round_to(type, desc.value);
  for (std::size_t i = 0; i < spec_.scalars.size(); ++i) {  // equal constants are one argument
    const auto& known = spec_.scalars[i];
    if (known.tensor >= 0 && (desc.bound_value || known.bound)) {
      if (known.tensor == t) s.port = static_cast<int>(i);
    } else if (known.type == type &&
               std::bit_cast<std::uint64_t>(known.value) == std::bit_cast<std::uint64_t>(value) &&
               known.tensor >= 0)
      s.port = static_cast<int>(i);
  }
  if (s.port < 0) {
    s.port = static_cast<int>(spec_.scalars.size());
    spec_.scalars.push_back({t, desc.name, type, value, desc.integer_value, desc.bound_value});
  }
  return add(std::move(s));
}

int BodyBuilder::pointwise(const Node& n) {
  const auto& a = *std::get_if<PointwiseAttributes>(&n.attributes);
  if (a.mode == PointwiseMode::gen_index) return index(n);
  const PointwiseInfo mode = info(a.mode);
  Statement s;
  s.kind = StatementKind::pointwise;
  s.arithmetic = state_.graph().arithmetic(n);
  s.mode = a.mode;
  s.label = state_.graph()[n.outputs[0]].name;
  for (int i = 0; i < mode.params; ++i) s.params[static_cast<std::size_t>(i)] = a.*mode.param[i];
  if (same_in_f32(n)) {
    s.arithmetic = DataType::f32;
    for (TensorId t : n.inputs)
      if (t >= 0)
        s.args.push_back(is_small_index(t) ? raw(t)
                         : fits_f32(state_.graph().type(t)) || !loads_itself(t)
                             ? value(t)
                             : load(t, DataType::f32));
    return add(std::move(s));
  }
  const bool truths = asks_truth(n);
  if (truths) s.arithmetic = DataType::f32;
  for (int i = 0; i < mode.arity; ++i) {
    const TensorId t = n.inputs[static_cast<std::size_t>(i)];
    s.args.push_back(truths && !fits_f32(state_.graph().type(t)) ? load(t, DataType::f32)
                                                                 : value(t));
  }
  return add(std::move(s));
}

// The index along an axis. Where the axis is a linear form of several indices (a group and a
// channel within it), its terms are multiplied and added up.
int BodyBuilder::index(const Node& n) {
  const TensorDesc& y = state_.graph()[n.outputs[0]];
  std::int64_t axis = *std::get_if<PointwiseAttributes>(&n.attributes)->axis;
  if (axis < 0) axis += y.dim.size();
  const int at = static_cast<int>(axis) + domain_.size() - y.dim.size();
  const bool wide =
      y.dim[static_cast<int>(axis)] > (1 << 24) || state_.graph().arithmetic(n) == DataType::f64;
  const DataType arithmetic = wide ? DataType::f64 : DataType::f32;
  const auto constant = [&](std::int64_t v) {
    Statement s;
    s.kind = StatementKind::scalar;
    s.per_row = true;
    s.arithmetic = arithmetic;
    s.label = "constant";
    s.port = static_cast<int>(spec_.scalars.size());
    spec_.scalars.push_back({kNoTensor, "constant", arithmetic, static_cast<double>(v), v});
    return add(std::move(s));
  };
  const auto combine = [&](PointwiseMode mode, int a, int b) {
    Statement s;
    s.kind = StatementKind::pointwise;
    s.arithmetic = arithmetic;
    s.mode = mode;
    s.label = y.name;
    s.args = {a, b};
    return add(std::move(s));
  };
  if (at < 0) return constant(0);
  const Coordinate& c = coordinates_[static_cast<std::size_t>(at)];
  int sum = -1;
  for (int i = 0; i < c.coefficient.size(); ++i) {
    if (c.coefficient[i] == 0 || y.dim[static_cast<int>(axis)] == 1) continue;
    Statement s;
    s.kind = StatementKind::index;
    s.arithmetic = arithmetic;
    s.dim = i;
    s.per_row = i < outer_rank(spec_);
    s.label = y.name;
    int term = add(std::move(s));
    if (c.coefficient[i] != 1) term = combine(PointwiseMode::mul, term, constant(c.coefficient[i]));
    sum = sum < 0 ? term : combine(PointwiseMode::add, sum, term);
  }
  if (sum < 0) return constant(c.base);
  return c.base == 0 ? sum : combine(PointwiseMode::add, sum, constant(c.base));
}

int BodyBuilder::reduction(const Node& n) {
  const auto& a = *std::get_if<ReductionAttributes>(&n.attributes);
  const int x = value(n.inputs[0]);
  KernelReduction r;
  r.mode = *a.mode;
  r.arithmetic = state_.graph().arithmetic(n);
  r.length = 1;
  r.segmented = !segments_.empty() && state_.graph()[n.outputs[0]].dim == segments_;
  for (int i = r.segmented ? spec_.extent.size() - 1 : outer_rank(spec_); i < spec_.extent.size();
       ++i)
    r.length *= spec_.extent[i];
  r.phase = body_.statements[static_cast<std::size_t>(x)].phase;
  if (r.segmented) r.phase = std::max(r.phase, phase_of_segments_);
  int& reduced =
      reduced_.try_emplace(std::tuple{r.mode, r.arithmetic, r.segmented, x}, -1).first->second;
  if (reduced >= 0) return reduced;
  const int id = static_cast<int>(spec_.rowwise().reductions.size());
  spec_.rowwise().reductions.push_back(r);
  Statement reduce;
  reduce.kind = StatementKind::reduce;
  reduce.arithmetic = r.arithmetic;
  reduce.label = state_.graph()[n.outputs[0]].name;
  reduce.port = id;
  reduce.args = {x};
  reduce.phase = r.phase;
  add(std::move(reduce));
  body_.statements.back().per_row = false;
  Statement s;
  s.kind = StatementKind::reduced;
  s.arithmetic = r.arithmetic;
  s.label = state_.graph()[n.outputs[0]].name;
  s.port = id;
  s.per_row = !r.segmented;
  s.phase = r.phase + 1;
  return reduced = add(std::move(s));
}

void BodyBuilder::column(const Node& n) {
  const TensorId y = n.outputs[0];
  CrossRowReduction r;
  r.mode = *std::get_if<ReductionAttributes>(&n.attributes)->mode;
  r.arithmetic = state_.graph().arithmetic(n);
  r.length = count(state_.graph()[n.inputs[0]].dim) /
             std::max<std::int64_t>(1, count(state_.graph()[y].dim));
  r.label = state_.graph()[y].name;
  r.type = state_.graph().type(y);
  // The port is the finishing kernel's, so it is taken back from this one.
  const auto ports = spec_.ports.size();
  r.result = spec_.ports[static_cast<std::size_t>(port(y, true))];
  spec_.ports.resize(ports);
  Statement s;
  s.kind = StatementKind::cross_row_reduce;
  s.arithmetic = r.arithmetic;
  s.label = r.label;
  s.args = {value(n.inputs[0])};
  s.port = static_cast<int>(spec_.cross_row_reductions.size());
  spec_.cross_row_reductions.push_back(std::move(r));
  add(std::move(s));
  body_.statements.back().per_row = false;
}

int BodyBuilder::random(const Node& n) {
  const TensorDesc& y = state_.graph()[n.outputs[0]];
  Statement s;
  s.kind = StatementKind::random;
  s.arithmetic = random_arithmetic(state_.graph(), n);
  s.label = y.name;
  s.rng = *std::get_if<RngAttributes>(&n.attributes);
  const auto source = [&](TensorId t) {
    if (!state_.graph()[t].has_value) {
      const Location& at = state_.storage()[t];
      Access a;
      a.stride = Dims::filled(spec_.extent.size(), 0);
      a.offset = at.offset;
      return add_port(spec_, state_.graph(), t, at, a, false);
    }
    const TensorDesc& d = state_.graph()[t];
    spec_.scalars.push_back({t, d.name, DataType::i64, d.value, d.integer_value, d.bound_value});
    return -static_cast<int>(spec_.scalars.size());  // -1 - position
  };
  s.port = source(n.inputs[0]);
  s.port2 = source(n.inputs[1]);
  Location packed;
  packed.stride = packed_strides(y.dim);
  s.access = access(y.dim, packed);
  s.per_row = true;
  for (int i = outer_rank(spec_); i < s.access.stride.size(); ++i)
    s.per_row = s.per_row && s.access.stride[i] == 0;
  return add(std::move(s));
}

int BodyBuilder::gather(const Node& n, TensorId t) {
  const Graph& g = state_.graph();
  Gather e;
  e.op = n.op;
  for (std::size_t i = 0; i < n.outputs.size(); ++i)
    if (n.outputs[i] == t) e.output = static_cast<int>(i);
  e.attributes = n.attributes;
  e.output_dim = g[t].dim;
  if (e.resamples() || e.op == OpKind::page_gather)
    for (int i = 0; i < e.output_dim.size(); ++i) e.indices.push_back(i);
  for (TensorId x : n.inputs) {
    if (x < 0) {
      e.dims.push_back({});
      e.strides.push_back({});
      e.ports.push_back(-1);
      continue;
    }
    const Location& at = state_.storage()[x];
    Access a;
    a.stride = Dims::filled(spec_.extent.size(), 0);
    a.offset = at.offset;
    e.dims.push_back(g[x].dim);
    e.strides.push_back(at.stride);
    e.ports.push_back(add_port(spec_, g, x, at, a, false));
  }
  Statement s;
  s.kind = StatementKind::gather;
  s.arithmetic = g.arithmetic(n);
  s.label = g[t].name;
  s.gather = static_cast<int>(spec_.gathers.size());
  spec_.gathers.push_back(std::move(e));
  return add(std::move(s));
}

}  // namespace sinter
