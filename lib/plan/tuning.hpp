// What was measured to be fastest, for planning to use in place of its own estimate.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace sinter {

// Of each problem's text, the text of the best configuration; see KernelChoice.
struct Tuning {
  std::map<std::string, std::string> best;
};

// What a kernel could be configured as: the problem it solves, as a text that is the same for every
// kernel with the same choice to make, and the configurations, the likeliest first.
struct KernelChoice {
  std::string problem;
  std::vector<std::string> configurations;
  std::vector<double> microseconds;  // estimated, of each configuration
};

}  // namespace sinter
