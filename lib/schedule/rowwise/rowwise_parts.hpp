// What the schedules of rowwise kernels share.
#pragma once
#include "schedule/rowwise/rowwise.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {

// What the loads of one vector move, in bytes: those of the row, and those that all rows share or
// (`late`) that many do; `kept`: of all, what several phases need. `values`: elements of the row.
struct VectorBytes {
  int row = 0, weights = 0, late = 0, kept = 0, values = 0;
};
VectorBytes vector_bytes(const KernelSpec& spec, const Packing& packing);

bool computes_doubles(const KernelSpec& spec);
// Whether elements take more instructions than conversions and sums do: an exponential, a division.
bool computes_costly(const KernelSpec& spec);

// Bytes of its row that a vector loads to shared memory, or 0 where something cannot be loaded so.
int bytes_ahead(const KernelSpec& spec, const Packing& packing);

inline constexpr int kKeptValues = 32;   // that a thread has computed and keeps from phase to phase
inline constexpr int kKeptAcross = 40;   // of rows as the fastest index, in packs of four
inline constexpr int kUsualVectors = 4;  // of a long row, that a thread holds
// Columns of rows that are looped over, up to which instructions bound them rather than memory.
inline constexpr int kShortWalk = 2304;

// Registers that each thread can have where so many share an SM, and those that it needs beside
// what it holds.
double registers_with(const DeviceModel& device, int threads);
inline constexpr double kBesideHeld = 24, kBesideValues = 20;

// Threads for a row so that each has `each` vectors: whole warps where one is not enough.
int threads_for(double vectors, double each);
// The share of those threads that have work.
double busy_share(double vectors, double each);

// Packs along the rows. Rows that start anywhere in memory are cut where it is aligned, but short
// ones are not: their ends cost more than that saves, the more so if two elements would move
// together. Returns the vectors of a row.
double choose_vectors(const KernelSpec& spec, int widest, RowwiseConfig& s);

// Costly values that one phase computes at a vector and a later one needs again, where registers
// hold those of all vectors.
std::vector<int> kept_values(const KernelSpec& spec, const RowwiseConfig& s);

// RowwiseConfig::row_aligned.
std::vector<int> rows_together(const KernelSpec& spec, const Packing& packing);
// Neighbouring threads hold neighbouring rows: columns of a matrix that are summed up.
void schedule_across(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s);
// By a cluster where one block's registers do not hold the rows; the packs are chosen.
bool hold_by_cluster(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s);
// A row is shared by threads that lie along it.
void schedule_along(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s);
// Short rows that start anywhere are brought to shared memory by the run of a block: the ports, if
// that can be, and whether it is done.
std::vector<int> staged_ports(const KernelSpec& spec, const Packing& packing);
bool stage_rows(const KernelSpec& spec, const DeviceModel& device, double rows, double vectors,
                RowwiseConfig& s);
// Whether weights that all rows share are more than an SM keeps from row to row, and longer than
// what is read of a row.
bool shares_long_weights(const KernelSpec& spec, const Packing& packing, double vectors);
// Blocks that loop over such rows and keep the weights; false where none do.
bool walk_with_weights(const KernelSpec& spec, const DeviceModel& device, double rows,
                       double vectors, RowwiseConfig& s);
// Blocks that loop over the rows and keep running results of the columns.
void schedule_columns(const KernelSpec& spec, const DeviceModel& device, RowwiseConfig& s);

}  // namespace sinter
