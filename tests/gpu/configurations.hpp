// Contractions in the configuration that planning chooses, and in all others that it may choose.
#pragma once
#include "gpu/gpu_support.hpp"

namespace sinter::test {

// Each graph in the configuration that planning chooses.
void run_as_chosen(const std::vector<GraphSource>& graphs);

// Of each graph's one kernel, as many configurations that every two properties that go together
// stand in one of them, or one of each kind, or every one, or the likeliest with a tile ("256x96").
struct Configurations {
  bool one_of_a_kind = false, every = false;
  std::string tile{};
  Fill fill = Fill::normal;
};
void run_configurations(const std::vector<GraphSource>& graphs, const Configurations& which);

}  // namespace sinter::test
