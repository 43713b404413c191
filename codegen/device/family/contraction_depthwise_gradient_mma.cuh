// The filter gradient of a depthwise convolution of 16-bit numbers on tensor cores, with operands
// that TMA brings: sm_90a.
//
// Of one channel, with x the image's pixels and dy the result's gradient,
//
//   dw(r, s) = sum over rows y and columns p of dy(y, p) x(y + r, p + s).
//
// For one row i of pixels this is a product of matrices whose k are 16 columns p: the left operand
// holds the row moved by each s, h(s, p) = x(i, p + s) (a Hankel matrix), the right one the rows of
// dy that meet row i at the taps r, d(p, r) = dy(i - r, p). An mma m16n8k16 takes as many
// rows of pixels as fit the 16 rows of its left operand, from i on, and eight rows of dy, from the
// last of them up: column n is tap r = n - (rows - 1) of the first, one more of each below. Of 7 x
// 7 taps two rows are 98 of the 128 sums, of 5 x 5 three are 75, and one accumulator holds them all
// for the whole walk. (On CUDA cores the multiplications of 7 x 7 taps take twice as long as
// memory brings the operands.)
//
// A warp has 8 channels. It reads 16 bytes of a pixel, all of its channels, and mixes the words of
// two pixels to registers of each channel. Which columns p a lane's elements of k are is the
// kernel's choice, as it is the same for both operands: lane 4 g + t has t, t + 4, t + 8, t + 12,
// so that the lanes of a quarter of a warp read neighbouring pixels, or few and the same.
//
// A thread block walks down the images of its batch entry, one tile of columns after another. A
// warp has TMA fill two rings of stages, `rows` of the image or of dy each; rows of dy stay for
// some steps, as many of which bring rows of dy alone before a walk. A row is a box, which ends
// where the image does; what lies behind it in shared memory stays zero. Other zeros outside are
// TMA's. Sums that are NaN are taken again on CUDA cores, since those zeros make NaN of numbers
// that are not finite.
//
// Config is that of contraction_depthwise.cuh with lanes = warps that multiply, each = 8, `rows` of
// a step, columns = 16 * across, `across` tiles, `stages` of dy, and what a row has of lines,
// `image_line` and `gradient_line`, of which boxes bring `image_box` and `gradient_box`. Image and
// Gradient have
// load(args, coordinates, to, barrier, channel, column, row), too.
#pragma once
#include "sinter/device/core/warp_matrix.cuh"
#include "sinter/device/engine/shared_memory.cuh"
#include "sinter/device/family/contraction_depthwise_boxes.cuh"
#include "sinter/device/family/contraction_depthwise_gradient.cuh"

namespace sinter::depthwise {

template <class Config>
struct GradientSteps {
  using S = Shape<Config>;
  using P = typename S::P;
  using Rows = typename Config::Rows;
  using Columns = typename Config::Columns;
  static constexpr int lanes = Config::lanes, across = Config::across, width = 16,
                       channels = lanes * 8;
  static constexpr int rows = Config::rows;  // of a step
  static_assert(Config::threads == 32 * lanes + 32 && Config::each == 8 &&
                Config::columns == width * across && S::looped_taps == 1);
  static_assert(Rows::step == 1 && Rows::apart == 1 && Rows::divisor == 1 &&
                rows + Rows::taps <= 9);
  static_assert(Columns::step == 1 && Columns::apart == 1 && Columns::divisor == 1);
  // Rows of dy lie an odd number of times four lines apart, which keeps neighbouring rows in other
  // banks, and so do two rows of the image; of more, one begins in the middle of eight moves.
  static_assert(Config::image_line % 4 == 0 && Config::gradient_line % 8 == 4);

  // Rows of the left operand: each move of a row, then those of the next row.
  static constexpr int moves = rows == 2 ? 8 : Columns::taps;
  static_assert(rows * moves <= 16 && Columns::taps <= moves);
  static constexpr SINTER_DEVICE int row_of(int m) { return m / moves < rows ? m / moves : 0; }
  static constexpr SINTER_DEVICE int move_of(int m) { return m % moves; }
  static_assert(Config::image_line >= width * across + moves - 1 &&
                Config::gradient_line >= width * across);

  // Steps for which rows of dy stay.
  static constexpr int kept = (Rows::taps - 1 + rows - 1) / rows;
  static constexpr int up(int bytes) { return (bytes + 1023) / 1024 * 1024; }
  static constexpr int image_stages = Config::stages - kept;
  static_assert(image_stages > 1);
  static constexpr int image_row = Config::image_line * Lines<lanes>::bytes,
                       gradient_row = Config::gradient_line * Lines<lanes>::bytes,
                       image_stage = up(rows * image_row), gradient_stage = up(rows * gradient_row);
  using ImagePipe = Pipeline<image_stages>;
  using GradientPipe = Pipeline<Config::stages>;
  static constexpr int gradient = image_stages * image_stage,
                       barriers = gradient + Config::stages * gradient_stage;
  // Sums, channels fastest, lie where the stages were; taps of one channel in different banks.
  static constexpr int pitch = channels + 1;
  static_assert(S::taps * pitch * 4 <= barriers);

  // Image rows of the first and behind the last step.
  static constexpr int steps = (Rows::extent + rows - 1) / rows;
  static constexpr int tiles = (S::extent_of(Columns::pixel_index) + Config::columns - 1) /
                               Config::columns,
                       walks =
                           static_cast<int>(P::product(P::first_k, Config::k - S::spatial)) * tiles;
};

// What a lane needs of 8 columns, half of an MMA's k: of two rows of the left operand and
// a row of dy two pixels each. Those of the next columns come while these are multiplied.
template <class Config, class Element>
struct GradientOperands {
  using G = GradientSteps<Config>;
  uint4 x[2][2], d[2];

  // `half`: of a tile's columns.
  template <class Lane>
  SINTER_DEVICE void load(const Lane (&pixels)[2], int image_at, const Lane& gradient,
                          int gradient_at, int half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int fours = 2 * half + i;
      x[0][i] = pixels[0].get(fours, image_at);
      x[1][i] = pixels[1].get(fours, image_at);
      d[i] = gradient.get(fours, gradient_at);
    }
  }
  SINTER_DEVICE void multiply(float (&sums)[8][4]) const {
    const auto channels = [&](auto word, float(&low)[4], float(&high)[4]) {
      const unsigned u = word(x[0][0]), v = word(x[0][1]), w = word(x[1][0]), z = word(x[1][1]),
                     p = word(d[0]), q = word(d[1]);
      warp_matrix::multiply_half(Element{}, low, warp_matrix::low_halves(u, v),
                                 warp_matrix::low_halves(w, z), warp_matrix::low_halves(p, q));
      warp_matrix::multiply_half(Element{}, high, warp_matrix::high_halves(u, v),
                                 warp_matrix::high_halves(w, z), warp_matrix::high_halves(p, q));
    };
    channels([](const uint4& u) { return u.x; }, sums[0], sums[1]);
    channels([](const uint4& u) { return u.y; }, sums[2], sums[3]);
    channels([](const uint4& u) { return u.z; }, sums[4], sums[5]);
    channels([](const uint4& u) { return u.w; }, sums[6], sums[7]);
  }
};

template <class Config, class Gradient, class Image, class Body, class Args>
SINTER_DEVICE void run_gradient_mma(const Args& args) {
  using G = GradientSteps<Config>;
  using S = typename G::S;
  using P = typename S::P;
  using Index = typename Config::Index;
  using Operands = GradientOperands<Config, typename Image::Element>;
  constexpr int lanes = G::lanes, taps = S::taps, channels = G::channels;
  static_assert(Config::shared_bytes ==
                G::barriers + G::ImagePipe::bytes + G::GradientPipe::bytes + SharedMemory::lost);
  const SharedMemory memory;
  const typename G::ImagePipe image_pipe{memory.address + G::barriers};
  const typename G::GradientPipe gradient_pipe{image_pipe.barriers + G::ImagePipe::bytes};
  const int thread = static_cast<int>(threadIdx.x), warp = __shfl_sync(~0u, thread / 32, 0),
            lane = thread % 32, block = static_cast<int>(blockIdx.x);
  const int first_channel = block % S::channel_blocks * channels;
  typename S::Coord batch;
  unravel<0, Config::batch - 1>(static_cast<Index>(block / S::channel_blocks), batch);
  if (thread == 0) {
    image_pipe.init(1, lanes);
    gradient_pipe.init(1, lanes);
    hopper::barriers_are_ready();
  }
  __syncthreads();
  hardware::grid_dependency_wait();
  typename G::ImagePipe::State of_image;
  typename G::GradientPipe::State of_gradient;
  if (warp == lanes) {
    if (lane < G::rows) {  // one for each row
#pragma unroll 1
      for (int walk = 0; walk < G::walks; ++walk) {
        typename S::Coord c = batch;
        unravel<P::first_k, Config::k - S::spatial>(static_cast<Index>(walk / G::tiles), c);
        const int column = walk % G::tiles * Config::columns;
#pragma unroll 1
        for (int step = -G::kept; step < G::steps; ++step) {
          const int row = G::rows * step + lane;
          constexpr int line = Lines<lanes>::bytes;
          const auto to = [&](int stage_bytes) {
            return memory.address + static_cast<unsigned>(stage_bytes);
          };
          gradient_pipe.acquire(of_gradient);
          if (lane == 0) gradient_pipe.expect(of_gradient, G::rows * Config::gradient_box * line);
          Gradient::load(
              args, c,
              to(G::gradient + of_gradient.stage * G::gradient_stage + lane * G::gradient_row),
              gradient_pipe.full(of_gradient), first_channel, column, row - G::Rows::base);
          of_gradient.advance();
          if (step < 0) continue;
          image_pipe.acquire(of_image);
          if (lane == 0) image_pipe.expect(of_image, G::rows * Config::image_box * line);
          Image::load(args, c, to(of_image.stage * G::image_stage + lane * G::image_row),
                      image_pipe.full(of_image), first_channel, column + G::Columns::base, row);
          of_image.advance();
        }
      }
    }
  } else {
    // What boxes leave out of the rows, while the first are on their way.
    clear_behind<32 * lanes>(
        G::image_stages * G::rows,
        [&](int i) {
          return memory.pointer + i / G::rows * G::image_stage + i % G::rows * G::image_row;
        },
        Config::image_box * Lines<lanes>::bytes, G::image_row);
    clear_behind<32 * lanes>(
        Config::stages * G::rows,
        [&](int i) {
          return memory.pointer + G::gradient + i / G::rows * G::gradient_stage +
                 i % G::rows * G::gradient_row;
        },
        Config::gradient_box * Lines<lanes>::bytes, G::gradient_row);
    hopper::wait_at<1, 32 * lanes>();
    const int g = lane / 4, t = lane % 4;
    float sums[8][4] = {};
    // Of dy, up from the step's last; those that no row of pixels meets are not read.
    const int up = g < G::rows * (G::kept + 1) ? g : 0;
    const auto pixels_of = [&](int m) {
      return LaneLines<lanes>(memory.pointer, t + G::move_of(m) + G::row_of(m) * Config::image_line,
                              warp);
    };
    const LaneLines<lanes> pixels[2] = {pixels_of(g), pixels_of(g + 8)},
                           gradient(memory.pointer + G::gradient,
                                    t + (G::rows - 1 - up % G::rows) * Config::gradient_line, warp);
    const bool exists = first_channel + warp * 8 < S::all_channels;
    int filled = 0;  // steps, up to those that are kept
#pragma unroll 1
    for (int walk = 0; walk < G::walks; ++walk) {
#pragma unroll 1
      for (int step = -G::kept; step < G::steps; ++step) {
        gradient_pipe.wait(of_gradient);
        if (step >= 0) image_pipe.wait(of_image);
        if (step >= 0 && exists) {
          int before = of_gradient.stage - up / G::rows;  // of the lane's row of dy
          if (before < 0) before += Config::stages;
          const int image_at = of_image.stage * G::image_stage,
                    gradient_at = before * G::gradient_stage;
          Operands now, next;
          now.load(pixels, image_at, gradient, gradient_at, 0);
#pragma unroll
          for (int half = 0; half < 2 * G::across; ++half) {
            if (half + 1 < 2 * G::across)
              next.load(pixels, image_at, gradient, gradient_at, half + 1);
            now.multiply(sums);
            now = next;
          }
        }
        __syncwarp();
        if (step >= 0) {
          image_pipe.release(of_image);
          of_image.advance();
        }
        if (filled == G::kept)
          gradient_pipe.release_stage(of_gradient.stage >= G::kept
                                          ? of_gradient.stage - G::kept
                                          : of_gradient.stage - G::kept + Config::stages);
        else
          ++filled;
        of_gradient.advance();
      }
    }
    // Every stage has been read by now: by this warp, and by the others behind the barrier.
    hopper::wait_at<1, 32 * lanes>();
    float* const totals = reinterpret_cast<float*>(memory.pointer);  // taps, channels
    // Sums of one of the rows of pixels, whose taps no two lanes share; the first row that has a
    // tap sets its total.
    const auto add = [&](int row, int half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int m = g + 8 * half, r = 2 * t + i - (G::rows - 1) + row, s = G::move_of(m);
        if (m / G::moves != row || r < 0 || r >= G::Rows::taps || s >= G::Columns::taps) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          float& total = totals[(r * G::Columns::taps + s) * G::pitch + warp * 8 + e];
          total = row == 0 ? sums[e][2 * half + i] : total + sums[e][2 * half + i];
        }
      }
    };
#pragma unroll
    for (int row = 0; row < G::rows; ++row) {
      add(row, 0);
      add(row, 1);
      __syncwarp();
    }
    hopper::wait_at<1, 32 * lanes>();
    constexpr int width = Config::width, packs = channels / width;
#pragma unroll 1
    for (int i = thread; i < taps * packs; i += 32 * lanes) {
      // Where channels do not lie together, taps do.
      const int tap = width == 1 ? i % taps : i / packs,
                channel = width == 1 ? i / taps : i % packs * width;
      if (first_channel + channel >= S::all_channels) continue;
      typename S::Coord c = batch;
      c.at[Config::channel] = first_channel + channel;
      S::set_taps(List<>{}, c, 0, tap);
      float sum[width];
      const float* const own = totals + tap * G::pitch + channel;
#pragma unroll
      for (int e = 0; e < width; ++e) sum[e] = own[e];
      bool finite = true;
#pragma unroll
      for (int e = 0; e < width; ++e) finite &= sum[e] == sum[e];
      if (!finite) {
#pragma unroll
        for (int e = 0; e < width; ++e)
          if (sum[e] != sum[e])
            sum[e] =
                gradient_alone<Config, Gradient, Image>(args, neighbour<Config::channel>(c, e));
      }
      finish<Config, Body, Config::channel>(args, c, sum);
    }
  }
}

}  // namespace sinter::depthwise
