// Shape rules of matmul, the three convolutions and the grouped matmul of mixtures of experts.
#pragma once
#include "sinter/ops/shape_rules.hpp"

namespace sinter::shapes {

// Batch dims broadcast by NumPy's rule, or one operand's extent divides the other's: then
// consecutive groups of the larger share an entry of the smaller (grouped-query attention).
inline bool matmul(ShapeRules& r) {
  const Dims &a = r.dim(0), &b = r.dim(1);
  for (int port : {0, 1})
    if (r.dim(port).size() < 2)
      return r.fail(Rule::matmul_rank, r.input_name(port), to_string(r.dim(port)),
                    "[.., rows, columns]");
  const auto k = a.back(), kb = b[b.size() - 2];
  if (k != kb)
    return r.fail(Rule::matmul_contraction, "port B", text({to_string(b), " for A ", to_string(a)}),
                  text({"an extent of ", k, " second to last"}),
                  b.back() == k ? "transpose B" : "");
  const int rank = a.size() > b.size() ? a.size() : b.size();
  Dims c = Dims::filled(rank, 1);
  for (int i = 0; i < rank - 2; ++i) {
    const auto x = aligned(a, rank, i), y = aligned(b, rank, i);
    const bool grouped = y > 1 && x > y && x % y == 0;
    if (x != y && x != 1 && y != 1 && !grouped)
      return r.fail(Rule::matmul_batch, "port B", text({to_string(b), " for A ", to_string(a)}),
                    "batch extents that are equal, 1, or divide A's");
    c[i] = x == 1 ? y : x;
  }
  c[rank - 2] = a[a.size() - 2];
  c[rank - 1] = b.back();
  r.set(0, c);
  return true;
}

// Attributes of a convolution with the defaults filled in, one entry a spatial dim.
struct ConvGeometry {
  int spatial = 0;
  Dims pre, post, stride, dilation;
  std::int64_t groups = 1;
  bool flip = false;  // mode convolution
  // Elements from the filter's first to its last; 2^60 where they are more than can be counted.
  std::int64_t window(int i, std::int64_t filter) const {
    constexpr auto most = std::int64_t{1} << 60;
    return filter > 1 && dilation[i] > most / filter ? most : dilation[i] * (filter - 1) + 1;
  }
};
inline ConvGeometry conv_geometry(const ConvAttributes& a, int rank) {
  const int n = rank - 2;
  const auto or_else = [n](const Dims& d, std::int64_t v) {
    return d.empty() ? Dims::filled(n, v) : d;
  };
  return {n,
          or_else(a.pre_padding, 0),
          or_else(a.post_padding, 0),
          or_else(a.stride, 1),
          or_else(a.dilation, 1),
          a.groups,
          a.mode == ConvMode::convolution};
}

// Checks image [N,C,..], filter [K,C/groups,..] and attributes; y gets [N,K,..].
inline bool conv(ShapeRules& r, const Dims& x, const Dims& w, Dims& y) {
  const auto& a = r.attributes<ConvAttributes>();
  const int rank = x.size();
  if (rank < 3 || w.size() != rank)
    return r.fail(Rule::conv_rank, "dims", text({to_string(x), " and ", to_string(w)}),
                  "[N, C, spatial] and [K, C/groups, filter]");
  const int n = rank - 2;
  if (!r.dim_attribute("pre_padding", a.pre_padding, n, 0) ||
      !r.dim_attribute("post_padding", a.post_padding, n, 0) ||
      !r.dim_attribute("stride", a.stride, n, 1) || !r.dim_attribute("dilation", a.dilation, n, 1))
    return false;
  if (a.groups < 1 || x[1] % a.groups || w[0] % a.groups)
    return r.fail(Rule::conv_groups, "groups", std::to_string(a.groups),
                  text({"a divisor of ", x[1], " channels and ", w[0], " filters"}));
  if (w[1] != x[1] / a.groups)
    return r.fail(Rule::conv_channels, "port W", text({to_string(w), " for X ", to_string(x)}),
                  text({"channels / groups = ", x[1] / a.groups, " as W's second extent"}));
  const auto g = conv_geometry(a, rank);
  y = {x[0], w[0]};
  for (int i = 0; i < n; ++i) {
    const auto padding = g.pre[i] + g.post[i], window = g.window(i, w[i + 2]);
    const auto extent = window_positions(x[i + 2], padding, window, g.stride[i]);
    if (extent < 0)
      return r.window_too_large(Rule::conv_extent, i, x[i + 2], padding, window, g.stride[i]);
    y.push_back(extent);
  }
  return true;
}

inline bool conv_fprop(ShapeRules& r) {
  Dims y;
  if (!conv(r, r.dim(0), r.dim(1), y)) return false;
  r.set(0, y);
  return true;
}

// The gradients need their result's dims from the user: several sizes give the same DY.
inline bool conv_gradient(ShapeRules& r, const Dims& x, const Dims& w, const char* result) {
  const Dims &dy = r.dim(0), &declared = r.declared(0);
  if (declared.empty())
    return r.fail(Rule::tensor_dim_missing, text({"port ", result}), "", "",
                  text({"declare the dims of ", result}));
  Dims y;
  if (!conv(r, x, w, y)) return false;
  if (y != dy)
    return r.fail(Rule::conv_extent, "port DY", to_string(dy),
                  text({to_string(y), ", what the forward convolution gives"}));
  r.set(0, declared);
  return true;
}
inline bool conv_dgrad(ShapeRules& r) { return conv_gradient(r, r.declared(0), r.dim(1), "DX"); }
inline bool conv_wgrad(ShapeRules& r) { return conv_gradient(r, r.dim(1), r.declared(0), "DW"); }

// Token [1,T,K], Weight [E,K,N], FirstTokenOffset [E+1], TokenIndex: one entry a row.
inline bool moe_grouped_matmul(ShapeRules& r) {
  const auto& a = r.attributes<MoeAttributes>();
  const Dims &token = r.dim(0), &weight = r.dim(1);
  if (token.size() != 3 || token[0] != 1)
    return r.fail(Rule::moe_shape, "port Token", to_string(token), "[1, T, K]");
  if (weight.size() != 3 || weight[1] != token[2])
    return r.fail(Rule::moe_shape, "port Weight", to_string(weight),
                  text({"[E, ", token[2], ", N]"}));
  if (count(r.dim(2)) != weight[0] + 1)
    return r.fail(Rule::moe_shape, "port FirstTokenOffset", to_string(r.dim(2)),
                  text({"one more element than the ", weight[0], " experts"}));
  if (!r.integer(2) || !r.integer(3)) return false;
  if (a.top_k < 1)
    return r.fail(Rule::attribute_value, "top_k", std::to_string(a.top_k), "1 or more");
  if (a.mode != MoeMode::none && !r.has(3))
    return r.fail(Rule::port_missing, "port TokenIndex", "", "", "connect it or use mode none");
  std::int64_t rows = token[1];
  if (a.mode == MoeMode::gather) rows = count(r.dim(3));
  if (a.mode == MoeMode::scatter && count(r.dim(3)) != rows)
    return r.fail(Rule::moe_shape, "port TokenIndex", to_string(r.dim(3)),
                  text({"one element for each of the ", rows, " rows"}));
  r.set(0, {1, rows, weight[2]});
  return true;
}

}  // namespace sinter::shapes
