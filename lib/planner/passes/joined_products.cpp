#include "planner/passes/joined_products.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "planner/passes/tensor_uses.hpp"
#include "planner/rearrange/materialised_operands.hpp"
#include "planner/rearrange/written_first.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/wgmma.hpp"
#include "schedule/scheduled_kernel.hpp"

namespace sinter {
namespace {

constexpr std::size_t kMostParts = 4;  // of an operand, each with a map

const Statement& at(const Body& body, int i) {
  return body.statements[static_cast<std::size_t>(i)];
}
const KernelPort& port_of(const KernelSpec& spec, const Statement& s) {
  return spec.ports[static_cast<std::size_t>(s.port)];
}

std::vector<JoinedPart> parts_of(const KernelSpec& spec, const Body& body) {
  const KernelPort* const p = plainly_loaded(spec, body);
  if (!p) return joined_parts(spec, body);
  return {{body.statements.front().port, 0, spec.extent.back(), p->access}};
}

// The 16-bit type of all that one product loads, as it is; none for other kernels.
DataType multiplied(const KernelSpec& spec) {
  const ContractionSpec* const c = spec.as_contraction();
  if (!c || c->products.size() != 1 || c->rows.on || c->accumulate != DataType::f32 ||
      c->zero_dominates != ZeroOf::neither || !spec.gathers.empty() ||
      c->k_indices != std::vector{KIndex::channels})
    return DataType::none;
  DataType type = DataType::none;
  for (const Body* body : {&c->a().body, &c->b().body}) {
    const auto parts = parts_of(spec, *body);
    if (parts.empty()) return DataType::none;
    for (const JoinedPart& p : parts) {
      const DataType loaded = spec.ports[static_cast<std::size_t>(p.port)].type;
      if (type != DataType::none && loaded != type) return DataType::none;
      type = loaded;
    }
  }
  return takes_either_major(type) ? type : DataType::none;
}

std::vector<int> users(const Body& body, int value) {
  std::vector<int> found;
  for (std::size_t i = 0; i < body.statements.size(); ++i)
    for (int a : body.statements[i].args)
      if (a == value) found.push_back(static_cast<int>(i));
  return found;
}
bool is_pointwise(const Statement& s, PointwiseMode mode) {
  return s.kind == StatementKind::pointwise && s.mode == mode && s.arithmetic == DataType::f32;
}

// A value times a number of the call, or the value itself.
struct Scaled {
  int value = -1, scalar = -1;  // statement; of KernelSpec::scalars
};
std::optional<Scaled> scaled(const Body& body, int i) {
  const Statement& s = at(body, i);
  if (!is_pointwise(s, PointwiseMode::mul)) return {};
  for (int side : {0, 1}) {
    const Statement& factor = at(body, s.args[static_cast<std::size_t>(1 - side)]);
    if (factor.kind == StatementKind::scalar)
      return Scaled{s.args[static_cast<std::size_t>(side)], factor.port};
  }
  return {};
}

// What a value is once it is multiplied with a scalar, where that is all that becomes of it.
Scaled after_factor(const Body& body, int value) {
  const auto next = users(body, value);
  const auto s = next.size() == 1 ? scaled(body, next.front()) : std::nullopt;
  return s && s->value == value ? Scaled{next.front(), s->scalar} : Scaled{value, -1};
}

// Where the epilogue adds a load to something: `sum` is the addition. Nothing but additions lead
// from there, and behind a factor from the sums, to where the two meet. (A block's projection, to
// which its own bias is added first.)
struct Added {
  int sum = -1, other = -1;    // statements; the addition is `other` without the load
  int sums = -1, scaled = -1;  // the accumulator, and where it has had its factor
  int scalar_of_load = -1, scalar_of_sums = -1;
};
std::optional<Added> added(const Body& body, int load) {
  const Scaled term = after_factor(body, load);
  const auto of_term = users(body, term.value);
  if (of_term.size() != 1 || !is_pointwise(at(body, of_term.front()), PointwiseMode::add))
    return {};
  const int sum = of_term.front();
  const auto& operands = at(body, sum).args;
  const int other = operands[operands[0] == term.value ? 1 : 0];
  // The additions behind it.
  std::vector<int> sums_of_load{sum};
  for (auto next = users(body, sum);
       next.size() == 1 && is_pointwise(at(body, next.front()), PointwiseMode::add);
       next = users(body, next.front()))
    sums_of_load.push_back(next.front());
  const auto meets = [&](int value) {
    return std::find(sums_of_load.begin(), sums_of_load.end(), value) != sums_of_load.end();
  };
  for (int i = 0; i < static_cast<int>(body.statements.size()); ++i) {
    if (at(body, i).kind != StatementKind::accumulator) continue;
    const Scaled sums = after_factor(body, i);
    for (int value = sums.value;;) {
      const auto next = users(body, value);
      if (next.size() != 1 || !is_pointwise(at(body, next.front()), PointwiseMode::add)) return {};
      if (meets(next.front())) return Added{sum, other, i, sums.value, term.scalar, sums.scalar};
      value = next.front();
    }
  }
  return {};
}

// What a kernel that only multiplies stores: its sums, or these times a scalar.
struct Stored {
  int port = -1, scalar = -1;
};
std::optional<Stored> stored(const KernelSpec& spec) {
  const Body& body = spec.body;
  const Statement& store = body.statements.back();
  if (!spec.cross_row_reductions.empty() || !is_store(store)) return {};
  if (std::count_if(body.statements.begin(), body.statements.end(), acts) != 1) return {};
  Scaled value{store.args.front(), -1};
  if (const auto s = scaled(body, value.value)) value = *s;
  if (at(body, value.value).kind != StatementKind::accumulator) return {};
  return Stored{store.port, value.scalar};
}

bool same_places(const KernelSpec& one, const Access& a, const Access& b, int rank) {
  if (!a.windows.empty() || !b.windows.empty() || !a.via.empty() || !b.via.empty() ||
      a.offset != b.offset)
    return false;
  for (int i = 0; i < rank; ++i)
    if (one.extent[i] > 1 && a.stride[i] != b.stride[i]) return false;
  return true;
}

// Takes away what nothing needs.
void keep_needed(Body& body) {
  std::vector<int> acting;
  for (std::size_t i = 0; i < body.statements.size(); ++i)
    if (acts(body.statements[i])) acting.push_back(static_cast<int>(i));
  const auto live = live_statements(body, acting);
  std::vector<int> place(live.size(), -1);
  std::vector<Statement> kept;
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (!live[i]) continue;
    place[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(body.statements[i]));
    for (int& value : kept.back().args) value = place[static_cast<std::size_t>(value)];
  }
  body.statements = std::move(kept);
}

// The parts of both kernels' operands, those of `front` before those of `back` along k, as ports of
// `to`; nothing where they are too many.
std::optional<Body> body_of_parts(KernelSpec& to, const KernelSpec& front, const Body& of_front,
                                  const KernelSpec& back, const Body& of_back) {
  const int k = to.extent.size() - 1;
  std::int64_t from = 0;
  std::vector<Statement> loads;
  const auto add = [&](const KernelSpec& spec, const Body& body) {
    for (const JoinedPart& part : parts_of(spec, body)) {
      KernelPort port = spec.ports[static_cast<std::size_t>(part.port)];
      Window w;
      w.coefficient = Dims::filled(k + 1, 0);
      w.coefficient[k] = 1;
      w.base = -from;
      w.extent = part.extent;
      w.stride = part.access.stride[k];
      port.access = part.access;
      port.access.stride[k] = 0;
      port.access.windows = {std::move(w)};
      from += part.extent;
      loads.push_back(statement(StatementKind::load, DataType::f32, port.name));
      loads.back().port = static_cast<int>(to.ports.size());
      to.ports.push_back(std::move(port));
    }
  };
  add(front, of_front);
  add(back, of_back);
  if (loads.size() > kMostParts) return {};
  std::reverse(loads.begin(), loads.end());
  for (std::size_t i = 1; i < loads.size(); ++i) loads[i].args = {static_cast<int>(i) - 1};
  return Body{std::move(loads)};
}

// The second kernel with the first one's product in its own; nothing where no stage of k could be
// one product's alone.
std::optional<KernelSpec> joined_spec(const KernelSpec& first, const KernelSpec& second,
                                      const Added& sum) {
  KernelSpec joined = second;
  ContractionSpec& c = joined.contraction();
  const int k = second.extent.size() - 1;
  const DataType type = multiplied(second);
  const std::int64_t stage = kStageLine / info(type).bytes;
  const KernelSpec *front = &second, *back = &first;
  if (front->extent[k] % stage != 0) std::swap(front, back);
  if (front->extent[k] % stage != 0) return {};
  auto a = body_of_parts(joined, *front, front->contraction().a().body, *back,
                         back->contraction().a().body),
       b = body_of_parts(joined, *front, front->contraction().b().body, *back,
                         back->contraction().b().body);
  if (!a || !b) return {};
  c.a() = {std::move(*a), type};
  c.b() = {std::move(*b), type};
  joined.extent[k] = first.extent[k] + second.extent[k];
  const int without_load = sum.other == sum.scaled ? sum.sums : sum.other;
  for (Statement& s : joined.body.statements)
    for (int& value : s.args)
      value = value == sum.sum ? without_load : value == sum.scaled ? sum.sums : value;
  joined.nodes.insert(joined.nodes.end(), first.nodes.begin(), first.nodes.end());
  keep_needed(joined.body);
  drop_unused(joined);
  return joined;
}

class Joiner {
 public:
  Joiner(std::vector<KernelSpec>& kernels, const FusionState& state,
         std::span<const TensorId> overwritten, Temporaries& temporaries)
      : kernels_(kernels), state_(state), overwritten_(overwritten), temporaries_(temporaries) {}

  void run() {
    uses_ = tensor_uses(kernels_);
    for (std::size_t i = 0; i < kernels_.size(); ++i)
      while (const auto joined = join(i)) {
        if (!joined->copies) {
          kernels_.erase(kernels_.begin() + static_cast<std::ptrdiff_t>(joined->writer));
          --i;
        }
        uses_ = tensor_uses(kernels_);
      }
  }

 private:
  // A kernel whose product is another one's: that is not needed any more, or copies its operand.
  struct Joined {
    std::size_t writer;
    bool copies;
  };
  // Joins another product to that of the kernel.
  std::optional<Joined> join(std::size_t second) {
    if (multiplied(kernels_[second]) == DataType::none) return {};
    for (std::size_t i = 0; i < kernels_[second].body.statements.size(); ++i)
      if (const auto first = join(second, static_cast<int>(i))) return first;
    return {};
  }
  std::optional<Joined> join(std::size_t reader, int load) {
    const KernelSpec& second = kernels_[reader];
    const Statement& s = at(second.body, load);
    if (!is_load(s) || !s.args.empty()) return {};
    const KernelPort& read = port_of(second, s);
    const auto sum = added(second.body, load);
    const auto writer = sum ? writer_for(read.tensor, reader) : std::nullopt;
    if (!writer || multiplied(kernels_[*writer]) != multiplied(second)) return {};
    Temporaries tried = temporaries_;
    auto packed = with_packed_rows(kernels_[*writer], second, tried);
    const KernelSpec& first = packed ? packed->product : kernels_[*writer];
    const auto result = stored(first);
    if (!result ||
        (result->scalar >= 0) + (sum->scalar_of_load >= 0) + (sum->scalar_of_sums >= 0) > 1)
      return {};
    const ContractionSpec &a = first.contraction(), &b = second.contraction();
    const int results = a.first_k();
    if (a.batch != b.batch || a.m != b.m || a.n != b.n ||
        part_of(first.extent, 0, results) != part_of(second.extent, 0, results) ||
        !same_places(first, first.ports[static_cast<std::size_t>(result->port)].access, read.access,
                     results) ||
        is_overwritten(first) || runs_once(first))
      return {};
    std::optional<KernelScalar> factor;
    const auto take = [&](const KernelSpec& from, int scalar) {
      if (scalar >= 0) factor = from.scalars[static_cast<std::size_t>(scalar)];
    };
    take(first, result->scalar);
    take(second, sum->scalar_of_load);
    take(second, sum->scalar_of_sums);
    // A factor of f32 sums has room that one of an operand of f16 has not.
    if (factor && multiplied(second) != DataType::bf16) return {};
    auto joined = joined_spec(first, second, *sum);
    const auto place = !factor                    ? std::nullopt
                       : sum->scalar_of_sums >= 0 ? place_for_factor(reader)
                                                  : place_for_factor(*writer);
    if (!joined || (factor && !place)) return {};
    const bool less =
        state_.context().decisions.decide(Decisions::Kind::joined, first.nodes.front(), [&] {
          return takes_less(*joined, kernels_[*writer], second, packed ? &packed->copy : nullptr);
        });
    if (!less || !by_wgmma(*joined)) return {};
    if (factor && (packed || !multiply(*place, *factor, *joined))) return {};
    kernels_[reader] = std::move(*joined);
    if (packed) {
      kernels_[*writer] = std::move(packed->copy);
      temporaries_ = std::move(tried);
    }
    return Joined{*writer, packed.has_value()};
  }

  // The product with rows that lie apart, as a strided projection's pixels do, copied to where they
  // are those of the second one's left operand; nothing where its rows are the second one's as they
  // are.
  struct PackedRows {
    KernelSpec product, copy;
  };
  static std::optional<PackedRows> with_packed_rows(const KernelSpec& first,
                                                    const KernelSpec& second,
                                                    Temporaries& temporaries) {
    const ContractionSpec &a = first.contraction(), &b = second.contraction();
    if (a.m <= 1 || b.m != 1 || !plainly_loaded(first, a.a().body)) return {};
    PackedRows packed{first, {}};
    std::vector<int> indices;
    for (int i = 0; i < first.extent.size(); ++i)
      if (i < a.first_n() || i >= a.first_k()) indices.push_back(i);
    packed.copy = copied_first(packed.product, packed.product.contraction().a().body, 0, indices,
                               temporaries);
    packed.copy.nodes = {first.nodes.front()};
    simplify_domain(packed.product);
    return packed;
  }

  // The kernel before `reader` that writes a tensor which nothing else reads.
  std::optional<std::size_t> writer_for(TensorId t, std::size_t reader) const {
    const auto use = uses_.find(t);
    if (is_seen(t) || use == uses_.end()) return {};
    const auto& [writer, writes, reads] = use->second;
    return writes == 1 && reads == 1 && writer < reader ? std::optional(writer) : std::nullopt;
  }

  // Whether it is the caller's.
  bool is_seen(TensorId t) const {
    const Graph& g = state_.graph();
    return t < static_cast<TensorId>(g.tensors().size()) && !g.is_virtual(t);
  }

  // Whether what it reads may be written before or while the second kernel runs.
  bool is_overwritten(const KernelSpec& first) const {
    return std::any_of(first.ports.begin(), first.ports.end(), [&](const KernelPort& p) {
      return std::find(overwritten_.begin(), overwritten_.end(), p.tensor) != overwritten_.end();
    });
  }

  // For all calls.
  bool runs_once(const KernelSpec& first) const {
    const Graph& g = state_.graph();
    return state_.context().prepares &&
           std::all_of(first.ports.begin(), first.ports.end(), [&](const KernelPort& p) {
             return p.written ||
                    (p.tensor < static_cast<TensorId>(g.tensors().size()) && g[p.tensor].constant);
           });
  }

  bool by_wgmma(const KernelSpec& joined) const {
    return schedule_kernel(joined, state_.context()).warpgroups() != nullptr;
  }
  // `copy`: of an operand, a kernel in place of the first one.
  bool takes_less(const KernelSpec& joined, const KernelSpec& first, const KernelSpec& second,
                  const KernelSpec* copy) const {
    const double copied = copy ? schedule_kernel(*copy, state_.context()).microseconds : 0;
    return by_wgmma(joined) &&
           schedule_kernel(joined, state_.context()).microseconds + copied <
               microseconds_of_all(first, state_) + microseconds_of_all(second, state_);
  }

  // A store of an operand that a kernel computes, and that a factor may multiply before it is
  // rounded.
  struct Place {
    std::size_t kernel;
    int store;
    bool others;  // read it, too
  };
  std::optional<Place> place_for_factor(std::size_t number) const {
    const KernelSpec& product = kernels_[number];
    std::optional<Place> best;
    std::int64_t least = 0;
    const Graph& g = state_.graph();
    const ContractionSpec& c = product.contraction();
    for (const Body* body : {&c.a().body, &c.b().body}) {
      const auto parts = parts_of(product, *body);
      const KernelPort& p = product.ports[static_cast<std::size_t>(parts.front().port)];
      if (parts.size() > 1 || p.tensor >= static_cast<TensorId>(g.tensors().size()) ||
          is_seen(p.tensor) || g.type(p.tensor) != DataType::f32)
        continue;
      Place place{kernels_.size(), -1, false};
      int writes = 0;
      for (std::size_t i = 0; i < kernels_.size(); ++i)
        for (const KernelPort& q : kernels_[i].ports) {
          if (q.tensor != p.tensor) continue;
          if (q.written)
            place.kernel = i, ++writes;
          else
            place.others |= i != number;
        }
      if (writes != 1 || place.kernel >= number) continue;
      const KernelSpec& from = kernels_[place.kernel];
      if (!from.as_pointwise() && !from.as_contraction()) continue;
      const auto& all = from.body.statements;
      int stores = 0;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (is_store(all[i]) && port_of(from, all[i]).tensor == p.tensor)
          place.store = static_cast<int>(i), ++stores;
      if (stores != 1 || !is_dense(from, port_of(from, at(from.body, place.store)))) continue;
      const std::int64_t elements = elements_reached(product.extent, p.access);
      if (!best || elements < least) best = place, least = elements;
    }
    return best;
  }
  static bool is_dense(const KernelSpec& spec, const KernelPort& p) {
    const Access& a = p.access;
    if (!a.windows.empty() || !a.via.empty() || a.offset != 0 || p.together != 1) return false;
    std::int64_t last = 0;
    for (int i = 0; i < spec.extent.size(); ++i) last += (spec.extent[i] - 1) * a.stride[i];
    return last + 1 == elements_reached(spec.extent, a);
  }

  // The operand times the factor, which `joined` reads then; beside the operand where others read
  // that.
  bool multiply(const Place& place, const KernelScalar& factor, KernelSpec& joined) {
    KernelSpec& spec = kernels_[place.kernel];
    Body& body = spec.body;
    Statement store = at(body, place.store);
    const KernelPort port = port_of(spec, store);
    const auto reads = [&](const KernelPort& p) { return p.tensor == port.tensor; };
    if (std::count_if(joined.ports.begin(), joined.ports.end(), reads) != 1) return false;
    if (place.others) {
      const Dims elements{elements_reached(spec.extent, port.access)};
      store.port = static_cast<int>(spec.ports.size());
      spec.ports.push_back(
          temporaries_.add(port.name + "_scaled", port.type, elements, port.access));
      std::find_if(joined.ports.begin(), joined.ports.end(), reads)->tensor =
          spec.ports.back().tensor;
    } else {
      body.statements.erase(body.statements.begin() + place.store);
      for (Statement& s : body.statements)
        for (int& value : s.args) value -= value > place.store;
      store.args.front() -= store.args.front() > place.store;
    }
    Statement number = statement(StatementKind::scalar, DataType::f32, factor.name);
    number.port = static_cast<int>(spec.scalars.size());
    spec.scalars.push_back(factor);
    body.statements.push_back(std::move(number));
    Statement product = statement(StatementKind::pointwise, DataType::f32, port.name);
    product.mode = PointwiseMode::mul;
    product.args = {store.args.front(), static_cast<int>(body.statements.size()) - 1};
    body.statements.push_back(std::move(product));
    store.args = {static_cast<int>(body.statements.size()) - 1};
    body.statements.push_back(std::move(store));
    return true;
  }

  std::vector<KernelSpec>& kernels_;
  const FusionState& state_;
  std::span<const TensorId> overwritten_;
  Temporaries& temporaries_;
  std::unordered_map<TensorId, TensorUses> uses_;
};

}  // namespace

void join_products(std::vector<KernelSpec>& kernels, const FusionState& state,
                   std::span<const TensorId> overwritten, Temporaries& temporaries) {
  if (!state.device().has_wgmma) return;
  Joiner(kernels, state, overwritten, temporaries).run();
}

}  // namespace sinter
