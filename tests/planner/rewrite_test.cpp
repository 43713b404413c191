// Each rewrite pass alone: that it finds its case, what the graph is then, and that this gives the
// same values.
#include <functional>
#include <map>
#include <set>

#include "pass_alone.hpp"
#include "target/device_model.hpp"

using namespace sinter;
using namespace sinter::test::pass_alone;

namespace {

Tensor rows(Tensor x, std::int64_t from, std::int64_t to) {
  SliceAttributes a{Dims::filled(x.dim().size(), 0), x.dim(), {}};
  a.start[0] = from;
  a.limit[0] = to;
  return slice(x, a);
}

Tensor side(Tensor x, std::int64_t first) {
  SliceAttributes a{Dims::filled(x.dim().size(), 0), x.dim(), {}};
  const int last = x.dim().size() - 1;
  a.start[last] = first * x.dim()[last] / 2;
  a.limit[last] = (first + 1) * x.dim()[last] / 2;
  return slice(x, a);
}

const std::map<std::string_view, std::function<void(std::string_view)>> kCases{
    {"attention_gradients",
     [](std::string_view name) {
       Graph g{{.io = bf16, .intermediate = f32}};
       const Dims dim{2, 2, 40, 64};
       const Tensor q = g.tensor({.name = "q", .dim = dim}),
                    k = g.tensor({.name = "k", .dim = dim}),
                    v = g.tensor({.name = "v", .dim = dim}),
                    d_o = g.tensor({.name = "do", .dim = dim});
       const auto swapped = [](Tensor t) { return transpose(t, {0, 1, 3, 2}); };
       const Tensor p = softmax(matmul(q, swapped(k)) * 0.125), dp = matmul(d_o, swapped(v)),
                    ds = p * (dp - reduction(p * dp, ReductionMode::add, {2, 2, 40, 1})) * 0.125;
       g.output(matmul(ds, k), "dq");
       g.output(matmul(swapped(ds), q), "dk");
       g.output(matmul(swapped(p), d_o), "dv");
       const Lowered l = after(name, g);
       REQUIRE_FALSE(l.regions.empty());
       for (const Region& r : l.regions) {
         CHECK(r.written_out);
         CHECK(r.op == OpKind::sdpa_backward);
       }
       // No later group takes one apart; and the graph is rewritten without, where that is asked
       // for.
       CHECK(rewritten(lower(g), device_model("sm_90a")).regions.size() == l.regions.size());
       CHECK(rewritten(lower(g), device_model("sm_90a"), false).regions.empty());
     }},
    {"cancel_views",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {4, 8}});
       g.output(tanh(transpose(transpose(relu(x), {1, 0}), {1, 0})), "y");
       CHECK(nodes(after(name, g), OpKind::transpose) == 0);
     }},
    {"separate_conversion",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {4, 8}});
       const Tensor part = rows(relu(x), 0, 2);
       detail::GraphEditor(g).edit(part.id()).data_type = bf16;
       g.output(tanh(part), "y");
       CHECK(nodes(after(name, g), OpKind::pointwise) == 3);
     }},
    {"read_unconverted",
     [](std::string_view name) {
       for (const DataType type : {f8e4m3, bf16, f32}) {  // the first holds not all of i8
         Graph g{{.io = bf16, .intermediate = type}};
         auto w = g.tensor({.name = "w", .dim = {1, 8, 8}, .data_type = i8});
         g.output(matmul(g.tensor({.name = "x", .dim = {1, 4, 8}}), identity(w)), "y");
         REQUIRE(g.check().empty());
         REQUIRE(run_alone(name, lower(g)).has_value() == (type != f8e4m3));
         if (type != f8e4m3) after(name, g);
       }
     }},
    {"roll_rows",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {4, 8}});
       const Tensor y = softmax(x);
       g.output(concatenate({rows(y, 3, 4), rows(y, 0, 3)}, 0), "y");
       const Lowered l = after(name, g);
       CHECK((*l.graph)[first(l, OpKind::slice).inputs[0]].name == "x");
     }},
    {"slice_parts",
     [](std::string_view name) {
       Graph g;
       auto a = g.tensor({.name = "a", .dim = {4, 32}}),
            b = g.tensor({.name = "b", .dim = {4, 32}});
       g.output(tanh(rows(concatenate({a, b}, 1), 0, 2)), "y");
       const Lowered l = after(name, g);
       CHECK(nodes(l, OpKind::slice) == 2);
       CHECK(l.graph->is_input(first(l, OpKind::slice).inputs[0]));
     }},
    {"split_product_halves",
     [](std::string_view name) {
       Graph g{{.io = bf16, .intermediate = bf16}};
       auto x = g.tensor({.name = "x", .dim = {8, 16}}),
            w = g.tensor({.name = "w", .dim = {16, 32}}),
            b = g.tensor({.name = "b", .dim = {1, 32}});
       const Tensor product = matmul(x, w) + b;
       g.output(swish(side(product, 0)) * side(product, 1), "y");
       const Lowered l = after(name, g);
       CHECK(nodes(l, OpKind::matmul) == 2);
       CHECK((*l.graph)[first(l, OpKind::matmul).outputs[0]].dim == Dims{8, 16});
     }},
    {"propagate_reshape",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {64, 32}});
       const Tensor m = reduction(x * x, ReductionMode::avg, {64, 1});
       const Tensor windows = reshape(x * rsqrt(m + 1.0), {2, 4, 2, 4, 32});
       g.output(transpose(windows, {0, 2, 1, 3, 4}), "y");
       const Lowered l = after(name, g);
       CHECK((*l.graph)[first(l, OpKind::reduction).inputs[0]].dim == Dims{2, 4, 2, 4, 32});
     }},
    {"hoist_view",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {4, 8}});
       g.output(tanh(rows(relu(x), 0, 3)), "y");
       const Lowered l = after(name, g);
       CHECK(l.graph->is_input(first(l, OpKind::slice).inputs[0]));
     }},
    {"slice_operands",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {8, 16}}),
            w = g.tensor({.name = "w", .dim = {16, 4}});
       g.output(relu(rows(matmul(x, w), 7, 8)), "y");
       const Lowered l = after(name, g);
       CHECK((*l.graph)[first(l, OpKind::matmul).outputs[0]].dim == Dims{1, 4});
     }},
    {"sink_view",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {4, 16}}),
            w = g.tensor({.name = "w", .dim = {16, 8}}), b = g.tensor({.name = "b", .dim = {8}});
       g.output(reshape(matmul(x, w), {2, 2, 8}) + b, "y");
       const Lowered l = after(name, g);
       CHECK((*l.graph)[first(l, OpKind::pointwise).outputs[0]].dim == Dims{4, 8});
       // Channels that are last in what is added and stored are those of the product's rows, but
       // not where the result's lines are pixels.
       const auto image = [](Graph& graph, const Dims& strides) {
         auto rows = graph.tensor({.name = "rows", .dim = {2, 3, 5, 16}}),
              weight = graph.tensor({.name = "weight", .dim = {1, 1, 16, 8}}),
              r = graph.tensor({.name = "r", .dim = {2, 8, 3, 5}, .stride = strides});
         graph.output(relu(transpose(matmul(rows, weight), {0, 3, 1, 2})) + r, "y2",
                      {.stride = strides});
       };
       Graph last, apart;
       image(last, {120, 1, 40, 8});
       const Lowered m = after(name, last);
       CHECK((*m.graph)[first(m, OpKind::pointwise).outputs[0]].dim == Dims{2, 3, 5, 8});
       image(apart, {120, 15, 5, 1});
       test::GraphCase c(apart, Fill::normal, 3);
       CHECK_FALSE(run_alone(name, c.lowering()));
     }},
    {"shape_entries",
     [](std::string_view name) {
       Graph g{{.io = bf16}};
       auto q = g.tensor({.name = "q", .dim = {2, 2, 3, 8, 16}}),
            k = g.tensor({.name = "k", .dim = {2, 2, 1, 16, 8}}),
            v = g.tensor({.name = "v", .dim = {2, 2, 1, 8, 16}});
       g.output(matmul(softmax(matmul(q, k)), v), "y");
       const Lowered l = after(name, g);
       CHECK((*l.graph)[first(l, OpKind::matmul).outputs[0]].dim == Dims{2, 6, 8, 8});
       Graph of_heads{{.io = bf16}};
       auto a = of_heads.tensor({.name = "a", .dim = {6, 8, 16}}),
            b = of_heads.tensor({.name = "b", .dim = {6, 8, 16}});
       const Tensor x = reshape(matmul(a, transpose(b, {0, 2, 1})), {2, 3, 8, 8});
       of_heads.output(matmul(reshape(softmax(x), {6, 8, 8}), b), "y");
       const Lowered m = after(name, of_heads);
       CHECK((*m.graph)[first(m, OpKind::matmul).outputs[0]].dim == Dims{2, 3, 8, 8});
     }},
    {"order_softmax",
     [](std::string_view name) {
       Graph g{{.io = bf16}};
       auto x = g.tensor({.name = "x", .dim = {8, 16}}),
            v = g.tensor({.name = "v", .dim = {16, 4}});
       const Tensor e = exp(x);
       g.output(matmul(e, v) / reduction(e, ReductionMode::add, {8, 1}), "y");
       const Lowered divided = after(name, g);
       CHECK(divided.graph->nodes().back().op == OpKind::matmul);
       Graph masked;
       auto s = masked.tensor({.name = "s", .dim = {8, 16}});
       const Tensor seen = gen_index(s, 1) <= gen_index(s, 0);
       masked.output(select(seen, s, masked.scalar(-1e4, f32)) * 0.5, "y");
       const Lowered l = after(name, masked);
       const auto& last = l.graph->nodes().back();
       CHECK(std::get<PointwiseAttributes>(last.attributes).mode == PointwiseMode::binary_select);
     }},
    {"split_sink",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {8, 16}}), s = g.tensor({.name = "s", .dim = {8, 1}});
       g.output(softmax(concatenate({relu(x), s}, 1)), "y");
       const Lowered l = after(name, g);
       CHECK((*l.graph)[first(l, OpKind::reduction).inputs[0]].dim == Dims{8, 16});
     }},
    {"store_copy",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {4, 8}});
       const Tensor r = relu(x);
       g.output(transpose(r, {1, 0}), "turned");
       g.output(r, "y");
       CHECK(nodes(after(name, g), OpKind::pointwise) == 2);
     }},
    {"share_repeats",
     [](std::string_view name) {
       Graph g;
       auto q = g.tensor({.name = "q", .dim = {2, 6, 5, 8}}),
            k = g.tensor({.name = "k", .dim = {2, 2, 4, 8}}),
            v = g.tensor({.name = "v", .dim = {2, 1, 4, 8}});
       const Tensor one = reshape(relu(k), {2, 2, 1, 4, 8});
       const Tensor keys = reshape(concatenate({one, one, one}, 2), {2, 6, 4, 8});
       const Tensor values = concatenate({v, v, v, v, v, v}, 1);
       g.output(matmul(matmul(q, transpose(keys, {0, 1, 3, 2})), values), "y");
       const Lowered l = after(name, g);
       CHECK(nodes(l, OpKind::concatenate) == 0);
       // Through views: heads behind tokens, batches joined.
       Graph h;
       auto x = h.tensor({.name = "x", .dim = {12, 5, 8}}),
            y = h.tensor({.name = "y", .dim = {2, 4, 2, 8}});
       const Tensor pairs = reshape(relu(y), {2, 4, 2, 1, 8});
       const Tensor heads = reshape(concatenate({pairs, pairs, pairs}, 3), {2, 4, 6, 8});
       h.output(matmul(x, reshape(transpose(heads, {0, 2, 3, 1}), {12, 8, 4})), "y2");
       const Lowered m = after(name, h);
       CHECK(nodes(m, OpKind::concatenate) == 0);
       CHECK((*m.graph)[first(m, OpKind::matmul).inputs[1]].dim == Dims{4, 8, 4});
     }},
    {"sink_concatenation",
     [](std::string_view name) {
       Graph g;
       auto a = g.tensor({.name = "a", .dim = {4, 32}}),
            b = g.tensor({.name = "b", .dim = {4, 32}});
       g.output(tanh(concatenate({relu(a), relu(b)}, 1)), "y");
       const Lowered l = after(name, g);
       CHECK(nodes(l, OpKind::pointwise) == 4);
       CHECK((*l.graph)[first(l, OpKind::concatenate).outputs[0]].output);
     }},
    {"split_reduction",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {8, 16}});
       const Tensor y = x * reduction(x, ReductionMode::max, {8, 1});
       g.output(reduction(y, ReductionMode::add, {1, 1}), "total");
       CHECK(nodes(after(name, g), OpKind::reduction) == 3);
     }},
    {"split_reduction_halves",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {4, 32}});
       const Tensor m = reduction(x * x, ReductionMode::avg, {4, 1});
       g.output(side(x, 0) * rsqrt(m), "left");
       g.output(side(x, 1) * rsqrt(m), "right");
       const Lowered l = after(name, g);
       CHECK(nodes(l, OpKind::reduction) == 2);
       CHECK((*l.graph)[first(l, OpKind::reduction).inputs[0]].dim == Dims{4, 16});
       Graph joined;
       auto z = joined.tensor({.name = "z", .dim = {4, 32}});
       const Tensor t = concatenate({-side(z, 1), exp(side(z, 0))}, 1);
       joined.output(t * reduction(t, ReductionMode::avg, {4, 1}), "y");
       joined.output(reduction(t, ReductionMode::max, {1, 32}), "columns");
       CHECK(nodes(after(name, joined), OpKind::reduction) == 4);
     }},
    {"channels_last",
     [](std::string_view name) {
       Graph g;
       auto x = g.tensor({.name = "x", .dim = {2, 3, 6, 5}});
       auto w = g.tensor({.name = "w", .dim = {4, 3, 3, 3}});
       g.output(conv_fprop(relu(x), w, {.pre_padding = {1, 1}, .post_padding = {1, 1}}), "y");
       const Lowered l = after(name, g);
       const Node& made = first(l, OpKind::pointwise);
       CHECK(l.graph->stride(made.outputs[0]) == Dims{90, 1, 15, 3});
     }},
    {"propagate_layout",
     [](std::string_view name) {
       Graph g;
       const Dims channels_last{36, 1, 12, 4};
       auto x = g.tensor({.name = "x", .dim = {2, 4, 3, 3}, .stride = channels_last});
       g.output(reduction(relu(x), ReductionMode::add, {1, 4, 1, 1}), "y");
       const Lowered l = after(name, g);
       CHECK(l.graph->stride(first(l, OpKind::pointwise).outputs[0]) == channels_last);
       // Where each maximum was, and the gradient that is gathered from there, lie as the image.
       Graph h;
       const ResampleAttributes pool{.mode = ResampleMode::maxpool, .window = {2, 2}};
       auto image = h.tensor({.name = "image", .dim = {2, 4, 4, 4}, .stride = {64, 1, 16, 4}}),
            dy = h.tensor({.name = "dy", .dim = {2, 4, 3, 3}, .stride = channels_last});
       h.output(relu(resample_backward(dy, pool, image.dim(), {}, image)), "dx");
       const Lowered of_pool = after(name, h);
       const TensorId index = first(of_pool, OpKind::resample).outputs[1];
       CHECK(of_pool.graph->stride(index) == channels_last);
       CHECK((*of_pool.graph)[index].data_type == i8);
       CHECK(of_pool.graph->stride(first(of_pool, OpKind::resample_backward).outputs[0]) ==
             Dims{64, 1, 16, 4});
       // What a product reads once its channels are the last dim; rows of pixels stay.
       for (const bool channels : {true, false}) {
         Graph p;
         auto pixels = p.tensor({.name = "x", .dim = {2, 4, 3, 3}, .stride = channels_last});
         const Dims permutation = channels ? Dims{0, 2, 3, 1} : Dims{0, 1, 3, 2};
         const auto w = p.tensor("w", {1, 1, channels ? 4 : 3, 5});
         p.output(matmul(transpose(relu(pixels), permutation), w), "y");
         const Lowered moved =
             channels ? after(name, p) : rewritten(lower(p), device_model("sm_90a"));
         const TensorId made = first(moved, OpKind::pointwise).outputs[0];
         CHECK((moved.graph->stride(made) == channels_last) == channels);
       }
     }},
    {"layout_for_reshape",
     [](std::string_view name) {
       Graph g;
       auto a = g.tensor({.name = "a", .dim = {2, 3, 4, 5}});
       auto b = g.tensor({.name = "b", .dim = {2, 3, 5, 6}});
       auto m = matmul(a, b);
       g.output(relu(reshape(transpose(m, {0, 2, 1, 3}), {2, 4, 18})), "y");
       g.output(reduction(m * m, ReductionMode::add, {2, 3, 4, 1}), "squares");
       const Lowered l = after(name, g);
       CHECK(l.graph->stride(first(l, OpKind::matmul).outputs[0]) == Dims{72, 6, 18, 1});
     }},
    {"clone_dequantize",
     [](std::string_view name) {
       Graph g{{.io = bf16}};
       const auto input = [&](const char* n, Dims dim, DataType type) {
         return g.tensor({.name = n, .dim = dim, .data_type = type});
       };
       const Tensor x = input("x", {32, 64}, f8e4m3) * input("scale", {32, 1}, f32);
       for (const char* w : {"q", "k", "v"})
         g.output(matmul(x, input(w, {64, 32}, f8e4m3)), std::string("by_") + w);
       CHECK(nodes(after(name, g), OpKind::pointwise) == 3);
     }},
    {"zero_points",
     [](std::string_view name) {
       Graph g{{.io = f16, .intermediate = i32, .compute = i32}};
       const auto a = g.tensor({.name = "a", .dim = {2, 5, 128}, .data_type = u8}),
                  b = g.tensor({.name = "b", .dim = {1, 128, 6}, .data_type = i8});
       g.output(matmul(a - g.scalar(128, i32), b), "y", {.data_type = i32});
       CHECK(nodes(after(name, g), OpKind::reduction) == 1);
     }},
    {"narrow_concatenation",
     [](std::string_view name) {
       for (const DataType type : {bf16, f32}) {
         Graph g{{.io = bf16}};
         const auto a = g.tensor({.name = "a", .dim = {4, 6, 5}}),
                    b = g.tensor({.name = "b", .dim = {4, 15}, .data_type = type});
         g.output(exp(concatenate({a, reshape(b, {4, 3, 5})}, 1)), "y");
         if (type == f32) {
           test::GraphCase c(g, Fill::normal, 3);
           CHECK_FALSE(run_alone(name, c.lowering()));
           continue;
         }
         const Lowered l = after(name, g);
         CHECK(
             l.graph->tensors()[static_cast<std::size_t>(first(l, OpKind::concatenate).outputs[0])]
                 .data_type == bf16);
       }
     }},
    {"round_first",
     [](std::string_view name) {
       for (const DataType result : {bf16, f32})
         for (const bool positions : {false, true}) {  // of rounded ones, which may be equal
           Graph g{{.io = bf16}};
           const auto r = resample(
               relu(g.tensor({.name = "x", .dim = {2, 4, 6, 8}})),
               {.mode = ResampleMode::maxpool, .window = {2, 2}, .generate_index = positions});
           g.output(r.y, "y", {.data_type = result});
           if (positions) g.output(r.index, "index");
           test::GraphCase c(g, Fill::normal, 3);
           const auto l = run_alone(name, c.lowering());
           REQUIRE(l.has_value() == (result == bf16 && !positions));
           if (l) CHECK((*l->graph)[first(*l, OpKind::resample).inputs[0]].data_type == bf16);
         }
     }},
    {"separate_windows",
     [](std::string_view name) {
       // The largest of windows that overlap; of few, of padding with zeros and with positions not.
       struct Case {
         std::int64_t window;
         bool positions, zeros;
       };
       for (const auto& [window, positions, zeros] :
            {Case{59, false, false}, {5, false, false}, {59, true, false}, {59, false, true}}) {
         Graph g{{.io = bf16}};
         const std::int64_t half = window / 2;
         ResampleAttributes a{.mode = ResampleMode::maxpool,
                              .window = {window, window},
                              .pre_padding = {half, half},
                              .post_padding = {half, half},
                              .generate_index = positions};
         if (zeros) a.padding_mode = PaddingMode::zero_pad;
         const auto r = resample(g.tensor({.name = "x", .dim = {1, 8, 60, 70}}), a);
         g.output(r.y, "y");
         if (positions) g.output(r.index, "index", {.data_type = i32});
         if (window < 59 || positions || zeros) {
           test::GraphCase c(g, Fill::normal, 3);
           CHECK_FALSE(run_alone(name, c.lowering()));
           continue;
         }
         const Lowered l = after(name, g);
         CHECK(nodes(l, OpKind::resample) == 2);
         CHECK(std::get<ResampleAttributes>(first(l, OpKind::resample).attributes).window ==
               Dims{1, 59});
       }
     }},
    {"store_narrow",
     [](std::string_view name) {
       Graph g{{.io = bf16}};
       auto x = g.tensor({.name = "x", .dim = {8, 16}}),
            w = g.tensor({.name = "w", .dim = {16, 24}}),
            v = g.tensor({.name = "v", .dim = {8, 24}});
       const Tensor n = softmax(x, {.axis = 1}).y;  // f32, and the sum needs it so
       g.output(matmul(n, w), "by_w");
       g.output(matmul(transpose(n, {1, 0}), v), "by_v");
       g.output(n + x, "sum");
       const Lowered l = after(name, g);
       std::vector<DataType> types;
       for (const Node& node : l.graph->nodes())
         if (node.op == OpKind::matmul) types.push_back((*l.graph)[node.inputs[0]].data_type);
       CHECK(types == std::vector{bf16, bf16});
       CHECK(nodes(l, OpKind::transpose) == 1);
       // Others than products read nothing else, and f32 that the caller sees is not rounded.
       Graph h{{.io = bf16}};
       auto y = h.tensor({.name = "y", .dim = {8, 16}, .data_type = f32}),
            u = h.tensor({.name = "u", .dim = {16, 24}});
       h.output(matmul(y, u), "by_u");
       h.output(relu(y), "relu");
       test::GraphCase c(h, Fill::normal, 3);
       CHECK_FALSE(run_alone(name, c.lowering()));
     }},
};

}  // namespace

TEST_CASE("every rewrite pass has a name of its own, a law and a case") {
  std::set<std::string_view> names;
  for (const Pass* p : all_passes()) {
    INFO(p->name);
    CHECK(names.insert(p->name).second);
    CHECK(p->law.ends_with('.'));
    CHECK(kCases.count(p->name) == 1);
  }
  CHECK(names.size() == kCases.size());
}

TEST_CASE("a rewrite pass finds its case and keeps the values") {
  for (const auto& [name, check] : kCases) DYNAMIC_SECTION(name) {
      check(name);
    }
}

TEST_CASE("a slice of a convolution is one of images, filters and what its windows reach") {
  const ConvAttributes plain, wide{.pre_padding = {2, 1},
                                   .post_padding = {1, 3},
                                   .stride = {2, 1},
                                   .dilation = {1, 2},
                                   .mode = ConvMode::convolution};
  struct Case {
    const ConvAttributes& a;
    Dims start, limit, images, filters;
  };
  // Results of [4, 6, 7, 8] without padding, and of [4, 6, 5, 10] with it.
  const Case cases[] = {{plain, {1, 0, 0, 0}, {2, 6, 7, 8}, {1, 8, 9, 10}, {6, 8, 3, 3}},
                        {plain, {0, 2, 0, 0}, {4, 5, 7, 8}, {4, 8, 9, 10}, {3, 8, 3, 3}},
                        {plain, {0, 0, 2, 3}, {4, 6, 4, 4}, {4, 8, 4, 3}, {6, 8, 3, 3}},
                        {wide, {0, 0, 0, 0}, {4, 6, 1, 10}, {4, 8, 1, 10}, {6, 8, 3, 3}},
                        {wide, {3, 1, 4, 9}, {4, 3, 5, 10}, {1, 8, 3, 2}, {2, 8, 3, 3}},
                        {wide, {0, 0, 1, 2}, {4, 6, 3, 5}, {4, 8, 5, 7}, {6, 8, 3, 3}}};
  for (const Case& c : cases) {
    Graph g;
    auto x = g.tensor({.name = "x", .dim = {4, 8, 9, 10}}),
         w = g.tensor({.name = "w", .dim = {6, 8, 3, 3}});
    g.output(relu(slice(conv_fprop(x, w, c.a), {c.start, c.limit, {}})), "y");
    const Lowered l = after("slice_operands", g);
    const Node& n = first(l, OpKind::conv_fprop);
    CHECK((*l.graph)[n.inputs[0]].dim == c.images);
    CHECK((*l.graph)[n.inputs[1]].dim == c.filters);
  }
}

TEST_CASE(
    "a slice of a convolution stays behind it where a window reaches no pixel, or groups do") {
  const auto kept = [](const ConvAttributes& a, Dims filter, Dims start, Dims limit) {
    Graph g;
    auto x = g.tensor({.name = "x", .dim = {2, 4, 6}}), w = g.tensor({.name = "w", .dim = filter});
    g.output(relu(slice(conv_fprop(x, w, a), {start, limit, {}})), "y");
    REQUIRE(g.check().empty());
    return !run_alone("slice_operands", lower(g));
  };
  CHECK(kept({.pre_padding = {4}}, {4, 4, 2}, {0, 0, 0}, {2, 4, 2}));
  CHECK(kept({.groups = 2}, {4, 2, 2}, {0, 0, 0}, {2, 2, 5}));
  CHECK_FALSE(kept({.groups = 2}, {4, 2, 2}, {0, 0, 0}, {2, 4, 2}));
}
