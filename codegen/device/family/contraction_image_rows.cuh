// A convolution of few channels on the tensor cores of sm_90a whose pixels come as they lie in
// memory: first layers, of 3 channels as a rule, and others of up to 32.
//
// What a row of the filter sees is one run of elements, taps and channels together, and moves by
// `step` of these from a result to the next. That is no multiple of 16 bytes, so that neither TMA
// nor wgmma can walk over it. But the left operand may come in registers, two elements each, which
// a thread loads from anywhere. (Such a pair begins at an even element. Where all runs begin at odd
// ones, an element in front of them meets a zero of the filter, as do those behind, up to whole
// eights; where every other one does, a thread loads two words and takes the pair out of them.)
// Where runs begin at multiples of 16 bytes, as of 8, 16 or 32 channels, the same fragments come by
// ldmatrix. Elements of 8 bits become f16, which holds them all, pair by pair as a thread loads
// them; of 32 bits, rounded to tf32, it loads one at a time.
//
//   k of a group of rows (7 taps of 3 channels, stride 2)
//     row 2 g      0 p p p ... p 0 0     22 elements, and two that fill the eights
//     row 2 g + 1  0 p p p ... p 0 0
//
// Rows of pixels come in groups of as many as the stride, of a volume for each frame that the
// filter sees. Fragments of a group stay in registers
// while the warp walks down the image: each row of results takes one more group, and the filter's
// rows are as many groups one behind another.
//
// A block is one warpgroup, whose warps have 16 neighbouring results of a row each, each of an
// image of its own if need be. A warp has pixels of its own brought by `cp.async`, some groups
// ahead, and stores whole pixels (contraction_store.cuh), so that no warp waits for another one but
// at the MMA. Several blocks share an SM: while one finishes its rows others multiply.
// Of many filters each block has some.
#pragma once
#include "sinter/device/core/async_copy.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/contraction_image_rows_store.cuh"

namespace sinter::contraction {

// The filter as the right operand, with zeros where a row of taps is filled up.
template <class Config, class Filter, class Args>
SINTER_DEVICE void put_filter(const Args& args, unsigned char* to) {
  using S = ImageRowsShape<Config>;
  using P = Problem<Config>;
  using R = typename S::R;
  constexpr int width = R::eights * 8, rows = R::groups * R::rows;
  const Filter filter{args};
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < rows * S::columns; i += Config::threads) {
    const int number = i / S::columns, column = i % S::columns, row = number % R::rows,
              tap = number / R::rows * R::rows_of_frame + row % R::rows_of_frame,
              k = number / R::rows * R::depth_of_group + row * width;
    constexpr int row_tap = P::first_k + R::volume;
    typename P::Coord c;
    P::set_n(c, S::first_column() + column);
    if constexpr (R::volume) c.at[P::first_k] = row / R::rows_of_frame;
    c.at[row_tap] = tap;
    float values[width] = {};
    if (tap < R::tap_rows && (S::filters % S::columns == 0 || column < S::filters)) {
#pragma unroll
      for (int e = 0; e < R::taken; ++e) {
        c.at[row_tap + 1] = e / R::channels;
        c.at[row_tap + 2] = e % R::channels;
        values[R::skip + e] = static_cast<float>(filter.value(c));
      }
    }
    const auto piece = [&](int e) {
      return reinterpret_cast<uint4*>(to + S::Filter::place(column, k + e));
    };
    if constexpr (!R::in_pairs) {
      const auto word = [&](int e) { return S::Number::encode(values[e]).bits; };
#pragma unroll
      for (int e = 0; e < width; e += 4)
        *piece(e) = {word(e), word(e + 1), word(e + 2), word(e + 3)};
    } else {
      const auto pair = [&](int e) {
        return warp_matrix::pair(typename S::Number{}, values[e], values[e + 1]);
      };
#pragma unroll
      for (int e = 0; e < width; e += 8)
        *piece(e) = {pair(e), pair(e + 2), pair(e + 4), pair(e + 6)};
    }
    if (R::in_pairs && R::rows * R::eights % 2 != 0 && row == R::rows - 1)
      *reinterpret_cast<uint4*>(to + S::Filter::place(column, k + width)) = {};
  }
}

// Which groups of rows a block takes, one after another: those of a band of rows of results at a
// time, 16 columns a warp. Bands are numbered as they lie in memory, and blocks that have the same
// filters take them in turn: what is stored at one time lies together.
template <class Config>
struct GroupWalk {
  using S = ImageRowsShape<Config>;
  using P = Problem<Config>;
  using R = typename S::R;
  int band, column, first, group, end;

  // Blocks' columns: of all images, and those that make up a row of an image; bands of an image.
  static SINTER_DEVICE int beside() { return (S::width() + R::pixels - 1) / R::pixels; }
  static SINTER_DEVICE int columns() { return (S::images() * beside() + 3) / 4; }
  static SINTER_DEVICE int abreast() { return (beside() + 3) / 4; }
  static SINTER_DEVICE int down() { return (S::height() + Config::band - 1) / Config::band; }
  static SINTER_DEVICE int bands() {
    return (columns() + abreast() - 1) / abreast() * abreast() * down();
  }

  SINTER_DEVICE GroupWalk() { enter(static_cast<int>(blockIdx.x) / S::tiles); }
  SINTER_DEVICE void enter(int which) {
    band = which;
    group = end = 0;
    if (band >= bands()) return;
    const int rows = quotient(band, abreast()), image_rows = quotient(rows, down());
    column = image_rows * abreast() + band - rows * abreast();
    first = group = (rows - image_rows * down()) * Config::band;
    const int left = S::height() - first;
    end = first + (left < Config::band ? left : Config::band) + R::groups - 1;
  }
  SINTER_DEVICE bool more() const { return group < end; }
  // The first group of a band, which a warp has to look up its place for.
  SINTER_DEVICE bool enters() const { return group == first; }
  SINTER_DEVICE void advance() {
    if (++group == end) enter(band + static_cast<int>(gridDim.x) / S::tiles);
  }
  // The group completes what a row of results sees.
  SINTER_DEVICE bool completes() const { return group - first >= R::groups - 1; }
  SINTER_DEVICE int row() const { return group - (R::groups - 1); }
  // The warp's 16 columns among those of all images, and the image that they are of.
  SINTER_DEVICE int unit(int warp) const { return column * 4 + warp; }
  SINTER_DEVICE int image(int warp) const { return quotient(unit(warp), beside()); }
  // The warp's first result of a row, of row 0; none: the coordinate x is past the end.
  SINTER_DEVICE typename P::Coord place(int warp) const {
    const int image = this->image(warp);
    typename P::Coord c{};
    if (image >= S::images()) {
      c.at[S::x] = S::width();
      return c;
    }
    P::set_m(c, static_cast<typename P::Index>(image) * S::height() * S::width());
    c.at[S::x] = (unit(warp) - image * beside()) * R::pixels;
    return c;
  }
};

// Brings the warp's pixels of a group to a stage; zeros where there are none.
template <class Config, class Image>
struct GroupLoader {
  using S = ImageRowsShape<Config>;
  using R = typename S::R;
  using Element = typename Image::Element;
  static constexpr int all = R::rows * R::pieces, own = (all + 31) / 32;
  GroupWalk<Config> walk;
  // The lane's pieces of the next group, and how many rows of the image have pixels there: none
  // beside it.
  const Element* from[own] = {};
  unsigned lines[own] = {};

  // `to`: the stage's address.
  template <class Args>
  SINTER_DEVICE void load(const Args& args, int warp, unsigned to) {
    if (walk.more()) {
      if (walk.enters()) enter(args, warp);
#pragma unroll
      for (int i = 0; i < own; ++i) {
        if (piece(i) < all)
          warp_matrix::copy<16>(to + R::place(piece(i)) * 16, from[i],
                                static_cast<unsigned>(line(i)) < lines[i]);
        from[i] += R::down * R::pitch;
      }
      walk.advance();
    }
    end_group_of_copies();
  }

 private:
  static SINTER_DEVICE int piece(int i) { return i * 32 + static_cast<int>(threadIdx.x) % 32; }
  static SINTER_DEVICE int row(int i) { return R::rows == 1 ? 0 : piece(i) / R::pieces; }
  SINTER_DEVICE int line(int i) const {
    return R::base + walk.group * R::down + row(i) % R::rows_of_frame;
  }
  template <class Args>
  SINTER_DEVICE void enter(const Args& args, int warp) {
    const auto c = walk.place(warp);
    const Element* const image = Image::base(args, c);
    const int column = c.at[S::x] < S::width() ? static_cast<int>(c.at[S::x]) * R::step + R::from
                                               : static_cast<int>(R::line);
#pragma unroll
    for (int i = 0; i < own; ++i) {
      const int at = column + (piece(i) - row(i) * R::pieces) * R::together;
      bool exists = at >= 0 && at < R::line;
      from[i] = image + line(i) * R::pitch + at;
      if constexpr (R::volume) {
        const int frame = R::Frames::base + static_cast<int>(c.at[S::z]) * R::Frames::step +
                          row(i) / R::rows_of_frame;
        exists &= frame >= 0 && frame < R::all_frames;
        from[i] += frame * R::frame_pitch;
      }
      lines[i] = exists ? R::lines : 0;
    }
  }
};

// Lines of blocks of the stage, by ldmatrix: a step's blocks are two pieces of k for 8 runs, and
// the same of the next 8.
template <class R>
SINTER_DEVICE void take_pieces(unsigned stage, unsigned (&to)[4], int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32, q = 2 * step + lane / 16;
  const int piece = q / R::eights * R::pieces + q % R::eights + lane % 16 * (R::step / 8);
  // What lies behind the group's rows meets zeros of the filter, but must be a number.
  const bool fills_up = 2 * step + 1 >= R::rows * R::eights;
  warp_matrix::get(to, stage + R::place(fills_up && lane / 16 ? 0 : piece) * 16);
  if (fills_up) to[2] = to[3] = 0;
}

// Two neighbouring elements at `at`, of a run that begins at an odd element or at an even one.
template <class R, class Number, class Element>
SINTER_DEVICE unsigned take_pair(unsigned at, [[maybe_unused]] bool odd) {
  if constexpr (R::bytes == 1) {
    unsigned pair = warp_matrix::get_half(at);
    if constexpr (R::uneven) pair = odd ? pair >> 8 | warp_matrix::get_half(at + 2) << 8 : pair;
    return warp_matrix::widened(Number{}, Element{}, static_cast<unsigned short>(pair));
  } else {
    const unsigned pair = warp_matrix::get_word(at);
    if constexpr (R::uneven) return odd ? pair >> 16 | warp_matrix::get_word(at + 4) << 16 : pair;
    return pair;
  }
}

// The newest group's fragments, behind those of the groups before it. `stage`: its address.
template <class R, class Number, class Element, class Fragments>
SINTER_DEVICE void take_group(unsigned stage, Fragments& a) {
  constexpr int before = (R::groups - 1) * R::steps;
#pragma unroll
  for (int i = 0; i < before; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) a.at[i][j] = a.at[i + R::steps][j];
  if constexpr (R::by_pieces) {
#pragma unroll
    for (int i = 0; i < R::steps; ++i) take_pieces<R>(stage, a.at[before + i], i);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int run = R::lead + lane / 4 * R::step;
  if constexpr (!R::in_pairs) {
#pragma unroll
    for (int q = 0; q < R::steps; ++q)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a.at[before + q][i] = Number::rounded(
            warp_matrix::get_word(stage + (run + lane % 4) * 4 + q / R::eights * R::pieces * 16 +
                                  (q % R::eights * 8 + i / 2 * 4 + i % 2 * 8 * R::step) * 4));
    return;
  }
  const unsigned from = stage + (run / 2 + lane % 4) * (2 * R::bytes);
#pragma unroll
  for (int q = 0; q < 2 * R::steps; ++q)
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      unsigned& to = a.at[before + q / 2][q % 2 * 2 + below];
      if (q >= R::rows * R::eights) {
        to = 0;
        continue;
      }
      to = take_pair<R, Number, Element>(from + q / R::eights * R::pieces * 16 +
                                             (q % R::eights * 8 + below * 8 * R::step) * R::bytes,
                                         run % 2 != 0);
    }
}

template <class Config, class Image, class Filter, class Body, class Args>
SINTER_DEVICE void run_image_rows(const Args& args) {
  using P = Problem<Config>;
  using S = ImageRowsShape<Config>;
  using R = typename S::R;
  static_assert(Config::shared_bytes == S::stages +
                                            Config::threads / 32 * Config::stages * R::stage_bytes +
                                            SharedMemory::lost);
  const SharedMemory all;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  hardware::grid_dependency_wait();
  EpilogueTile& epilogue_tile =
      reinterpret_cast<EpilogueTile*>(all.pointer + S::epilogue_tiles)[warp];
  unsigned stages = all.address + S::stages + warp * (Config::stages * R::stage_bytes);
  hardware::compute_here(stages);  // and not in each step
  GroupLoader<Config, Image> loader;
  for (int i = 0; i < Config::stages - 1; ++i) loader.load(args, warp, stages + i * R::stage_bytes);
  put_filter<Config, Filter>(args, all.pointer);
  hopper::fence_async_proxy();
  __syncthreads();
  const unsigned long long filter = S::Filter::descriptor(all.address);
  typename S::Fragments a;
  typename S::Product::Sums sums;
  typename P::Coord place;
  int stage = 0, row_of_image = 0;  // the number of the image's first row of results
#pragma unroll
  for (int i = 0; i < S::Fragments::steps; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) a.at[i][j] = 0;
#pragma unroll 1
  for (GroupWalk<Config> walk; walk.more(); walk.advance()) {
    if (walk.enters()) {
      place = walk.place(warp);
      row_of_image = walk.image(warp) * S::height();
    }
    wait_for_groups_but<Config::stages - 2>();
    __syncwarp();  // and all have read the stage before
    const int before = stage == 0 ? Config::stages - 1 : stage - 1;
    take_group<R, typename Config::Number, typename Image::Element>(stages + stage * R::stage_bytes,
                                                                    a);
    loader.load(args, warp, stages + before * R::stage_bytes);
    if (++stage == Config::stages) stage = 0;
    if (!walk.completes()) continue;
    wgmma::fence(sums, a);
    S::Product::template multiply<0, R::used>(sums, a, filter, false);
    wgmma::commit();
    place.at[S::y] = walk.row();
    const int x = static_cast<int>(place.at[S::x]), left = S::width() - x,
              first_row = (row_of_image + walk.row()) * S::width() + x;
    if constexpr (StoresRows<Body>) {
      PartColumns<Config, Body> columns;
      columns.fetch(args, typename P::Coord{}, S::first_column());
      PixelSources<Config, Body> sources;
      sources.fetch(args, place, left);
      wgmma::wait<0>(sums, a);
      recompute_pixels<Config, Body>(args, first_row, left, sums);
      if constexpr (StoresLines<Body>)
        store_lines<Config, Body>(args, place, first_row, left, columns, sums, epilogue_tile);
      else
        store_pixels<Config, Body>(args, place, first_row, left, columns, sources, sums,
                                   epilogue_tile);
    } else {
      wgmma::wait<0>(sums, a);
      recompute_pixels<Config, Body>(args, first_row, left, sums);
      store_pairs<Config, Body>(args, place, left, sums);
    }
  }
  wait_for_copies();
}

}  // namespace sinter::contraction
