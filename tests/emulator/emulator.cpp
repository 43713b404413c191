#include "emulator/emulator.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>

#include "embed/embedded.hpp"
#include "emulator/cluster.hpp"
#include "plan/canonical_text.hpp"
#include "plan/plan_data.hpp"
#include "runtime/executable.hpp"
#include "support/environment.hpp"
#include "support/joined_kernels.hpp"
#include "support/on_all_cores.hpp"
#include "support/temporary_directory.hpp"

namespace sinter::test {
namespace {

namespace fs = std::filesystem;

// clang++ without optimisation, where CMake found one, compiles kernels in half the time of g++
// -Og, and they run a quarter longer: together it takes two thirds. g++ -O0 takes as long as -Og.
// (Six texts of eight kernels, clang++ 14, s of a core: 2.20, of which 1.06 are the front end's and
// 0.19 the linker's; linked by lld 2.24, by gold 2.18; without exceptions and RTTI 2.25, without
// unwind tables 2.18, with the precompiled header's code emitted 2.13. With -O1 319 kernels of the
// corpus compile in 99 s instead of 33, and run in 9 instead of 22.)
constexpr const char* kClang = "-O0";
// Without the first two, libraries would share the variables of their inline functions, and look
// for initialisers of those that are declared in a function. g++ 12's induction variables lead it
// to drop calls that write through pointers.
constexpr const char* kOther = "-Og -fno-gnu-unique -fno-extern-tls-init -fno-ivopts";

// SINTER_EMULATOR_OPTIONS: more for the compiler; -fsanitize=alignment makes kernels stop where
// they read or write at misaligned addresses, and takes half as long again to compile.
std::string more_options() {
  const char* options = std::getenv("SINTER_EMULATOR_OPTIONS");
  return options ? options : "";
}

Diagnostic failure(const PlanKernel& k, std::string seen, Rule rule = Rule::device_error) {
  return {
      .rule = rule, .attribute = "kernel " + k.entry + " on the host:", .seen = std::move(seen)};
}

std::string first_lines(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str().substr(0, 2000);
}

// The blocks of a cluster, which the kernel's text says and its configuration repeats.
std::size_t cluster_of(const PlanKernel& k) {
  std::int64_t blocks = 1;
  for (const auto& [name, value] : k.config)
    if (name == "blocks_per_row" || name == "cluster_m" || name == "cluster_n" || name == "split" ||
        name == "key_blocks")
      blocks *= value;
  return static_cast<std::size_t>(blocks);
}

bool for_hopper(const PlanData& plan) { return plan.architecture == "sm_90a"; }

// Kernels compiled so far, by their canonical text: a copy of the library for each block of a
// cluster. The libraries stay open.
class HostKernels {
 public:
  HostKernels() {
    for (const auto& file : embedded_files()) put(file.name, file.text);
  }
  // Of a device library whose other files, and what stands in front of a kernel's text, are those
  // of `unchanged`: an edited file is found before them.
  HostKernels(const Edit& edit, HostKernels& unchanged) : unchanged_(&unchanged) {
    for (const auto& file : embedded_files())
      if (file.name == edit.file) {
        std::string text(file.text);
        put(file.name, text.replace(text.find(edit.text), edit.text.size(), edit.instead));
      }
  }

  // Compiles the plans' kernels that are new, on all cores and some of them at once. Where those do
  // not compile together, that is said and get() compiles each alone. All plans are for Hopper, or
  // none.
  void prepare(std::span<const Plan> plans) {
    if (plans.empty()) return;
    const bool hopper = for_hopper(plans.front().data());
    std::vector<const PlanKernel*> fresh;
    std::set<std::string> sources;
    for (const Plan& plan : plans)
      for (const PlanKernel& k : plan.data().kernels)
        if (!find(k, hopper) && sources.insert(canonical_text(k)).second) fresh.push_back(&k);
    const auto copies = [&](const PlanKernel& k) { return copies_of(k, hopper); };
    const auto parts = joinable(fresh, kMostJoined, copies);
    on_all_cores(parts.size(), [&](std::size_t i) {
      if (auto compiled = compile(parts[i], hopper); !compiled && parts[i].size() > 1)
        std::fprintf(stderr, "%s\n", compiled.error().message().c_str());
    });
  }

  Result<std::vector<HostKernel>> get(const PlanKernel& k, bool hopper) {
    if (!find(k, hopper)) {
      auto compiled = compile(std::vector{&k}, hopper);
      SINTER_TRY(compiled);
    }
    return *find(k, hopper);
  }

 private:
  void put(std::string_view name, std::string_view text) const {
    const fs::path path = fs::path(folder_.path()) / "include" / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  std::string includes() const {
    const std::string mine = fmt::format("-I'{}'", folder_ / "include");
    return unchanged_ ? mine + " " + unchanged_->includes() : mine;
  }

  // Most of the time of emulated kernels is their compilation, so that little is optimised. Device
  // code looks at memory through words of any type, and its products and sums are not contracted.
  std::string compiler(bool clang) const {
    return fmt::format(
        "'{}' -std=c++20 {} -w -fPIC -fvisibility=hidden -nodefaultlibs -fno-strict-aliasing "
        "-ffp-contract=off {} -I'{}/tests' {}",
        clang ? SINTER_EMULATOR_CXX : SINTER_HOST_CXX, clang ? kClang : kOther, more_options(),
        source_tree(), includes());
  }

  // The command that compiles a text behind what stands in front of every kernel's. To parse that
  // is a third to a half of what a kernel costs, so it is precompiled: clang++ is told where that
  // is, others find it beside the text, and read the text where they cannot use it.
  std::string compiler_behind_beginning(bool hopper, bool may_be_clang) {
    bool clang = false;
    const std::string begin = beginning(hopper, clang);
    clang = clang && may_be_clang;
    return fmt::format("{} {} '{}{}'", compiler(clang), clang ? "-include-pch" : "-include", begin,
                       clang ? ".pch" : "");
  }
  std::string beginning(bool hopper, bool& clang) {
    if (unchanged_) return unchanged_->beginning(hopper, clang);
    const std::lock_guard lock(mutex_);
    const std::string path = folder_ / fmt::format("begin_{:d}.hpp", hopper);
    clang = fs::exists(path + ".pch");
    if (fs::exists(path)) return path;
    std::ofstream(path) << "#define __CUDA_ARCH__ " << (hopper ? 900 : 800)
                        << "\n#include \"emulator/device.hpp\"\n";
    const auto precompile = [&](bool by_clang, const char* more, const char* suffix) {
      const std::string command = fmt::format("{} {} -x c++-header -o '{}{}' '{}' 2> '{}.log'",
                                              compiler(by_clang), more, path, suffix, path, path);
      if (std::system(command.c_str()) == 0) return true;
      fs::remove(path + suffix);
      return false;
    };
    clang = *SINTER_EMULATOR_CXX && precompile(true, "-fpch-instantiate-templates", ".pch");
    if (*SINTER_EMULATOR_CXX && !clang)
      std::fprintf(stderr, "%s does not compile kernels: %s\n", SINTER_EMULATOR_CXX,
                   first_lines(path + ".log").c_str());
    // Where this fails, so does the kernel that includes it, and says why.
    if (!clang) precompile(false, "", ".gch");
    return path;
  }

  static std::size_t copies_of(const PlanKernel& k, bool hopper) {
    return hopper ? cluster_of(k) : 1;
  }

  std::optional<std::vector<HostKernel>> find(const PlanKernel& k, bool hopper) {
    const std::lock_guard lock(mutex_);
    const auto it = found_.find({canonical_text(k), hopper});
    if (it == found_.end()) return {};
    return it->second;
  }

  // One kernel's text as it is, or several joined, which have as many copies.
  Status compile(const std::vector<const PlanKernel*>& kernels, bool hopper) {
    const PlanKernel& first = *kernels.front();
    std::size_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = next_++;
    }
    const std::string at = folder_ / std::to_string(number);
    const bool alone = kernels.size() == 1;
    std::ofstream text(at + ".cpp");
    text << (alone ? first.source : joined(kernels)) << "\n#include \"emulator/launch.hpp\"\n";
    for (const PlanKernel* k : kernels)
      text << "EMULATOR_RUN(" << k->entry << ", " << (alone ? "" : space_of(*k)) << ")\n";
    text.close();
    const auto compiles = [&](bool may_be_clang) {
      // The linker itself: a compiler that is asked for both starts another process of its own,
      // which takes 27 ms, an eighth of a small kernel's compilation.
      const std::string command = fmt::format(
          "{0} -c -o '{1}.o' '{1}.cpp' 2> '{1}.log' && ld -shared -o '{1}.0.so' '{1}.o' 2>> "
          "'{1}.log'",
          compiler_behind_beginning(hopper, may_be_clang), at);
      return std::system(command.c_str()) == 0;
    };
    // What an old clang++ does not know of C++20 is no fault of the kernel.
    if (!compiles(true) && !(alone && *SINTER_EMULATOR_CXX && compiles(false)))
      return failure(first, first_lines(at + ".log"), Rule::compiler_error);
    std::vector<std::vector<HostKernel>> copies(kernels.size());
    for (std::size_t i = 0; i < copies_of(first, hopper); ++i) {
      const std::string copy = at + "." + std::to_string(i) + ".so";
      if (i > 0) fs::copy_file(at + ".0.so", copy);
      void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!library) return failure(first, dlerror());
      for (std::size_t k = 0; k < kernels.size(); ++k) {
        HostKernel& h = copies[k].emplace_back();
        const std::string run = emulator::kKernelName + kernels[k]->entry;
        h.run = reinterpret_cast<emulator::Kernel*>(dlsym(library, run.c_str()));
        h.anchor = reinterpret_cast<emulator::Anchor*>(dlsym(library, emulator::kAnchorName));
        h.start = reinterpret_cast<emulator::Start*>(dlsym(library, emulator::kStartName));
        h.end = reinterpret_cast<emulator::End*>(dlsym(library, emulator::kEndName));
      }
    }
    const std::lock_guard lock(mutex_);
    for (std::size_t k = 0; k < kernels.size(); ++k)
      found_.emplace(std::pair(canonical_text(*kernels[k]), hopper), std::move(copies[k]));
    return Done{};
  }

  HostKernels* unchanged_ = nullptr;
  TemporaryDirectory folder_;
  std::mutex mutex_;
  std::map<std::pair<std::string, bool>, std::vector<HostKernel>> found_;
  std::size_t next_ = 0;
};

constexpr unsigned kWays = 4;  // to run a cluster

// `first_way`: of the first cluster; none: what follows from the kernel's text.
struct Order {
  bool last_first = false;
  std::optional<unsigned> first_way;
};
Status run(const PlanKernel& k, std::vector<HostKernel> kernels, const std::byte* arguments,
           const Order& order = {}) {
  const auto blocks = static_cast<unsigned>(kernels.size());
  auto turn =
      order.first_way.value_or(static_cast<unsigned>(std::hash<std::string>()(k.source) % kWays));
  EmulatedCluster cluster(std::move(kernels), arguments, k.block, k.shared_bytes);
  for (unsigned b = 0; b < k.grid; b += blocks)
    if (auto fault = cluster.run(order.last_first ? k.grid - blocks - b : b, k.grid, turn++);
        !fault.empty())
      return failure(k, std::move(fault));
  return Done{};
}

emulator::BoxMap box_map(const TensorMap& map, const std::byte* pointer) {
  emulator::BoxMap box{};
  box.tensor = reinterpret_cast<const char*>(pointer + map.offset);
  box.rank = static_cast<std::uint8_t>(map.dim.size());
  box.bytes = static_cast<std::uint8_t>(info(map.type).bytes);
  box.swizzle = static_cast<std::uint8_t>(map.swizzle);
  box.tf32 = map.type == DataType::tf32;
  for (int d = 0; d < map.dim.size(); ++d) {
    box.extent[d] = map.dim[d];
    box.step[d] = d == 0 ? box.bytes : map.stride[d - 1];
  }
  std::copy(map.box.begin(), map.box.end(), box.box);
  std::copy(map.lower.begin(), map.lower.end(), box.lower);
  std::copy(map.upper.begin(), map.upper.end(), box.upper);
  std::copy(map.step.begin(), map.step.end(), box.base_step);
  return box;
}

// Where the graph allows it, outputs begin as the inputs in whose place they are.
void run_in_place(const PlanData& plan, std::vector<void*>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PlanTensor& t = plan.tensors[i];
    if (t.alias < 0) continue;
    void*& input = tensors[static_cast<std::size_t>(t.alias)];
    std::memcpy(tensors[i], input, static_cast<std::size_t>(t.bytes));
    input = tensors[i];
  }
}

// What is passed by value, as put_numbers() takes it.
struct HostNumbers {
  std::vector<Number> numbers;
  std::vector<void*> pointers;
  HostNumbers(const PlanData& plan, const std::vector<void*>& tensors);
};
HostNumbers::HostNumbers(const PlanData& plan, const std::vector<void*>& tensors)
    : numbers(tensors.size()), pointers(tensors.size()) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (plan.tensors[i].by_value && tensors[i]) {
      numbers[i] = binding_of(plan.tensors[i], tensors[i]).number;
      pointers[i] = &numbers[i];
    }
}

std::vector<void*> tensors_of(const Plan& plan, GraphCase& memory) {
  std::vector<void*> tensors;
  const HostPointers pointers = memory.memory();
  for (const PlanTensor& t : plan.data().tensors) {
    const auto id = memory.lowered().find(t.name);
    tensors.push_back(id ? pointers.at(*id) : nullptr);
  }
  return tensors;
}

Status run_plan(const Plan& plan, std::vector<void*> tensors, HostKernels& kernels,
                const Order& order = {}) {
  const PlanData& data = plan.data();
  run_in_place(data, tensors);
  const HostNumbers numbers(data, tensors);
  GuardedBuffer workspace(static_cast<std::size_t>(data.workspace_bytes));
  std::memset(workspace.data(), 0xff, workspace.size());
  const bool hopper = for_hopper(data);
  kernels.prepare({&plan, 1});
  for (const PlanKernel& k : data.kernels) {
    auto image = argument_image(data, k);
    SINTER_TRY(image);
    const auto memory_at = [&](bool in_workspace, std::int64_t value) {
      return in_workspace ? workspace.data() + value
                          : static_cast<std::byte*>(tensors[static_cast<std::size_t>(value)]);
    };
    for (const auto& p : image->patches) {
      const void* pointer = memory_at(p.workspace, p.value);
      std::memcpy(image->bytes.data() + p.offset, &pointer, sizeof pointer);
    }
    put_numbers(*image, numbers.pointers, image->bytes.data());
    for (const auto& p : image->maps) {
      const PlanMap& m = k.maps[static_cast<std::size_t>(p.map)];
      const auto map = box_map(m.map, memory_at(m.workspace, m.value));
      std::memcpy(image->bytes.data() + p.offset, &map, sizeof map);
    }
    auto kernel = kernels.get(k, hopper);
    SINTER_TRY(kernel);
    GuardedBuffer arguments(image->bytes.size());  // aligned as tensor maps are
    std::memcpy(arguments.data(), image->bytes.data(), image->bytes.size());
    auto done = run(k, *kernel, arguments.data(), order);
    SINTER_TRY(done);
    if (!workspace.guards_intact()) return failure(k, "writes outside of the workspace");
  }
  return Done{};
}

// Of the device library as it is.
HostKernels& unchanged_kernels() {
  static HostKernels kernels;
  return kernels;
}

}  // namespace

Status emulate_kernel(const PlanKernel& kernel, std::span<const std::byte> arguments,
                      const Edit& edit) {
  std::optional<HostKernels> changed;
  if (!edit.file.empty()) changed.emplace(edit, unchanged_kernels());
  auto compiled = (changed ? *changed : unchanged_kernels()).get(kernel, true);
  SINTER_TRY(compiled);
  GuardedBuffer image(arguments.size());  // aligned as tensor maps are
  std::memcpy(image.data(), arguments.data(), arguments.size());
  return run(kernel, *compiled, image.data());
}

void prepare_emulation(std::span<const Plan> plans) { unchanged_kernels().prepare(plans); }

Status emulate(const Plan& plan, GraphCase& memory, const Edit& edit, bool last_first) {
  const std::vector<void*> tensors = tensors_of(plan, memory);
  if (edit.file.empty()) return run_plan(plan, tensors, unchanged_kernels(), {last_first, {}});
  HostKernels changed(edit, unchanged_kernels());
  for (unsigned way = 0; way < kWays; ++way) {
    if (way > 0) memory.clear_outputs();
    auto ran = run_plan(plan, tensors, changed, {last_first, way});
    if (!ran || !memory.judge().first_wrong.empty()) return ran;
  }
  return Done{};
}

Status emulate(const Plan& plan, const std::vector<void*>& tensors) {
  return run_plan(plan, tensors, unchanged_kernels());
}

}  // namespace sinter::test
