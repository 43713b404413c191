// The text of a contraction on the tensor cores that every GPU has (mma.sync), or on CUDA cores in
// the same tiles.
#include <algorithm>

#include "emit/contraction_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/spelling.hpp"
#include "plan/liveness.hpp"

namespace sinter {
namespace {

// What a thread holds of a port.
std::string held_type(const KernelSpec& spec, const MmaOperand& o, std::size_t port) {
  const PortPack& pack = o.packing.ports[port];
  const DataType of = spec.ports[port].type;
  const bool bytes = o.byte_packs && (of == DataType::i8 || of == DataType::u8);
  const auto type = storage_type(spec.ports[port].type);
  switch (pack.kind) {
    case PortPack::Kind::same:
      return fmt::format("sinter::Same<{}>", type);
    case PortPack::Kind::each:
      return fmt::format("sinter::Each<{}, {}, {}>", type, o.packing.width, o.packing.dim);
    case PortPack::Kind::shifted:
      return fmt::format("sinter::Shifted<{}, {}>", type, o.packing.width);
    default:
      return fmt::format("sinter::{}<{}, {}, {}>", bytes ? "BytePack" : "Pack", type,
                         o.packing.width, pack.aligned);
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

void print_copied(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
                  std::size_t port) {
  out.line("using Access = Config::{};", names.access[port]);
  out.line("SINTER_DEVICE static const {}* base(const Args& args) {{ return args.{}; }}",
           storage_type(spec.ports[port].type), names.port[port]);
}

// How 16 bytes of it become a pack.
void print_streamed(TextWriter& out, const KernelSpec& spec, const MmaOperand& o,
                    std::size_t port) {
  out.line("static constexpr bool streamed = true;");
  out.open("SINTER_DEVICE static auto pack(const float4& bytes) {{");
  out.line("{} pack;", held_type(spec, o, port));
  for (int i = 0; i < 4; ++i)
    out.line("pack.set_word({}, __float_as_uint(bytes.{}));", i, "xyzw"[i]);
  out.line("return pack;");
  out.close("}");
}

void print_operand_fragment(TextWriter& out, const KernelSpec& spec, const KernelNames& names,
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

// The struct that tells how one operand comes to shared memory. `body` knows the operand's packing,
// `steps` are those that registers hold.
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
    print_copied(out, spec, names, port);
    if (o.streamed) print_streamed(out, spec, o, port);
    out.line("struct Fragment {{}};");
  } else {
    print_operand_fragment(out, spec, names, o);
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

class MmaText : public ContractionText {
 public:
  MmaText(const ScheduledKernel& kernel, const KernelNames& names)
      : ContractionText(kernel, names, &kernel.mma()->a.packing, &kernel.mma()->b.packing),
        e_(*kernel.mma()) {}

  std::string header() const override {
    return e_.cuda_cores()     ? "contraction_fma"
           : e_.tile.split > 1 ? "contraction_streamed_parts"
                               : "contraction_mma";
  }
  std::string_view summary() const override {
    return e_.cuda_cores() ? "sums of products" : "sums of products on tensor cores";
  }
  void print_types(TextWriter& out) const override {
    ContractionText::print_types(out);
    out.line("using Number = sinter::{};", name(e_.number));
  }
  void print_structs(TextWriter& out) const override {
    print_rows(out);
    print_fragment(out, kernel_, names_, body_);
    print_mma_operand(out, spec_, names_, a_, e_.a, "OperandA");
    print_mma_operand(out, spec_, names_, b_, e_.b, "OperandB");
    print_recomputed(out, spec_, names_, e_.counted);
    print_packed_epilogue(out, spec_, names_, body_, {.counted = &e_.counted});
  }
  std::string_view cluster() const override {
    return e_.tile.split > 1 ? " SINTER_CLUSTER(Config::split)" : "";
  }
  std::string call() const override {
    if (e_.tile.split > 1)
      return "sinter::contraction::run_streamed_parts<Config, OperandA, OperandB, Body>(args);";
    return fmt::format("sinter::contraction::{}<Config, OperandA, OperandB, Body>(args, {});",
                       e_.cuda_cores() ? "run_by_threads" : "run_by_warps", rows());
  }
  Facts facts() const override {
    Facts facts = {estimated()};
    if (e_.cuda_cores()) facts.emplace_back("cuda_cores", 1);
    facts.emplace_back("a_copied", e_.a.copied);
    facts.emplace_back("a_width", e_.a.packing.width);
    facts.emplace_back("b_copied", e_.b.copied);
    facts.emplace_back("b_width", e_.b.packing.width);
    return facts;
  }

 protected:
  std::string_view sum() const override { return e_.sums_integers() ? "int" : "float"; }

 private:
  const MmaConfig& e_;
};

}  // namespace

void add_constants(const KernelSpec& spec, const MmaConfig& e, ConfigConstants& c) {
  add_groups(spec, c);
  const MmaTile& t = e.tile;
  c.insert(c.end(), {{"tile_m", t.m},
                     {"tile_n", t.n},
                     {"tile_k", t.line / info(e.number).bytes},
                     {"warps_m", t.warps_m},
                     {"warps_n", t.warps_n},
                     {"stages", t.stages},
                     {"group", e.group},
                     {"promote_every", e.promote_every},
                     {"products", 1},
                     {"n_fastest", e.n_fastest, true}});
  if (t.held_steps > 1) c.push_back({"held_steps", t.held_steps});
  if (t.split > 1) c.push_back({"split", t.split});
}

EngineTextPtr engine_text(const MmaConfig&, const ScheduledKernel& kernel,
                          const KernelNames& names) {
  return std::make_unique<MmaText>(kernel, names);
}

}  // namespace sinter
