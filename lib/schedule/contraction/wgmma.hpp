// How a contraction runs on tensor cores that take whole warpgroups (wgmma): which operands the
// TMA can load, tiles, clusters and the ring of stages; see
// codegen/device/family/contraction_wgmma.cuh. A pure function of the spec and the device model.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/tensor_map.hpp"
#include "plan/tuning.hpp"
#include "schedule/contraction/counted_products.hpp"
#include "schedule/contraction/wgmma_tiles.hpp"
#include "schedule/launch.hpp"
#include "schedule/packing.hpp"

namespace sinter {

// What a batch index adds to a coordinate for each of its steps.
struct BatchStep {
  int index = -1;
  std::int64_t step = 0;
};

// A spatial dim of a convolution's image, as TMA walks over it. Results are numbered within a
// phase: a strided data gradient has as many as its stride, others one. Of each phase: how many of
// the filter's taps it sees, the first of them, and by how much that one moves the base pixels.
struct WindowAxis {
  std::int64_t result = 1;           // pixels of the rows, or of k
  std::int64_t first = 0, step = 1;  // base pixel of result 0; from result to result
  std::int64_t tap_step = 1, offset_step = 0;
  int phase_index = -1;  // of the domain
  // Batch indices that move the base pixels, or -1: one that numbers parts of the image, so many
  // results each (blocks alone), and one that numbers the taps of a filter gradient.
  BatchStep part, tap;
  // Pixels of its taps are kept one tap after another, as those of a stride's planes are.
  bool apart = false;
  Dims taps = {1}, first_tap = {0}, first_offset = {0};
};

// See codegen/device/family/contraction_window.cuh.
struct ConvolutionWindow {
  std::vector<WindowAxis> axes;                                    // innermost first
  enum class Taps : std::uint8_t { k, columns, batch } taps_of{};  // what numbers the taps
  std::vector<int> tap_batch;  // batch: the domain's indices of the taps, outermost first
  std::int64_t channels = 0;
  Dims blocks;  // tiles are blocks of the axes' results, of which an image has so many; or empty
  std::vector<ResultBound> bounds;
};

// What TMA's instruction for pixels adds to their coordinates: the place of a tap; of pixels that
// stay in shared memory nothing, the plane of a stride, or what a tap that batch entries number
// moves them by.
enum class PixelOffsets : std::uint8_t { tap, none, plane, tap_of_batch };
inline PixelOffsets pixel_offsets(const ConvolutionWindow& w, bool resident, bool of_result) {
  if (!resident) return PixelOffsets::tap;
  const auto& axes = w.axes;
  if (std::ranges::any_of(axes, [](const WindowAxis& a) { return a.step > 1 || a.apart; }))
    return PixelOffsets::plane;
  const bool moved =
      !of_result && std::any_of(axes.begin() + 1, axes.end(),
                                [](const WindowAxis& a) { return a.tap.index >= 0; });
  return moved ? PixelOffsets::tap_of_batch : PixelOffsets::none;
}

// An operand that is loaded in boxes, or by im2col.
struct BoxedOperand {
  enum class Source : std::uint8_t {
    boxes,    // rows and k
    pixels,   // an image, im2col
    blocks,   // of an image
    images,   // rows and k, which is images that lie together, then their pixels
    filter,   // k is taps and channels; the taps are dims of the map
    shifted,  // rows and k, whose lines begin anywhere: by threads, without a map
    pages,    // rows, or k, lie in blocks that a table names: dims of the map are row of the block,
              // head and block
  } source = Source::boxes;
  std::vector<BatchStep> image_steps, channel_steps;  // pixels, filter
  std::vector<BatchStep> row_steps;                   // filter, where k is the fastest
  bool of_result = false;        // pixels: walked over in the window's order, but where results are
  std::vector<int> filter_axes;  // filter: of the window, whose taps are its dims 1..
  int gather = -1;               // pages: of KernelSpec::gathers
  std::int64_t page = 0;         // pages: rows of one
  int port = -1;
  int scale = -1;          // statement: what its elements are multiplied with, the same for a block
                           // of k; -1: nothing
  bool one_scale = false;  // for all rows of a batch entry
  bool k_fastest = true;   // in memory; else its row index is
  std::vector<int> batch;  // the domain's indices of the map's dims from the third on
  TensorMap map;
  // Of several products that share their sums: what stands behind it along k, each from `from` on.
  std::vector<BoxedOperand> behind;
  std::int64_t from = 0;

  // Of a gradient: results whose images are lines of the parts that their sums have.
  bool has_parts() const { return of_result && source == Source::pixels && !image_steps.empty(); }
  // Whether it is loaded by the same instructions as `other`, of another spec, but for the extents
  // and strides of the tensor, and the box.
  bool loads_like(const BoxedOperand& other) const {
    return source == other.source && port == other.port && scale == other.scale &&
           one_scale == other.one_scale && k_fastest == other.k_fastest && batch == other.batch &&
           map.type == other.map.type && map.swizzle == other.map.swizzle && from == other.from &&
           std::equal(behind.begin(), behind.end(), other.behind.begin(), other.behind.end(),
                      [](const BoxedOperand& x, const BoxedOperand& y) { return x.loads_like(y); });
  }
  // Those of `other`, in boxes as before.
  void take_tensor(const BoxedOperand& other) {
    map.dim = other.map.dim;
    map.stride = other.map.stride;
    map.offset = other.map.offset;
    for (std::size_t i = 0; i < behind.size(); ++i) behind[i].take_tensor(other.behind[i]);
  }
};

// What kernels of warpgroups have in common: the tile, the constants of their Config, and how
// results leave (contraction_store.cuh).
struct WarpgroupConfig : Launch {
  Tile tile;
  int operand_bytes = 2;
  int loaded_rows = 128;              // of A, by a tile
  bool promote_accumulators = false;  // add the sums of each stage in f32
  bool n_fastest = true;              // along which index the result lies in memory
  // The port whose results leave as they are summed, in whole rows (store_rows), and those that
  // differ from row to row and are read so; -1: through epilogue tiles of floats.
  int stored_rows = -1;
  // Of these, elements that lie together: columns of several indices leave in pieces (4 elements),
  // where products have the filter as their left operand; 1: rows begin or end anywhere.
  int stored_together = 8;
  bool stored_lines = false;  // channels first: rows, not columns, lie together, eight at a time
  std::vector<int> row_sources;
  bool packed_rows = false;  // rows that begin anywhere lie one behind another, and all exist
  bool stores_sums = false;  // of 16 bits; the epilogue does nothing else
  std::optional<BoxedOperand> result;  // set: TMA stores it (store_tile)
  int unroll = 1;                      // of the epilogue
  bool prefetch = false;  // what the epilogue reads of the tile comes to the cache early
  bool ahead = false;     // and to registers while the epilogue tile before leaves
  int rotate = 0;         // steps of k by which neighbouring tiles start apart
  int producer_registers = 40, consumer_registers = 232;
  Packing packing;          // of the epilogue
  CountedProducts counted;  // where a sum that is not finite is computed again
};

struct WgmmaConfig : WarpgroupConfig {
  BoxedOperand a, b;
  std::optional<BoxedOperand> b2;           // of a second product; the tile's columns are shared
  std::optional<ConvolutionWindow> window;  // of a convolution
  bool resident = false;                    // its pixels stay in shared memory for all taps
  int taps_each = 0;                        // of a consumer, in a filter gradient of that kind
  int taps_together = 1;                    // of one product
  int boxed_tiles = 0;        // clusters' tiles that boxes of Tile::boxed_m or _n make
  int loaded_depth = 0;       // elements of k that boxes have; 0: a stage's
  bool integers = false;      // factors and sums
  bool through_ring = false;  // results leave: leaves_through_ring
  bool scaled() const { return a.scale >= 0 || b.scale >= 0 || (b2 && b2->scale >= 0); }
};

// Threads bring an operand whose lines begin anywhere.
inline bool shifts_lines(const WgmmaConfig& e) {
  return e.a.source == BoxedOperand::Source::shifted || e.b.source == BoxedOperand::Source::shifted;
}
// Whether TMA loads an operand, and not threads: rows that a table names, or that begin anywhere.
inline bool loaded_by_tma(const KernelSpec& spec, const BoxedOperand& o, bool is_a) {
  return o.source != BoxedOperand::Source::shifted && !(is_a && spec.contraction().rows.gathers());
}
// Or they read the left one from shared memory.
inline bool loaded_by_threads(const WgmmaConfig& e) {
  return (e.operand_bytes == 4 && !e.a.k_fastest) || shifts_lines(e);
}

// The products of a convolution whose pixels stay have the filter as their left operand.
inline bool swaps_products(const WgmmaConfig& e) {
  return e.resident && e.taps_each == 0 && e.tile.swap_ab;
}

// What a plan was chosen from. Planning compares plans by the dozen and wants no texts: only who
// measures ranks the tiles and has hundreds of texts written.
struct TileChoice {
  std::string problem;
  std::vector<EstimatedTile> tiles;
  KernelChoice ranked() const;
};

struct WgmmaPlan {
  KernelSpec spec;  // the given one with its indices in the order that the kernel wants
  WgmmaConfig engine;
  TileChoice choice;
  bool tuned = false;  // the tile is the measured one, not the one estimated to be the fastest
  // Of the tile estimated to be the fastest, also where another one was measured to be: that one
  // takes no longer. So what is measured never changes which kernels there are.
  double microseconds = 0;
};

// The operand of a contraction as a tensor of two indices and batches, where TMA can load it: one
// of the two is contiguous, every other step a multiple of 16 bytes. `row`: its index of the
// domain, -1 where there is one row. `any_major`: also where its row index is contiguous and wgmma
// does not read it so.
std::optional<BoxedOperand> boxed(const KernelSpec& spec, const ProductOperand& operand, int row,
                                  bool any_major = false);
// The same of 16 bits where lines begin at no multiples of 16 bytes, so that threads load it.
std::optional<BoxedOperand> shifted(const KernelSpec& spec, const ProductOperand& operand, int row);
// A port as a tensor of rows, columns and batches, where columns lie together and TMA reaches it:
// every other step is a multiple of 16 bytes. Rows that have several indices lie one behind
// another.
struct IndexRange {
  int first, end;
};
struct SharedIndex {  // an index of which `group` neighbours share one
  int index = -1;
  std::int64_t group = 1;
};
std::optional<BoxedOperand> boxed_port(const KernelSpec& spec, int number, int batch,
                                       IndexRange rows, int column, SharedIndex shared = {});
// The same of a result that TMA stores: it writes whole pieces of 16 bytes, also where the columns
// end within one (seen on an H200: one column of 16 bits wrote over what lies behind it).
std::optional<BoxedOperand> boxed_result(const KernelSpec& spec, int number, int batch,
                                         IndexRange rows, int column, SharedIndex shared = {});
// The box that one instruction loads: `rows` of the tile's.
void set_box(BoxedOperand& operand, int rows);

// How factors of the types of a and b are summed, `depth` of them. False where it would not be
// right.
bool set_types(WgmmaConfig& engine, const ContractionSpec& contraction, std::int64_t depth);

// Whether wgmma reads operands of the type with either index fastest in shared memory. Those of
// tf32 and of 8 bits have k fastest.
bool takes_either_major(DataType type);

// Whether the tensor cores multiply two such operands as they are: floats or integers of 8 bits.
bool multiplied_as_bytes(DataType a, DataType b);

// The epilogue reads an element of the port for every element of the result.
bool of_whole_tile(const KernelSpec& spec, const KernelPort& port);

// With what was decided for another spec of the same structure and at least as many rows and
// columns; nothing where that does not hold. Operands are in boxes.
std::optional<WgmmaPlan> schedule_as(const WgmmaConfig& decided, const KernelSpec& spec,
                                     const DeviceModel& device);
// The same tiles with as many rows (or columns, whichever `other`, of the same structure, has not
// as many of) as the launch says, up to the tile's; nothing where the kernel cannot have them.
std::optional<WgmmaPlan> boxed_by_launch(const WgmmaConfig& decided, const KernelSpec& spec,
                                         const KernelSpec& other, const DeviceModel& device);
// Nothing where the device has no such tensor cores, or the operands' types or layouts are not for
// them. `tiles`: those that are known, to which the kernel's are added.
std::optional<WgmmaPlan> plan_wgmma(const KernelSpec& spec, const DeviceModel& device,
                                    const Tuning& tuning, KnownTiles& tiles);
inline std::optional<WgmmaPlan> plan_wgmma(const KernelSpec& spec, const DeviceModel& device,
                                           const Tuning& tuning) {
  KnownTiles none;
  return plan_wgmma(spec, device, tuning, none);
}

}  // namespace sinter
