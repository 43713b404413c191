// What the lanes of a warp do together: the last of them to come does the work of all.
#include <bit>
#include <cstring>

#include "emulator/cluster.hpp"
#include "emulator/product.hpp"

namespace sinter::test {
namespace {

using emulator::kWarp;

struct Vote {
  bool mine;
  unsigned all;
};
struct Lines {
  unsigned line;
  unsigned* blocks;
};

template <class T>
const T& part_of(void* given) {
  return *static_cast<const T*>(given);
}

}  // namespace

void EmulatedCluster::do_together(Together work, void* mine) {
  WarpMeeting& meeting = at_warp_[warp_number()];
  if (meeting.together != work) meeting.parts = 0;
  meeting.together = work;
  ++meeting.parts;
  meeting.given[thread.x % kWarp] = mine;
  warp_barrier();
}

unsigned EmulatedCluster::ballot(bool mine) {
  Vote vote{mine, 0};
  do_together(&EmulatedCluster::vote, &vote);
  return vote.all;
}
void EmulatedCluster::vote(const OfLanes& votes) {
  unsigned all = 0;
  for (unsigned lane = 0; lane < kWarp; ++lane)
    if (votes[lane]) all |= unsigned{part_of<Vote>(votes[lane]).mine} << lane;
  for (void* const vote : votes)
    if (vote) static_cast<Vote*>(vote)->all = all;
}

void EmulatedCluster::multiply(const emulator::BlockProduct& product) {
  emulator::BlockProduct mine = product;
  do_together(&EmulatedCluster::multiply_blocks, &mine);
}
void EmulatedCluster::multiply_blocks(const OfLanes& products) {
  const emulator::BlockProduct* of[kWarp];
  for (unsigned lane = 0; lane < kWarp; ++lane)
    of[lane] = static_cast<const emulator::BlockProduct*>(products[lane]);
  if (!test::multiply(of)) fault_ = "a warp that is not whole multiplies, or unlike numbers";
}

// Lane 8 i + j names line j of block i. `transposed`: a lane's two numbers of 16 bits lie in two
// lines.
template <bool transposed, bool puts>
void EmulatedCluster::move_blocks(const OfLanes& lines) {
  const auto move = [](char* memory, void* registers, std::size_t bytes) {
    puts ? std::memcpy(memory, registers, bytes) : std::memcpy(registers, memory, bytes);
  };
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if (!lines[lane]) {
      fault_ = "a warp that is not whole moves blocks";
      return;
    }
    const auto at = [&](unsigned of) {
      return anchor[rank] + static_cast<int>(part_of<Lines>(lines[of]).line);
    };
    auto* const blocks = reinterpret_cast<char*>(part_of<Lines>(lines[lane]).blocks);
    for (unsigned i = 0; i < 4; ++i)
      if constexpr (transposed)
        for (unsigned j = 0; j < 2; ++j)
          move(at(8 * i + lane % 4 * 2 + j) + lane / 4 * 2, blocks + 4 * i + 2 * j, 2);
      else
        move(at(8 * i + lane / 4) + lane % 4 * 4, blocks + 4 * i, 4);
  }
}
void EmulatedCluster::get_blocks(unsigned line, unsigned* blocks, bool transposed) {
  Lines mine{line, blocks};
  do_together(transposed ? &EmulatedCluster::move_blocks<true, false>
                         : &EmulatedCluster::move_blocks<false, false>,
              &mine);
}
void EmulatedCluster::put_blocks(unsigned line, const unsigned* blocks, bool transposed) {
  Lines mine{line, const_cast<unsigned*>(blocks)};
  do_together(transposed ? &EmulatedCluster::move_blocks<true, true>
                         : &EmulatedCluster::move_blocks<false, true>,
              &mine);
}

// ---- wgmma: all lanes of a warp start and wait together

void EmulatedCluster::multiply(const emulator::Product& product) {
  if (late) {
    warp_barrier();
    running().multiplications.work.push_back(product);
    return;
  }
  emulator::Product mine = product;
  do_together(&EmulatedCluster::multiply_lanes, &mine);
}
void EmulatedCluster::multiply_lanes(const OfLanes& products) {
  const emulator::Product* of[kWarp];
  for (unsigned lane = 0; lane < kWarp; ++lane)
    of[lane] = static_cast<const emulator::Product*>(products[lane]);
  if (!test::multiply(of)) fault_ = "the lanes of a warp multiply unlike matrices";
}
void EmulatedCluster::commit_multiplications() { running().multiplications.commit(); }

void EmulatedCluster::wait_for_multiplications(int groups_left) {
  do_together(&EmulatedCluster::finish_multiplications, &groups_left);
}
void EmulatedCluster::finish_multiplications(const OfLanes& groups_left) {
  std::vector<emulator::Product> done[kWarp];
  const std::size_t first = running_number() / kWarp * kWarp;
  for (unsigned lane = 0; lane < kWarp; ++lane)
    if (groups_left[lane])
      done[lane] = threads_[first + lane].multiplications.take(part_of<int>(groups_left[lane]));
  for (std::size_t i = 0; i < done[0].size(); ++i) {
    OfLanes products;
    for (unsigned lane = 0; lane < kWarp; ++lane)
      products[lane] = i < done[lane].size() ? &done[lane][i] : nullptr;
    multiply_lanes(products);
  }
}

}  // namespace sinter::test
