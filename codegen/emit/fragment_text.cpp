#include "emit/fragment_text.hpp"

#include "emit/spelling.hpp"
#include "schedule/gathering.hpp"

namespace sinter {
namespace {

// What the threads of a block have in flight to shared memory, inside of struct Fragment.
void print_ahead(TextWriter& out, const KernelNames& names, const std::vector<int>& ports) {
  out.line("template <int count>");
  out.open("struct Ahead {{");
  const auto print = [&](auto&& line) {
    for (int p : ports) line(names.port[static_cast<std::size_t>(p)], p);
  };
  print([&](const std::string& name, int) {
    out.line("sinter::PacksAhead<decltype(Fragment::{0}), count> {0};", name);
  });
  out.open("SINTER_DEVICE void fill(const Args& args, const Coord& c, int number) {{");
  print([&](const std::string& name, int p) {
    out.line("sinter::copy_ahead<Config::{1}>(args.{0}, c, {0}, number);", name,
             names.access[static_cast<std::size_t>(p)]);
  });
  out.close("}");
  out.open("SINTER_DEVICE void take(int number, Fragment& fragment) const {{");
  print([&](const std::string& name, int) {
    out.line("sinter::take({0}, number, fragment.{0});", name);
  });
  out.close("}");
  out.close("};");
}

// The random numbers of a vector.
void print_random(TextWriter& out, const BodyText& body) {
  const auto drawn =
      drawn_numbers(body, std::vector<bool>(static_cast<std::size_t>(body.size()), true));
  if (drawn.empty()) return;
  out.open("struct Random {{");
  for (int i : drawn)
    if (const Statement& s = body.statement(i); s.rng.distribution == Distribution::bernoulli)
      out.line("sinter::RandomBits<width> {};", body.name(i));
    else
      out.line("sinter::RandomPack<{}, width> {};", value_type(s.arithmetic), body.name(i));
  out.close("} random;");
}

}  // namespace

// All live statements in order.
void print_statements(TextWriter& out, const BodyText& body, const std::vector<bool>& live) {
  for (int i = 0; i < body.size(); ++i)
    if (live[static_cast<std::size_t>(i)]) body.print(out, i);
}

// What a thread holds at one vector of the domain.
void print_fragment(TextWriter& out, const ScheduledKernel& kernel, const KernelNames& names,
                    const BodyText& body) {
  const KernelSpec& spec = kernel.spec;
  const Packing& packing = *kernel.packing();
  const RowwiseConfig* const rowwise = kernel.rowwise();
  out.line("template <int width>");
  out.open("struct Fragment {{");
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const PortPack& pack = packing.ports[i];
    const auto type = storage_type(spec.ports[i].type);
    const int full = 16 / info(spec.ports[i].type).bytes;
    if (pack.kind == PortPack::Kind::same)
      out.line("sinter::Same<{}> {};", type, names.port[i]);
    else if (pack.kind == PortPack::Kind::shifted)
      out.line("sinter::Shifted{}<{}, width> {};", pack.weight ? "" : "Row", type, names.port[i]);
    else if (pack.kind == PortPack::Kind::pack)
      out.line("sinter::Pack<{}, {}width{}> {};", type,
               spec.ports[i].together > 1 ? fmt::format("{} * ", spec.ports[i].together) : "",
               pack.aligned < std::min(full, spec.ports[i].together * packing.width)
                   ? fmt::format(", {}", pack.aligned)
                   : "",
               names.port[i]);
    else if (pack.kind == PortPack::Kind::each)
      out.line("sinter::Each<{}, width, {}> {};", type, packing.dim, names.port[i]);
    else if (pack.kind == PortPack::Kind::staged)
      out.line("sinter::Pack<{}, width> {};", type, names.port[i]);
  }
  for (std::size_t i = 0; i < packing.gathers.size(); ++i)
    if (const int number = static_cast<int>(i);
        packing.gathers[i].together && gathered_with(spec, number) == number)
      out.line("sinter::Resampled<Config::{}, {}, width> {};", names.gather[i],
               value_type(arithmetic_of(spec, number)), names.gathered[i]);
  print_random(out, body);
  if (rowwise && !rowwise->kept.empty()) {
    out.open("struct Kept {{");
    for (int i : rowwise->kept)
      out.line("{} {}[width];", value_type(body.statement(i).arithmetic), body.name(i));
    out.close("} kept;");
  }
  if (rowwise && rowwise->pipeline_stages > 0) {
    print_ahead(out, names, ports_of_rows(spec, packing));
  } else if (const RowwiseSpec* const rows = spec.as_rowwise(); rows && rows->num_partials > 0) {
    out.open("SINTER_DEVICE void advance(const Fragment& next) {{");
    for (int p : ports_of_rows(spec, packing))
      out.line("{0} = next.{0};", names.port[static_cast<std::size_t>(p)]);
    out.close("}");
  }
  out.close("};");
}

// A function that moves packs between memory and a vector: `ports` through `verb`.
void print_moves(TextWriter& out, const KernelNames& names, const BodyText& body,
                 std::string_view verb, std::string_view constness, const std::set<int>& ports,
                 std::string_view function, const std::vector<std::string>& more) {
  out.line("template <int width>");
  const std::string signature = fmt::format(
      "SINTER_DEVICE static void {}(const Args& args, const Coord& c, "
      "{}Fragment<width>& fragment)",
      function, constness);
  if (ports.empty() && more.empty()) return out.line("{} {{}}", signature);
  out.open("{} {{", signature);
  for (int p : ports) {
    const auto i = static_cast<std::size_t>(p);
    std::string accesses, buffers;
    for (int part : body.ports_of_pack(p)) {
      const auto j = static_cast<std::size_t>(part);
      accesses += fmt::format("{}Config::{}", accesses.empty() ? "" : ", ", names.access[j]);
      buffers += fmt::format(", args.{}", names.port[j]);
    }
    if (!accesses.empty())
      out.line("sinter::fetch_joined(sinter::List<{}>{{}}, c, fragment.{}{});", accesses,
               names.port[i], buffers);
    else
      out.line("sinter::{}<Config::{}>(args.{}, c, fragment.{});", verb, names.access[i],
               names.port[i], names.port[i]);
  }
  for (const auto& line : more) out.line("{}", line);
  out.close("}");
}

void print_cut(TextWriter& out, const KernelNames& names, const Packing& packing,
               const std::set<int>& ports, std::string_view function) {
  std::vector<std::string> shifted;
  for (int p : ports)
    if (const auto i = static_cast<std::size_t>(p);
        packing.ports[i].kind == PortPack::Kind::shifted)
      shifted.push_back(names.port[i]);
  out.line("template <int width>");
  const std::string signature =
      fmt::format("SINTER_DEVICE static void {}(Fragment<width>& fragment)", function);
  if (shifted.empty()) return out.line("{} {{}}", signature);
  out.open("{} {{", signature);
  for (const auto& name : shifted) out.line("fragment.{}.shift_to_front();", name);
  out.close("}");
}

void print_draws(TextWriter& out, const BodyText& body, const std::vector<int>& first,
                 const std::vector<int>& again) {
  const auto print = [&](std::string_view function, std::string_view flag,
                         const std::vector<int>& drawn) {
    if (drawn.empty()) return;
    out.line("static constexpr bool {} = true;", flag);
    out.line("template <int width>");
    out.open(
        "SINTER_DEVICE static void {}(const Args& args, const Coord& c, Fragment<width>& fragment) "
        "{{",
        function);
    for (int i : drawn) out.line("{};", body.draw(i));
    out.close("}");
  };
  print("draw", "draws", first);
  print("draw_again", "draws_again", again);
}

std::vector<int> drawn_numbers(const BodyText& body, const std::vector<bool>& live) {
  std::vector<int> numbers;
  for (int i = 0; i < body.size(); ++i)
    if (live[static_cast<std::size_t>(i)] && body.drawn(i)) numbers.push_back(i);
  return numbers;
}

void print_prefetch(TextWriter& out, const KernelNames& names, const BodyText& body,
                    const std::set<int>& ports) {
  const std::string_view signature =
      "SINTER_DEVICE static void prefetch(const Args& args, const Coord& c)";
  if (ports.empty()) return out.line("{} {{}}", signature);
  out.open("{} {{", signature);
  const auto print = [&](int p) {
    const auto i = static_cast<std::size_t>(p);
    out.line("sinter::prefetch<Config::{}>(args.{}, c);", names.access[i], names.port[i]);
  };
  for (int p : ports) {
    const std::vector<int> parts = body.ports_of_pack(p);
    if (parts.empty()) print(p);
    for (int part : parts) print(part);
  }
  out.close("}");
}

// The ports with a pack of the packed loads or stores among the statements; those that pass through
// a tile, or those that do not.
std::set<int> packed_ports(const BodyText& body, const std::vector<bool>& live, StatementKind kind,
                           bool staged) {
  std::set<int> ports;
  for (int i = 0; i < body.size(); ++i)
    if (live[static_cast<std::size_t>(i)] && body.packed(i) && !body.part(i) &&
        body.statement(i).kind == kind && body.staged(i) == staged)
      ports.insert(body.statement(i).port);
  return ports;
}

}  // namespace sinter
