// Pooling and scaling, forward and backward, in layouts where neighbours along the channels or
// along the last spatial axis are computed together, and where they are not. Random graphs are too
// small to meet packs.
#include "gpu/gpu_support.hpp"
#include "sinter/operations.hpp"
#include "support/catch.hpp"

using namespace sinter;
using namespace sinter::test;

namespace {

enum class Layout { channels_last, channels_first, mixed };  // mixed: inputs last, results first
constexpr DataType kTypes[] = {bf16, f32, f16};

Dims channels_last(const Dims& dim) {
  Dims stride = Dims::filled(dim.size(), 0);
  stride[1] = 1;
  std::int64_t step = dim[1];
  for (int i = dim.size() - 1; i >= 2; --i) stride[i] = std::exchange(step, step * dim[i]);
  stride[0] = step;
  return stride;
}

struct Case {
  Dims x, y;  // y: of scaling
  ResampleAttributes geometry{};
};

// Makes tensors of a layout.
class Maker {
 public:
  Maker(Graph& g, Layout layout) : g_(g), layout_(layout) {}

  Tensor input(std::string name, const Dims& dim) {
    const bool last = layout_ != Layout::channels_first;
    return g_.tensor({.name = std::move(name),
                      .dim = dim,
                      .stride = last ? channels_last(dim) : packed_strides(dim)});
  }
  void output(Tensor t, std::string name, const Dims& dim, DataType type = DataType::none) {
    const bool last = layout_ == Layout::channels_last;
    g_.output(t, std::move(name),
              {.stride = last ? channels_last(dim) : packed_strides(dim), .data_type = type});
  }

 private:
  Graph& g_;
  Layout layout_;
};

Dims pooled(const Case& c) {
  Dims y{c.x[0], c.x[1]};
  const auto& a = c.geometry;
  for (int d = 0; d < a.window.size(); ++d)
    y.push_back((c.x[d + 2] + a.pre_padding[d] + a.post_padding[d] - a.window[d]) / a.stride[d] +
                1);
  return y;
}

// All poolings of one image are one kernel, all gradients another.
void poolings(Graph& g, Layout layout, const Case& c) {
  Maker make(g, layout);
  const Dims y = pooled(c);
  const Tensor x = make.input("x", c.x), dy = make.input("dy", y);
  ResampleAttributes a = c.geometry;
  for (const ResampleMode mode : {ResampleMode::maxpool, ResampleMode::avgpool_include_padding,
                                  ResampleMode::avgpool_exclude_padding}) {
    const std::string stem(sinter::name(mode));
    a.mode = mode;
    a.generate_index = mode == ResampleMode::maxpool;
    const auto r = resample(x, a);
    make.output(relu(r.y + dy), stem, y);
    if (*a.generate_index) make.output(r.index, "index", y, c.x[0] % 2 == 0 ? i8 : i32);
    a.generate_index.reset();
    const Tensor dx =
        resample_backward(dy, a, c.x, mode == ResampleMode::maxpool ? r.index : Tensor{});
    make.output(dx * x, stem + "_dx", c.x);
  }
}

// One maximum alone, without positions.
void maximum(Graph& g, Layout layout, const Case& c) {
  Maker make(g, layout);
  ResampleAttributes a = c.geometry;
  a.mode = ResampleMode::maxpool;
  make.output(resample(make.input("x", c.x), a).y, "y", pooled(c));
}

void scalings(Graph& g, Layout layout, const Case& c) {
  Maker make(g, layout);
  const Tensor x = make.input("x", c.x), dy = make.input("dy", c.y);
  for (const ResampleMode mode : {ResampleMode::bilinear, ResampleMode::nearest}) {
    const std::string stem(sinter::name(mode));
    make.output(resample(x, {.mode = mode}, c.y).y, stem, c.y);
    make.output(resample_backward(dy, {.mode = mode}, c.x), stem + "_dx", c.x);
  }
}

// Roots of negative numbers: the first NaN of a window is its maximum.
void nans(Graph& g, Layout layout, const Case& c) {
  Maker make(g, layout);
  ResampleAttributes a = c.geometry;
  a.mode = ResampleMode::maxpool;
  a.generate_index = true;
  const Tensor root = sqrt(make.input("x", c.x) + 0.5);
  make.output(root, "root", c.x);
  const auto r = resample(root, a);
  make.output(r.y, "y", pooled(c));
  make.output(r.index, "index", pooled(c), i8);
}

// Infinities without weight are not part of a result.
void infinities(Graph& g, Layout layout, const Case& c) {
  Maker make(g, layout);
  const Tensor infinite = reciprocal(ceil(make.input("x", c.x)));
  make.output(infinite, "infinite", c.x);
  make.output(resample(infinite, {.mode = ResampleMode::bilinear}, c.y).y, "y", c.y);
  const Tensor dy = reciprocal(ceil(make.input("dy", c.y)));
  make.output(dy, "infinite_dy", c.y);
  make.output(resample_backward(dy, {.mode = ResampleMode::bilinear}, c.x), "dx", c.x);
}

using Make = void (*)(Graph&, Layout, const Case&);

void add(std::vector<GraphSource>& all, const char* name, Make make, Layout layout, const Case& c) {
  const DataType io = kTypes[all.size() % std::size(kTypes)];
  const std::string title = std::string(name) + "_" + std::to_string(all.size());
  all.push_back({title, all.size(), [=] {
                   auto g = Shared<Graph>::make(
                       GraphOptions{.name = title, .io = io, .intermediate = f32});
                   make(*g, layout, c);
                   return g;
                 }});
}

void check(const std::vector<GraphSource>& sources) {
  Failures failures;
  const Totals t = run_graphs(sources, {.samples = 2048, .repeatable = true}, failures);
  CHECK(t.graphs == static_cast<std::int64_t>(sources.size()));
  INFO(failures.text());
  CHECK(failures.all().empty());
}

ResampleAttributes window(Dims window, Dims stride, Dims pre, Dims post) {
  return {.window = window, .stride = stride, .pre_padding = pre, .post_padding = post};
}

}  // namespace

TEST_CASE("pooling in packs", "[shapes][resample]") {
  const std::vector<Case> cases = {
      {{2, 8, 12, 16}, {}, window({2, 2}, {2, 2}, {0, 0}, {0, 0})},
      {{2, 16, 17, 16}, {}, window({3, 3}, {2, 2}, {1, 1}, {1, 1})},
      {{3, 8, 9, 24}, {}, window({3, 3}, {1, 1}, {1, 1}, {1, 1})},
      {{2, 24, 11, 8}, {}, window({5, 1}, {1, 1}, {2, 0}, {2, 0})},
      {{2, 8, 6, 5, 16}, {}, window({2, 3, 3}, {2, 1, 2}, {0, 1, 1}, {0, 1, 1})},
      {{3, 8, 64}, {}, window({4}, {4}, {0}, {0})},
      {{2, 5, 15, 15}, {}, window({3, 3}, {2, 2}, {1, 1}, {1, 1})},
      {{3, 16, 7, 7}, {}, window({7, 7}, {1, 1}, {0, 0}, {0, 0})},
      {{2, 8, 9, 32}, {}, window({3, 3}, {2, 2}, {0, 3}, {3, 4})},
  };
  std::vector<GraphSource> all;
  for (Case c : cases)
    for (const PaddingMode padding :
         {PaddingMode::neg_inf_pad, PaddingMode::zero_pad, PaddingMode::edge_val_pad})
      for (const Layout layout : {Layout::channels_last, Layout::channels_first}) {
        c.geometry.padding_mode = padding;
        // An average of infinite padding is not worth a look.
        const bool all_modes = padding != PaddingMode::neg_inf_pad;
        add(all, "pooling", all_modes ? poolings : maximum, layout, c);
      }
  Case c = cases[1];
  c.geometry.padding_mode = PaddingMode::zero_pad;
  for (int i = 0; i < 3; ++i) add(all, "pooling", poolings, Layout::mixed, c);
  for (const Layout layout : {Layout::channels_last, Layout::channels_first})
    for (int i = 0; i < 3; ++i) add(all, "nans", nans, layout, cases[static_cast<std::size_t>(i)]);
  check(all);
}

TEST_CASE("scaling in packs", "[shapes][resample]") {
  const std::vector<Case> cases = {
      {{2, 8, 8, 12}, {2, 8, 16, 24}}, {{2, 16, 6, 8}, {2, 16, 9, 16}},
      {{2, 8, 16, 32}, {2, 8, 8, 8}},  {{2, 3, 5, 7}, {2, 3, 10, 9}},
      {{2, 8, 10}, {2, 8, 40}},        {{1, 8, 4, 3, 8}, {1, 8, 8, 6, 16}},
      {{2, 8, 1, 1}, {2, 8, 4, 8}},
  };
  std::vector<GraphSource> all;
  for (const Case& c : cases)
    for (const Layout layout : {Layout::channels_last, Layout::channels_first})
      add(all, "scaling", scalings, layout, c);
  for (int i = 0; i < 3; ++i) add(all, "scaling", scalings, Layout::mixed, cases[0]);
  for (const Layout layout : {Layout::channels_last, Layout::channels_first})
    for (const std::size_t i : {0u, 1u, 2u, 5u})
      add(all, "infinities", infinities, layout, cases[i]);
  check(all);
}
