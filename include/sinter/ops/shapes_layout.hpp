// Shape rules of data movement and of resampling.
#pragma once
#include "sinter/ops/shape_rules.hpp"

namespace sinter::shapes {

inline bool reshape(ShapeRules& r) {
  const auto& a = r.attributes<ReshapeAttributes>();
  const Dims y = a.dim.empty() ? r.declared(0) : a.dim;
  if (y.empty())
    return r.fail(Rule::attribute_missing, "dim", "", "", "give dim, or declare the dims of Y");
  for (auto d : y)
    if (d < 0 || d > ShapeRules::kMaxExtent)
      return r.fail(Rule::attribute_value, "dim", to_string(y), "extents from 0 to 2^40");
  std::int64_t left = count(r.dim(0));
  std::int64_t n = 1;
  bool fits = true;
  for (auto d : y) {
    if (d > 0 && n > (std::int64_t{1} << 60) / d) fits = false;
    if (fits) n *= d;
  }
  if (!fits || n != left)
    return r.fail(Rule::reshape_count, "dim", to_string(y), text({"dims of ", left, " elements"}));
  r.set(0, y);
  return true;
}

inline bool transpose(ShapeRules& r) {
  const Dims &x = r.dim(0), &p = r.attributes<TransposeAttributes>().permutation;
  bool fits = p.size() == x.size();
  unsigned seen = 0;
  for (auto i : p)
    if (i < 0 || i >= x.size() || (seen >> i & 1))
      fits = false;
    else
      seen |= 1u << i;
  if (!fits)
    return r.fail(Rule::transpose_permutation, "permutation", to_string(p),
                  text({"each of 0 to ", x.size() - 1, " once"}));
  Dims y;
  for (auto i : p) y.push_back(x[static_cast<int>(i)]);
  r.set(0, y);
  return true;
}

inline bool slice(ShapeRules& r) {
  const auto& a = r.attributes<SliceAttributes>();
  const Dims& x = r.dim(0);
  if (a.start.empty() || a.limit.empty())
    return r.fail(Rule::attribute_missing, a.start.empty() ? "start" : "limit", "", "");
  if (!r.dim_attribute("start", a.start, x.size(), 0) ||
      !r.dim_attribute("limit", a.limit, x.size(), 0) ||
      !r.dim_attribute("step", a.step, x.size(), 1))
    return false;
  Dims y;
  for (int i = 0; i < x.size(); ++i) {
    const auto step = a.step.empty() ? 1 : a.step[i];
    if (a.start[i] > a.limit[i] || a.limit[i] > x[i])
      return r.fail(Rule::slice_range, "start, limit",
                    text({to_string(a.start), " to ", to_string(a.limit)}),
                    text({"ranges inside ", to_string(x)}));
    y.push_back((a.limit[i] - a.start[i] + step - 1) / step);
  }
  r.set(0, y);
  return true;
}

inline bool concatenate(ShapeRules& r) {
  if (r.inputs() < 1) return r.fail(Rule::port_missing, "port IN_0", "", "");
  Dims y = r.dim(0);
  int axis;
  const auto& a = r.attributes<ConcatenateAttributes>();
  if (!a.axis)
    return r.fail(Rule::attribute_missing, "axis", "", "", "name the axis to join along");
  if (!r.axis("axis", *a.axis, y.size(), axis)) return false;
  for (int port = 1; port < r.inputs(); ++port) {
    const Dims& x = r.dim(port);
    bool fits = x.size() == y.size();
    for (int i = 0; fits && i < y.size(); ++i) fits = i == axis || x[i] == y[i];
    if (!fits)
      return r.fail(Rule::concatenate_shape, r.input_name(port), to_string(x),
                    text({to_string(y), " but for axis ", axis}));
    y[axis] += x[axis];
  }
  r.set(0, y);
  return true;
}

inline bool is_pooling(ResampleMode m) {
  return m != ResampleMode::bilinear && m != ResampleMode::nearest;
}

// Window attributes with the defaults filled in.
struct ResampleGeometry {
  int spatial = 0;
  Dims window, stride, pre, post;
  PaddingMode padding = PaddingMode::zero_pad;
};
inline ResampleGeometry resample_geometry(const ResampleAttributes& a, int rank) {
  const int n = rank - 2;
  const auto or_else = [n](const Dims& d, std::int64_t v) {
    return d.empty() ? Dims::filled(n, v) : d;
  };
  return {n,
          or_else(a.window, 1),
          or_else(a.stride, 1),
          or_else(a.pre_padding, 0),
          or_else(a.post_padding, 0),
          a.padding_mode.value_or(a.mode == ResampleMode::maxpool ? PaddingMode::neg_inf_pad
                                                                  : PaddingMode::zero_pad)};
}

// Checks X against Y's dims (declared for bilinear and nearest, computed for pooling); fills y.
inline bool resample_extents(ShapeRules& r, const Dims& x, Dims& y) {
  const auto& a = r.attributes<ResampleAttributes>();
  if (!a.mode) return r.fail(Rule::attribute_missing, "mode", "", "", "add a mode such as maxpool");
  const int n = x.size() - 2;
  if (n < 1) return r.fail(Rule::resample_shape, "port X", to_string(x), "[N, C, spatial]");
  if (!r.dim_attribute("window", a.window, n, 1) || !r.dim_attribute("stride", a.stride, n, 1) ||
      !r.dim_attribute("pre_padding", a.pre_padding, n, 0) ||
      !r.dim_attribute("post_padding", a.post_padding, n, 0))
    return false;
  if (!is_pooling(*a.mode)) {
    bool fits = y.size() == x.size() && y[0] == x[0] && y[1] == x[1];
    for (int i = 2; fits && i < x.size(); ++i) fits = x[i] > 0 || y[i] == 0;
    if (!fits)
      return r.fail(Rule::resample_shape, "port Y", y.empty() ? "no dims" : to_string(y),
                    "declared dims [N, C, spatial] with X's N and C");
    return true;
  }
  if (a.window.empty())
    return r.fail(Rule::attribute_missing, "window", "", "", "pooling needs a window");
  const auto g = resample_geometry(a, x.size());
  y = {x[0], x[1]};
  for (int i = 0; i < n; ++i) {
    const auto padding = g.pre[i] + g.post[i];
    const auto extent = window_positions(x[i + 2], padding, g.window[i], g.stride[i]);
    if (extent < 0)
      return r.window_too_large(Rule::resample_shape, i, x[i + 2], padding, g.window[i],
                                g.stride[i]);
    y.push_back(extent);
  }
  return true;
}

// Whether `type`, that of Index, holds each position of the window.
inline bool holds_window(ShapeRules& r, DataType type) {
  const std::int64_t most = type == DataType::i8 ? 128 : std::int64_t{1} << 31;
  std::int64_t positions = 1;
  for (const std::int64_t w : r.attributes<ResampleAttributes>().window) {
    if (positions > most / w)
      return r.fail(Rule::port_type, "port Index",
                    text({name(type), ", which holds ", most, " positions"}),
                    text({"a type that holds those of a window of ",
                          to_string(r.attributes<ResampleAttributes>().window)}),
                    type == DataType::i8 ? "declare Index with data_type i32" : "");
    positions *= w;
  }
  return true;
}

inline bool resample(ShapeRules& r) {
  Dims y = r.declared(0);
  if (!resample_extents(r, r.dim(0), y)) return false;
  const auto& a = r.attributes<ResampleAttributes>();
  if (r.wants(1) && a.mode != ResampleMode::maxpool)
    return r.fail(Rule::resample_mode, "port Index", name(*a.mode), "maxpool");
  if (a.generate_index.value_or(r.wants(1)) != r.wants(1))
    return r.fail(Rule::resample_mode, "generate_index", *a.generate_index ? "true" : "false",
                  "true exactly when Index is connected");
  r.set(0, y);
  if (r.wants(1)) {
    const TensorId t = r.node().outputs[1];
    DataType type = t >= 0 ? r.graph()[t].data_type : DataType::i32;
    if (type == DataType::none && r.graph()[t].output) type = r.graph().options().io;
    if (type == DataType::none) type = r.graph().options().intermediate;
    if (type != DataType::i8 && type != DataType::i32)
      return r.fail(Rule::port_type, "port Index", name(type), "i8 or i32",
                    "declare Index with data_type i32");
    if (!holds_window(r, type)) return false;
    r.set(1, y);
  }
  return true;
}

// DY; X, Y or Index as the mode needs them; DX takes its dims from X or from its declaration.
inline bool resample_backward(ShapeRules& r) {
  Dims dx = r.has(1) ? r.dim(1) : r.declared(0), y = r.dim(0);
  const auto& a = r.attributes<ResampleAttributes>();
  if (dx.empty())
    return r.fail(Rule::resample_backward, "port DX", "", "", "declare the dims of DX");
  if (!resample_extents(r, dx, y)) return false;
  if (y != r.dim(0))
    return r.fail(Rule::resample_shape, "port DY", to_string(r.dim(0)),
                  text({to_string(y), ", what the forward gives"}));
  if (a.mode == ResampleMode::maxpool && !r.has(1) && !r.has(3))
    return r.fail(Rule::resample_backward, "port Index", "", "", "connect Index, or X");
  if (!r.same_dims(2, y, Rule::resample_shape) || !r.same_dims(3, y, Rule::resample_shape))
    return false;
  if (r.has(3) && r.type(3) != DataType::i8 && r.type(3) != DataType::i32)
    return r.fail(Rule::port_type, "port Index", name(r.type(3)), "i8 or i32");
  if (r.has(3) && !holds_window(r, r.type(3))) return false;
  r.set(0, dx);
  return true;
}

// Internal: X [blocks, H, block_size, D] through Page_table [B, 1, pages, 1] to
// [B, H, pages * block_size, D].
inline bool page_gather(ShapeRules& r) {
  const Dims &x = r.dim(0), &t = r.dim(1);
  r.set(0, {t[0], x[1], t[2] * x[2], x[3]});
  return true;
}

// Internal: Block_mask [B, H, ceil(Sq/128), ceil(Skv/1024)] to 0 or 1 a score, [B, H, Sq, Skv].
inline bool block_mask(ShapeRules& r) {
  r.set(0, r.declared(0));
  return true;
}

}  // namespace sinter::shapes
