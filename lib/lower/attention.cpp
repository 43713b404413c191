// Scores and masks of attention as primitives.
#include "lower/attention.hpp"

#include <cmath>

namespace sinter {

DataType attention_factor_type(DataType type, bool is_virtual, DataType io) {
  const auto has_16_bits = [](DataType t) { return t == DataType::f16 || t == DataType::bf16; };
  const bool narrow = has_16_bits(io);
  if (has_16_bits(type)) return narrow && type != io ? DataType::none : type;
  if (type == DataType::f8e4m3 || type == DataType::f8e5m2) return narrow ? io : DataType::bf16;
  return type == DataType::f32 && is_virtual && narrow ? io : DataType::none;
}

SdpaBand sdpa_band(const SdpaAttributes& a) {
  const bool causal = a.causal_mask || a.causal_mask_bottom_right;
  return {a.left_bound, causal ? std::optional<std::int64_t>(0) : a.right_bound,
          a.causal_mask_bottom_right};
}

namespace lowering {

namespace {

// Sums of two positions and a length stay exact in f32 up to here.
constexpr std::int64_t kExactInF32 = std::int64_t{1} << 22;

// Grouped heads need at least one head of Q: without any, K and V have none to be shared.
Tensor heads_for(Tensor t, std::int64_t heads) {
  if (heads > 0 || t.dim()[1] == 0) return t;
  Dims limit = t.dim();
  limit[1] = 0;
  return slice(t, {.start = {0, 0, 0, 0}, .limit = limit});
}

}  // namespace

Tensor transposed(Tensor t) {
  Dims order;
  for (int i = 0; i < t.dim().size(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return transpose(t, order);
}

Attention::Attention(Expansion& e, const shapes::SdpaPorts& ports)
    : e_(e),
      ports_(ports),
      a_(e.attributes<SdpaAttributes>()),
      b_(e.input(0).dim()[0]),
      hq_(e.input(0).dim()[1]),
      sq_(e.input(0).dim()[2]) {
  key_ = heads_for(paged("keys", 1, ports.page_k), hq_);
  value_ = heads_for(paged("values", 2, ports.page_v), hq_);
  skv_ = key_ ? key_.dim()[2] : 0;
  index_type_ = std::max(sq_, skv_) <= kExactInF32 ? e.arithmetic() : f64;
}

Tensor Attention::paged(const char* step, int port, int table) {
  const Tensor x = e_.input(port);
  if (!e_.has(table)) return x;
  const auto made = detail::GraphEditor(e_.graph())
                        .add(OpKind::page_gather, NoAttributes{}, {x.id(), e_.input(table).id()},
                             {kNewTensor}, {}, e_.node().where);
  return e_.named(step, Tensor(&e_.graph(), made[0]));
}

Tensor Attention::product(Tensor a, Tensor b) {
  return product({.zero_dominates = bool(keep()), .of_attention = true}, a, b);
}
Tensor Attention::values_product(Tensor weights, bool f8_weights) {
  return product({.zero_dominates = keep() || a_.dropout_probability > 0,
                  .of_attention = true,
                  .f8_weights = f8_weights},
                 weights, value());
}
Tensor Attention::product(const MatmulAttributes& attributes, Tensor a, Tensor b) {
  return detail::add_node(OpKind::matmul, attributes, {a, b}, {kNewTensor})[0];
}

Tensor Attention::scores() {
  Tensor s = e_.named("scores", matmul(e_.input(0), e_.named("keys_transposed", transposed(key_))));
  if (product_scale_) s = e_.named("descaled", s * product_scale_);
  if (a_.attn_scale != 1) s = e_.named("scaled", s * a_.attn_scale);
  if (a_.softcap > 0) {
    softcap_tanh_ = e_.named("softcap_tanh", tanh(e_.named("over_cap", s * (1 / a_.softcap))));
    s = e_.named("capped", softcap_tanh_ * a_.softcap);
  }
  if (e_.has(ports_.bias)) s = e_.named("biased", s + e_.input(ports_.bias));
  if (a_.alibi_mask) s = e_.named("with_alibi", s + alibi());
  return s;
}

// ---- positions

Tensor Attention::index_value(const char* step, Tensor t) {
  return e_.typed(index_type_, e_.named(step, t));
}
Tensor Attention::row() {
  if (!row_) row_ = packs_sequences() ? within(Side::rows, false) : token(Side::rows);
  return row_;
}
Tensor Attention::column() {
  if (!column_) column_ = packs_sequences() ? within(Side::columns, false) : token(Side::columns);
  return column_;
}
Tensor Attention::token(Side side) {
  Tensor& made = token_[static_cast<int>(side)];
  if (!made)
    made = side == Side::rows ? e_.named("row", e_.index({1, 1, sq_, 1}, 2, index_type_))
                              : e_.named("column", e_.index({1, 1, 1, skv_}, 3, index_type_));
  return made;
}

// SEQ_LEN_Q or SEQ_LEN_KV, converted once so that the comparisons are not made in f64.
Tensor Attention::length(int port, std::int64_t otherwise) {
  if (!e_.has(port)) return number(static_cast<double>(otherwise));
  Tensor& made = port == ports_.seq_q ? length_q_ : length_kv_;
  if (!made)
    made = index_value(port == ports_.seq_q ? "length_q" : "length_kv", identity(e_.input(port)));
  return made;
}

// ---- packed sequences: of a token t at place i of CU_SEQ_LEN, CU_SEQ_LEN[i] <= t < CU_SEQ_LEN[i +
// 1]

// Along the axis that the scores have of the other side.
Tensor Attention::offsets(Side side) {
  Tensor& made = offsets_[static_cast<int>(side)];
  if (made) return made;
  const bool rows = side == Side::rows;
  const Tensor given = e_.input(rows ? ports_.cu_q : ports_.cu_kv);
  const std::int64_t n = given.dim()[0];
  const Tensor along = e_.named(rows ? "offsets_q_along" : "offsets_kv_along",
                                reshape(given, rows ? Dims{1, 1, 1, n} : Dims{1, 1, n, 1}));
  return made = index_value(rows ? "offsets_q" : "offsets_kv", identity(along));
}
// How many offsets are not behind a token: i + 1, 0 before the first sequence.
Tensor Attention::sequence(Side side) {
  const bool rows = side == Side::rows;
  const char* const step = rows ? "sequence_q" : "sequence_kv";
  const Tensor begun = index_value(
      "begun", select(e_.mask("has_begun", token(side) >= offsets(side)), number(1), number(0)));
  return index_value(step, sum(begun, token(side).dim()));
}
// t - CU_SEQ_LEN[i], or t - CU_SEQ_LEN[i + 1]. Of a token of no sequence, something finite.
Tensor Attention::within(Side side, bool from_end) {
  const bool rows = side == Side::rows;
  const auto far = number(static_cast<double>(std::max(sq_, skv_)));
  const Tensor t = token(side), begun = e_.mask("has_begun", t >= offsets(side));
  const Tensor apart = index_value("apart", from_end ? offsets(side) - t : t - offsets(side));
  const Tensor nearest = index_value(
      "nearest", reduction(index_value("candidates", from_end ? select(begun, far, apart)
                                                              : select(begun, apart, far)),
                           ReductionMode::min, t.dim()));
  return index_value(rows ? "row_of_sequence" : "column_of_sequence",
                     from_end ? 0.0 - nearest : nearest);
}

// The column that lies on the diagonal, for each row.
Tensor Attention::diagonal() {
  if (!sdpa_band(a_).bottom_right) return row();
  if (!e_.has(ports_.seq_q) && !e_.has(ports_.seq_kv)) {
    if (sq_ == skv_) return row();
    return index_value("diagonal", row() + number(static_cast<double>(skv_ - sq_)));
  }
  const Tensor shift =
      index_value("shift", length(ports_.seq_kv, skv_) - length(ports_.seq_q, sq_));
  return index_value("diagonal", row() + shift);
}

// slope (column - row). Press et al., "Train Short, Test Long": for n a power of two, head h has
// slope 2^(-8 (h + 1) / n); further heads take every other slope of the sequence for 2n heads.
Tensor Attention::alibi() {
  std::int64_t n = 1;
  while (2 * n <= hq_) n *= 2;
  const double step = 8.0 / static_cast<double>(n);
  const Tensor head = e_.named("head", e_.index({1, hq_, 1, 1}, 1, e_.arithmetic()));
  Tensor exponent = e_.named("exponent", (head + 1.0) * -step);
  if (hq_ > n) {
    const Tensor further = (head * 2.0 + (1.0 - 2.0 * static_cast<double>(n))) * (-step / 2);
    const Tensor first = e_.mask("first_heads", head < static_cast<double>(n));
    exponent = e_.named("exponents", select(first, exponent, further));
  }
  const Tensor slope = e_.named("slope", pow(2.0, exponent));
  return e_.named("alibi", slope * index_value("distance", column() - row()));
}

// ---- masks

void Attention::also(const char* step, Tensor condition) {
  condition = e_.mask(step, condition);
  keep_ = keep_ ? e_.mask("keep", logical_and(keep_, condition)) : condition;
}

Tensor Attention::keep() {
  if (keep_made_) return keep_;
  keep_made_ = true;
  const SdpaBand band = sdpa_band(a_);
  // Of packed sequences, a diagonal that ends in the last row and column counts from their ends.
  const bool from_end = packs_sequences() && band.bottom_right && (band.right || band.left);
  const Tensor last_row = from_end ? within(Side::rows, true) : Tensor(),
               last_column = from_end ? within(Side::columns, true) : Tensor();
  const auto shifted = [&](std::int64_t by) {
    const Tensor d = from_end ? last_row : diagonal();
    return by == 0 ? d : index_value("bound", d + number(static_cast<double>(by)));
  };
  const auto at = [&] { return from_end ? last_column : column(); };
  if (band.right) also("keep_right", at() <= shifted(*band.right));
  if (band.left) also("keep_left", at() > shifted(-*band.left));
  if (packs_sequences()) {
    const Tensor of_row = sequence(Side::rows);
    const auto all = static_cast<double>(e_.input(ports_.cu_q).dim()[0]);
    also("keep_begun", of_row > number(0));
    also("keep_not_ended", of_row < number(all));
    also("keep_sequence", equal(of_row, sequence(Side::columns)));
  }
  if (a_.padding_mask) {
    also("keep_columns", column() < length(ports_.seq_kv, skv_));
    also("keep_rows", row() < length(ports_.seq_q, sq_));
  }
  if (e_.has(ports_.block_mask)) {
    TensorDesc tiles;
    tiles.dim = rows(skv_);
    tiles.dim_known = true;
    const auto made =
        detail::GraphEditor(e_.graph())
            .add(OpKind::block_mask, NoAttributes{}, {e_.input(ports_.block_mask).id()},
                 {detail::GraphEditor(e_.graph()).declare(tiles)}, {}, e_.node().where);
    also("keep_tiles", Tensor(&e_.graph(), made[0]));
  }
  return keep_;
}

// ---- dropout

// The same numbers in forward and backward: bernoulli is 1 where u < probability.
Tensor Attention::dropped() {
  if (dropped_ || a_.dropout_probability == 0) return dropped_;
  dropped_ = e_.mask("dropped", rng(e_.input(ports_.seed), e_.input(ports_.offset), rows(skv_),
                                    {.distribution = Distribution::bernoulli,
                                     .probability = a_.dropout_probability}));
  return dropped_;
}

Tensor Attention::after_dropout(const std::string& step, Tensor t) {
  if (!dropped()) return t;
  const Tensor scaled = e_.named(step + "_scaled", t * (1 / (1 - a_.dropout_probability)));
  return e_.named(step + "_kept", select(dropped(), 0.0, scaled));
}

}  // namespace lowering
}  // namespace sinter
