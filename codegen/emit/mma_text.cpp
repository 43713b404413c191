#include "emit/mma_text.hpp"

#include <algorithm>

#include "emit/spelling.hpp"
#include "plan/liveness.hpp"

namespace sinter {
namespace {

// What a thread holds of a port.
std::string held_type(const KernelSpec& spec, const MmaOperand& o, std::size_t port) {
  const PortPack& pack = o.packing.ports[port];
  const auto type = storage_type(spec.ports[port].type);
  switch (pack.kind) {
    case PortPack::Kind::same:
      return fmt::format("sinter::Same<{}>", type);
    case PortPack::Kind::each:
      return fmt::format("sinter::Each<{}, {}, {}>", type, o.packing.width, o.packing.dim);
    case PortPack::Kind::shifted:
      return fmt::format("sinter::Shifted<{}, {}>", type, o.packing.width);
    default:
      return fmt::format("sinter::Pack<{}, {}, {}>", type, o.packing.width, pack.aligned);
  }
}

// The elements of the buffer that the access can reach, [first, end).
std::pair<std::int64_t, std::int64_t> reach(const KernelSpec& spec, const Access& a) {
  const Dims& extent = a.via.empty() ? spec.extent : a.via;
  std::int64_t first = a.offset, last = a.offset;
  const auto walk = [&](std::int64_t way) { (way < 0 ? first : last) += way; };
  for (int i = 0; i < a.stride.size(); ++i)
    walk(a.stride[i] * std::max<std::int64_t>(0, extent[i] - 1));
  for (const auto& w : a.windows) walk(w.stride * std::max<std::int64_t>(0, w.extent - 1));
  return {first, last + 1};
}

void print_fragment(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                    const MmaOperand& o) {
  std::vector<std::size_t> held;
  for (std::size_t i = 0; i < spec.ports.size(); ++i)
    if (o.packing.ports[i].kind != PortPack::Kind::apart) held.push_back(i);
  out.open("struct Fragment {{");
  for (std::size_t i : held) out.line("{} {};", held_type(spec, o, i), names.port[i]);
  out.open("SINTER_DEVICE void fetch(const Args& args, const Coord& c, int count) {{");
  for (std::size_t i : held) {
    const auto [first, end] = reach(spec, spec.ports[i].access);
    out.line("sinter::fetch_part<Config::{0}, {2}, {3}>(args.{1}, c, count, {1});", names.access[i],
             names.port[i], first, end);
  }
  out.close("}");
  std::string shifts;
  for (std::size_t i : held)
    if (o.packing.ports[i].kind == PortPack::Kind::shifted)
      shifts += fmt::format(" {}.shift_to_front();", names.port[i]);
  out.line("SINTER_DEVICE void shift_to_front() {{{}}}", shifts.empty() ? "" : shifts + " ");
  out.close("};");
}

}  // namespace

void print_mma_operand(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                       const BodyText& body, const MmaOperand& o, std::string_view struct_name) {
  out.open("struct {} {{", struct_name);
  out.line(
      "static constexpr bool k_fastest = {}, ragged = {}, copied = {}, joined = {}, plain = {};",
      o.k_fastest, o.ragged, o.copied, o.joined, o.plain);
  if (o.transposed) out.line("static constexpr bool transposed = true;");
  out.line("static constexpr int width = {}, dim = {};", o.packing.width, o.packing.dim);
  const int last = body.size() - 1;
  const auto port = static_cast<std::size_t>(std::max(0, body.statement(last).port));
  if (o.copied) {
    out.line("using Access = Config::{};", names.access[port]);
    out.line("SINTER_DEVICE static const {}* base(const Args& args) {{ return args.{}; }}",
             storage_type(spec.ports[port].type), names.port[port]);
    out.line("struct Fragment {{}};");
  } else {
    print_fragment(out, spec, names, o);
    if (o.plain) {
      out.line("template <class Number>");
      out.open(
          "SINTER_DEVICE static unsigned pair(Number number, const Fragment& fragment, int i) {{");
      out.line("return sinter::contraction::pair(number, fragment.{}, i);", names.port[port]);
    } else {
      out.open(
          "SINTER_DEVICE static {} element(const Args& args, const Coord& c, int e, const "
          "Fragment& "
          "fragment) {{",
          value_type(body.statement(last).arithmetic));
      const auto live = live_statements(body.body(), {last});
      for (int i = 0; i <= last; ++i)
        if (live[static_cast<std::size_t>(i)]) body.print(out, i);
      out.line("return {};", body.name(last));
    }
    out.close("}");
  }
  out.close("};");
}

}  // namespace sinter
