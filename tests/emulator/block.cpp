#include "emulator/block.hpp"

#include <algorithm>
#include <cstring>

namespace sinter::test {
namespace {

constexpr std::size_t kStack = 128 << 10;

}  // namespace

EmulatedBlock::EmulatedBlock(emulator::Kernel* kernel, const void* arguments, unsigned threads)
    : kernel_(kernel),
      arguments_(arguments),
      count_(threads),
      threads_(threads),
      warps_((threads + emulator::kWarp - 1) / emulator::kWarp),
      live_of_warp_(warps_.size()),
      at_warp_(warps_.size()),
      stacks_(new std::byte[threads * kStack]) {}

std::string EmulatedBlock::run(unsigned number, unsigned of) {
  block.x = number;
  grid.x = of;
  late_copies = number % 2 == 0;
  live_ = count_;
  at_block_ = 0;
  for (unsigned w = 0; w < warps_.size(); ++w) {
    live_of_warp_[w] = std::min(emulator::kWarp, count_ - w * emulator::kWarp);
    at_warp_[w] = 0;
  }
  for (unsigned i = 0; i < count_; ++i) {
    Thread& t = threads_[i];
    t.state = State::ready;
    t.open.clear();
    t.groups.clear();
    t.started = false;
  }
  const bool falling = number / 2 % 2 != 0;
  while (live_ > 0) {
    bool moved = false;
    for (unsigned i = 0; i < count_; ++i) {
      const unsigned t = falling ? count_ - 1 - i : i;
      if (threads_[t].state != State::ready) continue;
      moved = true;
      resume(t);
    }
    if (!moved)
      return std::to_string(at_block_) + " of " + std::to_string(live_) + " threads of block " +
             std::to_string(number) + " wait at a barrier that the others do not reach";
  }
  return {};
}

// The arguments of a context's function are of the size of int.
void EmulatedBlock::enter(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<EmulatedBlock*>(std::uintptr_t{high} << 32 | low);
  self.kernel_(self, self.arguments_);
  self.running().state = State::done;
  --self.live_;
  const unsigned warp = self.thread.x / emulator::kWarp;
  --self.live_of_warp_[warp];
  self.settle_barriers(warp);
  _longjmp(self.scheduler_, 1);
}

void EmulatedBlock::resume(unsigned number) {
  thread.x = number;
  warp = &warps_[number / emulator::kWarp];
  Thread& t = threads_[number];
  if (_setjmp(scheduler_) != 0) return;
  if (t.started) _longjmp(t.here, 1);
  t.started = true;
  getcontext(&t.start);
  t.start.uc_stack.ss_sp = stacks_.get() + number * kStack;
  t.start.uc_stack.ss_size = kStack;
  t.start.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&t.start, reinterpret_cast<void (*)()>(&EmulatedBlock::enter), 2,
              static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
  setcontext(&t.start);
}

void EmulatedBlock::wait(State state) {
  Thread& t = running();
  t.state = state;
  (state == State::at_block ? at_block_ : at_warp_[thread.x / emulator::kWarp]) += 1;
  settle_barriers(thread.x / emulator::kWarp);
  if (t.state != State::ready && _setjmp(t.here) == 0) _longjmp(scheduler_, 1);
}

// Who has left is not waited for.
void EmulatedBlock::settle_barriers(unsigned w) {
  const unsigned first = w * emulator::kWarp;
  if (at_warp_[w] > 0 && at_warp_[w] == live_of_warp_[w]) {
    at_warp_[w] = 0;
    release(State::at_warp, first, std::min(first + emulator::kWarp, count_));
  }
  if (at_block_ > 0 && at_block_ == live_) {
    at_block_ = 0;
    release(State::at_block, 0, count_);
  }
}

void EmulatedBlock::release(State state, unsigned first, unsigned end) {
  for (unsigned i = first; i < end; ++i)
    if (threads_[i].state == state) threads_[i].state = State::ready;
}

void EmulatedBlock::block_barrier() { wait(State::at_block); }
void EmulatedBlock::warp_barrier() { wait(State::at_warp); }

void EmulatedBlock::carry_out(std::vector<Copy>& copies) {
  for (const Copy& c : copies) {
    std::memcpy(c.to, c.from, static_cast<std::size_t>(c.valid));
    std::memset(static_cast<char*>(c.to) + c.valid, 0, static_cast<std::size_t>(c.bytes - c.valid));
  }
  copies.clear();
}

void EmulatedBlock::copy(void* to, const void* from, int bytes, int valid) {
  Thread& t = running();
  t.open.push_back({to, from, bytes, valid});
  if (!late_copies) carry_out(t.open);
}
void EmulatedBlock::commit_copies() {
  Thread& t = running();
  t.groups.push_back(std::move(t.open));
  t.open.clear();
}
void EmulatedBlock::wait_for_copies(int groups_left) {
  Thread& t = running();
  while (static_cast<int>(t.groups.size()) > std::max(groups_left, 0)) {
    carry_out(t.groups.front());
    t.groups.pop_front();
  }
  if (groups_left < 0) carry_out(t.open);
}

}  // namespace sinter::test
