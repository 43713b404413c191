#include "emulator/emulator.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "embed/embedded.hpp"
#include "emulator/block.hpp"
#include "plan/plan_data.hpp"
#include "runtime/executable.hpp"
#include "support/environment.hpp"
#include "support/temporary_directory.hpp"

namespace sinter::test {
namespace {

namespace fs = std::filesystem;

Diagnostic failure(const PlanKernel& k, std::string seen) {
  return {.rule = Rule::compiler_error,
          .attribute = "kernel " + k.entry + " on the host:",
          .seen = std::move(seen)};
}

std::string first_lines(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str().substr(0, 2000);
}

// Kernels compiled so far, by their text. Their libraries stay open.
class HostKernels {
 public:
  HostKernels() {
    for (const auto& file : embedded_files()) {
      const fs::path path = fs::path(folder_.path()) / "include" / file.name;
      fs::create_directories(path.parent_path());
      std::ofstream(path) << file.text;
    }
  }

  Result<emulator::Kernel*> get(const PlanKernel& k) {
    std::size_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = found_.find(k.source); it != found_.end()) return it->second;
      number = next_++;
    }
    auto kernel = compile(k, fs::path(folder_.path()) / std::to_string(number));
    if (!kernel) return kernel;
    const std::lock_guard lock(mutex_);
    return found_.emplace(k.source, *kernel).first->second;
  }

 private:
  Result<emulator::Kernel*> compile(const PlanKernel& k, const fs::path& at) const {
    const std::string source = at.string() + ".cpp", library = at.string() + ".so",
                      log = at.string() + ".log", tests = source_tree() + "/tests";
    std::ofstream(source) << "#include \"emulator/device.hpp\"\n"
                          << k.source
                          << "\nextern \"C\" __attribute__((visibility(\"default\"))) void "
                          << emulator::kKernelName
                          << "(emulator::Machine& m, const void* arguments) {\n  machine = &m;\n  "
                          << k.entry << "(*static_cast<const Args*>(arguments));\n}\n";
    // Device code looks at memory through words of any type, and its products and sums are not
    // contracted.
    const std::string command = std::string(SINTER_HOST_CXX) +
                                " -std=c++20 -O1 -w -fPIC -shared -fvisibility=hidden "
                                "-fno-gnu-unique -fno-extern-tls-init -fno-strict-aliasing "
                                "-ffp-contract=off -I'" +
                                tests + "' -I'" + folder_.path() + "/include" + "' -o '" + library +
                                "' '" + source + "' 2> '" + log + "'";
    if (std::system(command.c_str()) != 0) return failure(k, first_lines(log));
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return failure(k, dlerror());
    return reinterpret_cast<emulator::Kernel*>(dlsym(handle, emulator::kKernelName));
  }

  TemporaryDirectory folder_;
  std::mutex mutex_;
  std::map<std::string, emulator::Kernel*> found_;
  std::size_t next_ = 0;
};

Status run(const PlanKernel& k, emulator::Kernel* kernel, const std::byte* arguments) {
  EmulatedBlock block(kernel, arguments, k.block);
  for (unsigned b = 0; b < k.grid; ++b)
    if (auto hang = block.run(b, k.grid); !hang.empty()) return failure(k, std::move(hang));
  return Done{};
}

}  // namespace

Status emulate(const Plan& plan, GraphCase& memory) {
  static HostKernels kernels;
  const PlanData& data = plan.data();
  std::vector<void*> tensors;
  const HostPointers pointers = memory.memory();
  for (const PlanTensor& t : data.tensors) {
    const auto id = memory.lowered().find(t.name);
    tensors.push_back(id ? pointers.at(*id) : nullptr);
  }
  GuardedBuffer workspace(static_cast<std::size_t>(data.workspace_bytes));
  std::memset(workspace.data(), 0xff, workspace.size());
  for (const PlanKernel& k : data.kernels) {
    auto image = argument_image(data, k);
    SINTER_TRY(image);
    if (!image->maps.empty()) return failure(k, "tensor maps");
    for (const auto& p : image->patches) {
      void* pointer =
          p.workspace ? workspace.data() + p.value : tensors[static_cast<std::size_t>(p.value)];
      std::memcpy(image->bytes.data() + p.offset, &pointer, sizeof pointer);
    }
    auto kernel = kernels.get(k);
    SINTER_TRY(kernel);
    auto done = run(k, *kernel, image->bytes.data());
    SINTER_TRY(done);
  }
  return Done{};
}

}  // namespace sinter::test
