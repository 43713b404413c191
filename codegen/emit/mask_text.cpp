#include "emit/mask_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emit/body_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "plan/condition_range.hpp"
#include "plan/liveness.hpp"
#include "schedule/attention/forward.hpp"

namespace sinter {
namespace {

// An interval of what a statement computes for the rows and keys of a block.
std::string range_of(const MaskOfPairs& of, const BodyText& text, int i, bool near) {
  const Statement& s = text.statement(i);
  const std::string_view type = value_type(s.arithmetic);
  const auto operand = [&](std::size_t a) {
    const int from = s.args[a];
    const std::string& name = text.name(from);
    return value_type(text.statement(from).arithmetic) == type
               ? name
               : fmt::format("sinter::Range<{}>({})", type, name);
  };
  if (s.kind == StatementKind::index)
    return s.dim == of.query ? fmt::format("of_rows.range<{}>()", type)
           : s.dim == of.key
               ? fmt::format("of_keys.range<{}>()", type)
               : fmt::format("sinter::range_of_one(static_cast<{}>(c.at[{}]))", type, s.dim);
  if (s.kind == StatementKind::scalar)
    return fmt::format("sinter::range_of_one(static_cast<{}>({}))", type, text.constant(s));
  if (s.kind == StatementKind::convert) {
    const std::string_view from = value_type(text.statement(s.args[0]).arithmetic);
    return fmt::format("sinter::Range<{0}>(sinter::range_of<sinter::Rounded<{1}, {2}>, true>({3}))",
                       type, storage_type(s.type), from, text.name(s.args[0]));
  }
  const RangeRule rule = *range_rule(s.mode);
  const std::string formula = "sinter::op::" + pascal_case(sinter::name(s.mode));
  std::string operands = operand(0);
  for (std::size_t a = 1; a < s.args.size(); ++a) operands += ", " + operand(a);
  switch (rule.by) {
    case RangeRule::By::ends: {
      std::string grows = rule.grows[0] ? "true" : "false";
      if (s.args.size() > 1) grows += rule.grows[1] ? ", true" : ", false";
      return fmt::format("sinter::range_of<{}, {}>({})", formula, grows, operands);
    }
    case RangeRule::By::corners:
      return fmt::format("sinter::range_of_corners<{}>({})", formula, operands);
    case RangeRule::By::remainder:
      return fmt::format("sinter::range_of_remainder<{}>({})", near ? "sinter::NearMod" : formula,
                         operands);
    case RangeRule::By::equal:
      return fmt::format("sinter::range_of_equal({})", operands);
    case RangeRule::By::unequal:
      return fmt::format(
          "sinter::range_of<sinter::op::LogicalNot, false>(sinter::range_of_equal({}))", operands);
  }
  return {};
}

}  // namespace

void print_mask(TextWriter& out, const MaskOfPairs& of) {
  const bool blocks = is_block_mask(of.mask);
  const std::vector<Division> divisions =
      blocks ? std::vector<Division>{} : sinter::divisions(of.spec, of.mask, of.query, of.key);
  const bool divides =
      std::ranges::any_of(divisions, [](Division d) { return d != Division::none; });
  std::vector<bool> near;  // remainders
  for (std::size_t i = 0; i < divisions.size(); ++i)
    near.push_back(of.mask.statements[i].mode == PointwiseMode::mod &&
                   divisions[i] == Division::near);
  out.line("static constexpr int mask_block = {};", blocks ? kMaskBlock : 0);
  out.line("static constexpr bool mask_divides = {};",
           std::ranges::find(divisions, Division::far) != divisions.end());
  if (blocks) {
    const auto at = static_cast<std::size_t>(of.mask.statements.front().gather);
    const auto port = static_cast<std::size_t>(of.spec.gathers[at].ports.front());
    out.open("SINTER_DEVICE static bool sees(const Args& args, const {}& c) {{", of.coordinates);
    out.line("return sinter::block_mask<{}::{}, int>(args.{}, c) != 0;", of.config,
             of.names.gather[at], of.names.port[port]);
    out.close("}");
  } else {
    BodyText text(of.spec, of.names, of.mask);
    if (divides) text.write_constants();
    text.take_near(near);
    out.open("SINTER_DEVICE static bool sees(const Args& args, const {}& c) {{", of.coordinates);
    print_statements(out, text, live_statements(text.body(), {text.size() - 1}));
    out.line("return {} != 0;", text.name(text.size() - 1));
    out.close("}");
  }
  out.open(
      "SINTER_DEVICE static sinter::attention::Seen seen(const Args& args, {} c, const "
      "sinter::Span& of_rows, const sinter::Span& of_keys) {{",
      of.coordinates);
  if (blocks) {
    out.open(
        "return sinter::attention::seen_of_blocks<mask_block>(of_rows, of_keys, [&](int row, int "
        "key) "
        "{{");
    out.line("c.at[{}] = row, c.at[{}] = key;", of.query, of.key);
    out.line("return sees(args, c);");
    out.close("});");
  } else {
    BodyText text(of.spec, of.names, of.mask);
    if (divides) text.write_constants();
    const std::vector<bool> live = live_statements(text.body(), {text.size() - 1});
    for (int i = 0; i < text.size(); ++i)
      if (live[static_cast<std::size_t>(i)])
        out.line("const sinter::Range<{}> {} = {};", value_type(text.statement(i).arithmetic),
                 text.name(i), range_of(of, text, i, near[static_cast<std::size_t>(i)]));
    out.line("return sinter::attention::seen_of({});", text.name(text.size() - 1));
  }
  out.close("}");
}

}  // namespace sinter
