#include "emulator/cluster.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

namespace sinter::test {
namespace {

using emulator::kWarp;

// Not a power of two: the tops of all stacks would be in the same lines of a cache.
constexpr std::size_t kStack = (128 << 10) + 1088;
constexpr std::uint64_t kCanary = 0x5ca1ab1e0ddba11;  // at the end of each stack
constexpr unsigned kNamedBarriers = 16;

// The calling thread keeps them, so that a launch runs on the pages of those before.
std::byte* stacks(std::size_t bytes) {
  thread_local std::unique_ptr<std::byte[]> memory;
  thread_local std::size_t size = 0;
  if (size < bytes) {
    memory.reset(new std::byte[bytes]);
    size = bytes;
  }
  return memory.get();
}

}  // namespace

EmulatedCluster::EmulatedCluster(std::vector<HostKernel> kernels, const void* arguments,
                                 unsigned threads, unsigned shared_bytes)
    : kernels_(std::move(kernels)),
      arguments_(arguments),
      count_(threads),
      shared_bytes_(shared_bytes),
      warps_of_block_((threads + kWarp - 1) / kWarp),
      threads_(threads * kernels_.size()),
      waits_for_(threads_.size()),
      can_run_(threads_.size()),
      warps_(warps_of_block_ * kernels_.size()),
      stacks_(stacks(threads_.size() * kStack)) {
  for (std::size_t b = 0; b < kernels_.size(); ++b) anchor[b] = kernels_[b].anchor();
}

std::string EmulatedCluster::run(unsigned first, unsigned of, unsigned turn) {
  grid.x = of;
  first_block_ = first;
  const auto blocks = static_cast<unsigned>(kernels_.size());
  late = turn % 2 == 0;
  live_ = static_cast<unsigned>(threads_.size());
  live_of_block_.assign(blocks, count_);
  live_of_warp_.clear();
  for (unsigned w = 0; w < warps_.size(); ++w)
    live_of_warp_.push_back(std::min(kWarp, count_ - w % warps_of_block_ * kWarp));
  at_warp_.assign(warps_.size(), {});
  at_block_.assign(blocks, {});
  at_named_.assign(blocks * kNamedBarriers, {});
  cluster_arrived_ = cluster_phase_ = 0;
  in_flight_.clear();
  waits_for_.assign(threads_.size(), nullptr);
  can_run_.assign(threads_.size(), 1);
  for (Thread& t : threads_) {
    t.cluster_turn = 0;
    t.copies.clear();
    t.stores.clear();
    t.multiplications.clear();
    std::memcpy(stack_of(t), &kCanary, sizeof kCanary);
  }
  fault_.clear();
  for (const HostKernel& k : kernels_) k.start(shared_bytes_);
  const bool falling = turn / 2 % 2 != 0;
  while (live_ > 0 && fault_.empty()) {
    bool moved = false;
    const char* const all = can_run_.data();
    std::size_t from = 0, to = can_run_.size();  // those that still have their turn
    while (from < to) {
      std::size_t t = falling ? to - 1 : from;
      if (!all[t]) {  // most often the next one runs
        const void* const next =
            falling ? memrchr(all, 1, to) : std::memchr(all + from, 1, to - from);
        if (!next) break;
        t = static_cast<std::size_t>(static_cast<const char*>(next) - all);
      }
      (falling ? to : from) = falling ? t : t + 1;
      moved = true;
      resume(static_cast<unsigned>(t));
    }
    if (moved) continue;
    if (in_flight_.empty())
      return std::to_string(live_) + " threads of block " + std::to_string(first) +
             " and its cluster wait for ever";
    const auto work = std::move(in_flight_.front());
    in_flight_.pop_front();
    work();
  }
  if (fault_.empty() && !in_flight_.empty()) fault_ = "nobody waited for what is still in flight";
  for (const Thread& t : threads_)
    if (std::memcmp(stack_of(t), &kCanary, sizeof kCanary) != 0) fault_ = "a stack was too small";
  for (const HostKernel& k : kernels_)
    if (!k.end(shared_bytes_)) fault_ = "writes behind the shared memory of the launch";
  return fault_;
}

// ---- fibers

std::byte* EmulatedCluster::stack_of(const Thread& t) const {
  return stacks_ + static_cast<std::size_t>(&t - threads_.data()) * kStack;
}

// One thread of each launch: a fiber is made once and runs a block of the grid each time it is
// resumed behind its end. The arguments of a context's function are of the size of int.
void EmulatedCluster::enter(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<EmulatedCluster*>(std::uintptr_t{high} << 32 | low);
  for (;;) {
    self.kernels_[self.rank].run(self, self.arguments_);
    self.end_thread();
    self.leave();
  }
}

void EmulatedCluster::end_thread() {
  Thread& t = running();
  can_run_[running_number()] = 0;
  if (!t.stores.empty())
    if (late) fault_ = "a thread ends while its stores still read shared memory";
  if (t.cluster_turn > cluster_phase_) --cluster_arrived_;  // it did not wait
  --live_;
  --live_of_block_[rank];
  --live_of_warp_[warp_number()];
  release_met();
}

[[gnu::noinline]] void EmulatedCluster::resume(unsigned number) {
  rank = number / count_;
  thread.x = number % count_;
  block.x = first_block_ + rank;
  warp = &warps_[warp_number()];
  Thread& t = threads_[number];
  if (__builtin_setjmp(scheduler_) != 0) return;
  if (t.started) jump(t.here);
  t.started = true;
  getcontext(&t.start);
  t.start.uc_stack.ss_sp = stack_of(t);
  t.start.uc_stack.ss_size = kStack;
  t.start.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&t.start, reinterpret_cast<void (*)()>(&EmulatedCluster::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  setcontext(&t.start);
}

// Apart from those that such a jump ends in, which do not see where it comes from.
[[gnu::noipa]] void EmulatedCluster::jump(Place& to) { __builtin_longjmp(to, 1); }
[[gnu::noinline]] void EmulatedCluster::leave() {
  if (__builtin_setjmp(running().here) == 0) jump(scheduler_);
}
void EmulatedCluster::wait_for(const void* what) {
  waits_for_[running_number()] = what;
  can_run_[running_number()] = 0;
  leave();
}
void EmulatedCluster::release(const void* what, Waits waits) {
  char* const can_run = can_run_.data() + (waits.data() - waits_for_.data());
  for (std::size_t i = 0; i < waits.size(); ++i)
    if (waits[i] == what) {
      waits[i] = nullptr;
      can_run[i] = 1;
    }
}

// ---- barriers of threads

EmulatedCluster::Waits EmulatedCluster::of_warp() {
  const unsigned first = thread.x / kWarp * kWarp;
  return of_block().subspan(first, std::min(kWarp, count_ - first));
}
bool EmulatedCluster::passes(Meeting& meeting, unsigned expected, Waits among) {
  if (meeting.arrived != expected) return false;
  meeting.arrived = 0;
  release(&meeting, among);
  return true;
}
void EmulatedCluster::meet(Meeting& meeting, unsigned expected, bool waits, Waits among) {
  ++meeting.arrived;
  if (!passes(meeting, expected, among) && waits) wait_for(&meeting);
}
void EmulatedCluster::block_barrier() {
  meet(at_block_[rank], live_of_block_[rank], true, of_block());
}
bool EmulatedCluster::lanes_pass() {
  WarpMeeting& meeting = at_warp_[warp_number()];
  if (meeting.arrived != live_of_warp_[warp_number()]) return false;
  if (meeting.together) {
    if (meeting.parts == meeting.arrived)
      (this->*meeting.together)(meeting.given);
    else
      fault_ = "the lanes of a warp do unlike things together";
    meeting = {};
  }
  meeting.arrived = 0;
  release(&meeting, of_warp());
  ++warp->meetings;
  return true;
}
void EmulatedCluster::warp_barrier() {
  WarpMeeting& meeting = at_warp_[warp_number()];
  ++meeting.arrived;
  if (!lanes_pass()) wait_for(&meeting);
}
void EmulatedCluster::exchange(const void* mine, void* theirs, unsigned lane, unsigned bytes) {
  std::memcpy(warp->to_show()[thread.x % kWarp], mine, bytes);
  warp_barrier();
  std::memcpy(theirs, warp->shown()[lane], bytes);
}
void EmulatedCluster::named_barrier(unsigned id, unsigned threads, bool waits) {
  meet(at_named_[rank * kNamedBarriers + id], threads, waits, of_block());
}

// Who has left is not waited for.
void EmulatedCluster::release_met() {
  lanes_pass();
  passes(at_block_[rank], live_of_block_[rank], of_block());
  if (cluster_arrived_ > 0 && cluster_arrived_ == live_) end_cluster_phase();
}

void EmulatedCluster::end_cluster_phase() {
  cluster_arrived_ = 0;
  ++cluster_phase_;
  release(&cluster_phase_);
}
void EmulatedCluster::cluster_arrive() {
  running().cluster_turn = cluster_phase_ + 1;
  if (++cluster_arrived_ == live_) end_cluster_phase();
}
void EmulatedCluster::cluster_wait() {
  while (cluster_phase_ < running().cluster_turn) wait_for(&cluster_phase_);
}

// ---- barriers in shared memory

void EmulatedCluster::end_phase(emulator::Barrier& barrier) {
  if (barrier.missing != 0 || (barrier.bytes_and_parity & ~1) != 0) return;
  barrier.missing = barrier.arrivals;
  barrier.bytes_and_parity ^= 1;
  release(&barrier);
}
void EmulatedCluster::barrier_arrive(unsigned of, unsigned address, int expected_bytes) {
  emulator::Barrier& barrier = barrier_of(of, address);
  barrier.bytes_and_parity += 2 * expected_bytes;
  --barrier.missing;
  end_phase(barrier);
}
void EmulatedCluster::tell(emulator::Barrier& barrier, int bytes) {
  barrier.bytes_and_parity -= 2 * bytes;
  end_phase(barrier);
}
void EmulatedCluster::barrier_wait(unsigned address, int parity) {
  emulator::Barrier& barrier = barrier_of(rank, address);
  while ((barrier.bytes_and_parity & 1) == parity) wait_for(&barrier);
}

// ---- asynchronous work

void EmulatedCluster::carry_out(const Copy& c) {
  std::memcpy(c.to, c.from, static_cast<std::size_t>(c.valid));
  std::memset(static_cast<char*>(c.to) + c.valid, 0, static_cast<std::size_t>(c.bytes - c.valid));
}
// The machine stops where asynchronous work begins at another address than a multiple of its size.
void EmulatedCluster::expect_multiple(std::uintptr_t at, unsigned bytes, const char* what) {
  if (at % bytes != 0)
    fault_ = std::string(what) + " begins at no multiple of " + std::to_string(bytes) + " bytes";
}
void EmulatedCluster::copy(void* to, const void* from, int bytes, int valid) {
  for (const void* p : {static_cast<const void*>(to), from})
    if (p == to || valid > 0)  // of no bytes the address is not looked at
      expect_multiple(reinterpret_cast<std::uintptr_t>(p), static_cast<unsigned>(bytes), "a copy");
  const Copy c{to, from, bytes, valid};
  late ? running().copies.work.push_back(c) : carry_out(c);
}
void EmulatedCluster::commit_copies() { running().copies.commit(); }
void EmulatedCluster::wait_for_copies(int groups_left) {
  for (const Copy& c : running().copies.take(groups_left)) carry_out(c);
}

// Memory and barriers of a block are gone when its threads are.
char* EmulatedCluster::memory_of(unsigned of, unsigned address) {
  if (live_of_block_[of] == 0) fault_ = "reaches for a block that has ended";
  return anchor[of] + static_cast<int>(address);
}
emulator::Barrier& EmulatedCluster::barrier_of(unsigned of, unsigned address) {
  return *reinterpret_cast<emulator::Barrier*>(memory_of(of, address));
}

void EmulatedCluster::later(std::function<void()> work) {
  late ? in_flight_.push_back(std::move(work)) : work();
}

namespace {

std::int64_t elements_of(const emulator::BoxMap& map) {
  std::int64_t elements = 1;
  for (int d = 0; d < (map.base_step[0] > 0 ? 2 : map.rank); ++d) elements *= map.box[d];
  return elements;
}

// Where element number `e` of a box lies in the tensor, or null outside of it.
const char* element_of(const emulator::BoxMap& map, const emulator::BoxPlace& place,
                       std::int64_t e) {
  std::int64_t index[5] = {};
  if (map.base_step[0] > 0) {
    // The pixel's base: so many steps behind the first, w fastest, within the bounds of bases.
    std::int64_t carry = e / map.box[0];
    index[0] = place.at[0] + e % map.box[0];
    const int spatial = map.rank - 2;
    for (int d = 0; d < spatial; ++d) {
      const std::int64_t bases =
          (map.extent[1 + d] - 1 + map.upper[d] - map.lower[d]) / map.base_step[d] + 1;
      const std::int64_t base = (place.at[1 + d] - map.lower[d]) / map.base_step[d] + carry;
      carry = base / bases;
      index[1 + d] = map.lower[d] + base % bases * map.base_step[d] + place.offset[d];
    }
    index[map.rank - 1] = place.at[map.rank - 1] + carry;
  } else {
    for (int d = 0; d < map.rank; e /= map.box[d++]) index[d] = place.at[d] + e % map.box[d];
  }
  const char* from = map.tensor;
  for (int d = 0; d < map.rank; ++d) {
    if (index[d] < 0 || index[d] >= map.extent[d]) return nullptr;
    from += index[d] * map.step[d];
  }
  return from;
}

// Where element `e` of a box lies in shared memory: lines shorter than the swizzle's leave room.
unsigned place_in_box(const emulator::BoxMap& map, unsigned start, std::int64_t e) {
  const std::int64_t pitch = std::max<std::int64_t>(map.box[0] * map.bytes, map.swizzle);
  return emulator::swizzled(
      start + static_cast<unsigned>(e / map.box[0] * pitch + e % map.box[0] * map.bytes),
      map.swizzle);
}

}  // namespace

// What lies outside of the tensor becomes zeros. 16 bytes of a box lie together on both sides, as a
// line of it has a multiple of them.
void EmulatedCluster::move_box(const emulator::BoxMap& map, unsigned to, unsigned of,
                               emulator::BoxPlace place) {
  const std::int64_t elements = elements_of(map), piece = 16 / map.bytes;
  for (std::int64_t first = 0; first < elements; first += piece) {
    char* const at = memory_of(of, place_in_box(map, to, first));
    const std::int64_t line = place.at[0] + first % map.box[0];
    if (line >= 0 && line + piece <= map.extent[0] && !map.tf32) {
      const char* const from = element_of(map, place, first);
      from ? std::memcpy(at, from, 16) : std::memset(at, 0, 16);
      continue;
    }
    for (std::int64_t e = 0; e < piece; ++e) {
      const char* const from = element_of(map, place, first + e);
      std::uint32_t value[2] = {};
      if (from) std::memcpy(value, from, map.bytes);
      if (map.tf32) value[0] = emulator::rounded_to_tf32(value[0]);
      std::memcpy(at + e * map.bytes, value, map.bytes);
    }
  }
}

// What lies outside of the tensor is left out.
void EmulatedCluster::store_out(const Store& s) {
  const std::int64_t elements = elements_of(s.map);
  for (std::int64_t e = 0; e < elements; ++e) {
    char* to = const_cast<char*>(element_of(s.map, s.place, e));
    if (!to) continue;
    const char* from = memory_of(rank, place_in_box(s.map, s.from, e));
    if (s.adds) {
      float sum, x;
      std::memcpy(&sum, to, sizeof sum);
      std::memcpy(&x, from, sizeof x);
      sum += x;
      std::memcpy(to, &sum, sizeof sum);
    } else {
      std::memcpy(to, from, s.map.bytes);
    }
  }
}
void EmulatedCluster::store_box(const emulator::BoxMap& map, unsigned from,
                                emulator::BoxPlace place) {
  // It writes whole pieces, also past a last column that lies within one.
  expect_multiple(static_cast<unsigned>(map.extent[0] * map.bytes), 16,
                  "the columns of a stored tensor");
  const Store s{map, from, place, false};
  late ? running().stores.work.push_back(s) : store_out(s);
}
void EmulatedCluster::add_box(const emulator::BoxMap& map, unsigned from,
                              emulator::BoxPlace place) {
  const Store s{map, from, place, true};
  late ? running().stores.work.push_back(s) : store_out(s);
}
void EmulatedCluster::commit_stores() { running().stores.commit(); }
void EmulatedCluster::wait_for_stores(int groups_left) {
  for (const Store& s : running().stores.take(groups_left)) store_out(s);
}

void EmulatedCluster::load_box(const emulator::BoxMap& map, unsigned to, unsigned barrier,
                               unsigned blocks, emulator::BoxPlace place) {
  expect_multiple(static_cast<unsigned>(place.at[0]) * map.bytes, 16, "a box of the tensor");
  expect_multiple(to, 128, "a box in shared memory");
  const int bytes = map.bytes * static_cast<int>(elements_of(map));
  if (blocks == 0) blocks = 1u << rank;
  for (unsigned b = 0; b < kernels_.size(); ++b)
    if (blocks >> b & 1)
      later([this, map, to, barrier, b, place, bytes] {
        move_box(map, to, b, place);
        tell(barrier_of(b, barrier), bytes);
      });
}

void EmulatedCluster::read(unsigned of, unsigned from, void* to, int bytes) {
  std::memcpy(to, memory_of(of, from), static_cast<std::size_t>(bytes));
}
void EmulatedCluster::send(unsigned to, unsigned barrier, unsigned of, const void* from,
                           int bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, static_cast<std::size_t>(bytes));
  later([this, to, barrier, of, value, bytes] {
    std::memcpy(memory_of(of, to), &value, static_cast<std::size_t>(bytes));
    tell(barrier_of(of, barrier), bytes);
  });
}

}  // namespace sinter::test
