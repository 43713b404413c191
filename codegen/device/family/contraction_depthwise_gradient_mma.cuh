// The filter gradient of a depthwise convolution of 16-bit numbers on tensor cores, with operands
// that TMA brings: sm_90a.
//
// Of one channel, with x the image's pixels and dy the result's gradient,
//
//   dw(r, s) = sum over rows y and columns p of dy(y, p) x(y + r, p + s).
//
// For one row i of pixels this is a product of matrices whose k are 16 columns p: the left operand
// holds the row moved by each s, h(s, p) = x(i, p + s) (a Hankel matrix), the right one the rows of
// dy that meet row i at the taps r, d(p, r) = dy(i - r, p). A multiplication m16n8k16 takes two
// rows of pixels, i and i + 1, the upper and the lower half of its left operand, and eight rows of
// dy, from i + 1 up: column n is tap r = n - 1 of the upper and r = n of the lower half. Of 7 x 7
// taps 98 of the 128 sums are wanted, and one accumulator holds them all for the whole walk. (On
// ordinary cores the multiplications of 7 x 7 taps take twice as long as memory brings the
// operands.)
//
// A warp has 8 channels. It reads 16 bytes of a pixel, all of its channels, and mixes the words of
// two pixels to registers of each channel. Which columns p a lane's elements of k are is the
// kernel's choice, as it is the same for both operands: lane 4 g + t has t, t + 4, t + 8, t + 12,
// so that the lanes of a quarter of a warp read neighbouring pixels, or few and the same.
//
// A thread block walks down the images of its batch entry, one tile of columns after another. A
// warp has TMA fill two rings of stages, two rows of the image or of dy each; rows of dy stay for
// four steps, and three steps before a walk bring rows of dy alone. A row is a box, which ends
// where the image does; what lies behind it in shared memory stays zero. Other zeros outside are
// TMA's. Sums that are NaN are taken again on ordinary cores, since those zeros make NaN of numbers
// that are not finite.
//
// Config is that of contraction_depthwise.cuh with lanes = warps that multiply, each = 8, rows = 2,
// columns = 16 * across, `across` tiles, `stages` of dy, and what a row has of lines, `image_line`
// and `gradient_line`, of which boxes bring `image_box` and `gradient_box`. Image and Gradient have
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
  static_assert(Config::threads == 32 * lanes + 32 && Config::each == 8 && Config::rows == 2 &&
                Config::columns == width * across && S::looped_taps == 1);
  static_assert(Rows::step == 1 && Rows::apart == 1 && Rows::divisor == 1 && Rows::taps <= 7);
  static_assert(Columns::step == 1 && Columns::apart == 1 && Columns::divisor == 1 &&
                Columns::taps <= 8);
  // Rows of a box lie an odd number of times four lines apart, which keeps neighbouring rows in
  // other banks.
  static_assert(Config::image_line % 8 == 4 && Config::gradient_line % 8 == 4);
  static_assert(Config::image_line >= width * across + 7 &&
                Config::gradient_line >= width * across);

  static constexpr int kept = 3;  // steps for which rows of dy stay
  static constexpr int up(int bytes) { return (bytes + 1023) / 1024 * 1024; }
  static constexpr int image_stages = Config::stages - kept;
  static_assert(image_stages > 1);
  static constexpr int image_row = Config::image_line * Lines<lanes>::bytes,
                       gradient_row = Config::gradient_line * Lines<lanes>::bytes,
                       image_stage = up(2 * image_row), gradient_stage = up(2 * gradient_row);
  using ImagePipe = Pipeline<image_stages>;
  using GradientPipe = Pipeline<Config::stages>;
  static constexpr int gradient = image_stages * image_stage,
                       barriers = gradient + Config::stages * gradient_stage;
  // Sums, channels fastest, lie where the stages were; taps of one channel in different banks.
  static constexpr int pitch = channels + 1;
  static_assert(S::taps * pitch * 4 <= barriers);

  // Image rows of the first and behind the last step.
  static constexpr int steps = (Rows::extent + 1) / 2;
  static constexpr int tiles = (S::extent_of(Columns::pixel_index) + Config::columns - 1) /
                               Config::columns,
                       walks =
                           static_cast<int>(P::product(P::first_k, Config::k - S::spatial)) * tiles;
};

// What a lane needs of 8 columns, half of a multiplication's k: of two rows of pixels and a row of
// dy two pixels each. Those of the next columns come while these are multiplied.
template <class Config, class Element>
struct GradientOperands {
  using G = GradientSteps<Config>;
  uint4 x[2][2], d[2];

  // `half`: of a tile's columns.
  template <class Lane>
  SINTER_DEVICE void load(const Lane& pixels, int image_at, const Lane& gradient, int gradient_at,
                          int half) {
    constexpr int line = Config::image_line / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int fours = 2 * half + i;
      x[0][i] = pixels.get(fours, image_at);
      x[1][i] = pixels.get(fours + line, image_at);
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
  clear_stages<Config::threads>(memory.pointer, G::barriers);
  __syncthreads();
  hardware::grid_dependency_wait();
  typename G::ImagePipe::State of_image;
  typename G::GradientPipe::State of_gradient;
  if (warp == lanes) {
    if (lane < 2) {  // one for each row
#pragma unroll 1
      for (int walk = 0; walk < G::walks; ++walk) {
        typename S::Coord c = batch;
        unravel<P::first_k, Config::k - S::spatial>(static_cast<Index>(walk / G::tiles), c);
        const int column = walk % G::tiles * Config::columns;
#pragma unroll 1
        for (int step = -G::kept; step < G::steps; ++step) {
          const int row = 2 * step + lane;
          constexpr int line = Lines<lanes>::bytes;
          const auto to = [&](int stage_bytes) {
            return memory.address + static_cast<unsigned>(stage_bytes);
          };
          gradient_pipe.acquire(of_gradient);
          if (lane == 0) gradient_pipe.expect(of_gradient, 2 * Config::gradient_box * line);
          Gradient::load(
              args, c,
              to(G::gradient + of_gradient.stage * G::gradient_stage + lane * G::gradient_row),
              gradient_pipe.full(of_gradient), first_channel, column, row - G::Rows::base);
          of_gradient.advance();
          if (step < 0) continue;
          image_pipe.acquire(of_image);
          if (lane == 0) image_pipe.expect(of_image, 2 * Config::image_box * line);
          Image::load(args, c, to(of_image.stage * G::image_stage + lane * G::image_row),
                      image_pipe.full(of_image), first_channel, column + G::Columns::base, row);
          of_image.advance();
        }
      }
    }
  } else {
    const int g = lane / 4, t = lane % 4;
    float sums[8][4] = {};
    const LaneLines<lanes> pixels(memory.pointer, t + g, warp),
        gradient(memory.pointer + G::gradient, t + (1 - g % 2) * Config::gradient_line, warp);
    const bool exists = first_channel + warp * 8 < S::all_channels;
    int filled = 0;  // steps, up to those that are kept
#pragma unroll 1
    for (int walk = 0; walk < G::walks; ++walk) {
#pragma unroll 1
      for (int step = -G::kept; step < G::steps; ++step) {
        gradient_pipe.wait(of_gradient);
        if (step >= 0) image_pipe.wait(of_image);
        if (step >= 0 && exists) {
          int before = of_gradient.stage - g / 2;  // of the lane's row of dy
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
    const auto add = [&](int half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = 2 * t + i - 1 + half, s = g;
        if (r < 0 || r >= G::Rows::taps || s >= G::Columns::taps) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          float& total = totals[(r * G::Columns::taps + s) * G::pitch + warp * 8 + e];
          total = half == 0 ? sums[e][i] : total + sums[e][2 + i];
        }
      }
    };
    add(0);
    __syncwarp();
    add(1);
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
#pragma unroll 1
      for (int e = 0; e < width; ++e) {
        float& total = totals[tap * G::pitch + channel + e];
        if (total != total)
          total = gradient_alone<Config, Gradient, Image>(args, neighbour<Config::channel>(c, e));
      }
#pragma unroll
      for (int e = 0; e < width; ++e) sum[e] = totals[tap * G::pitch + channel + e];
      finish<Config, Body, Config::channel>(args, c, sum);
    }
  }
}

}  // namespace sinter::depthwise
