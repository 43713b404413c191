// What kernels for sm_90a ask of the hardware: sinter/device/core/hopper.cuh and wgmma.cuh.
// Included by device.hpp.
#pragma once

#define SINTER_OWN_HOPPER
#define SINTER_OWN_WGMMA
#include "sinter/device/core/hopper.cuh"
namespace sinter {
namespace hopper {

inline void barrier_init(unsigned barrier, int arrivals) {
  const auto count = static_cast<std::uint16_t>(arrivals);
  const emulator::Barrier fresh{count, count, 0};
  std::memcpy(shared_pointer(barrier), &fresh, sizeof fresh);
}
inline void barriers_are_ready() {}
inline void arrive(unsigned barrier) { machine->barrier_arrive(machine->rank, barrier, 0); }
inline void arrive_in_block(unsigned barrier, int rank) {
  machine->barrier_arrive(static_cast<unsigned>(rank), barrier, 0);
}
inline void arrive_and_expect(unsigned barrier, int bytes) {
  machine->barrier_arrive(machine->rank, barrier, bytes);
}
inline void wait(unsigned barrier, int parity) { machine->barrier_wait(barrier, parity); }
inline void wait_for_cluster(unsigned barrier, int parity) { wait(barrier, parity); }

inline void written_for_multiplications() {}
inline void prefetch(const TensorMap&) {}
template <class... At>
void load_box(const TensorMap& map, unsigned to, unsigned barrier, unsigned blocks, At... at) {
  machine->load_box(reinterpret_cast<const emulator::BoxMap&>(map), to, barrier, blocks, {{at...}});
}

inline float4 read_block(const float* shared, int rank) {
  float4 x;
  machine->read(static_cast<unsigned>(rank), address(shared), &x, sizeof x);
  return x;
}
template <class T>
void send(const T* to, unsigned barrier, int rank, T x) {
  machine->send(address(to), barrier, static_cast<unsigned>(rank), &x, sizeof x);
}

template <int id, int threads>
void wait_at() {
  machine->named_barrier(id, threads, true);
}
template <int id, int threads>
void pass() {
  machine->named_barrier(id, threads, false);
}
template <int registers>
void keep_registers() {}
template <int registers>
void take_registers() {}

// ---- warpgroup matrix multiplications

inline void multiply_fence() { machine->warp_barrier(); }
inline void multiply_commit() { machine->commit_multiplications(); }
template <int groups>
void multiply_wait() {
  machine->wait_for_multiplications(groups);
}
// What kernels keep in registers that they name themselves. They start with any bits.
inline constexpr int kMostThreads = 384;  // of a block that multiplies
template <int set, class Sum, int count>
Sum (&thread_sums())[count] {
  thread_local Sum sums[kMostThreads][count];
  return sums[threadIdx.x];
}
template <class Sum, int count>
void forget(Sum (&sums)[count]) {
  std::memset(sums, 0xff, sizeof sums);
}
inline void store_shared(unsigned to, const void* from, std::size_t bytes) {
  std::memcpy(shared_pointer(to), from, bytes);
}

// The 18 bits of an address that a descriptor holds, within the shared memory of a launch.
inline unsigned whole_address(unsigned bits) {
  const unsigned start = shared_address(contraction::dynamic_memory);
  return start + ((bits - start) & 0x3ffff);
}

// An operand: rows of k, or, transposed, columns.
struct Operand {
  unsigned start, leading, stride;
  bool transposed;
  int bytes;
  Operand(unsigned long long d, bool across, int size)
      : start(whole_address(static_cast<unsigned>(d & 0x3fff) << 4)),
        leading(static_cast<unsigned>(d >> 16 & 0x3fff) << 4),
        stride(static_cast<unsigned>(d >> 32 & 0x3fff) << 4),
        transposed(across),
        bytes(size) {}
  const char* at(int row, int k) const {
    unsigned a = start;
    if (transposed)
      a += k % 8 * 128 + k / 8 * stride + row / 64 * leading + row % 64 * bytes;
    else
      a += row % 8 * 128 + row / 8 * stride + k * bytes;
    return shared_pointer(emulator::swizzled(a));
  }
};

template <class Number>
double number_at(const char* p) {
  Number x;
  std::memcpy(&x, p, sizeof x);
  return Format<Number>::decode(x);
}
struct Tf32Bits {};
template <>
inline double number_at<Tf32Bits>(const char* p) {
  unsigned bits;
  std::memcpy(&bits, p, sizeof bits);
  return __uint_as_float(bits & 0xffffe000u);
}
inline double number_of(const char* type, const char* p) {
  const auto is = [&](const char* name) {
    return std::strncmp(type, name, std::strlen(name)) == 0;
  };
  return is("bf16")   ? number_at<bf16>(p)
         : is("f16")  ? number_at<f16>(p)
         : is("tf32") ? number_at<Tf32Bits>(p)
         : is("e4m3") ? number_at<f8e4m3>(p)
         : is("e5m2") ? number_at<f8e5m2>(p)
         : is("s8")   ? number_at<i8>(p)
                      : number_at<u8>(p);
}

// The sum of 32 products of 8-bit floats and what was summed before: each is cut off 13 bits behind
// the first of the largest, see lib/reference/engine_contraction.cpp.
inline double sum_of_bytes(const double (&products)[32], double before) {
  double largest = std::fabs(before);
  for (const double x : products) largest = x != x ? x : std::fmax(largest, std::fabs(x));
  double sum = before;
  if (largest == 0 || !std::isfinite(largest)) {
    for (const double x : products) sum += x;
    return sum;
  }
  const double unit = std::ldexp(1.0, std::ilogb(largest) - 13);
  sum = std::trunc(before / unit);
  for (const double x : products) sum += std::trunc(x / unit);
  return sum * unit;
}

// What a thread holds of 64 rows and `count / 2` columns: of every eight columns, two of row
// lane / 4 of its warp's sixteen and two of the row eight further down.
template <class Sum, int count>
struct Multiplication {
  const char* types;  // "n64k16.f32.bf16.bf16, 1, 1, 0, 0"
  int lane, warp;
  Sum* d;

  static void run(void* self, std::uint64_t a, std::uint64_t b, int keep) {
    const auto* m = static_cast<Multiplication*>(self);
    m->add(a, b, keep != 0);
    delete m;
  }
  void add(std::uint64_t first, std::uint64_t second, bool keep) const {
    int depth = 0;
    const char* type = std::strchr(types, 'k') + 1;
    for (; *type != '.'; ++type) depth = 10 * depth + (*type - '0');
    const char* type_a = std::strchr(type + 1, '.') + 1;
    const char* type_b = std::strchr(type_a, '.') + 1;
    const int bytes = 32 / depth;
    const char* end = std::strchr(type_b, ',');
    bool across[2] = {};
    if (bytes == 2 && end) {
      const std::size_t length = std::strlen(end);
      across[0] = end[length - 4] == '1';
      across[1] = end[length - 1] == '1';
    }
    const Operand a(first, across[0], bytes), b(second, across[1], bytes);
    double rows[2][32];
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < depth; ++k)
        rows[half][k] = number_of(type_a, a.at(warp * 16 + lane / 4 + 8 * half, k));
    for (int i = 0; i < count; i += 4)
      for (int j = 0; j < 2; ++j) {
        double products[2][32] = {}, sums[2] = {};
        for (int k = 0; k < depth; ++k) {
          const double x = number_of(type_b, b.at(i * 2 + lane % 4 * 2 + j, k));
          for (int half = 0; half < 2; ++half) sums[half] += products[half][k] = rows[half][k] * x;
        }
        for (int half = 0; half < 2; ++half) {
          Sum& sum = d[i + 2 * half + j];
          const double before = keep ? static_cast<double>(sum) : 0;
          sum = static_cast<Sum>(*type_a == 'e' ? sum_of_bytes(products[half], before)
                                                : before + sums[half]);
        }
      }
  }
};

template <int step_a, int step_b, class Sum, int count>
void multiply_as(const char* types, Sum (&d)[count], unsigned long long a, unsigned long long b,
                 bool keep) {
  using M = Multiplication<Sum, count>;
  const int lane = static_cast<int>(threadIdx.x % 32),
            warp = static_cast<int>(threadIdx.x / 32 % 4);
  for (int i = 0; i < 4; ++i)
    machine->multiply(
        {&M::run, new M{types, lane, warp, d}, a + i* step_a, b + i* step_b, keep || i > 0});
}

}  // namespace hopper
}  // namespace sinter
