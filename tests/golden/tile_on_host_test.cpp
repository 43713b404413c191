// The geometry of tiles in shared memory, compiled for the host: every element has a place of its
// own, every thread a part of its own, and the threads of a warp meet no bank twice.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace on_device {

// What NVRTC has built in; none of it is called here.
#define SINTER_DEVICE inline
#define asm(...) static_cast<void>(0)
unsigned __float_as_uint(float);
float __uint_as_float(unsigned);
double __dadd_rn(double, double);
float __double2float_rn(double), __double2float_rz(double);
int __double2int_rn(double), __float2int_rn(float);
long long __double2ll_rn(double), __float2ll_rn(float);
unsigned long __cvta_generic_to_shared(const void*);
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline uint2 threadIdx;

#include "sinter/device/core/misaligned_tile.cuh"
#undef asm

}  // namespace on_device

namespace {

namespace device = on_device::sinter;

template <int tile_along_, int tile_across_, int width_, int lanes_, long long extent_across,
          long long extent_along = 1 << 20, int threads_ = 256, int tile_through_ = 1>
struct Config {
  using Index = int;
  using Extent = device::Dims<extent_across, extent_along, 1 << 10>;
  static constexpr int along = 1, across = 0, threads = threads_;
  static constexpr int through = 2, tile_through = tile_through_;
  static constexpr int tile_along = tile_along_, tile_across = tile_across_;
  static constexpr int width = width_, lanes = lanes_;
};
template <long long step, long long matrix_step = 0>
struct Access : device::Strided {
  using Stride = device::Dims<1, step, matrix_step>;
};

// How often the hardware passes over the banks for one instruction of a warp: 128 bytes at a time,
// and again for every further word in the same bank.
int passes(const std::vector<unsigned>& addresses, unsigned bytes) {
  const std::size_t together = 128 / std::max(bytes, 4u);
  int sum = 0;
  for (std::size_t from = 0; from < addresses.size(); from += together) {
    std::set<unsigned> words[32];
    for (std::size_t i = from; i < std::min(addresses.size(), from + together); ++i)
      for (unsigned w = addresses[i] / 4; w <= (addresses[i] + bytes - 1) / 4; ++w)
        words[w % 32].insert(w);
    std::size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.size());
    sum += static_cast<int>(most);
  }
  return sum;
}

template <class C, class Element, int vector, long long step, long long matrix_step = 0>
void check_tile(bool free_of_conflicts) {
  using Tile = device::Tile<C, Access<step, matrix_step>, Element, vector>;
  constexpr int rows = Tile::rows, columns = C::tile_across, size = Tile::size;
  const int memory = static_cast<int>(sizeof(Tile::memory));
  CAPTURE(rows, columns, C::width, C::lanes, size, vector, Tile::piece, Tile::gap, memory);
  CHECK(memory <= 48 << 10);

  // Elements do not overlap, and threads find them where the moves put them.
  std::vector<int> owner(static_cast<std::size_t>(memory), -1);
  bool own = true;
  for (int e = 0; e < rows * columns; ++e)
    for (int b = 0; b < size; ++b)
      own &= std::exchange(owner[Tile::at(e) + static_cast<unsigned>(b)], e) < 0;
  CHECK(own);
  std::vector<int> seen(static_cast<std::size_t>(rows * columns));
  bool found = true;
  const int places = rows / C::width * columns;
  for (int p = 0; p < places; ++p) {
    const device::Spot spot = device::spot_of<C>(p);
    for (int i = 0; i < C::width; ++i) {
      const int row = spot.matrix * C::tile_along + spot.pack * C::width + i;
      const int e = row * columns + spot.column;
      found &= Tile::at(spot) + static_cast<unsigned>(i * Tile::pitch) == Tile::at(e);
      ++seen[static_cast<std::size_t>(e)];
    }
  }
  CHECK(found);
  CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  // A move's pieces are aligned and hold its elements side by side.
  bool whole = true;
  for (int e = 0; e < rows * columns; e += vector)
    for (int i = 0; i < Tile::pieces; ++i) {
      whole &= Tile::at(e, i) % Tile::piece == 0;
      for (unsigned j = 0; j < Tile::piece / size; ++j)
        whole &= Tile::at(e, i) + j * size == Tile::at(e + i * (Tile::piece / size) + j);
    }
  CHECK(whole);
  // The moves of all threads take what lies inside of the domain, from where it lies.
  using Coord = device::Coordinates<int, typename C::Extent>;
  const device::Corner<Coord, false> corner{{}, C::tile_along, columns, (C::tile_through + 1) / 2};
  int moved = 0;
  bool right = true;
  for (on_device::threadIdx.x = 0; on_device::threadIdx.x < C::threads; ++on_device::threadIdx.x)
    Tile::for_moves(corner, [&](int, unsigned first, int offset) {
      const int from = static_cast<int>(first), row = from / columns;
      right &= row / C::tile_along < corner.matrices;
      right &= offset == row / C::tile_along * Tile::matrix_step + row % C::tile_along * step +
                             from % columns;
      moved += vector;
    });
  CHECK(right);
  CHECK(moved == corner.matrices * C::tile_along * columns);

  if (!free_of_conflicts) return;
  const auto ideal = [](int bytes) { return std::max(1, 32 * bytes / 128); };
  int most_packs = 0, most_moves = 0;
  for (int p = 0; p + 32 <= places; p += 32) {
    std::vector<unsigned> addresses;
    for (int i = p; i < p + 32; ++i) addresses.push_back(Tile::at(device::spot_of<C>(i)));
    most_packs = std::max(most_packs, passes(addresses, size));
  }
  for (int m = 0; m + 32 <= Tile::moves; m += 32) {
    std::vector<unsigned> addresses;
    for (int i = m; i < m + 32; ++i) addresses.push_back(Tile::at(i * vector, 0));
    most_moves = std::max(most_moves, passes(addresses, Tile::piece));
  }
  CHECK(most_packs == ideal(size));
  CHECK(most_moves == ideal(Tile::piece));
}

// A matrix of rows `step` apart whose elements are their own numbers: every pack of every tile
// holds what it should, and nothing outside of the rows is read.
template <class C, class Element, long long step>
void check_misaligned_tile() {
  constexpr int columns = C::Extent::at(C::across), extent = C::Extent::at(C::along);
  using Tile = device::MisalignedTile<C, Access<step>, Element>;
  using Coord = device::Coordinates<int, typename C::Extent>;
  const auto number = [&](long long row, int column) {
    return static_cast<Element>((row * step + column) * 31 % 251);
  };
  std::vector<Element> matrix(static_cast<std::size_t>(extent * step));
  for (int r = 0; r < extent; ++r)
    for (int c = 0; c < step; ++c) matrix[static_cast<std::size_t>(r * step + c)] = number(r, c);
  Tile tile;
  for (int from = 0; from < extent + C::width; from += C::tile_along)
    for (int left = 0; left < columns; left += C::tile_across) {
      device::Corner<Coord, false> corner{};
      corner.c.at[C::across] = left;
      corner.c.at[C::along] = from;
      corner.columns = std::min<int>(C::tile_across, columns - left);
      const int offset = Tile::first_element(corner);
      tile.start = offset * Tile::size & 15;
      bool fits = true, right = true;
      for (on_device::threadIdx.x = 0; on_device::threadIdx.x < C::threads;
           ++on_device::threadIdx.x)
        Tile::for_pieces(corner, offset, [&](int to, int row, int behind, int bytes) {
          const long long at = row * Tile::size + behind;
          fits &= at % 16 == 0 && to % 16 == 0 && bytes > 0 && bytes <= 16 && at >= 0 &&
                  at + bytes <= extent * step * Tile::size &&
                  to + 16 <= static_cast<int>(sizeof tile.memory);
          if (fits)
            std::memcpy(tile.memory + to, reinterpret_cast<char*>(matrix.data()) + at,
                        static_cast<std::size_t>(bytes));
        });
      for (int p = 0; p < C::tile_along / C::width * C::tile_across; ++p)
        for (int misalignment = 0; misalignment < C::width; ++misalignment) {
          device::Spot spot = device::spot_of<C>(static_cast<unsigned>(p));
          spot.misalignment = misalignment;
          const int row = from + spot.pack * C::width - misalignment;
          if (spot.column >= corner.columns || row < 0 || row + C::width > extent) continue;
          device::Pack<Element, C::width> pack;
          tile.read(spot, pack);
          for (int e = 0; e < C::width; ++e)
            right &= pack.at[e] == number(row + e, left + spot.column);
        }
      CAPTURE(from, left, step, C::width);
      CHECK(fits);
      CHECK(right);
    }
}

TEST_CASE("misaligned tiles hold rows that start anywhere") {
  check_misaligned_tile<Config<64, 32, 8, 8, 67, 150>, short, 67>();
  check_misaligned_tile<Config<128, 68, 8, 8, 131, 200>, short, 136>();
  check_misaligned_tile<Config<32, 32, 4, 8, 61, 99>, float, 61>();
  check_misaligned_tile<Config<128, 36, 16, 8, 41, 170>, unsigned char, 41>();
}

TEST_CASE("tiles keep every element once and meet no bank twice") {
  using device::bf16, device::f32, device::f64, device::i8;
  check_tile<Config<64, 128, 8, 8, 8192>, bf16, 8, 8192>(true);
  check_tile<Config<64, 64, 4, 8, 8192>, f32, 4, 8192>(true);
  check_tile<Config<128, 128, 16, 8, 8192>, i8, 16, 8192>(true);
  check_tile<Config<64, 64, 8, 8, 8192>, f32, 4, 8192>(true);
  check_tile<Config<128, 256, 16, 8, 8192, 1 << 20, 512>, i8, 16, 8192>(true);
  check_tile<Config<64, 64, 2, 32, 8192>, bf16, 2, 8194>(true);
  check_tile<Config<64, 64, 1, 32, 7003>, bf16, 1, 7003>(true);
  check_tile<Config<64, 32, 1, 32, 7003>, f32, 1, 7003>(true);
  check_tile<Config<64, 16, 2, 8, 8192>, f64, 2, 8192>(true);
  // Sixteen packs side by side need lines closer than what is moved at once: two passes more.
  check_tile<Config<128, 128, 8, 16, 8192, 1 << 20, 512>, bf16, 8, 8192>(false);
  check_tile<Config<64, 128, 4, 16, 8192, 1 << 20, 512>, f32, 4, 8192>(false);
  check_tile<Config<64, 49, 8, 8, 49>, bf16, 8, 49>(false);
  check_tile<Config<256, 3, 8, 8, 3>, bf16, 8, 3>(false);
  check_tile<Config<4096, 3, 8, 16, 3, 1 << 20, 512>, bf16, 8, 3>(false);
  check_tile<Config<64, 200, 8, 8, 200, 1 << 20, 416>, bf16, 8, 200>(false);
  check_tile<Config<100, 60, 4, 25, 60>, bf16, 4, 64>(false);
  check_tile<Config<32, 8, 1, 32, 65>, f64, 1, 65>(false);
  check_tile<Config<1023, 5, 1, 1023, 5>, i8, 1, 5>(false);
  // Several matrices, which follow one another in memory or do not.
  check_tile<Config<32, 32, 8, 4, 32, 32, 512, 16>, bf16, 8, 32, 1024>(true);
  check_tile<Config<32, 32, 8, 4, 32, 32, 512, 5>, bf16, 8, 40, 2000>(true);
  check_tile<Config<16, 48, 4, 4, 48, 16, 512, 7>, f32, 4, 48, 768>(true);
  check_tile<Config<16, 48, 8, 2, 48, 16, 512, 7>, bf16, 8, 48, 800>(true);
  check_tile<Config<32, 49, 8, 4, 49, 32, 512, 10>, bf16, 8, 49, 1568>(false);
  check_tile<Config<33, 31, 1, 33, 31, 33, 512, 16>, bf16, 8, 31, 1023>(false);
  check_tile<Config<33, 31, 1, 33, 31, 33, 512, 8>, bf16, 1, 31, 1025>(false);
  check_tile<Config<16, 16, 16, 1, 16, 16, 512, 128>, i8, 16, 16, 256>(false);
}

}  // namespace
