#include "emit/body_text.hpp"

#include <algorithm>
#include <cmath>

#include "emit/spelling.hpp"
#include "plan/liveness.hpp"
#include "schedule/gathering.hpp"

namespace sinter {
namespace {

const std::string& at(const std::vector<std::string>& names, int i) {
  return names[static_cast<std::size_t>(i)];
}

// The struct of philox.cuh.
std::string distribution(const RngAttributes& rng) {
  const auto number = [](double x) { return literal(x, DataType::f64); };
  switch (rng.distribution) {
    case Distribution::bernoulli:
      return fmt::format("sinter::Bernoulli{{{}ull}}", bernoulli_limit(rng.probability));
    case Distribution::uniform:
      return fmt::format("sinter::Uniform{{{}, {}}}", number(rng.minimum), number(rng.maximum));
    default:
      return fmt::format("sinter::Normal{{{}, {}}}", number(rng.mean), number(rng.stddev));
  }
}

}  // namespace

// Both steps are exact: multiplying by a power of two, and subtracting 0.5 from what is not smaller
// and below 2^32. What is smaller gives 0 however it is rounded.
std::uint64_t bernoulli_limit(double probability) {
  const double limit = std::ceil(probability * 0x1p32 - 0.5);
  if (!(limit > 0)) return 0;  // NaN, too
  return static_cast<std::uint64_t>(std::min(limit, 0x1p32));
}

std::string random_access_name(const std::string& value_name) {
  return pascal_case(value_name) + "Index";
}
std::string inside_access_name(const std::string& reduction_name) {
  return reduction_name + "Inside";
}

BodyText::BodyText(const KernelSpec& spec, const KernelNames& names, const Body& body,
                   const Packing* packing, std::vector<bool> prepared)
    : StatementForms(spec, body, packing, std::move(prepared)), kernel_(names) {
  Identifiers identifiers;
  for (const auto& s : body.statements) {
    std::string label = s.label;
    if (s.kind == StatementKind::convert && !label.empty())
      label = label.substr(0, 32) + "_" + std::string(sinter::name(s.type));
    names_.push_back(!acts(s) ? identifiers.add(label, "t") : "");
  }
  divisor_names_.resize(names_.size());
  for (int i = 0; i < size(); ++i)
    if (const int d = divisor(i); d >= 0 && divisor_name(d).empty())
      divisor_names_[static_cast<std::size_t>(d)] = identifiers.add(name(d) + "_divisor", "t");
}

std::string_view BodyText::divisor_type(int i) const {
  return is_power_of_two(i) ? "sinter::math::PowerOfTwo" : "sinter::math::Divisor";
}

std::string BodyText::element(const Statement& s) const {
  const int together = spec_.ports[static_cast<std::size_t>(s.port)].together;
  return together > 1 ? fmt::format("{} * e + {}", together, s.element) : "e";
}

std::string BodyText::pointer(const Statement& s) const {
  const std::string base = "args." + at(kernel_.port, s.port);
  return s.element > 0 ? fmt::format("{} + {}", base, s.element) : base;
}

// Where an element counts in a reduction, after what it adds: ", ..." or nothing.
std::string BodyText::condition(const Statement& s) const {
  std::string c;
  if (packing_ && packing_->clipped) c = "sinter::inside_row(c, 0)";
  if (s.kind == StatementKind::reduce && !s.access.windows.empty())
    c += fmt::format("{}sinter::holds<Config::{}>(c)", c.empty() ? "" : " && ",
                     inside_access_name(at(kernel_.reduction, s.port)));
  return c.empty() ? c : ", " + c;
}

std::string BodyText::accumulation(const Statement& s) const {
  const bool column = s.kind == StatementKind::cross_row_reduce;
  const std::string_view all = column ? "cross_row" : "reductions";
  const std::string& reduction = at(column ? kernel_.cross_row : kernel_.reduction, s.port);
  const Statement& term = statement(s.args[0]);
  if (sums_products(s))
    return fmt::format("{}.accumulate_product<{}>({}, {}{})", all, reduction, operand(term, 0),
                       operand(term, 1), condition(s));
  const std::string value = !column && compares_integers(s.port)
                                ? fmt::format("sinter::get<int>(fragment.{}, {})",
                                              at(kernel_.port, term.port), element(term))
                                : name(s.args[0]);
  return fmt::format("{}.accumulate<{}>({}{})", all, reduction, value, condition(s));
}

void BodyText::print(TextWriter& out, int i) const {
  const Statement& s = statement(i);
  if (part(i)) return;
  if (copied(i))
    out.line("sinter::copy(fragment.{}, e, fragment.{});", at(kernel_.port, s.port),
             at(kernel_.port, statement(s.args[0]).port));
  else if (s.kind == StatementKind::store && packed(i))
    out.line("sinter::put(fragment.{}, {}, {});", at(kernel_.port, s.port), element(s),
             name(s.args[0]));
  else if (s.kind == StatementKind::store && one_of_segment(s))
    out.line("sinter::store_first<Config::{}>({}, c, {}{});", at(kernel_.access, s.port),
             pointer(s), of_segment(s.args[0]) ? "" : "e, ", name(s.args[0]));
  else if (s.kind == StatementKind::store)
    out.line("sinter::store<Config::{}>({}, c, {});", at(kernel_.access, s.port), pointer(s),
             name(s.args[0]));
  else if (s.kind == StatementKind::reduce || s.kind == StatementKind::cross_row_reduce)
    out.line("{};", accumulation(s));
  else
    out.line("const {} {} = {};", value_type(s.arithmetic), name(i), expression(i));
  if (s.kind == StatementKind::scalar && !divisor_name(i).empty() && prepared_.empty() &&
      !spec_.as_rowwise())
    out.line("const {} {}({});", divisor_type(i), divisor_name(i), name(i));
}

std::string BodyText::kept(int i) const { return fmt::format("fragment.kept.{}[e]", name(i)); }

void BodyText::print_kept(TextWriter& out, int i) const {
  out.line("const {} {} = {};", value_type(statement(i).arithmetic), name(i), kept(i));
}

void BodyText::print_assignment(TextWriter& out, int i) const {
  out.line("{} = {};", name(i), expression(i));
}

std::string BodyText::cast(std::string value, DataType from, DataType to) const {
  if (value_type(from) == value_type(to)) return value;
  return fmt::format("static_cast<{}>({})", value_type(to), value);
}

std::string BodyText::operand(const Statement& user, std::size_t arg) const {
  const int i = user.args[arg];
  return cast(name(i), statement(i).arithmetic, user.arithmetic);
}

std::string BodyText::load(const Statement& s, int i) const {
  if (const auto at = std::find(beside_.begin(), beside_.end(), i); at != beside_.end())
    return fmt::format("beside[{}]", at - beside_.begin());
  const bool windows = !spec_.ports[static_cast<std::size_t>(s.port)].access.windows.empty();
  const bool joined = packed(i) && !ports_of_pack(s.port).empty();
  const std::string otherwise = windows && !joined && !s.args.empty() ? ", " + operand(s, 0) : "";
  // One of the parts has each element of the domain, unless rows were cut unevenly.
  const bool leaves = joined ? spec_.as_rowwise() != nullptr : windows;
  const std::string outside =
      leaves && otherwise.empty() ? ", " + literal(0, s.arithmetic) : otherwise;
  if (packed(i))
    return fmt::format("sinter::get<{}>(fragment.{}, {}{})", value_type(s.arithmetic),
                       at(kernel_.port, s.port), element(s), outside);
  if (of_row(i))
    return fmt::format("sinter::get<{}>(of_row.{}, 0{})", value_type(s.arithmetic),
                       at(kernel_.port, s.port), outside);
  return fmt::format("sinter::load<Config::{}, {}>({}, c{})", at(kernel_.access, s.port),
                     value_type(s.arithmetic), pointer(s), otherwise);
}

// The struct of pointwise.hpp has the mode's name, and takes its parameters after its operands.
std::string BodyText::pointwise(const Statement& s, int i) const {
  if (const int d = divisor(i); d >= 0)
    return fmt::format("sinter::math::divide({}, {})", operand(s, 0), divisor_name(d));
  if (const int a = fused_product(s); a >= 0) {
    const Statement& product = statement(s.args[static_cast<std::size_t>(a)]);
    const bool of_sum = scaled(product);
    return fmt::format("sinter::math::fma({}, {}, {})", of_sum ? "acc" : operand(product, 0),
                       of_sum ? factor_ : operand(product, 1),
                       operand(s, static_cast<std::size_t>(1 - a)));
  }
  std::string operands;
  for (std::size_t a = 0; a < s.args.size(); ++a) operands += (a ? ", " : "") + operand(s, a);
  for (int p = 0; p < info(s.mode).params; ++p)
    operands += ", " + literal(s.params[static_cast<std::size_t>(p)], s.arithmetic);
  if (!near_.empty() && near_[static_cast<std::size_t>(i)])
    return fmt::format("sinter::NearMod::apply({})", operands);
  return fmt::format("sinter::op::{}::apply({})", pascal_case(sinter::name(s.mode)), operands);
}

// Rounded in the wider of the two arithmetic types, so that the rounding is the only one.
std::string BodyText::convert(const Statement& s) const {
  const DataType from = statement(s.args[0]).arithmetic;
  const bool widen = from != DataType::f64 && s.arithmetic == DataType::f64;
  const DataType in = widen ? DataType::f64 : from;
  return cast(
      fmt::format("sinter::convert<{}>({})", storage_type(s.type), cast(name(s.args[0]), from, in)),
      in, s.arithmetic);
}

std::string BodyText::integer(int port) const {
  if (port < 0) return "args." + at(kernel_.scalar_integer, -1 - port);
  return fmt::format("sinter::integer<Config::{}>(args.{})", at(kernel_.access, port),
                     at(kernel_.port, port));
}

std::string BodyText::draw(int i) const {
  const Statement& s = statement(i);
  return fmt::format(
      "sinter::draw<Config::{}, {}, {}, {}, width>({}, {}, c, fragment.random.{}, {})",
      random_access_name(name(i)), packing_->dim, packing_->drawn[static_cast<std::size_t>(i)],
      packing_->runs_beside, integer(s.port), integer(s.port2), name(i), distribution(s.rng));
}

std::string BodyText::run(int i) const {
  const Statement& s = statement(i);
  return fmt::format("sinter::bits_of_run<Drawn>({}, {}, c, further, {})", integer(s.port),
                     integer(s.port2), distribution(s.rng));
}

std::string BodyText::random(int i) const {
  const Statement& s = statement(i);
  if (i == taken_) return fmt::format("static_cast<{}>(drawn)", value_type(s.arithmetic));
  if (drawn(i))
    return fmt::format("sinter::drawn<{}>(fragment.random.{}, e)", value_type(s.arithmetic),
                       name(i));
  return fmt::format("sinter::random<{}, Config::{}>({}, {}, c, {})", value_type(s.arithmetic),
                     random_access_name(name(i)), integer(s.port), integer(s.port2),
                     distribution(s.rng));
}

std::string BodyText::gather_operands(const Gather& g) const {
  std::string operands;
  for (std::size_t p = 0; p < g.ports.size(); ++p)
    if (reads_operand(g, static_cast<int>(p)))
      operands += fmt::format("args.{}, ", at(kernel_.port, g.ports[p]));
  return operands;
}

std::string BodyText::fetch_gathered(int gather) const {
  const Gather& g = spec_.gathers[static_cast<std::size_t>(gather)];
  return fmt::format("sinter::{}({}c, fragment.{});", sinter::name(g.op), gather_operands(g),
                     at(kernel_.gathered, gather));
}

std::string BodyText::gather(const Statement& s, int i) const {
  const Gather& g = spec_.gathers[static_cast<std::size_t>(s.gather)];
  const int with = gathered_with(spec_, s.gather);
  const std::string_view member = g.op == OpKind::resample && g.output == 1 ? "position" : "value";
  if (gathered(i)) return fmt::format("fragment.{}.{}[e]", at(kernel_.gathered, with), member);
  return fmt::format("sinter::{}<Config::{}, {}>({}c){}", sinter::name(g.op),
                     at(kernel_.gather, with), value_type(s.arithmetic), gather_operands(g),
                     g.resamples() ? fmt::format(".{}[0]", member) : "");
}

std::string BodyText::constant(const Statement& s) const {
  const KernelScalar& scalar = spec_.scalars[static_cast<std::size_t>(s.port)];
  return writes_constants_ && !scalar.bound
             ? literal(scalar.value, fits_f32(scalar.type) ? DataType::f32 : DataType::f64)
             : "args." + at(kernel_.scalar_value, s.port);
}

std::string BodyText::expression(int i) const {
  const Statement& s = statement(i);
  switch (s.kind) {
    case StatementKind::load:
      return load(s, i);
    case StatementKind::scalar: {
      const DataType type = spec_.scalars[static_cast<std::size_t>(s.port)].type;
      return cast(constant(s), fits_f32(type) ? DataType::f32 : DataType::f64, s.arithmetic);
    }
    case StatementKind::index:
      if (counts_from_vector(i))
        return fmt::format("static_cast<float>(c.at[{0}] - e) + static_cast<float>(e)", s.dim);
      return fmt::format("static_cast<{}>(c.at[{}])", value_type(s.arithmetic), s.dim);
    case StatementKind::pointwise:
      return pointwise(s, i);
    case StatementKind::convert:
      return convert(s);
    case StatementKind::random:
      return random(i);
    case StatementKind::gather:
      return gather(s, i);
    case StatementKind::accumulator:
      return cast(packing_     ? fmt::format("acc[{}]", s.dim)
                  : scaled(s)  ? "acc * " + factor_
                  : s.dim == 0 ? "acc"
                               : "acc_gradient",
                  spec_.as_contraction() ? spec_.contraction().accumulate : DataType::f32,
                  s.arithmetic);
    case StatementKind::reduced:
      return cast(fmt::format("reductions.result<{}>()", at(kernel_.reduction, s.port)),
                  spec_.rowwise().reductions[static_cast<std::size_t>(s.port)].arithmetic,
                  s.arithmetic);
    case StatementKind::partial: {
      const KernelReduction& r = spec_.rowwise().reductions[static_cast<std::size_t>(s.port)];
      return cast(fmt::format("reductions.partial<{}>()", at(kernel_.reduction, s.port)),
                  partial_type(r.mode, r.arithmetic), s.arithmetic);
    }
    case StatementKind::inside:
      return fmt::format("sinter::inside<Config::{}>(c, {})", at(kernel_.access, s.port),
                         operand(s, 0));
    default:
      return {};
  }
}

}  // namespace sinter
