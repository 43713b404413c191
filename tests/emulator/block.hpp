// The threads of one block as fibers of the calling thread.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "emulator/machine.hpp"

namespace sinter::test {

class EmulatedBlock final : public emulator::Machine {
 public:
  EmulatedBlock(emulator::Kernel* kernel, const void* arguments, unsigned threads);

  // Empty, or how the threads hang.
  std::string run(unsigned number, unsigned of);

  void block_barrier() override;
  void warp_barrier() override;
  void copy(void* to, const void* from, int bytes, int valid) override;
  void commit_copies() override;
  void wait_for_copies(int groups_left) override;

 private:
  struct Copy {
    void* to;
    const void* from;
    int bytes, valid;
  };
  enum class State : std::uint8_t { ready, at_block, at_warp, done };
  struct Thread {
    ucontext_t start;  // later its place is `here`: switching contexts costs a system call
    jmp_buf here;
    bool started = false;
    State state = State::ready;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
  };

  static void enter(unsigned high, unsigned low);
  static void carry_out(std::vector<Copy>& copies);
  Thread& running() { return threads_[thread.x]; }
  void wait(State state);
  void release(State state, unsigned first, unsigned end);
  void settle_barriers(unsigned warp);
  void resume(unsigned number);

  emulator::Kernel* kernel_;
  const void* arguments_;
  unsigned count_;
  std::vector<Thread> threads_;
  std::vector<emulator::Warp> warps_;
  std::vector<unsigned> live_of_warp_, at_warp_;
  unsigned live_ = 0, at_block_ = 0;
  jmp_buf scheduler_;
  std::unique_ptr<std::byte[]> stacks_;
};

}  // namespace sinter::test
