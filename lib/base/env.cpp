#include "base/env.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace sinter {
namespace {

constexpr EnvVariable kVariables[] = {
    {"SINTER_APPROVE", "tests: 1 rewrites the golden files instead of comparing with them"},
    {"SINTER_BUILD_DIR", "tools/: build directory instead of build/"},
    {"SINTER_CACHE", "off: compiled kernels are not kept on disk"},
    {"SINTER_CACHE_DIR", "directory of the kernel cache (default: sinter in the user's cache)"},
    {"SINTER_CACHE_LIMIT_MB", "size of the kernel cache on disk in MiB (default 512)"},
    {"SINTER_CORPUS_PART", "tests: `3/14` runs the third of 14 parts of the corpus graphs"},
    {"SINTER_DEPTHWISE",
     "tests: mma (as on three SMs), rows (CUDA cores, pixels by TMA), planes (of images "
     "channels "
     "first, in shared memory) or ordinary: where depthwise convolutions run if they can"},
    {"SINTER_DRIVER", "path of libcuda, tried instead of the usual places"},
    {"SINTER_EMULATOR_OPTIONS",
     "tests: more for the compiler of emulated kernels; `-fsanitize=alignment` finds misaligned "
     "packs"},
    {"SINTER_FAILURE_DIR", "tests: folder that takes the graphs that failed"},
    {"SINTER_FUZZ_COMPILE", "tests: how many random graphs are compiled"},
    {"SINTER_FUZZ_GRAPHS", "tests: how many random graphs are planned"},
    {"SINTER_FUZZ_VALUES", "tests: how many random graphs are computed"},
    {"SINTER_GPU_FIRST", "tests: seed of the first random graph on the GPU"},
    {"SINTER_GPU_GRAPHS", "tests: how many random graphs run on the GPU"},
    {"SINTER_GPU_OFTEN",
     "tests: the maker of nodes that random graphs on the GPU have often, such as `moe` or "
     "`written_attention`"},
    {"SINTER_GPU_SEEDS", "tests: seeds of the random graphs to run on the GPU, with commas"},
    {"SINTER_LINE_INFO", "on: machine code tells profilers the lines of its source"},
    {"SINTER_NVRTC", "path of libnvrtc, tried instead of the usual places"},
    {"SINTER_REARRANGE",
     "tests: on: operands of convolutions are rearranged wherever they can be, faster or not; "
     "first, last: in the first or the last of several ways"},
    {"SINTER_SANITIZE_GRAPHS", "tests: how many random graphs run under compute-sanitizer"},
    {"SINTER_SLOW_DEVICE",
     "tests: plans as for a device so many times slower, which small shapes fill as large ones do"},
    {"SINTER_SPLIT_ELEMENTS",
     "tests: least elements of a block where a reduction is cut in parts; where it is set, any "
     "filter's gradient in a class of extents is cut by images"},
    {"SINTER_TEST_DATA", "tests: the source tree, where it has moved since they were built"},
    {"SINTER_TEST_DEVICE",
     "tests: cpu, interpreter, interpreter_sm_90a, emulator or emulator_sm_90a instead of a GPU"},
    {"SINTER_TUNING_FILE", "measured configurations that planning uses, see sinter tune"},
    {"SINTER_WORKLOADS", "tools/gpu_check: folder of graphs to benchmark"},
};

}  // namespace

std::span<const EnvVariable> env_variables() { return kVariables; }

std::string env_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::vector<std::string> unknown_env_variables() {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    if (!text.starts_with("SINTER_")) continue;
    const std::string_view name = text.substr(0, text.find('='));
    const bool known = std::any_of(std::begin(kVariables), std::end(kVariables),
                                   [&](const EnvVariable& v) { return v.name == name; });
    if (!known) unknown.emplace_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

}  // namespace sinter
