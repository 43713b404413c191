// The wgmma instructions of each engine, for which a kernel's text asks the device library
// (core/wgmma_instruction.cuh and core/wgmma_named.cuh).
#pragma once
#include <cstdint>
#include <vector>

#include "schedule/scheduled_kernel.hpp"

namespace sinter {

struct WgmmaInstruction {
  std::int64_t columns = 0;
  // Where its sums are: values of the kernel's code, registers with names of their own, or
  // registers that are held from the first product to the last.
  enum class Sums : std::uint8_t { values, named, held } sums = Sums::values;
  bool integers = false;
};

// In the order in which they are to be defined; of engines without wgmma none.
std::vector<WgmmaInstruction> wgmma_instructions(const ScheduledKernel& kernel);

}  // namespace sinter
