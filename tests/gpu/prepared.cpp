#include "gpu/prepared.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "emulator/emulator.hpp"
#include "gpu/gpu_support.hpp"
#include "plan/plan_data.hpp"
#include "runtime/bindings.hpp"

namespace sinter::test {
namespace {

// What both plans see, by name: inputs and outputs of the case, and what is handed over.
class Tensors {
 public:
  Status run(const Plan& plan, GraphCase& c) {
    const HostPointers pointers = c.memory();
    std::vector<void*> tensors;
    for (const auto& t : plan.tensors()) {
      const auto id = c.lowered().find(t.name);
      const auto own = id ? pointers.find(*id) : pointers.end();
      tensors.push_back(own != pointers.end() ? own->second : handed(t));
    }
    if (emulated()) return emulate(plan, tensors);
    return run_on(test_device(), plan, tensors);
  }

 private:
  void* handed(const Plan::TensorInfo& t) {
    return handed_.try_emplace(t.name, static_cast<std::size_t>(t.bytes)).first->second.data();
  }

  static Status run_on(Device device, const Plan& plan, const std::vector<void*>& tensors) {
    const auto executable = load(plan, device);
    SINTER_TRY(executable);
    const auto infos = plan.tensors();
    std::vector<Memory> memory;
    std::vector<Binding> bindings;
    for (std::size_t i = 0; i < infos.size(); ++i) {
      auto copy = Memory::allocate(infos[i].by_value ? Device::cpu() : device, infos[i].bytes);
      SINTER_TRY(copy);
      auto copied = copy->copy_in(tensors[i], infos[i].bytes);
      SINTER_TRY(copied);
      Binding binding(TensorKey(infos[i].name), *copy);
      if (infos[i].by_value) {
        binding = {TensorKey(infos[i].name), 0};
        binding.number = binding_of(plan.data().tensors[i], tensors[i]).number;
      }
      bindings.push_back(binding);
      memory.push_back(std::move(*copy));
    }
    auto workspace = Memory::allocate(device, std::max<std::int64_t>(plan.workspace_bytes(), 1));
    SINTER_TRY(workspace);
    auto ran = executable->execute(nullptr, bindings, *workspace);
    SINTER_TRY(ran);
    for (std::size_t i = 0; i < infos.size(); ++i) {
      auto copied = memory[i].copy_out(tensors[i], infos[i].bytes);
      SINTER_TRY(copied);
    }
    return Done{};
  }

  std::map<std::string, GuardedBuffer> handed_;
};

}  // namespace

std::string run_prepared(const Prepared& plans, std::span<GraphCase> cases, std::int64_t samples) {
  Tensors tensors;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    GraphCase& c = cases[i];
    c.clear_outputs();
    if (i == 0 && plans.constants)
      if (const Status ran = tensors.run(*plans.constants, c); !ran) return ran.error().message();
    if (i > 0)
      c.take_constants(
          cases[0], plans.constants ? plans.constants->tensors() : std::vector<Plan::TensorInfo>{});
    if (const Status ran = tensors.run(plans.rest, c); !ran) return ran.error().message();
    const Comparison judged = c.judge(samples);
    const std::string call = "prepared, call " + std::to_string(i + 1) + ": ";
    if (!judged.ok())
      return call + std::to_string(judged.wrong) + " of " + std::to_string(judged.compared) +
             " wrong: " + judged.first_wrong;
    if (const std::string stray = c.stray_write(); !stray.empty()) return call + stray;
  }
  return {};
}

}  // namespace sinter::test
