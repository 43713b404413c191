#include "emit/element_text.hpp"

#include <fmt/format.h>

#include "emit/body_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "plan/liveness.hpp"
#include "schedule/hoisted_values.hpp"

namespace sinter {

namespace {

// One function's statements: those of the head, which become members of OfHead where an element's
// need them, and those of an element.
class Printed {
 public:
  Printed(const KernelSpec& spec, const KernelNames& names, const ElementFunction& f,
          const std::vector<int>& rows_and_keys)
      : function_(f),
        same_(same_along(spec, f.body, rows_and_keys)),
        text_(spec, names, f.body, nullptr, same_),
        hoisted_(hoisted_values(text_, same_)) {
    text_.fuse_products();
    text_.scale_sums(f.factor);
    if (f.takes_drawn) text_.take_drawn(drawn_by_caller(text_, hoisted_));
  }

  void print_members(TextWriter& out) const {
    each([&](int i) {
      if (at(hoisted_.values, i))
        out.line("{} {};", value_type(text_.statement(i).arithmetic), member(text_.name(i)));
      if (at(hoisted_.divisors, i))
        out.line("sinter::math::Divisor {};", member(text_.divisor_name(i)));
    });
  }
  // Of an OfHead with the name `of_head`.
  void print_preparation(TextWriter& out) const {
    std::vector<int> roots;
    each([&](int i) {
      if (at(hoisted_.values, i) || at(hoisted_.divisors, i)) roots.push_back(i);
    });
    if (roots.empty()) return;
    out.open("{{");
    print_statements(out, text_, live_statements(text_.body(), roots));
    for (const int i : roots) {
      if (at(hoisted_.values, i))
        out.line("of_head.{} = {};", member(text_.name(i)), text_.name(i));
      if (at(hoisted_.divisors, i))
        out.line("of_head.{} = {};", member(text_.divisor_name(i)), text_.name(i));
    }
    out.close("}");
  }
  void print_functions(TextWriter& out, std::string_view coordinates) {
    print_function(out, coordinates, "");
    if (function_.beside.empty()) return;
    text_.take_beside(function_.beside);
    print_function(out, coordinates, "_beside");
  }

 private:
  void print_function(TextWriter& out, std::string_view coordinates,
                      std::string_view suffix) const {
    if (const int i = text_.taken(); i >= 0) {
      out.line("using Drawn = Config::{};", random_access_name(text_.name(i)));
      out.open(
          "SINTER_DEVICE static unsigned run(const Args& args, const {}& c, long long further) {{",
          coordinates);
      out.line("return {};", text_.run(i));
      out.close("}");
    }
    out.open(
        "SINTER_DEVICE static float {}{}(const Args& args, const {}& c, const OfHead& of_head, "
        "{}{}{}) {{",
        function_.name, suffix, coordinates, function_.operands,
        text_.taken() >= 0 ? ", bool drawn" : "", suffix.empty() ? "" : ", const float* beside");
    each([&](int i) {
      if (at(hoisted_.values, i))
        out.line("const {} {} = of_head.{};", value_type(text_.statement(i).arithmetic),
                 text_.name(i), member(text_.name(i)));
      if (at(hoisted_.divisors, i))
        out.line("const sinter::math::Divisor& {} = of_head.{};", text_.divisor_name(i),
                 member(text_.divisor_name(i)));
      if (at(hoisted_.of_element, i)) text_.print(out, i);
    });
    out.line("return {};", text_.name(text_.size() - 1));
    out.close("}");
  }

  static bool at(const std::vector<bool>& v, int i) { return v[static_cast<std::size_t>(i)]; }
  template <class F>
  void each(const F& f) const {
    for (int i = 0; i < text_.size(); ++i) f(i);
  }
  std::string member(const std::string& name) const {
    return fmt::format("{}_{}", function_.name, name);
  }
  const ElementFunction& function_;
  const std::vector<bool> same_;
  BodyText text_;
  const HoistedValues hoisted_;
};

}  // namespace

void print_element_functions(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                             const std::vector<ElementFunction>& functions,
                             std::string_view coordinates, const std::vector<int>& rows_and_keys) {
  std::vector<Printed> printed;
  printed.reserve(functions.size());
  for (const auto& f : functions)
    if (!f.body.statements.empty()) printed.emplace_back(spec, names, f, rows_and_keys);
  out.open("struct OfHead {{");
  for (const auto& f : printed) f.print_members(out);
  out.close("};");
  out.open("SINTER_DEVICE static OfHead of_head(const Args& args, const {}& c) {{", coordinates);
  out.line("OfHead of_head;");
  for (const auto& f : printed) f.print_preparation(out);
  out.line("return of_head;");
  out.close("}");
  for (auto& f : printed) f.print_functions(out, coordinates);
}

}  // namespace sinter
