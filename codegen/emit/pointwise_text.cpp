// The text of pointwise kernels: a body, and its tiles.
#include <set>

#include "emit/engine_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "plan/liveness.hpp"
#include "schedule/gathering.hpp"

namespace sinter {
namespace {

// The functions of a body that move its tiles: the loaded ones from memory and to a vector, the
// stored ones back.
void print_tile_moves(TextWriter& out, const KernelNames& names, const std::set<int>& loads,
                      const std::set<int>& stores) {
  const auto print = [&](std::string_view generic, std::string_view function,
                         std::string_view parameters, const std::set<int>& ports,
                         std::string_view move) {
    if (ports.empty()) return;
    out.line("template <{}>", generic);
    out.open("SINTER_DEVICE static void {}({}) {{", function, parameters);
    for (int p : ports)
      out.line("staged.{0}.{1}.{0}{2};", names.port[static_cast<std::size_t>(p)],
               move.substr(0, move.find('@')), move.substr(move.find('@') + 1));
    out.close("}");
  };
  print("class Corner", "stage", "const Args& args, const Corner& corner, Staged& staged", loads,
        "load(args@, corner)");
  print("class Spot, int width", "gather",
        "const Staged& staged, const Spot& spot, Fragment<width>& fragment", loads,
        "read(spot, fragment@)");
  print("class Spot, int width", "scatter",
        "Staged& staged, const Spot& spot, const Fragment<width>& fragment", stores,
        "write(spot, fragment@)");
  print("class Corner", "unstage", "const Args& args, const Corner& corner, const Staged& staged",
        stores, "store(args@, corner)");
}

// The tiles of a block in shared memory.
void print_tiles(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                 const PointwiseConfig& schedule) {
  out.open("struct Staged {{");
  for (std::size_t i = 0; i < spec.ports.size(); ++i) {
    const PortPack& pack = schedule.packing.ports[i];
    if (pack.kind != PortPack::Kind::staged) continue;
    const auto type = storage_type(spec.ports[i].type);
    if (schedule.tiling.flat)
      out.line("sinter::tiled_flat::Tile<Config, Config::{}, {}> {};", names.access[i], type,
               names.port[i]);
    else if (schedule.aligned_by >= 0)
      out.line("sinter::MisalignedTile<Config, Config::{}, {}> {};", names.access[i], type,
               names.port[i]);
    else
      out.line("sinter::Tile<Config, Config::{}, {}, {}> {};", names.access[i], type, pack.aligned,
               names.port[i]);
  }
  out.close("};");
}

void print_pointwise(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                     const PointwiseConfig& schedule, const BodyText& body) {
  const std::vector<bool> live = live_statements(body.body(), effects(body.body(), 0));
  const auto loads = packed_ports(body, live, StatementKind::load),
             stores = packed_ports(body, live, StatementKind::store);
  out.open("struct Body {{");
  out.line("template <int width>");
  out.line("using Fragment = ::Fragment<width>;");
  std::vector<std::string> gathered;
  for (int i = 0; i < body.size(); ++i)
    if (const int number = body.statement(i).gather;
        body.gathered(i) && gathered_with(spec, number) == number)
      gathered.push_back(body.fetch_gathered(number));
  print_moves(out, names, body, "fetch", "", loads, "fetch", gathered);
  if (schedule.packing.clipped) print_cut(out, names, schedule.packing, loads, "cut");
  print_draws(out, body, drawn_numbers(body, live));
  out.line("template <int width>");
  out.open(
      "SINTER_DEVICE static void element(const Args& args, const Coord& c, int e, "
      "Fragment<width>& fragment) {{");
  std::vector<int> computed, copied;
  for (int i : effects(body.body(), 0)) (body.copied(i) ? copied : computed).push_back(i);
  print_statements(out, body, live_statements(body.body(), computed));
  for (int i : copied) body.print(out, i);
  out.close("}");
  print_moves(out, names, body, "flush", "const ", stores, "flush");
  print_tile_moves(out, names, packed_ports(body, live, StatementKind::load, true),
                   packed_ports(body, live, StatementKind::store, true));
  out.close("};");
}

class PointwiseText : public EngineText {
 public:
  PointwiseText(const ScheduledKernel& kernel, const KernelNames& names)
      : EngineText(kernel, names), e_(*kernel.pointwise()) {}

  std::string header() const override {
    return e_.tiling.on ? tiled() : e_.aligned_by >= 0 ? "pointwise_misaligned" : "pointwise";
  }
  std::string_view summary() const override {
    return e_.tiling.on         ? "every element on its own, transposed in tiles"
           : e_.aligned_by >= 0 ? "every element on its own, in rows that start anywhere"
                                : "every element on its own";
  }
  std::vector<std::string> more_headers() const override {
    if (std::ranges::none_of(e_.packing.ports,
                             [](const PortPack& p) { return p.kind == PortPack::Kind::each; }))
      return {};
    return {"core/part_pack"};
  }
  void print_structs(TextWriter& out) const override {
    print_fragment(out, kernel_, names_, body_);
    if (e_.tiling.on) print_tiles(out, spec_, names_, e_);
    print_pointwise(out, spec_, names_, e_, body_);
  }
  std::string call() const override {
    if (e_.tiling.on) return fmt::format("sinter::{}::run<Config, Body, Staged>(args);", tiled());
    return fmt::format("sinter::pointwise::run{}<Config, Body>(args);",
                       e_.aligned_by >= 0                    ? "_misaligned"
                       : spec_.as_pointwise()->beside_before ? "_beside"
                                                             : "");
  }

 private:
  std::string tiled() const { return e_.tiling.flat ? "tiled_flat" : "tiled"; }
  const PointwiseConfig& e_;
};

}  // namespace

void add_constants(const KernelSpec& spec, const PointwiseConfig& s, ConfigConstants& c) {
  if (s.tiling.on)
    c.insert(c.end(), {{"along", s.tiling.along},
                       {"across", s.tiling.across},
                       {"tile_along", s.tiling.tile_along},
                       {"tile_across", s.tiling.tile_across},
                       {"through", s.tiling.through},
                       {"tile_through", s.tiling.tile_through},
                       {"lanes", s.tiling.lanes},
                       {"staged_loads", s.tiling.loads, true},
                       {"staged_stores", s.tiling.stores, true},
                       {"misaligned", s.aligned_by >= 0, true}});
  if (s.vectors > 0) c.insert(c.end(), {{"vectors", s.vectors}, {"misaligned", 1, true}});
  if (spec.from_end && !s.tiling.flat) c.push_back({"from_end", 1, true});
}

EngineTextPtr engine_text(const PointwiseConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<PointwiseText>(kernel, names);
}

}  // namespace sinter
