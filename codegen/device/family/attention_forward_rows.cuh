// What attention forward does with a tile of keys between its products: scores become weights.
#pragma once
#include "sinter/device/family/attention_drawn.cuh"
#include "sinter/device/family/attention_forward_tiles.cuh"
#include "sinter/device/family/attention_key_walk.cuh"
#include "sinter/device/family/attention_neighbours.cuh"
#include "sinter/device/family/attention_softmax.cuh"

namespace sinter::attention {

// Scores that are their sums times a number of the head.
template <class Score>
concept ScalesHeads = requires {
  Score::scales_heads;
};
// What a sum is worth as a score. The softmax takes that where it is above 0 and finite; another
// number of a head is multiplied with each sum before.
template <class Score>
struct WorthOfSums {
  float of_head = 1;

  template <class Args, class Coord>
  SINTER_DEVICE WorthOfSums(const Args& args, const Coord& c) {
    if constexpr (ScalesHeads<Score>)
      of_head = Score::element(args, c, Score::of_head(args, c), 1.0f);
  }
  SINTER_DEVICE bool of_softmax() const { return of_head > 1e-30f && of_head < 1e30f; }
  SINTER_DEVICE float scale() const {
    if constexpr (ScalesHeads<Score>)
      return of_softmax() ? of_head : 1.0f;
    else
      return Score::scale;
  }
  using PowersOfTwo = ScoreScale<!Score::plain && !ScalesHeads<Score>>;
  SINTER_DEVICE PowersOfTwo powers_of_two() const { return {scale() * kLog2E}; }
};

// Whether what was summed is scaled in a branch, where a row has outgrown what its weights were
// counted from: of results that are longer than half of a tile of keys, whose scaling is an
// instruction for each pair of scores or more. Shorter ones lose by the branch, and two tiles of
// keys, of which the second often grows. (On an H200, us, always and so: b16 h16 s512 d64, tiles of
// 64 keys, 44.6 and 43.1, b32 86.1 and 82.8; b4 h32 s4096 d64 causal, tiles of 128, 678 and 715; b2
// h8 d40, 4096 queries, 77 keys 10.1 and 10.4.)
template <class S>
constexpr bool scales_lazily() {
  if constexpr (S::columns > 64) {
    return true;
  } else if constexpr (requires { S::consumers; }) {
    if constexpr (is_known(S::keys))
      if (S::keys <= 2 * S::tile_k) return false;
    return S::consumers > 1 && 2 * S::columns > S::tile_k;
  } else {
    return false;
  }
}

// Of a warpgroup's 64 rows, from `row` on.
template <class S, class Bounds, class Score, class Weight, class Args>
struct WeightsOfRows {
  using Sums = typename S::Scores::Sums;
  using Coord = typename S::F::Coord;
  const Args& args;
  const Coord& c;
  const BandOf<S, Bounds>& band;
  const int row;
  const KeyTiles own;
  const typename Score::OfHead score_of_head;
  const WorthOfSums<Score> worth;
  const typename Weight::OfHead weight_of_head;

  SINTER_DEVICE WeightsOfRows(const Args& with, const Coord& at, const BandOf<S, Bounds>& of,
                              int first)
      : args(with),
        c(at),
        band(of),
        row(first),
        own(of.template tiles<S::tile_k>(first, first + 64)),
        score_of_head(Score::of_head(with, at)),
        worth(with, at),
        weight_of_head(Weight::of_head(with, at)) {}

  // What scores of tile n of the keys read of memory beside their sums: what comes to registers is
  // asked for before these are there.
  using Beside = BesideOf<Score, Sums::columns>;
  static constexpr bool has_beside = Beside::count > 0;
  SINTER_DEVICE Beside fetch(int n) const {
    Beside beside;
    const int first = first_key(n) + static_cast<int>(threadIdx.x % 4) * 8;
    beside.each_loaded([&]<class Item>(auto& of, int from, int r) {
      const int key = first + from, m = row + Sums::row(2 * r);
      Coord at = c;
      S::F::set_m(at, m < S::queries ? m : S::queries - 1);
      S::F::set_n(at, key < S::keys ? key : S::keys - 8);
      of.load(Item::at(args, at));
    });
    return beside;
  }

  // Of tile n of the keys, in a walk before that which makes weights: what the softmax has to know.
  SINTER_DEVICE void look(Sums& s, RowSoftmax& softmax, int n) const {
    score(s, n, fetch(n), true);
    look_at_scores(s, softmax);
  }
  SINTER_DEVICE void look_at_scores(Sums& s, RowSoftmax& softmax) const {
    softmax.template weigh<scales_lazily<S>(), 0, false>(s, worth.powers_of_two());
  }
  // Weights of tile n of the keys in place of the sums.
  SINTER_DEVICE void weigh(Sums& s, RowSoftmax& softmax, int n) const {
    score(s, n, fetch(n), true);
    weigh_scores(s, softmax, n);
  }
  template <bool first = false>
  SINTER_DEVICE void weigh_scores(Sums& s, RowSoftmax& softmax, int n) const {
    if constexpr (S::walks_twice)
      softmax.weigh_divided(s, worth.powers_of_two());
    else
      softmax.template weigh<scales_lazily<S>(), S::headroom, first>(s, worth.powers_of_two());
    const int column = first_key(n);
    if constexpr (DrawsBits<Weight>) {
      const auto drawn =
          drawn_bits<Weight, S::F::first_n, true, !PacksSequences<Bounds>, Coord, Sums::count>(
              args, [&](int i) { return place_of(column, i); });
      s.each([&](int i, float& x) {
        x = Weight::element(args, place_of(column, i), weight_of_head, x, drawn.at(i));
      });
    } else if constexpr (!Weight::plain) {
      each_place(s, column, [&](const Coord& at, float& x) {
        x = Weight::element(args, at, weight_of_head, x);
      });
    }
  }

  // Scores in place of the sums, masked. `boxes`: in the stage of the tile's keys; `cut`: there may
  // be columns of it that some rows do not see. `all`: whether the mask hides no pair of it.
  template <bool cut = true>
  SINTER_DEVICE void score(Sums& s, int n, Beside beside, bool all, unsigned boxes = 0) const {
    const int column = first_key(n);
    if constexpr (ScalesHeads<Score>) {
      if (!worth.of_softmax()) s.each([&](int, float& x) { x *= worth.of_head; });
    } else if constexpr (has_beside) {
      beside.exchange();
      s.each([&](int i, float& x) {
        float numbers[Beside::count];
        if (i % 16 == 0) beside.take(boxes, s.row(0), i * 2);
        beside.get(i, numbers);
        x = Score::element_beside(args, place_of(column, i), score_of_head, x, numbers);
      });
    } else if constexpr (!Score::plain) {
      each_place(s, column, [&](const Coord& at, float& x) {
        x = Score::element(args, at, score_of_head, x);
      });
    }
    if constexpr (masks_pairs<S, Bounds>())
      if (!all) hide(s, column);
    constexpr bool ragged = !is_known(S::keys) || S::keys % S::tile_k != 0;
    if (cut && (BandOf<S, Bounds>::bounded || ragged))
      if (n < own.full_begin || n >= own.full_end) mask(s, column);
  }

 private:
  // Of tile n.
  SINTER_DEVICE int first_key(int n) const { return band.first_column + n * S::tile_k; }
  // The coordinates of register i; places that do not exist count as the last that do. Of two
  // neighbours the first has an even key, unless sequences begin anywhere: said so that the
  // compiler sees it (see random()).
  SINTER_DEVICE Coord place_of(int column, int i) const {
    constexpr bool all_exist =
        is_known(S::keys) && S::keys % S::tile_k == 0 && !PacksSequences<Bounds>;
    const int m = row + Sums::row(i), n = column + Sums::column(i),
              even = column + Sums::column(i - i % 2);
    Coord at = c;
    S::F::set_m(at, m < S::queries ? m : S::queries - 1);
    S::F::set_n(at, all_exist ? even | i % 2 : n < S::keys ? n : S::keys - 1);
    return at;
  }
  // f(coordinates, number) for all.
  template <class F>
  SINTER_DEVICE void each_place(Sums& s, int column, const F& f) const {
    s.each([&](int i, float& x) { f(place_of(column, i), x); });
  }
  // What the mask hides. (On an H200, h16 s8192 d128, us, one by one and by bits first: a prefix
  // 491 and 515, a window or the first keys 165 and 190; d64 345 and 390.)
  SINTER_DEVICE void hide(Sums& s, int column) const {
    hide_pairs<Bounds>(s, minus_infinity(),
                       [&](int i) { return Bounds::sees(args, place_of(column, i)); });
  }
  SINTER_DEVICE void mask(Sums& s, int column) const {
    int first[2], end[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int m = row + s.row(2 * r), base = column + s.column(0);
      first[r] = band.first(m) - base, end[r] = band.end(m) - base;
    }
    s.each([&](int i, float& x) {
      const int at = i / 4 * 8 + i % 2, r = i / 2 % 2;
      if (at >= end[r] || (Bounds::has_left && at < first[r])) x = minus_infinity();
    });
  }
};

}  // namespace sinter::attention
