// Operands of the random graphs: dims from a mixture that favours the edges of tiles, tensors that
// exist already where they fit, and new inputs in every layout and type.
#include "support/random_graph_grower.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace sinter::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kPrimes[] = {2,  3,  5,  7,  11, 13,  17,  19,  23,  29, 31,
                                    37, 53, 61, 67, 97, 101, 127, 131, 193, 257};

int drawn_nodes(Random& random, int most) {
  const double p = random.real(0, 1);
  return static_cast<int>(random.between(1, std::min(most, p < 0.7 ? 8 : p < 0.95 ? 40 : most)));
}

// Positions of the axes with an extent above 1, in a random order.
std::vector<int> shuffled_axes(Random& random, int rank) {
  std::vector<int> axes;
  for (int i = 0; i < rank; ++i)
    axes.insert(axes.begin() + random.below(static_cast<std::int64_t>(axes.size()) + 1), i);
  return axes;
}

}  // namespace

Grower::Grower(Graph& graph, const RandomGraphOptions& options, std::uint64_t seed)
    : random(seed), graph_(graph), options_(options), names_(seed ^ 0x9e3779b97f4a7c15ull) {
  nodes_ = drawn_nodes(random, std::max(options.max_nodes, 1));
  zeros_ = random.chance(0.1);
  chain_ = random.chance(0.4);
  if (options.seed < kCallsVary) return;
  Random apart(seed);  // so that what else is drawn is as in graphs of earlier seeds
  if (options.max_nodes > 4 && apart.chance(0.06)) nodes_ = static_cast<int>(apart.between(30, 64));
  ones_ = apart.chance(0.04);
}

// ---- extents

std::int64_t Grower::extent_from_one(std::int64_t most) {
  if (most <= 1 || (ones_ && random.chance(0.8))) return 1;
  const double p = random.real(0, 1);
  std::int64_t d = 0;
  if (p < 0.15)
    d = 1;
  else if (p < 0.30)
    d = random.pick(kPrimes);
  else if (p < 0.58)
    d = random.between(1, 3) * random.pick({8, 16, 32, 64, 128}) + random.between(-1, 1);
  else if (p < 0.70)
    d = 2 * random.below(24) + 1;
  else if (p < 0.85)
    d = std::int64_t{1} << random.below(8);
  return d >= 1 && d <= most ? d : random.between(1, std::min<std::int64_t>(most, 40));
}

std::int64_t Grower::extent(std::int64_t most) {
  return zeros_ && random.chance(0.08) ? 0 : extent_from_one(most);
}

int Grower::rank(int low, int high) {
  static constexpr std::pair<int, double> rows[] = {{1, 8},  {2, 22}, {3, 22}, {4, 22},
                                                    {5, 12}, {6, 6},  {7, 4},  {8, 4}};
  const int r = random.weighted(rows);
  return r < low || r > high ? static_cast<int>(random.between(low, high)) : r;
}

Dims Grower::dims(int rank, std::int64_t most_elements) {
  Dims d = Dims::filled(rank, 1);
  std::int64_t left = most_elements;
  const bool even = random.chance(0.5);
  for (int axis : shuffled_axes(random, rank)) {
    std::int64_t most = left;
    if (even)  // about as much for each axis, so that not one alone is long
      while (most > 2 && most * most > left * 16) most /= 2;
    d[axis] = extent(most);
    left = room(left, d[axis]);
  }
  return d;
}

std::int64_t Grower::divisor(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= n; ++i)
    if (n % i == 0) all.push_back(i);
  return all.empty() ? 1 : random.pick(all);
}

// ---- exact graphs

double Grower::factor_limit() const { return !exact() ? kInfinity : most() <= 16384 ? 16 : 4; }
double Grower::term_limit() const { return exact() ? 0x1p18 : kInfinity; }

// ---- types and layouts

DataType Grower::storage_type() {
  static constexpr std::pair<DataType, double> rows[] = {
      {DataType::none, 100}, {f32, 8},     {f16, 5}, {bf16, 5}, {f64, 1.5}, {f8e4m3, 2},
      {f8e5m2, 2},           {f4e2m1, 1},  {i8, 1},  {u8, 1},   {i32, 1},   {i64, 0.7},
      {boolean, 1},          {f8e8m0, 0.3}};
  return random.weighted(rows);
}

DataType Grower::result_type(double magnitude) {
  if (!exact()) return storage_type();
  if (magnitude <= 6 && random.chance(0.1)) return random.pick({f8e4m3, f8e5m2, i8});
  if (magnitude <= 256) return random.pick({f32, f32, f16, bf16});
  if (magnitude <= 2048) return random.pick({f32, f16});
  return random.chance(0.9) ? f32 : random.pick({f64, i32});
}

// Some axes of an input share memory: broadcast views, and windows that overlap.
void Grower::alias(const Dims& dim, Dims& stride) {
  if (random.chance(0.2) && dim.size() > 1 && stride[0] > 1) {
    stride[0] = random.between(1, stride[0]);
    return;
  }
  for (int i = 0; i < dim.size(); ++i)
    if (random.chance(0.4)) stride[i] = 0;
}

// Empty for packed. Written tensors keep their elements apart.
Dims Grower::strides(const Dims& dim, bool written) {
  if (random.chance(0.55)) return {};
  const bool permuted = random.chance(0.5), gaps = random.chance(0.35);
  std::vector<int> order;  // from the fastest axis
  for (int i = dim.size(); i-- > 0;) order.push_back(i);
  if (permuted) order = shuffled_axes(random, dim.size());
  Dims stride = Dims::filled(dim.size(), 1);
  std::int64_t step = gaps && random.chance(0.3) ? random.between(2, 3) : 1, spread = 4;
  for (int axis : order) {
    stride[axis] = step;
    if (dim[axis] <= 1) {
      if (random.chance(0.5)) stride[axis] = random.pick({0, 1, 7, 3331333, 99990001});
      continue;
    }
    step *= dim[axis];
    if (gaps && spread > 1 && random.chance(0.4)) {
      step += random.chance(0.5) ? random.between(1, 8) : step;
      spread /= 2;
    }
  }
  if (!written && random.chance(0.25)) alias(dim, stride);
  return stride;
}

// ---- names

std::string Grower::new_name() {
  static const std::string hostile[] = {"a\nb",
                                        "quote\"",
                                        "back\\slash",
                                        "*/ int x; /*",
                                        "#include \"x\"",
                                        "\\\n#error",
                                        "%s%n{}",
                                        "for",
                                        "float",
                                        "__global__",
                                        "threadIdx",
                                        "$x",
                                        "\t\r",
                                        "\xc3\xa9t\xc3\xa9",
                                        "\xe5\xbc\xa0\xe9\x87\x8f",
                                        "\xf0\x9f\xa6\x86",
                                        std::string("nul\0byte", 8),
                                        "1st",
                                        "a.b/c-d",
                                        "\"\"\"",
                                        "?\?/",
                                        "R\"(",
                                        std::string(300, 'n')};
  const bool use = names_.chance(0.3);
  const auto at = static_cast<std::size_t>(names_.below(std::size(hostile)));
  const std::string number = std::to_string(names_made_++);
  if (options_.hostile_names && use && names_made_ == 3) return "";
  if (!options_.hostile_names || !use) return "t" + number;
  return at % 2 ? hostile[at] + number : number + hostile[at];
}

void Grower::decorate(TensorDesc& t) {
  if (random.chance(0.8)) {
    t.name = new_name();
    t.named = true;
  }
  if (random.chance(0.05)) t.uid = static_cast<std::int64_t>(graph_.tensors().size()) * 7 - 3;
  if (random.chance(0.06)) t.alignment = std::int64_t{1} << random.below(9);
}

// ---- operands

void Grower::keep(TensorId t, double magnitude) {
  magnitude_.resize(graph_.tensors().size(), 0);
  magnitude_[static_cast<std::size_t>(t)] = magnitude;
}

TensorId Grower::input(const Dims& dim, DataType type, const Dims& stride) {
  TensorOptions t;
  TensorDesc named;
  decorate(named);
  t.name = named.name;
  t.uid = named.uid;
  t.alignment = named.alignment;
  t.dim = dim;
  t.stride = stride.empty() ? strides(dim, false) : stride;
  t.data_type = type != DataType::none ? type
                : exact()              ? random.pick({DataType::none, DataType::none, f32, f16, i8})
                                       : storage_type();
  const TensorId id = graph_.tensor(t).id();
  if (id < 0) throw std::logic_error(graph_.diagnostics().back().message());
  keep(id, 1);
  pool_.push_back(id);
  return id;
}

TensorId Grower::index_input(const Dims& dim, DataType type) {
  TensorOptions t;
  t.name = new_name();
  t.dim = dim;
  t.stride = strides(dim, true);
  t.data_type = type;
  const TensorId id = graph_.tensor(t).id();
  if (id < 0) throw std::logic_error(graph_.diagnostics().back().message());
  keep(id, 1);
  return id;
}

TensorId Grower::scalar(double value, DataType type, int rank) {
  TensorDesc t;
  decorate(t);
  t.dim = ones(rank);
  t.dim_known = true;
  t.data_type = type;
  t.has_value = true;
  t.value = value;
  t.integer_value = std::isfinite(value) ? static_cast<std::int64_t>(value) : 0;
  const TensorId id = detail::GraphEditor(graph_).declare(t);
  keep(id, value < 0 ? -value : value);
  return id;
}

TensorId Grower::scalar_operand(int max_rank) {
  const int r = random.chance(0.7) ? 1 : static_cast<int>(random.between(1, max_rank));
  TensorId id;
  if (exact()) {
    const auto value = static_cast<double>(random.between(-2, 2));
    id = scalar(value, random.pick({f32, f32, f64, f16, i8}), r);
  } else {
    const DataType type = random.pick({f32, f32, f32, f32, f16, bf16, f64, i32, i64, f8e4m3});
    const double value = random.pick({0.5, 2.0, 1.0, -1.0, 0.125, 3.0, -0.75, 0.1, 1e-3, 0.0});
    id = scalar(is_floating(type) ? value : static_cast<double>(random.between(-2, 3)), type, r);
  }
  if (random.chance(0.3)) pool_.push_back(id);  // any operand may be a pass-by-value scalar
  return id;
}

TensorId Grower::seed() {
  const DataType type = integer_type();
  const Dims one = ones(random.chance(0.6) ? 1 : 4);
  if (random.chance(0.4)) return index_input(one, type);
  if (nodes_left() > 2 && random.chance(0.15))  // a computed one
    return add(OpKind::pointwise, PointwiseAttributes{}, {input(one, type)},
               {{true, one, type}})[0];
  const TensorId id = scalar(0, type, one.size());
  auto value = static_cast<std::int64_t>(random.bits());
  if (type == DataType::i32) value = static_cast<std::int32_t>(value);
  if (random.chance(0.5)) value = random.below(1000);
  TensorDesc& scalar = detail::GraphEditor(graph_).edit(id);
  scalar.integer_value = value;
  scalar.value = static_cast<double>(value);
  return id;
}

std::optional<TensorId> Grower::existing(const Fits& fits, double limit) {
  std::vector<TensorId> found;
  for (TensorId t : pool_)
    if (magnitude(t) <= limit && fits(dim(t))) found.push_back(t);
  if (found.empty()) return std::nullopt;
  const auto n = static_cast<std::int64_t>(found.size());
  if (chain_ && random.chance(0.8))
    return found[static_cast<std::size_t>(std::max<std::int64_t>(0, n - 1 - random.below(2)))];
  return random.pick(found);
}

TensorId Grower::primary(const Fits& fits, double limit, const std::function<Dims()>& otherwise) {
  if (random.chance(0.85))
    if (const auto t = existing(fits, limit)) return *t;
  return input(otherwise());
}

// An existing tensor brought to these dims by one node of data movement.
std::optional<TensorId> Grower::adapted(const Dims& dim, double limit) {
  const auto sorted = [](Dims d) {
    std::sort(d.begin(), d.end());
    return d;
  };
  const auto larger = [&](const Dims& d) {
    for (int i = 0; i < d.size(); ++i)
      if (d.size() != dim.size() || d[i] < dim[i]) return false;
    return d.size() == dim.size();
  };
  const auto candidate =
      existing([&](const Dims& d) { return count(d) == count(dim) || larger(d); }, limit);
  if (!candidate) return std::nullopt;
  const TensorId x = *candidate;
  const Dims& from = this->dim(x);
  if (larger(from) && from != dim) {
    SliceAttributes a;
    for (int i = 0; i < dim.size(); ++i) {
      const auto most_step = dim[i] > 1 ? (from[i] - 1) / (dim[i] - 1) : 3;
      const auto step = random.between(1, std::min<std::int64_t>(most_step, 3));
      const auto length = dim[i] == 0 ? 0 : (dim[i] - 1) * step + 1;
      a.start.push_back(random.between(0, from[i] - length));
      a.limit.push_back(a.start[i] + length);
      a.step.push_back(step);
    }
    return add(OpKind::slice, a, {x}, {{}}, magnitude(x))[0];
  }
  if (sorted(from) == sorted(dim) && from != dim) {
    TransposeAttributes a;
    unsigned used = 0;
    for (auto d : dim)
      for (int j = 0; j < from.size(); ++j)
        if (from[j] == d && !(used >> j & 1)) {
          a.permutation.push_back(j);
          used |= 1u << j;
          break;
        }
    return add(OpKind::transpose, a, {x}, {{}}, magnitude(x))[0];
  }
  return add(OpKind::reshape, ReshapeAttributes{.dim = dim}, {x}, {{}}, magnitude(x))[0];
}

TensorId Grower::operand(const Dims& dim, double limit) {
  if (random.chance(0.65))
    if (const auto t = existing([&](const Dims& d) { return d == dim; }, limit)) return *t;
  if (nodes_left() > 1 && random.chance(0.25))
    if (const auto t = adapted(dim, limit)) return *t;
  return input(dim);
}

TensorId Grower::partner(const Dims& dim, double limit) {
  if (random.chance(0.15)) return scalar_operand(dim.size());
  if (random.chance(0.5)) return operand(dim, limit);
  Dims p = dim;
  std::int64_t used = volume(dim);
  for (int i = 0; i < p.size(); ++i) {
    if (dim[i] == 1 && random.chance(0.3)) {
      p[i] = extent_from_one(room(most(), used));
      used *= p[i];
    } else if (random.chance(0.4)) {
      p[i] = 1;
    }
  }
  if (random.chance(0.3)) {  // NumPy's rule: missing axes in front
    Dims tail;
    for (int i = static_cast<int>(random.below(p.size())); i < p.size(); ++i) tail.push_back(p[i]);
    p = tail;
  } else if (p.size() < kMaxRank && random.chance(0.1)) {
    p.insert(0, extent_from_one(room(most(), used)));
  }
  return operand(p, limit);
}

TensorId Grower::positive(TensorId x) {
  if (nodes_left() < 2) return x;
  const TensorId one = scalar(1, f32);
  return add(OpKind::pointwise, PointwiseAttributes{.mode = PointwiseMode::add_square}, {one, x},
             {{}})[0];
}

// ---- nodes

std::vector<TensorId> Grower::add(OpKind op, Attributes attributes, std::vector<TensorId> inputs,
                                  const std::vector<Result>& results, double magnitude) {
  std::vector<TensorId> outputs;
  for (const auto& r : results) {
    if (!r.wanted) {
      outputs.push_back(kNoTensor);
      continue;
    }
    TensorDesc t;
    decorate(t);
    t.dim = r.dim;
    t.dim_known = !r.dim.empty();
    if (t.dim_known && !plain_ && random.chance(0.1)) t.stride = strides(t.dim, true);
    t.data_type = r.type != DataType::none ? r.type : result_type(magnitude);
    outputs.push_back(detail::GraphEditor(graph_).declare(t));
    keep(outputs.back(), magnitude);
    if (plain_) inner_.push_back(outputs.back());
  }
  NodeOptions options;
  if (random.chance(0.3)) options.name = new_name();
  if (!exact() && !plain_ && random.chance(0.05))
    options.compute = random.pick({f32, f32, f64, tf32, f16, bf16, i32, i64});
  const auto ids = detail::GraphEditor(graph_).add(op, std::move(attributes), std::move(inputs),
                                                   outputs, options, {});
  if (!graph_.diagnostics().empty()) throw std::logic_error(graph_.diagnostics().back().message());
  for (TensorId t : ids)
    if (t >= 0) pool_.push_back(t);
  return ids;
}

void Grower::finish() {
  std::vector<TensorId> results;
  for (const auto& n : graph_.nodes())
    for (TensorId t : n.outputs)
      if (t >= 0) results.push_back(t);
  Random apart(options_.seed + 4);
  const bool shows = options_.seed >= kStoredVary && !exact() && apart.chance(0.2);
  bool any = false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const TensorDesc& t = graph_[results[i]];
    const bool last = i + 1 == results.size() && !any;
    const bool shown = shows && t.read && apart.chance(0.2);
    if (!shown && !last && t.read && std::binary_search(inner_.begin(), inner_.end(), results[i]))
      continue;
    if (!shown && !last && !random.chance(t.read ? 0.1 : 0.85)) continue;
    any = true;
    TensorOptions o;
    o.stride = strides(t.dim, true);
    const DataType type = graph_.type(results[i]);
    if (shown && type == f32 && apart.chance(0.7)) o.data_type = f32;
    if (t.read && is_floating(type) != is_floating(graph_.options().io)) o.data_type = type;
    // Copies: output() writes to the tensor.
    const std::string name = t.name;
    if (!graph_.output(Tensor(&graph_, results[i]), name, o))
      throw std::logic_error(graph_.diagnostics().back().message());
  }
}

}  // namespace sinter::test
