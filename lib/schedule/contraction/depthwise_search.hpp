// What the engines of depthwise convolutions and of narrow groups share where they look for their
// fastest configuration. Each of them does it in the same order: its shape is read from the spec
// once, and nothing comes back where the engine does not take it; its configurations are listed,
// those that registers and shared memory have no room for left out; each is estimated in clocks of
// an SM beside what memory takes; the fastest is written down.
#pragma once
#include <cmath>
#include <optional>
#include <utility>

#include "schedule/contraction/depthwise_config.hpp"
#include "schedule/schedule_parts.hpp"

namespace sinter {

// Of groups on tensor cores: clocks in which a quarter of an SM multiplies 16 x 8 x 16 numbers by
// mma, and instructions that it issues a clock.
inline constexpr double kClocksOfMma = 6.5, kIssuedByQuarter = 0.8;

// Whether both operands are of one type of 16 bits, as tensor cores multiply them.
inline bool are_of_16_bits(const KernelSpec& spec, const DepthwiseConfig& parts) {
  const DataType image = spec.ports[static_cast<std::size_t>(parts.image.port)].type,
                 other = spec.ports[static_cast<std::size_t>(parts.other.port)].type;
  return image == other && info(image).bytes == 2;
}

// Whether results see pixels side by side, one for each tap.
inline bool is_plain(const ImageDim& d) { return d.divisor == 1 && d.pixel == 1 && d.tap == 1; }

// Thread blocks of a grid in rounds of `ctas` of an SM: full ones, and what the busiest SM has of
// the last one.
struct Rounds {
  double ctas, full, left;

  Rounds(double grid, double ctas_, double sms) : ctas(ctas_) {
    const double at_once = ctas * sms;
    full = std::floor(grid / at_once);
    left = std::ceil((grid - full * at_once) / sms);
  }
  // Where `n` thread blocks beside each other take clocks(n).
  template <class Clocks>
  double clocks(const Clocks& clocks) const {
    return full * clocks(ctas) + (left > 0 ? clocks(left) : 0);
  }
};

// The fastest configuration of a search so far.
template <class Config>
class Fastest {
 public:
  // Notes the time, without the launch, where it is shorter than all before; the configuration of
  // it is then to be set.
  bool improves(double microseconds) {
    if (found_ && microseconds_ <= microseconds) return false;
    found_ = true;
    microseconds_ = microseconds;
    return true;
  }
  bool found() const { return found_; }
  Config config{};

  // Nothing where none was found.
  std::optional<Config> finished(const KernelSpec& spec, const DeviceModel& device) && {
    if (!found_) return {};
    config.microseconds = device.launch_microseconds + microseconds_;
    config.wide_index = needs_wide_index(spec);
    return std::move(config);
  }

 private:
  bool found_ = false;
  double microseconds_ = 0;
};

}  // namespace sinter
