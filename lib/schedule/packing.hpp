// How a kernel moves its operands: several neighbours along one index of the domain at a time,
// where memory lies so. A pure function of the spec.
#pragma once
#include <algorithm>
#include <vector>

#include "plan/kernel_spec.hpp"

namespace sinter {

// What a thread holds of a port at one vector of the domain.
struct PortPack {
  enum class Kind : std::uint8_t {
    apart,    // nothing: element by element, where the body asks for it
    pack,     // neighbours that lie one after another
    same,     // one element for all neighbours
    staged,   // neighbours out of a tile in shared memory; see tiling.hpp
    shifted,  // neighbours cut out of the aligned pieces around them
    each,     // neighbours fetched one by one
    part,     // what port `into` has where this one has nothing, and lies in its pack
  } kind = Kind::apart;
  bool weight = false;  // rowwise: the same for all rows
  bool late = false;    // rowwise: the same for many rows, and fetched by the phase that needs it
  bool early = false;   // rowwise: worth asking for while the kernel before still runs
  int into = -1;        // part
  // pack, staged: elements that start at a multiple of their joint size, a power of two
  int aligned = 1;
};

// Whether a thread holds something for the port itself.
constexpr bool has_pack(const PortPack& p) {
  return p.kind != PortPack::Kind::apart && p.kind != PortPack::Kind::part;
}

// How neighbours are gathered, see gathering.hpp.
struct GatherPack {
  bool together = false;     // at once when a vector is fetched; else where the body asks for each
  std::vector<int> aligned;  // of each operand
};

struct Packing {
  int dim = -1;   // the index along which neighbours are packed; -1 where the domain has none
  int width = 1;  // how many; divides the extent, but for a domain of one index or where clipped
  std::vector<PortPack> ports;
  std::vector<GatherPack> gathers;  // pointwise; empty: none is gathered together
  bool clipped = false;             // packs may reach out of their row, where elements do not count
  int narrowest = 1;                // bytes of an element of the narrowest type that is packed
  int fetched_bytes = 0;            // that the loads of one vector move
  // By statement of the body: 0 where no random numbers are drawn for a whole vector, else how many
  // neighbours surely belong to one run of the generator: 1, 2 or 4.
  std::vector<int> drawn;
  int runs_beside = 4;  // of these runs, that go side by side at the most; a power of two
};

// Sums that a warp's epilogue of a contraction on tensor cores has in shared memory: struct
// EpilogueTile of codegen/device/family/contraction_epilogue_tile.cuh.
inline constexpr int kEpilogueTileColumns = 64;
inline constexpr int kEpilogueTileBytes = 16 * kEpilogueTileColumns * 4;

inline constexpr int kMoveBytes = 16;  // the most that one instruction moves
inline constexpr int kNarrowMove = 2;  // bytes, too few at once to keep memory busy

// Elements that move together, in bytes: of the narrowest type and of the widest.
struct MovedBytes {
  int least = kMoveBytes, most = 1;
  void add(int bytes) {
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  // `piece` bytes of the narrowest type, but no more than 32 of the widest.
  int width(int widest, int piece = kMoveBytes) const {
    return std::min({widest, piece / least, 2 * kMoveBytes / most});
  }
};

// Which ports the body reaches element by element: plain loads and stores.
std::vector<bool> reached_ports(const KernelSpec& spec);

// The distance between neighbours along `dim`, where it is the same everywhere and `width` of them
// are inside or outside of every window together; -1 where not.
std::int64_t common_step(const KernelSpec& spec, const Access& a, int dim, int width);

// The most elements, a power of two up to `width`, that lie aligned wherever their index along
// `dim` is a multiple of the width.
int alignment(const KernelSpec& spec, const KernelPort& p, int dim, int width);

// What Packing::drawn says of a random statement. `aligned_by`: as in PointwiseConfig and
// RowwiseConfig.
int drawn_together(const KernelSpec& spec, const Packing& packing, int aligned_by,
                   const Statement& s);

// Whether packs that are aligned in one of the ports are so in the other, wherever they start.
bool aligned_alike(const KernelSpec& spec, const KernelPort& p, const KernelPort& other, int width);

// For rows that start anywhere in memory: packs along the last index, which start where the port
// `aligned_by` is aligned. False where the ports are not aligned alike, where packs would be no
// wider than those of `packing`, or where all would be narrower than 16 bytes; with slots also
// where some would be, where the walkers are not as many for rows of each kind of start, or where
// the partial results, which lie packed, would not start like the rows.
bool choose_misaligned_rows(const KernelSpec& spec, int widest, Packing& packing, int& aligned_by);

// For rows that lie together and start anywhere along index `outer_rank - 1`: all that is packed is
// cut out of the pieces around it. False where something is written there or packs would have less
// than 8 bytes.
bool choose_misaligned_across(const KernelSpec& spec, int widest, Packing& packing,
                              int& aligned_by);

// The same for a pointwise kernel: packs start where the widest port that is written is aligned,
// and loads that are not aligned alike are cut out of the pieces around them. `vectors`: packs of a
// row.
bool choose_misaligned_packs(const KernelSpec& spec, int widest, Packing& packing, int& aligned_by,
                             std::int64_t& vectors);

// For a pointwise kernel whose loads have no packs as wide as what it stores, such as three
// channels that become four: they are fetched one by one, and results leave together. False where
// that is no case of it.
bool choose_wide_stores(const KernelSpec& spec, int widest, Packing& packing);

// The ports whose packs are other ones in each row.
std::vector<int> ports_of_rows(const KernelSpec& spec, const Packing& packing);

// What a vector of `width` elements of a packed port moves.
inline int pack_bytes(const KernelPort& p, int width) {
  return p.together * width * info(p.type).bytes;
}

// Marks what is worth asking for early: not what many rows share, of whose few lines of memory all
// threads would ask for the same. (A group norm of 64 x 64 x 28 x 28 in 32 groups, whose scale was
// asked for so, on an H200: 26.7 us, 6.3 without.)
void ask_early(const KernelSpec& spec, Packing& packing);

// Marks what is the same for many rows, but not for all, as late. False where nothing is.
bool fetch_late(const KernelSpec& spec, Packing& packing);

// Whether what `decided` says of another spec of the same structure holds where the spec's own
// packing is `own`: elements that lie together and aligned there do so here.
bool holds(const Packing& decided, const Packing& own);

// For a body of the pointwise or the rowwise family, packed along index `dim`. `stores`: threads
// write what they hold to memory directly, side by side.
Packing choose_packing(const KernelSpec& spec, int dim, int widest, bool stores = false);

}  // namespace sinter
