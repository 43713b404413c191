// What attention and its gradient share: keys and values through page tables, the scores of
// GRAPH_JSON.md (attn_scale, softcap, Bias, ALiBi) and the masks, of which only the pieces that a
// node asks for are made.
#pragma once
#include "lower/expansion.hpp"

namespace sinter::lowering {

class Attention {
 public:
  Attention(Expansion& e, const shapes::SdpaPorts& ports);

  const SdpaAttributes& attributes() const { return a_; }
  // [B, Hq, Sq, last], the dims of one number a row where last is 1.
  Dims rows(std::int64_t last) const { return {b_, hq_, sq_, last}; }
  std::int64_t keys() const { return skv_; }
  Tensor key() const { return key_; }      // [B, Hk, Skv, D]
  Tensor value() const { return value_; }  // [B, Hv, Skv, Dv]

  // A factor of the products of Q and K, which broadcasts to the scores; may be poisoned. Before
  // scores().
  void scale_products(Tensor factor) { product_scale_ = factor; }
  // The scores before masking; `softcap_tanh` is left poisoned where there is no softcap.
  Tensor scores();
  Tensor softcap_tanh() const { return softcap_tanh_; }
  // 1 where a row sees a column, broadcasting to the scores; poisoned where nothing is masked.
  Tensor keep();
  // 1 where dropout drops a probability; poisoned without dropout.
  Tensor dropped();
  // `t` with what dropout does to a probability.
  Tensor after_dropout(const std::string& step, Tensor t);

  // a b, where a zero of a hides what b holds when something is masked: a masked column is not
  // read.
  Tensor product(Tensor a, Tensor b);
  // The same of the weights and the values, where dropout hides, too. `f8_weights`:
  // MatmulAttributes.
  Tensor values_product(Tensor weights, bool f8_weights);

 private:
  Tensor product(const MatmulAttributes& attributes, Tensor a, Tensor b);
  Tensor paged(const char* step, int port, int table);
  Tensor index_value(const char* step, Tensor t);
  Tensor number(double value) { return e_.scalar(value, index_type_); }
  Tensor row();
  Tensor column();
  Tensor diagonal();
  Tensor alibi();
  Tensor length(int port, std::int64_t otherwise);
  bool packs_sequences() const { return e_.has(ports_.cu_q); }
  // Of each row or column of packed sequences.
  enum class Side { rows, columns };
  Tensor token(Side side);
  Tensor offsets(Side side);
  Tensor sequence(Side side);
  Tensor within(Side side, bool from_end);
  void also(const char* step, Tensor condition);

  Expansion& e_;
  const shapes::SdpaPorts& ports_;
  const SdpaAttributes& a_;
  std::int64_t b_, hq_, sq_, skv_ = 0;
  Tensor key_, value_;
  DataType index_type_;
  Tensor product_scale_, token_[2], offsets_[2];
  Tensor row_, column_, length_q_, length_kv_, softcap_tanh_, keep_, dropped_;
  bool keep_made_ = false;
};

// t with its last two dims exchanged.
Tensor transposed(Tensor t);

}  // namespace sinter::lowering
