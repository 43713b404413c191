// Shape rules of scaled dot-product attention and its gradient.
#pragma once
#include "sinter/ops/shape_rules.hpp"

namespace sinter::shapes {

// The extents of one attention, with paging resolved.
struct SdpaGeometry {
  std::int64_t b = 0, hq = 0, hk = 0, hv = 0, sq = 0, skv = 0, d = 0, dv = 0;
};

// Input ports that forward and backward share, by position.
struct SdpaPorts {
  int bias, seq_q, seq_kv, seed, offset, page_k, page_v, sink, block_mask, cu_q, cu_kv;
};
inline constexpr SdpaPorts kSdpaPorts{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13},
    kSdpaBackwardPorts{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

// Those of forward alone: numbers that operands, weights and O are multiplied by.
struct SdpaScales {
  int descale_q, descale_k, descale_v, descale_s, scale_s, scale_o;
};
inline constexpr SdpaScales kSdpaScales{14, 15, 16, 17, 18, 19};

// Sequences of any lengths one behind another, from offset i on to offset i + 1.
inline bool packed_sequences(ShapeRules& r, const SdpaPorts& p, const SdpaGeometry& g) {
  if (!r.has(p.cu_q) && !r.has(p.cu_kv)) return true;
  if (!r.has(p.cu_q) || !r.has(p.cu_kv))
    return r.fail(Rule::sdpa_packed, r.input_name(r.has(p.cu_q) ? p.cu_kv : p.cu_q),
                  "not connected", "both of CU_SEQ_LEN_Q and CU_SEQ_LEN_KV",
                  "connect one tensor to both where queries and keys have the same lengths");
  if (g.b != 1)
    return r.fail(Rule::sdpa_packed, "port Q", to_string(r.dim(0)),
                  "one batch entry, [1, heads, tokens of all sequences, head dim]");
  for (int port : {p.bias, p.seq_q, p.seq_kv, p.page_k, p.page_v, p.block_mask})
    if (r.has(port))
      return r.fail(Rule::sdpa_packed, r.input_name(port), "connected", "not connected",
                    "disconnect it, or CU_SEQ_LEN_Q and CU_SEQ_LEN_KV");
  for (int port : {p.cu_q, p.cu_kv}) {
    const Dims& d = r.dim(port);
    if (d.size() != 4 || d[0] < 2 || d != Dims{r.dim(p.cu_q)[0], 1, 1, 1})
      return r.fail(Rule::sdpa_packed, r.input_name(port), to_string(d),
                    "[sequences + 1, 1, 1, 1], the same of queries and keys");
    if (!r.integer(port)) return false;
  }
  return true;
}

// Lengths mask by padding_mask and place the diagonal of causal_mask_bottom_right. Where neither is
// set nothing reads them, which Graph::notes() says.
inline bool reads_lengths(const SdpaAttributes& a) {
  return a.padding_mask || a.causal_mask_bottom_right;
}
inline bool sdpa_lengths(ShapeRules& r, const SdpaPorts& p, const SdpaGeometry& g) {
  for (int port : {p.seq_q, p.seq_kv})
    if (!r.same_dims(port, {g.b, 1, 1, 1}, Rule::sdpa_shape) || !r.integer(port)) return false;
  if (r.attributes<SdpaAttributes>().padding_mask && !(r.has(p.seq_q) && r.has(p.seq_kv)))
    return r.fail(Rule::sdpa_mask, "padding_mask", "true", "", "connect SEQ_LEN_Q and SEQ_LEN_KV");
  return true;
}

inline bool sdpa_inputs(ShapeRules& r, const SdpaPorts& p, SdpaGeometry& g) {
  const auto& a = r.attributes<SdpaAttributes>();
  const Dims &q = r.dim(0), &k = r.dim(1), &v = r.dim(2);
  for (int port : {0, 1, 2})
    if (r.dim(port).size() != 4)
      return r.fail(Rule::sdpa_shape, r.input_name(port), to_string(r.dim(port)),
                    "4 dims [batch, heads, sequence, head dim]");
  for (int port : {0, 1, 2, p.bias})
    if (r.has(port) && !is_floating(r.type(port)))
      return r.fail(Rule::port_type, r.input_name(port), name(r.type(port)),
                    "a floating-point type", "convert it with identity() to f16, bf16 or f32");
  g = {q[0], q[1], k[1], v[1], q[2], k[2], q[3], v[3]};
  if (!packed_sequences(r, p, g)) return false;
  if (r.has(p.page_k) != r.has(p.page_v))
    return r.fail(Rule::sdpa_paged, r.input_name(r.has(p.page_k) ? p.page_v : p.page_k),
                  "not connected", "both page tables, or neither");
  if (r.has(p.page_k)) {
    for (int port : {p.page_k, p.page_v}) {
      const Dims& t = r.dim(port);
      if (t.size() != 4 || t[0] != g.b || t[1] != 1 || t[3] != 1)
        return r.fail(Rule::sdpa_paged, r.input_name(port), to_string(t),
                      text({"[", g.b, ", 1, pages, 1]"}));
      if (!r.integer(port)) return false;
      const std::int64_t size = port == p.page_k ? k[2] : v[2];
      if (size > 0 && t[2] > ShapeRules::kMaxExtent / size)
        return r.fail(Rule::sdpa_paged, r.input_name(port), text({t[2], " pages of ", size}),
                      "at most 2^40 keys");
    }
    g.skv = r.dim(p.page_k)[2] * k[2];
    if (r.dim(p.page_v)[2] * v[2] != g.skv)
      return r.fail(Rule::sdpa_paged, "port Page_table_V", to_string(r.dim(p.page_v)),
                    "as many keys as Page_table_K");
  } else {
    for (int port : {1, 2})
      if (r.dim(port)[0] != g.b || r.dim(port)[2] != g.skv)
        return r.fail(Rule::sdpa_shape, r.input_name(port), to_string(r.dim(port)),
                      text({"batch ", g.b, " and sequence ", g.skv}));
  }
  if (k[3] != g.d)
    return r.fail(Rule::sdpa_shape, "port K", to_string(k), text({"head dim ", g.d}));
  for (int port : {1, 2}) {
    const auto h = r.dim(port)[1];
    if (h != g.hq && (h < 1 || g.hq % h))
      return r.fail(Rule::sdpa_shape, r.input_name(port), to_string(r.dim(port)),
                    text({"heads that divide the ", g.hq, " of Q"}));
  }
  if (r.has(p.bias)) {
    const Dims full{g.b, g.hq, g.sq, g.skv};
    if (r.dim(p.bias).size() != 4 || !broadcasts_to(r.dim(p.bias), full))
      return r.fail(Rule::sdpa_shape, r.input_name(p.bias), to_string(r.dim(p.bias)),
                    text({"4 dims that broadcast to ", to_string(full)}));
  }
  if (!sdpa_lengths(r, p, g)) return false;
  for (const auto& [attribute, bound] :
       {std::pair{"left_bound", a.left_bound}, std::pair{"right_bound", a.right_bound}})
    if (bound && (*bound < 0 || *bound > ShapeRules::kMaxExtent))
      return r.fail(Rule::attribute_value, attribute, std::to_string(*bound), "0 to 2^40");
  if (!(a.dropout_probability >= 0 && a.dropout_probability < 1))
    return r.fail(Rule::sdpa_dropout, "dropout_probability", text({a.dropout_probability}),
                  "[0, 1)");
  if (a.dropout_probability > 0 && !(r.has(p.seed) && r.has(p.offset)))
    return r.fail(Rule::sdpa_dropout, r.input_name(r.has(p.seed) ? p.offset : p.seed),
                  "not connected", "both Seed and Offset with a dropout_probability above 0");
  for (int port : {p.seed, p.offset})
    if (!r.one_element(port) || !r.integer(port)) return false;
  // Numbers of f32, and so is the reciprocal of softcap.
  if (a.softcap != 0 && !(a.softcap >= 1e-30 && a.softcap <= 1e30))
    return r.fail(Rule::attribute_value, "softcap", text({a.softcap}), "0, or 1e-30 to 1e30");
  if (!(std::abs(a.attn_scale) <= 3e38))
    return r.fail(Rule::attribute_value, "attn_scale", text({a.attn_scale}), "-3e38 to 3e38");
  if (!r.same_dims(p.sink, {1, g.hq, 1, 1}, Rule::sdpa_shape)) return false;
  if (r.has(p.block_mask)) {
    if (!r.same_dims(p.block_mask, {g.b, g.hq, (g.sq + 127) / 128, (g.skv + 1023) / 1024},
                     Rule::sdpa_shape))
      return false;
    if (r.type(p.block_mask) != DataType::u8)
      return r.fail(Rule::port_type, r.input_name(p.block_mask), name(r.type(p.block_mask)), "u8");
  }
  return true;
}

inline bool sdpa_scales(ShapeRules& r, const SdpaScales& p, const SdpaGeometry& g) {
  const Dims full{g.b, g.hq, 1, 1};
  for (int port : {p.descale_q, p.descale_k, p.descale_v, p.descale_s, p.scale_s, p.scale_o}) {
    if (!r.has(port)) continue;
    if (r.dim(port).size() != 4 || !broadcasts_to(r.dim(port), full))
      return r.fail(Rule::sdpa_shape, r.input_name(port), to_string(r.dim(port)),
                    text({"4 dims that broadcast to ", to_string(full)}),
                    "[1, 1, 1, 1] is a number for the whole tensor");
    if (r.type(port) != DataType::f32)
      return r.fail(Rule::port_type, r.input_name(port), name(r.type(port)), "f32",
                    "declare the tensor with data_type f32");
  }
  return true;
}

inline bool sdpa(ShapeRules& r) {
  SdpaGeometry g;
  if (!sdpa_inputs(r, kSdpaPorts, g) || !sdpa_scales(r, kSdpaScales, g)) return false;
  const auto& stats = r.attributes<SdpaAttributes>().generate_stats;
  if (stats && *stats != r.wants(1))
    return r.fail(Rule::sdpa_stats, "port Stats", *stats ? "not connected" : "connected",
                  *stats ? "connected where generate_stats is true"
                         : "not connected where generate_stats is false",
                  "leave generate_stats out: it is then as Stats is connected");
  r.set(0, {g.b, g.hq, g.sq, g.dv});
  if (r.wants(1)) r.set(1, {g.b, g.hq, g.sq, 1});
  if (r.wants(2)) r.set(2, {1, 1, 1, 1});
  return true;
}

inline bool sdpa_backward(ShapeRules& r) {
  SdpaGeometry g;
  if (!sdpa_inputs(r, kSdpaBackwardPorts, g)) return false;
  const Dims o{g.b, g.hq, g.sq, g.dv};
  if (!r.same_dims(3, o, Rule::sdpa_shape) || !r.same_dims(4, o, Rule::sdpa_shape) ||
      !r.same_dims(5, {g.b, g.hq, g.sq, 1}, Rule::sdpa_shape))
    return false;
  if (r.has(kSdpaBackwardPorts.page_k))
    return r.fail(Rule::sdpa_paged, "port Page_table_K", "", "",
                  "gather the pages first: gradients of pages are not defined");
  if (!r.wants(0) && !r.wants(1) && !r.wants(2) && !r.wants(3) && !r.wants(4))
    return r.fail(Rule::port_missing, "port dQ, dK, dV, dBias or dSINK_TOKEN", "", "",
                  "connect one of them");
  if (r.wants(3) && !r.has(kSdpaBackwardPorts.bias))
    return r.fail(Rule::port_missing, "port Bias", "", "", "dBias needs Bias");
  if (r.wants(4) && !r.has(kSdpaBackwardPorts.sink))
    return r.fail(Rule::port_missing, "port SINK_TOKEN", "", "", "dSINK_TOKEN needs SINK_TOKEN");
  for (int port : {0, 1, 2})
    if (r.wants(port)) r.set(port, r.dim(port));
  if (r.wants(3)) r.set(3, r.dim(kSdpaBackwardPorts.bias));
  if (r.wants(4)) r.set(4, r.dim(kSdpaBackwardPorts.sink));
  return true;
}

}  // namespace sinter::shapes
