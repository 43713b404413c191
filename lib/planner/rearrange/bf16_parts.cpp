#include "planner/rearrange/bf16_parts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <span>

#include "plan/access.hpp"
#include "planner/rearrange/index_map.hpp"
#include "planner/rearrange/written_first.hpp"
#include "planner/spec/body_copy.hpp"
#include "planner/spec/domain.hpp"
#include "schedule/contraction/convolution_dims.hpp"
#include "schedule/contraction/held_type.hpp"
#include "schedule/contraction/index_order.hpp"
#include "schedule/contraction/mma.hpp"

namespace sinter {
namespace {

constexpr double kTiny = 0x1p-133;                          // the least of bf16
constexpr std::int64_t kMostBytes = std::int64_t{2} << 30;  // of the workspace, for parts
constexpr std::int64_t kUnit = 8;  // elements of bf16 that TMA loads at least

// Of a number x, cut off towards zero: 8 bits each of its 24. All have its sign, so that a product
// that is too large for f32 is infinite in all its parts, and no NaN. `near`: what `large` leaves,
// rounded to nearest: two of these make up for the products that are left out, or miss them to
// either side. `whole`: `large` where x is finite, else x itself: each infinite or NaN factor is in
// one product alone, which gives what x would give.
enum class FactorPart : std::uint8_t { small, near, middle, large, whole };
struct Pair {
  FactorPart a, b;
};
// From small products to large ones.
constexpr Pair kPairs[] = {
    {FactorPart::small, FactorPart::large},  {FactorPart::near, FactorPart::near},
    {FactorPart::large, FactorPart::small},  {FactorPart::middle, FactorPart::large},
    {FactorPart::large, FactorPart::middle}, {FactorPart::whole, FactorPart::whole}};
// Where bf16 holds b, or a, which then has one part.
constexpr Pair kPairsOfA[] = {{FactorPart::small, FactorPart::large},
                              {FactorPart::middle, FactorPart::large},
                              {FactorPart::whole, FactorPart::whole}},
               kPairsOfB[] = {{FactorPart::large, FactorPart::small},
                              {FactorPart::large, FactorPart::middle},
                              {FactorPart::whole, FactorPart::whole}};

// An operand in memory as lines, one behind another, of `extent` elements of the index of k that
// lie `step` apart.
struct Lines {
  std::int64_t extent = 0, step = 0, first = 0, count = 0;
  std::int64_t line() const { return extent * step; }
};

std::optional<Lines> lines_of(const KernelSpec& spec, const Access& a, int k) {
  Lines lines{spec.extent[k], a.stride[k]};
  if (lines.step <= 0) return {};
  std::int64_t inner = 1, low = a.offset, high = a.offset;  // inner: what a step holds
  const auto take = [&](std::int64_t extent, std::int64_t stride) {
    if (extent == 1 || stride == 0) return true;
    (stride < 0 ? low : high) += (extent - 1) * stride;
    if (std::abs(stride) % lines.line() == 0) return true;
    inner += (extent - 1) * stride;
    return stride > 0;
  };
  for (int i = 0; i < a.stride.size(); ++i)
    if (i != k && !take(spec.extent[i], a.stride[i])) return {};
  for (const Window& w : a.windows)
    if (w.coefficient[k] != 0 || !take(w.extent, w.stride)) return {};
  if (inner != lines.step || low % lines.line() != 0) return {};
  high += (lines.extent - 1) * lines.step;
  lines.first = low;
  lines.count = (high + 1 - low) / lines.line();
  return lines;
}

// The kernel that writes an operand's parts, and the operand's access to them. `extent`: of the
// index of k, rounded up; what is behind its end is zero.
struct Split {
  const KernelSpec& spec;
  int k;
  std::int64_t extent;
  std::span<const Pair> pairs;

  std::int64_t count() const { return static_cast<std::int64_t>(pairs.size()); }

  KernelSpec write(ProductOperand& operand, KernelSpec& product, const KernelPort& port,
                   const Lines& lines, FactorPart Pair::*which, Temporaries& temporaries) const {
    const std::int64_t part = extent * lines.step;
    KernelSpec kernel;
    kernel.nodes = spec.nodes;
    kernel.extent = {lines.count, extent, lines.step};
    KernelPort load = port;
    load.access = {{lines.line(), lines.step, 1}, lines.first, {}, {}};
    if (extent != lines.extent) {
      load.access.stride[1] = 0;
      load.access.windows = {{.coefficient = {0, 1, 0},
                              .base = 0,
                              .divisor = 1,
                              .extent = lines.extent,
                              .stride = lines.step}};
    }
    const Dims size{lines.count, count(), extent, lines.step};
    KernelPort to = temporaries.add(port.name + "_parts", DataType::bf16, size,
                                    {{count() * part, lines.step, 1}, 0, {}, {}});
    Access read;
    read.stride = port.access.stride;
    read.windows = port.access.windows;
    const auto moved = [&](std::int64_t stride) {
      return stride % lines.line() == 0 ? stride / lines.line() * count() * part : stride;
    };
    for (int i = 0; i < read.stride.size(); ++i)
      if (i != k) read.stride[i] = moved(read.stride[i]);
    for (Window& w : read.windows) w.stride = moved(w.stride);
    read.offset = moved(port.access.offset - lines.first);

    kernel.ports = {load};
    const auto parts = add_parts(kernel, port.name);
    for (const Pair& pair : pairs) {
      Statement store = statement(StatementKind::store, DataType::f32, "");
      store.args = {parts[static_cast<std::size_t>(pair.*which)]};
      store.port = static_cast<int>(kernel.ports.size());
      kernel.ports.push_back(to);
      kernel.body.statements.push_back(std::move(store));
      to.access.offset += part;
    }
    to.access.offset = 0;
    read_instead(product, operand, to, std::move(read));
    operand.type = DataType::bf16;
    simplify_domain(kernel);
    return kernel;
  }

  // The statements that hold the parts of the element loaded from the first port.
  static std::array<int, 5> add_parts(KernelSpec& kernel, const std::string& name) {
    using Mode = PointwiseMode;
    const double largest = info(DataType::bf16).largest,
                 below_one = 1 - std::ldexp(1.0, -info(DataType::bf16).precision);
    kernel.scalars = {{kNoTensor, "zero", DataType::f32, 0, 0},
                      {kNoTensor, "largest", DataType::f32, largest, 0},
                      {kNoTensor, "least", DataType::f32, -largest, 0},
                      {kNoTensor, "below_one", DataType::f32, below_one, 0},
                      {kNoTensor, "2^16", DataType::f32, 0x1p16, 0},
                      {kNoTensor, "tiny", DataType::f32, kTiny, 0},
                      {kNoTensor, "minus_tiny", DataType::f32, -kTiny, 0}};
    auto& body = kernel.body.statements;
    const auto add = [&](StatementKind kind, int port) {
      body.push_back(statement(kind, DataType::f32, name));
      body.back().port = port;
      return static_cast<int>(body.size()) - 1;
    };
    const auto compute = [&](Mode mode, std::vector<int> args) {
      const int at = add(StatementKind::pointwise, -1);
      body.back().mode = mode;
      body.back().args = std::move(args);
      return at;
    };
    const auto rounded = [&](int value) {
      const int at = add(StatementKind::convert, -1);
      body.back().type = DataType::bf16;
      body.back().args = {value};
      return at;
    };
    const int x = add(StatementKind::load, 0);
    std::array<int, 7> scalars{};
    for (std::size_t i = 0; i < scalars.size(); ++i)
      scalars[i] = add(StatementKind::scalar, static_cast<int>(i));
    const auto [zero, most, least, almost, up, tiny, minus_tiny] = scalars;
    // Where rounding leads away from zero, the neighbour on the other side.
    const auto cut_off = [&](int value) {
      const int to_nearest = rounded(value),
                before = rounded(compute(Mode::mul, {to_nearest, almost})),
                beyond = compute(Mode::cmp_gt,
                                 {compute(Mode::abs, {to_nearest}), compute(Mode::abs, {value})});
      return compute(Mode::binary_select, {before, to_nearest, beyond});
    };
    const auto between = [&](int low, int value, int high) {
      return compute(Mode::max, {compute(Mode::min, {value, high}), low});
    };
    const int finite = compute(Mode::cmp_eq, {compute(Mode::sub, {x, x}), zero}),
              y = compute(Mode::binary_select, {x, zero, finite}),
              large = cut_off(between(least, y, most)), rest = compute(Mode::sub, {y, large}),
              middle = cut_off(rest), small = compute(Mode::sub, {rest, middle}),
              // No zero where x is none: an infinite factor would make a NaN of it.
        least_of_x = between(minus_tiny, compute(Mode::mul, {y, up}), tiny),
              nonzero = compute(Mode::binary_select, {large, least_of_x, large}),
              whole = compute(Mode::binary_select, {nonzero, x, finite});
    return {small, rest, middle, large, whole};  // rounded as they are stored
  }
};

// Computed operands of f32, or of bf16, are written to memory first, in the type that holds their
// values.
std::vector<KernelSpec> write_computed(KernelSpec& spec, Temporaries& temporaries) {
  const ContractionSpec& c = spec.contraction();
  std::vector<KernelSpec> kernels;
  if (c.k() != 1) return kernels;
  for (const OperandPlace& o :
       {OperandPlace{0, c.first_m(), c.m}, OperandPlace{1, c.first_n(), c.n}}) {
    ProductOperand& operand = operand_at(spec, o);
    if ((operand.type != DataType::f32 && operand.type != DataType::bf16) ||
        loaded_as_it_is(spec, operand.body))
      continue;
    const bool bf16 =
        operand.type == DataType::bf16 || holds_type(DataType::bf16, held_type(spec, operand.body));
    const DataType type = bf16 ? DataType::bf16 : DataType::f32;
    kernels.push_back(
        written_first(spec, operand, indices_of(spec, o, DataType::bf16), type, temporaries));
    kernels.back().nodes = spec.nodes;
  }
  return kernels;
}

}  // namespace

std::vector<KernelSpec> bf16_parts(KernelSpec given, Temporaries& temporaries) {
  const ContractionSpec* const c = given.as_contraction();
  if (std::count(given.extent.begin(), given.extent.end(), 0) > 0)
    return {};  // nothing to multiply
  if (!c || !is_plain_product(*c) || reads_joined_indices(given) || names_numbers(given)) return {};
  if (factor_type(given) != DataType::none) return {};  // tensor cores have a type for both
  std::vector<KernelSpec> kernels = write_computed(given, temporaries);
  const KernelPort* const a = loaded_as_it_is(given, c->a().body);
  const KernelPort* const b = loaded_as_it_is(given, c->b().body);
  if (!a || !b) return {};
  const bool bf16_a = holds_type(DataType::bf16, a->type),
             bf16_b = holds_type(DataType::bf16, b->type);
  const auto exact = [](const KernelPort& port, const ProductOperand& operand, bool one_part) {
    const bool rounded = operand.type == DataType::tf32 || info(operand.type).bytes < 4;
    return one_part || port.type == DataType::f16 || (port.type == DataType::f32 && !rounded);
  };
  if ((bf16_a && bf16_b) || !exact(*a, c->a(), bf16_a) || !exact(*b, c->b(), bf16_b)) return {};
  const std::span<const Pair> pairs = bf16_b   ? std::span<const Pair>(kPairsOfA)
                                      : bf16_a ? std::span<const Pair>(kPairsOfB)
                                               : kPairs;
  for (int i = 0; i < c->k(); ++i) {
    const int k = c->first_k() + i;
    const KIndex what = c->k_indices[static_cast<std::size_t>(i)];
    if (what != KIndex::channels && what != KIndex::pixels) continue;
    const auto of_a = lines_of(given, a->access, k), of_b = lines_of(given, b->access, k);
    if (!of_a || !of_b) continue;
    const bool fastest = of_a->step == 1 || of_b->step == 1;
    const std::int64_t n = given.extent[k];
    const Split split{given, k, fastest ? (n + kUnit - 1) / kUnit * kUnit : n, pairs};
    const auto bytes = [&](const Lines& lines) {
      return lines.count * lines.step * split.extent * split.count() * info(DataType::bf16).bytes;
    };
    if (bytes(*of_a) + bytes(*of_b) > kMostBytes) return {};
    KernelSpec spec = given;
    ContractionSpec& product = spec.contraction();
    product.promote_accumulators = true;
    kernels.push_back(split.write(product.a(), spec, *a, *of_a, &Pair::a, temporaries));
    kernels.push_back(split.write(product.b(), spec, *b, *of_b, &Pair::b, temporaries));
    spec.extent[k] = split.count() * split.extent;
    drop_unused(spec);
    simplify_domain(spec);
    kernels.push_back(std::move(spec));
    return kernels;
  }
  return {};
}

}  // namespace sinter
