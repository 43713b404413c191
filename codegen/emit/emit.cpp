// Puts a generated file together: constants, arguments, the body, and one call of the family's
// template. Loops, barriers, shared memory and index arithmetic are the templates' business.
#include "emit/emit.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <set>

#include "emit/attention_backward_text.hpp"
#include "emit/attention_text.hpp"
#include "emit/config_text.hpp"
#include "emit/contraction_text.hpp"
#include "emit/depthwise_text.hpp"
#include "emit/fragment_text.hpp"
#include "emit/mma_text.hpp"
#include "emit/pointwise_text.hpp"
#include "emit/rowwise_text.hpp"
#include "emit/spelling.hpp"
#include "emit/tensor_cores_text.hpp"
#include "emit/window_text.hpp"
#include "plan/access.hpp"
#include "plan/liveness.hpp"
#include "schedule/contraction/depthwise_planes.hpp"
#include "schedule/gathering.hpp"

namespace sinter {
namespace {

// Of the device library's file and of its function that runs.
std::string_view depthwise_suffix(const DepthwiseConfig& e) {
  return e.groups && e.gradient   ? "_groups_gradient"
         : e.groups               ? "_groups"
         : e.gradient && e.mma    ? "_gradient_mma"
         : e.mma && e.image.map   ? "_mma_boxes"
         : e.mma                  ? "_mma"
         : e.lines                ? "_lines"
         : e.boxes                ? "_rows"
         : e.planes && e.gradient ? "_planes_gradient"
         : e.planes               ? "_planes"
         : e.gradient             ? "_gradient"
                                  : "";
}

// What each family file of the device library is called by.
struct FamilyText {
  std::string header;
  std::string_view what;
};
FamilyText family_text(const ScheduledKernel& kernel) {
  if (const auto* const e = kernel.attention())
    return {e->by_warps ? "attention_forward_mma"
            : e->wide   ? "attention_forward_wide"
                        : "attention_forward",
            "softmax of products times values"};
  if (const auto* const e = kernel.attention_backward())
    return {e->by_warps ? "attention_backward_mma"
            : e->wide   ? "attention_backward_wide"
                        : "attention_backward",
            "gradients of attention"};
  switch (family_of(kernel.spec)) {
    case Family::pointwise:
      if (const Tiling& tiling = kernel.pointwise()->tiling; tiling.on)
        return {tiling.flat ? "tiled_flat" : "tiled",
                "every element on its own, transposed in tiles"};
      if (kernel.aligned_by() >= 0)
        return {"pointwise_misaligned", "every element on its own, in rows that start anywhere"};
      return {"pointwise", "every element on its own"};
    case Family::rowwise:
      return {"rowwise", "rows with reductions along them"};
    default:
      if (kernel.chained()) return {"contraction_chained", "two products on tensor cores"};
      if (const auto* const e = kernel.wgmma(); e && e->image_rows)
        return {"contraction_image_rows", "sums of products on tensor cores, of few channels"};
      if (kernel.wgmma()) return {"contraction_wgmma", "sums of products on tensor cores"};
      if (const auto* const e = kernel.depthwise())
        return {"contraction_depthwise" + std::string(depthwise_suffix(*e)),
                "sums of products of each channel"};
      if (const auto* const e = kernel.mma())
        return e->ordinary_cores()
                   ? FamilyText{"contraction_fma", "sums of products"}
                   : FamilyText{"contraction_mma", "sums of products on tensor cores"};
      return {"contraction_simt", "sums of products"};
  }
}

// The bodies that are none of the spec's own: those between two products.
std::vector<const Body*> other_bodies(const ScheduledKernel& kernel) {
  if (const ChainedConfig* const e = kernel.chained()) return {&e->first.body};
  if (const AttentionConfig* const e = kernel.attention()) return {&e->scores.body, &e->weight};
  return {};
}

bool uses(const ScheduledKernel& kernel, StatementKind kind) {
  std::vector<const Body*> bodies = kernel.spec.bodies(), others = other_bodies(kernel);
  bodies.insert(bodies.end(), others.begin(), others.end());
  for (const Body* body : bodies)
    for (const auto& s : body->statements)
      if (s.kind == kind) return true;
  return false;
}

void print_includes(TextWriter& out, const ScheduledKernel& kernel) {
  const KernelSpec& spec = kernel.spec;
  out.line("#include \"sinter/device/family/{}.cuh\"", family_text(kernel).header);
  std::set<std::string> gathers;
  for (const auto& g : spec.gathers) gathers.insert(std::string(name(g.op)));
  for (const auto& g : gathers) out.line("#include \"sinter/device/gather/{}.cuh\"", g);
  if (const WgmmaConfig* const e = kernel.wgmma(); e && e->window)
    out.line("#include \"sinter/device/family/contraction_window{}.cuh\"",
             e->taps_each > 0 ? "_gradient"
             : e->resident    ? "_resident"
                              : "");
  if (const PointwiseConfig* const s = kernel.pointwise();
      s && std::any_of(s->packing.ports.begin(), s->packing.ports.end(),
                       [](const PortPack& p) { return p.kind == PortPack::Kind::each; }))
    out.line("#include \"sinter/device/core/part_pack.cuh\"");
  if (uses(kernel, StatementKind::random)) out.line("#include \"sinter/device/core/philox.cuh\"");
  if (uses(kernel, StatementKind::pointwise)) out.line("#include \"sinter/ops/pointwise.hpp\"");
  if (const WgmmaConfig* const e = kernel.wgmma()) print_wgmma(out, *e);
  if (const AttentionConfig* const e = kernel.attention()) print_attention_products(out, *e, spec);
  if (const auto* const e = kernel.attention_backward()) print_backward_products(out, *e, spec);
  if (const ChainedConfig* const e = kernel.chained()) {
    out.line("SINTER_WGMMA({}, f32)", e->middle);
    if (e->columns != e->middle) out.line("SINTER_WGMMA({}, f32)", e->columns);
  }
}

std::string rows_type(const KernelSpec& spec, const KernelNames& names) {
  const GroupedRows& r = spec.contraction().rows;
  const auto port = [](int i) { return static_cast<std::size_t>(i); };
  const int index = r.index >= 0 ? r.index : r.offsets;  // not read without an index
  return fmt::format("sinter::GroupedRows<sinter::MoeMode::{}, Config::{}, Config::{}, {}, {}>",
                     name(r.mode), names.access[port(r.offsets)], names.access[port(index)],
                     storage_type(spec.ports[port(r.offsets)].type),
                     storage_type(spec.ports[port(index)].type));
}

std::string rowwise_calls(const KernelSpec& spec, const RowwiseConfig& schedule) {
  std::string text = fmt::format(
      "sinter::rowwise::RowsOf<Config, Args, Fragment<Config::width>, RowFragment, Reductions{}> "
      "rows(args);\n  sinter::rowwise::start<Config>(Phases{{}}, rows);",
      spec.columns.empty() ? "" : ", Columns");
  const RowwiseSpec& r = spec.rowwise();
  if (r.num_partials > 0 || schedule.walkers > 0) return text + "\n  rows.walk(Phases{});";
  const int alone = r.segment > 0 ? r.phases - 2 : r.phases;  // a segment has the last two at once
  for (int p = 0; p < alone; ++p) text += fmt::format("\n  rows.run_phase<Phase{}>();", p);
  if (r.segment > 0)
    text += fmt::format("\n  rows.run_segments<Phase{}, Phase{}>();", alone, alone + 1);
  return text;
}

// The calls of the family's templates.
std::string call(const ScheduledKernel& kernel, const KernelNames& names) {
  const KernelSpec& spec = kernel.spec;
  switch (family_of(spec)) {
    case Family::pointwise:
      if (const Tiling& tiling = kernel.pointwise()->tiling; tiling.on)
        return fmt::format("sinter::tiled{}::run<Config, Body, Staged>(args);",
                           tiling.flat ? "_flat" : "");
      return fmt::format("sinter::pointwise::run{}<Config, Body>(args);",
                         kernel.aligned_by() >= 0             ? "_misaligned"
                         : spec.as_pointwise()->beside_before ? "_beside"
                                                              : "");
    case Family::rowwise:
      return rowwise_calls(spec, *kernel.rowwise());
    case Family::attention_backward:
      return backward_call(*kernel.attention_backward());
    default:
      break;
  }
  const ContractionSpec& c = spec.contraction();
  std::string rows = "sinter::AllRows{}";
  if (c.rows.on) {
    const auto port = [&](int i) { return "args." + names.port[static_cast<std::size_t>(i)]; };
    const std::string offsets = port(c.rows.offsets),
                      index = c.rows.index >= 0 ? port(c.rows.index) : offsets;
    rows = fmt::format("Rows{{{}, {}}}", offsets, index);
  }
  if (const AttentionConfig* const e = kernel.attention()) return attention_call(*e);
  if (kernel.chained())
    return "sinter::chained::run<Config, First, OperandA, OperandB, OperandC, Middle, Body>(args);";
  if (const WgmmaConfig* const e = kernel.wgmma(); e && e->resident)
    return fmt::format("sinter::contraction::{}<Config, OperandA, OperandB, Body>(args);",
                       e->taps_each > 0 ? "run_filter_gradient" : "run_window");
  if (const WgmmaConfig* const e = kernel.wgmma(); e && e->image_rows)
    return "sinter::contraction::run_image_rows<Config, Image, ElementB, Body>(args);";
  if (const WgmmaConfig* const e = kernel.wgmma())
    return fmt::format(
        "sinter::contraction::run_on_tensor_cores<Config, OperandA, OperandB, {}, Body{}>(args{});",
        c.paired() ? "OperandB2" : "OperandB", e->scaled() ? ", Scales" : "",
        c.rows.on ? ", " + rows : "");
  if (const DepthwiseConfig* const e = kernel.depthwise())
    return fmt::format("sinter::depthwise::run{}<Config, {}, Body{}>(args);", depthwise_suffix(*e),
                       e->gradient ? "Gradient, Image" : "Image, Filter",
                       depthwise_results(kernel.spec, *e));
  if (const MmaConfig* const e = kernel.mma())
    return fmt::format("sinter::contraction::{}<Config, OperandA, OperandB, Body>(args, {});",
                       e->ordinary_cores() ? "run_by_threads" : "run_by_warps", rows);
  return fmt::format(
      "sinter::contraction::run<Config>(OperandA{{args}}, OperandB{{args}}, Body{{args}}, {});",
      rows);
}

void print_operand_of_tiles(TextWriter& out, const KernelSpec& spec, const WgmmaConfig& e,
                            const KernelNames& names, const BoxedOperand& o,
                            std::string_view struct_name, std::string_view map) {
  if (o.source == BoxedOperand::Source::shifted)
    print_operand_by_threads(out, spec, names, o, struct_name);
  else if (o.source == BoxedOperand::Source::boxes)
    print_boxed_operand(out, o, struct_name, map);
  else
    print_window_operand(out, spec, o, *e.window, e.resident, struct_name, map);
}

// The user's names, where there are any, and at most four words on what the kernel does.
std::string entry_stem(const ScheduledKernel& kernel, std::string_view title) {
  const KernelSpec& spec = kernel.spec;
  std::vector<std::string> words;
  const auto add = [&words](std::string_view word) {
    if (words.size() < 4 && std::find(words.begin(), words.end(), word) == words.end())
      words.emplace_back(word);
  };
  std::visit(Overloaded{[](const PointwiseSpec&) {},
                        [&](const RowwiseSpec& rows) {
                          for (const auto& r : rows.reductions)
                            add(fmt::format("reduce_{}", name(r.mode)));
                        },
                        [&](const ContractionSpec& c) {
                          add(kernel.attention() ? "attention"
                              : c.rows.on        ? "grouped_contraction"
                                                 : "contraction");
                        },
                        [](const AttentionSpec&) {},
                        [&](const AttentionBackwardSpec&) { add("attention_backward"); }},
             spec.family);
  for (const auto& s : spec.body.statements) {
    if (s.kind == StatementKind::pointwise) add(name(s.mode));
    if (s.kind == StatementKind::random) add("rng");
    if (s.kind == StatementKind::gather)
      add(name(spec.gathers[static_cast<std::size_t>(s.gather)].op));
  }
  if (words.empty()) words.emplace_back("copy");
  if (!title.empty()) words.insert(words.begin(), Identifiers().add(title, "kernel"));
  return fmt::format("sinter_{}", fmt::join(words, "_"));
}

std::string_view cluster_of(const ScheduledKernel& kernel) {
  if (const RowwiseConfig* const s = kernel.rowwise(); s && s->blocks_per_row > 1)
    return " SINTER_CLUSTER(Config::blocks_per_row)";
  if (const WgmmaConfig* const e = kernel.wgmma(); e && cluster_blocks(e->tile) > 1)
    return " SINTER_CLUSTER(Config::cluster_m * Config::cluster_n * Config::split)";
  if (const AttentionConfig* const e = kernel.attention(); e && e->key_blocks > 1)
    return " SINTER_CLUSTER(Config::key_blocks)";
  return "";
}

// All that stands before the entry.
std::string kernel_text(const ScheduledKernel& scheduled, const KernelNames& names) {
  const KernelSpec& spec = scheduled.spec;
  const PointwiseConfig* const pointwise = scheduled.pointwise();
  const RowwiseConfig* const rowwise = scheduled.rowwise();
  const MmaConfig* const mma = scheduled.mma();
  const WgmmaConfig* const wgmma = scheduled.wgmma();
  const DepthwiseConfig* const depthwise = scheduled.depthwise();
  const ChainedConfig* const chained = scheduled.chained();
  const AttentionConfig* const attention = scheduled.attention();
  const AttentionBackwardConfig* const backward = scheduled.attention_backward();
  const ContractionSpec* const factors = spec.as_contraction();
  const Body none;
  const BodyText body(spec, names, spec.body, scheduled.packing()),
      a(spec, names, factors ? factors->a().body : none, mma ? &mma->a.packing : nullptr),
      b(spec, names, factors ? factors->b().body : none, mma ? &mma->b.packing : nullptr),
      weight(spec, names, backward ? spec.attention_backward().weight : none, nullptr);

  TextWriter out;
  out.line("// {}: {}. Generated by sinter.", name(family_of(spec)), family_text(scheduled).what);
  print_includes(out, scheduled);
  out.blank();
  print_config(out, scheduled, names, {&body, &a, &b, &weight});
  out.line("using Coord = sinter::{}Coordinates<Config::Index, Config::Extent>;",
           scheduled.packing() && scheduled.packing()->clipped            ? "Clipped"
           : rowwise && rowwise->rows_fastest && rowwise->aligned_by >= 0 ? "Cut"
                                                                          : "");
  if (chained) print_first_config(out, *chained, names);
  if (attention) print_scores_config(out, *attention, names);
  out.blank();
  print_args(out, scheduled, names);
  out.blank();
  switch (family_of(spec)) {
    case Family::pointwise:
      print_fragment(out, scheduled, names, body);
      if (pointwise->tiling.on) print_tiles(out, spec, names, *pointwise);
      print_pointwise(out, spec, names, *pointwise, body);
      break;
    case Family::rowwise: {
      print_reductions(out, spec, names);
      print_fragment(out, scheduled, names, body);
      print_row_fragment(out, spec, names, *rowwise, body);
      std::string phases;
      Known known;
      for (int p = 0; p < spec.rowwise().phases; ++p) {
        print_phase(out, names, body, *rowwise, p, !spec.columns.empty(), known);
        phases += fmt::format("{}Phase{}", p ? ", " : "", p);
      }
      out.line("using Phases = sinter::List<{}>;", phases);
      if (!spec.columns.empty()) print_column_stores(out, spec, names);
      break;
    }
    case Family::contraction:
      if (factors->rows.on) out.line("using Rows = {};", rows_type(spec, names));
      if (attention) {
        print_fragment(out, scheduled, names, body);
        print_attention(out, spec, *attention, names);
        if (!attention->result) print_packed_epilogue(out, spec, names, body, nullptr);
        break;
      }
      if (chained) {
        print_fragment(out, scheduled, names, body);
        print_chained(out, *chained, names);
        print_packed_epilogue(out, spec, names, body, nullptr);
        break;
      }
      if (wgmma) {
        print_fragment(out, scheduled, names, body);
        if (wgmma->image_rows) {
          print_image(out, spec, names, *wgmma);
          print_retaken(out, spec, names, wgmma);
          print_packed_epilogue(out, spec, names, body, wgmma);
          break;
        }
        if (factors->rows.gathers())
          print_operand_by_threads(out, spec, names, wgmma->a, "OperandA");
        else
          print_operand_of_tiles(out, spec, *wgmma, names, wgmma->a, "OperandA", "map_a");
        print_operand_of_tiles(out, spec, *wgmma, names, wgmma->b, "OperandB", "map_b");
        if (const auto& b2 = wgmma->b2) print_boxed_operand(out, *b2, "OperandB2", "map_b2");
        if (wgmma->scaled()) print_scales(out, spec, names, *wgmma);
        print_retaken(out, spec, names, wgmma);
        print_packed_epilogue(out, spec, names, body, wgmma);
        break;
      }
      if (depthwise) {
        print_fragment(out, scheduled, names, body);
        print_depthwise_operands(out, spec, names, *depthwise);
        print_packed_epilogue(out, spec, names, body, nullptr);
        break;
      }
      if (mma) {
        print_fragment(out, scheduled, names, body);
        print_mma_operand(out, spec, names, a, mma->a, "OperandA");
        print_mma_operand(out, spec, names, b, mma->b, "OperandB");
        print_retaken(out, spec, names, nullptr);
        print_packed_epilogue(out, spec, names, body, nullptr);
        break;
      }
      print_operand(out, a, "OperandA");
      print_operand(out, b, "OperandB");
      print_epilogue(out, body);
      break;
    case Family::attention:  // is a contraction when it is scheduled
      break;
    case Family::attention_backward:
      print_attention_backward(out, spec, *backward, names);
      break;
  }
  out.blank();
  return out.text();
}

}  // namespace

std::optional<ClassText> class_text(const ScheduledKernel& one, const ScheduledKernel& other) {
  const auto text = [](const ScheduledKernel& k) {
    return kernel_text(k, KernelNames(k.spec, other_bodies(k)));
  };
  auto result = ClassText::of(text(one), text(other));
  if (result && result->count() > 0 && !differs_at_launch(one, other)) return {};
  return result;
}

EmittedKernel emit_kernel(const ScheduledKernel& scheduled, std::string_view title,
                          const ClassText* of_class) {
  const KernelSpec& spec = scheduled.spec;
  const KernelNames names(spec, other_bodies(scheduled));
  const MmaConfig* const mma = scheduled.mma();
  const WgmmaConfig* const wgmma = scheduled.wgmma();
  const DepthwiseConfig* const depthwise = scheduled.depthwise();
  const ChainedConfig* const chained = scheduled.chained();
  const AttentionConfig* const attention = scheduled.attention();
  const AttentionBackwardConfig* const backward = scheduled.attention_backward();
  const ContractionSpec* const factors = spec.as_contraction();
  EmittedKernel kernel;
  std::string text = kernel_text(scheduled, names);
  if (of_class && of_class->count() > 0)
    if (const auto numbers = of_class->numbers(text)) {
      text = of_class->text();
      for (const std::int64_t x : *numbers)
        kernel.arguments.push_back(
            {.scalar = true, .index = -1, .bits = static_cast<std::uint64_t>(x)});
    }
  // The digest stands for the whole text, so that a profiler's line leads to one kernel.
  const std::string tail = call(scheduled, names);
  const std::string digested = text + tail;
  kernel.entry =
      fmt::format("{}_{:08x}", entry_stem(scheduled, title),
                  static_cast<std::uint32_t>(XXH3_64bits(digested.data(), digested.size()) >> 32));
  const Launch& launch = scheduled.launch();
  // Warps that exchange registers want it known how many they begin with.
  const bool exchange = wgmma || chained || attention || backward ||
                        (depthwise && depthwise->mma && depthwise->mma->result_rows > 0);
  const std::string blocks =
      exchange || launch.least_blocks > 1 ? fmt::format(", {}", launch.least_blocks) : "";
  TextWriter out;
  out.line("extern \"C\" __global__ __launch_bounds__(Config::threads{}){}", blocks,
           cluster_of(scheduled));
  out.open("void {}(const __grid_constant__ Args args) {{", kernel.entry);
  out.line("{}", tail);
  out.close("}");

  if (!kernel.arguments.empty())
    text.insert(text.find("#include"),
                fmt::format("#define SINTER_PARAMETER \"{}_param_0\"\n", kernel.entry));
  kernel.source = text + out.text();
  kernel.grid = launch.grid;
  kernel.shared_bytes = launch.shared_bytes;
  kernel.block = static_cast<std::uint32_t>(launch.threads);
  for (const auto& c : config_constants(scheduled)) kernel.config.emplace_back(c.name, c.value);
  if (!kernel.arguments.empty())
    kernel.config.emplace_back("numbers_of_launch",
                               static_cast<std::int64_t>(kernel.arguments.size()));
  // For explain.
  // Of the tile that runs, which may be a measured one.
  if (wgmma || mma || depthwise || chained || attention || backward)
    kernel.config.emplace_back("estimated_ns", std::llround(launch.microseconds * 1000));
  if (wgmma && wgmma->image_rows) kernel.config.emplace_back("image_rows", 1);
  if (wgmma) {
    kernel.config.emplace_back(
        "legal_tiles",
        static_cast<std::int64_t>(std::get<TileChoice>(scheduled.choice).tiles.size()));
    kernel.config.emplace_back("tuned", scheduled.tuned);
    kernel.config.emplace_back("scaled", wgmma->scaled());
    if (factors->rows.on) {
      kernel.config.emplace_back("groups", spec.extent[0]);
      kernel.config.emplace_back("gathered", factors->rows.gathers());
    }
    const auto add_shifted = [&](const BoxedOperand& o, std::string name) {
      if (o.source == BoxedOperand::Source::shifted) kernel.config.emplace_back(std::move(name), 1);
    };
    add_shifted(wgmma->a, "a_shifted");
    add_shifted(wgmma->b, "b_shifted");
  }
  if (mma) {
    const MmaOperand &left = mma->a, &right = mma->b;
    if (mma->ordinary_cores()) kernel.config.emplace_back("ordinary_cores", 1);
    kernel.config.emplace_back("a_copied", left.copied);
    kernel.config.emplace_back("a_width", left.packing.width);
    kernel.config.emplace_back("b_copied", right.copied);
    kernel.config.emplace_back("b_width", right.packing.width);
  }
  if (wgmma && !wgmma->image_rows) {
    const auto add_map = [&](const BoxedOperand& o) {
      kernel.arguments.push_back({.index = o.port, .map = o.map});
      for (const BoxedOperand& part : o.behind)
        kernel.arguments.push_back({.index = part.port, .map = part.map});
    };
    if (loads_by_map(spec, wgmma->a, true)) add_map(wgmma->a);
    if (loads_by_map(spec, wgmma->b, false)) add_map(wgmma->b);
    if (wgmma->b2) add_map(*wgmma->b2);
    if (wgmma->result) add_map(*wgmma->result);
  }
  if (depthwise)
    for (const DepthwiseOperand* o : {&depthwise->image, &depthwise->other})
      if (o->map) kernel.arguments.push_back({.index = o->port, .map = o->map});
  if (depthwise && depthwise->result && depthwise->result->map)
    kernel.arguments.push_back({.index = depthwise->result->port, .map = depthwise->result->map});
  if (depthwise)
    for (const DepthwiseOperand& o : depthwise->beside)
      kernel.arguments.push_back({.index = o.port, .map = o.map});
  if (chained)
    for (const BoxedOperand* o : {&chained->a, &chained->b, &chained->c})
      kernel.arguments.push_back({.index = o->port, .map = o->map});
  if (attention && !attention->by_warps) {
    for (const BoxedOperand* o : {&attention->q, &attention->k, &attention->v})
      kernel.arguments.push_back({.index = o->port, .map = o->map});
    if (const auto& o = attention->result)
      kernel.arguments.push_back({.index = o->port, .map = o->map});
    for (const LoadBeside& load : attention->loads_beside)
      if (load.box) kernel.arguments.push_back({.index = load.box->port, .map = load.box->map});
  }
  if (backward)
    for (const NamedMap& m : maps_of(*backward))
      kernel.arguments.push_back({.index = m.box->port, .map = m.box->map});
  for (auto& a : kernel_arguments(spec, names)) kernel.arguments.push_back(std::move(a));
  return kernel;
}

}  // namespace sinter
