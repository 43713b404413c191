// The threads of a cluster's blocks as fibers of the calling thread.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "emulator/machine.hpp"

namespace sinter::test {

// One copy of a kernel's library.
struct HostKernel {
  emulator::Kernel* run = nullptr;
  emulator::Anchor* anchor = nullptr;
  emulator::Start* start = nullptr;
  emulator::End* end = nullptr;
};

class EmulatedCluster final : public emulator::Machine {
 public:
  // As many copies of the kernel as the cluster has blocks.
  EmulatedCluster(std::vector<HostKernel> kernels, const void* arguments, unsigned threads,
                  unsigned shared_bytes);

  // Runs the blocks from `first` on, of a grid of `of`; `turn` says when asynchronous work happens
  // and in which order threads run. Empty, or what went wrong.
  std::string run(unsigned first, unsigned of, unsigned turn);

  void block_barrier() override;
  void warp_barrier() override;
  void exchange(const void* mine, void* theirs, unsigned lane, unsigned bytes) override;
  unsigned ballot(bool mine) override;
  void multiply(const emulator::BlockProduct& product) override;
  void get_blocks(unsigned line, unsigned* blocks, bool transposed) override;
  void put_blocks(unsigned line, const unsigned* blocks, bool transposed) override;
  void copy(void* to, const void* from, int bytes, int valid) override;
  void commit_copies() override;
  void wait_for_copies(int groups_left) override;
  void cluster_arrive() override;
  void cluster_wait() override;
  void fault(const char* what) override { fault_ = what; }
  void named_barrier(unsigned id, unsigned threads, bool waits) override;
  void barrier_arrive(unsigned of, unsigned barrier, int expected_bytes) override;
  void barrier_wait(unsigned barrier, int parity) override;
  void load_box(const emulator::BoxMap& map, unsigned to, unsigned barrier, unsigned blocks,
                emulator::BoxPlace place) override;
  void store_box(const emulator::BoxMap& map, unsigned from, emulator::BoxPlace place) override;
  void add_box(const emulator::BoxMap& map, unsigned from, emulator::BoxPlace place) override;
  void commit_stores() override;
  void wait_for_stores(int groups_left) override;
  void read(unsigned block, unsigned from, void* to, int bytes) override;
  void send(unsigned to, unsigned barrier, unsigned block, const void* from, int bytes) override;
  void multiply(const emulator::Product& product) override;
  void commit_multiplications() override;
  void wait_for_multiplications(int groups_left) override;

 private:
  struct Copy {
    void* to;
    const void* from;
    int bytes, valid;
  };
  struct Store {
    emulator::BoxMap map;
    unsigned from;
    emulator::BoxPlace place;
    bool adds;
  };
  // Asynchronous work of one kind, oldest first, and where each group of it ends; what is behind
  // the last end is in no group.
  template <class Work>
  struct Queue {
    std::vector<Work> work;
    std::vector<std::size_t> ends;
    bool empty() const { return work.empty() && ends.empty(); }
    void clear() { work.clear(), ends.clear(); }
    void commit() { ends.push_back(work.size()); }
    // What is to be done so that at most so many groups are left; -1: what is in no group, too.
    std::vector<Work> take(int groups_left) {
      const auto left = static_cast<std::size_t>(std::max(groups_left, 0));
      const std::size_t groups = ends.size() > left ? ends.size() - left : 0;
      const std::size_t done = groups_left < 0 ? work.size() : groups > 0 ? ends[groups - 1] : 0;
      std::vector<Work> taken(work.begin(), work.begin() + static_cast<std::ptrdiff_t>(done));
      work.erase(work.begin(), work.begin() + static_cast<std::ptrdiff_t>(done));
      ends.erase(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(groups));
      for (std::size_t& end : ends) end -= done;
      return taken;
    }
  };
  // Threads that meet. Who waits is known by the barrier's address.
  struct Meeting {
    unsigned arrived = 0;
  };
  // What a warp does together when its lanes have met: what each lane gave, of the type that the
  // function takes. Null of a lane that has left.
  using OfLanes = void * [emulator::kWarp];
  using Together = void (EmulatedCluster::*)(const OfLanes& given);
  struct WarpMeeting : Meeting {
    Together together = nullptr;  // as the last lane said that came with a part
    unsigned parts = 0;           // lanes that came with one for it
    OfLanes given = {};
  };
  // Where a stack goes on, for __builtin_setjmp(): setjmp() takes three times as long.
  using Place = void* [5];
  struct Thread {
    ucontext_t start;  // later its place is `here`: switching contexts costs a system call
    Place here;
    bool started = false;
    unsigned cluster_turn = 0;
    Queue<Copy> copies;
    Queue<Store> stores;
    Queue<emulator::Product> multiplications;
  };

  static void enter(unsigned high, unsigned low);
  [[noreturn]] static void jump(Place& to);
  void end_thread();
  static void carry_out(const Copy& copy);
  void expect_multiple(std::uintptr_t at, unsigned bytes, const char* what);
  std::size_t running_number() const { return rank * count_ + thread.x; }
  Thread& running() { return threads_[running_number()]; }
  unsigned warp_number() const { return rank * warps_of_block_ + thread.x / emulator::kWarp; }
  std::byte* stack_of(const Thread& t) const;
  void resume(unsigned number);
  void wait_for(const void* what);
  void leave();
  // What threads wait for, of those of a block or a warp.
  using Waits = std::span<const void*>;
  Waits of_block() { return Waits(waits_for_).subspan(rank * count_, count_); }
  Waits of_warp();
  void release(const void* what) { release(what, waits_for_); }
  void release(const void* what, Waits waits);
  // `among`: the threads that may wait.
  bool passes(Meeting& meeting, unsigned expected, Waits among);
  bool lanes_pass();  // those of the running thread's warp
  // Waits for the other lanes, of which the last one does the work of all.
  void do_together(Together work, void* mine);
  void vote(const OfLanes& votes);
  void multiply_blocks(const OfLanes& products);
  template <bool transposed, bool puts>
  void move_blocks(const OfLanes& lines);
  void multiply_lanes(const OfLanes& products);
  void finish_multiplications(const OfLanes& groups_left);
  void meet(Meeting& meeting, unsigned expected, bool waits, Waits among);
  void release_met();
  void end_cluster_phase();
  char* memory_of(unsigned block, unsigned address);
  emulator::Barrier& barrier_of(unsigned block, unsigned address);
  void tell(emulator::Barrier& barrier, int bytes);
  void end_phase(emulator::Barrier& barrier);
  void later(std::function<void()> work);
  void move_box(const emulator::BoxMap& map, unsigned to, unsigned block, emulator::BoxPlace place);
  void store_out(const Store& store);

  std::vector<HostKernel> kernels_;
  const void* arguments_;
  unsigned count_, shared_bytes_, warps_of_block_;  // of a block
  std::vector<Thread> threads_;
  // Of each thread. Not in Thread, as all of them are looked at again and again, and a thread is a
  // kilobyte.
  std::vector<const void*> waits_for_;
  std::vector<char> can_run_;
  std::vector<emulator::Warp> warps_;
  std::vector<WarpMeeting> at_warp_;
  std::vector<Meeting> at_block_, at_named_;
  std::vector<unsigned> live_of_warp_, live_of_block_;
  unsigned live_ = 0, cluster_arrived_ = 0, cluster_phase_ = 0, first_block_ = 0;
  std::deque<std::function<void()>> in_flight_;  // what no thread carries out
  std::string fault_;
  Place scheduler_;
  std::byte* stacks_;
};

}  // namespace sinter::test
