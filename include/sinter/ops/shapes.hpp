// Dispatch to the shape rule of each operation.
#pragma once
#include "sinter/ops/shapes_contraction.hpp"
#include "sinter/ops/shapes_layout.hpp"
#include "sinter/ops/shapes_norm.hpp"
#include "sinter/ops/shapes_pointwise.hpp"
#include "sinter/ops/shapes_sdpa.hpp"

namespace sinter {

inline bool infer_shapes(ShapeRules& r) {
  switch (r.node().op) {
    case OpKind::matmul: return shapes::matmul(r);
    case OpKind::conv_fprop: return shapes::conv_fprop(r);
    case OpKind::conv_dgrad: return shapes::conv_dgrad(r);
    case OpKind::conv_wgrad: return shapes::conv_wgrad(r);
    case OpKind::moe_grouped_matmul: return shapes::moe_grouped_matmul(r);
    case OpKind::pointwise: return shapes::pointwise(r);
    case OpKind::reduction: return shapes::reduction(r);
    case OpKind::softmax: return shapes::softmax(r);
    case OpKind::softmax_backward: return shapes::softmax_backward(r);
    case OpKind::rng: return shapes::rng(r);
    case OpKind::block_scale_quantize: return shapes::block_scale_quantize(r);
    case OpKind::block_scale_dequantize: return shapes::block_scale_dequantize(r);
    case OpKind::layernorm: case OpKind::rmsnorm: case OpKind::adaptive_layernorm:
    case OpKind::instancenorm: case OpKind::groupnorm: return shapes::norm(r);
    case OpKind::batchnorm: return shapes::batchnorm(r);
    case OpKind::batchnorm_inference: return shapes::batchnorm_inference(r);
    case OpKind::layernorm_backward: case OpKind::rmsnorm_backward:
    case OpKind::adaptive_layernorm_backward: case OpKind::instancenorm_backward:
    case OpKind::groupnorm_backward: case OpKind::batchnorm_backward:
      return shapes::norm_backward(r);
    case OpKind::sdpa: return shapes::sdpa(r);
    case OpKind::sdpa_backward: return shapes::sdpa_backward(r);
    case OpKind::resample: return shapes::resample(r);
    case OpKind::resample_backward: return shapes::resample_backward(r);
    case OpKind::reshape: return shapes::reshape(r);
    case OpKind::transpose: return shapes::transpose(r);
    case OpKind::slice: return shapes::slice(r);
    case OpKind::concatenate: return shapes::concatenate(r);
    case OpKind::page_gather: return shapes::page_gather(r);
    case OpKind::block_mask: return shapes::block_mask(r);
    case OpKind::last_: break;
  }
  return false;
}

}  // namespace sinter
