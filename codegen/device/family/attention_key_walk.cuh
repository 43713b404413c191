// The tiles of keys that a tile of rows visits, from the last one on: all that its band has, or,
// under a mask, those of which some row sees some key, which parts of a split take by turns. Every
// warp that walks finds them for itself, so that none has to tell others: a lane looks at a tile,
// and 32 tiles are two words of bits, of which later steps read one bit each.
#pragma once
#include "sinter/device/family/attention_forward_tiles.cuh"
#include "sinter/device/family/attention_mask.cuh"

namespace sinter::attention {

// Whether a consumer's 64 rows and a tile of keys may hold pairs that see each other and others.
template <class S, class Bounds>
constexpr bool masks_pairs() {
  if constexpr (!MasksTiles<Bounds>)
    return false;
  else
    return Bounds::mask_block == 0 || Bounds::mask_block % S::tile_q != 0 ||
           Bounds::mask_block % S::tile_k != 0;
}

// Of the producer's warps the threads that load: one of each, or, where warps look for tiles, all
// of it, of which one loads.
template <class Bounds>
SINTER_DEVICE bool leads_producer(int warp) {
  const int thread = static_cast<int>(threadIdx.x);
  return MasksTiles<Bounds> ? thread / 32 == warp : thread == warp * 32;
}
// Behind acquire(), which all pass before one goes on: a parity tells two uses of a stage apart.
template <class Bounds>
SINTER_DEVICE bool loads() {
  if constexpr (!MasksTiles<Bounds>) return true;
  __syncwarp();
  return threadIdx.x % 32 == 0;
}

// Tiles [begin, end), or every `step` one. `of_scores`: by those who mask scores.
template <class S, class Bounds, int step = 1, bool of_scores = false>
struct KeyWalk {
  int n, begin;

  template <class Args>
  SINTER_DEVICE KeyWalk(const Args&, const typename S::F::Coord&, int, int, int begin, int end, int)
      : n(end - 1), begin(begin) {}
  SINTER_DEVICE bool more() const { return n >= begin; }
  SINTER_DEVICE bool last() const { return n - step < begin; }
  SINTER_DEVICE void skip(int tiles) { n -= tiles; }
  template <class Args>
  SINTER_DEVICE void next(const Args&, const typename S::F::Coord&) {
    n -= step;
  }
  SINTER_DEVICE int before() const { return n + step; }  // the tile that n was
  SINTER_DEVICE bool all() const { return true; }
};

// By whole warps. `row`: the first of the tile; `own`: of the 64 rows that all() asks for; `part`:
// KeyTiles::part.
template <class S, class Bounds, int step, bool of_scores>
requires MasksTiles<Bounds>
struct KeyWalk<S, Bounds, step, of_scores> {
  static constexpr bool looks_at_all = of_scores && masks_pairs<S, Bounds>();
  static_assert(step == 1 && !PacksSequences<Bounds> && !Bounds::packed);
  int n, begin;

 private:
  int word_;  // the tile of the words' first bit
  unsigned seen_ = 0, all_ = 0;
  int before_ = 0;
  int others_;  // tiles that other parts take before the next one of this
  const int row_, own_;

 public:
  template <class Args>
  SINTER_DEVICE KeyWalk(const Args& args, const typename S::F::Coord& c, int row, int own,
                        int begin, int end, int part)
      : n(end), begin(begin), word_(end), others_(part), row_(row), own_(own) {
    next(args, c);
  }
  SINTER_DEVICE bool more() const { return n >= begin; }
  template <class Args>
  SINTER_DEVICE void next(const Args& args, const typename S::F::Coord& c) {
    before_ = n;
#pragma unroll 1
    do {
#pragma unroll 1
      while (seen_ == 0 && word_ > begin) look(args, c);
      const int bit = 31 - __clz(static_cast<int>(seen_));
      n = seen_ == 0 ? begin - 1 : word_ + bit;
      seen_ &= ~(1u << (bit & 31));
    } while (S::splits > 1 && n >= begin && others_-- > 0);
    others_ = S::splits - 1;
  }
  SINTER_DEVICE int before() const { return before_; }
  // Whether the own rows see all keys of tile n, if the bounds show them.
  SINTER_DEVICE bool all() const { return all_ >> (n - word_) & 1; }

 private:
  template <class Args>
  SINTER_DEVICE void look(const Args& args, const typename S::F::Coord& c) {
    word_ -= 32;
    const int first = (word_ + static_cast<int>(threadIdx.x) % 32) * S::tile_k;
    const auto look_at = [&](int row, int rows) {
      return Bounds::seen(args, c, Span::of(row, rows, S::queries),
                          Span::of(first, S::tile_k, S::keys));
    };
    Seen tile{false, false}, own{false, false};
    if (first >= begin * S::tile_k) {
      tile = look_at(row_, S::tile_q);
      if constexpr (looks_at_all) own = look_at(own_, 64);
    }
    seen_ = __ballot_sync(~0u, tile.some);
    if constexpr (looks_at_all) all_ = __ballot_sync(~0u, own.all);
  }
};

}  // namespace sinter::attention
