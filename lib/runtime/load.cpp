// Loading a plan on a device: machine code from the plan, the cache or NVRTC (all kernels at once,
// on all cores), then everything resolved, so that execute() has nothing left to find out.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "plan/canonical_text.hpp"
#include "plan/tensor_names.hpp"
#include "runtime/compiler.hpp"
#include "runtime/executable.hpp"
#include "sinter/json.hpp"
#include "target/device_model.hpp"
#include "target/target.hpp"

namespace sinter {
namespace {

// Kernels whose texts differ in names alone share one.
struct Unit {
  const PlanKernel* kernel;
  std::uint32_t shared_bytes = 0;  // the most that any of them takes
  std::string_view from_plan{};    // machine code for the target
  Result<std::string> compiled = std::string();
  std::shared_ptr<const Module> module{};

  std::string_view machine_code() const { return from_plan.empty() ? *compiled : from_plan; }
};

using UnitKey = std::pair<std::string_view, std::string>;  // entry, canonical_text()
using Units = std::map<UnitKey, Unit>;

Status check_kernel(const PlanKernel& k) {
  const auto bad = [&](const char* field, std::uint32_t seen, std::uint32_t low,
                       std::uint32_t high) {
    return Diagnostic{.rule = Rule::plan_format,
                      .attribute = fmt::format("kernel {}, {}", k.entry, field),
                      .seen = std::to_string(seen),
                      .allowed = fmt::format("{} to {}", low, high)};
  };
  if (k.grid > kMaxGrid) return bad("grid", k.grid, 0, kMaxGrid);
  if (k.block < 1 || k.block > kMaxBlock) return bad("block", k.block, 1, kMaxBlock);
  if (k.shared_bytes > most_shared_bytes())
    return bad("shared_bytes", k.shared_bytes, 0, most_shared_bytes());
  return Done{};
}

Status check_architecture(const PlanData& plan, const std::string& target) {
  if (target_fits(plan.architecture, target)) return Done{};
  return Diagnostic{.rule = Rule::plan_target,
                    .attribute = fmt::format("the plan for {}", plan.architecture),
                    .seen = fmt::format("a device of target {}", target),
                    .fix = fmt::format("plan the graph again for {}", target)};
}

// Compiles what has no machine code.
void compile_units(Units& units, std::string_view target, const PlanOptions& options) {
  std::vector<CompileRequest> requests;
  std::vector<Unit*> fresh;
  for (auto& [key, unit] : units)
    if (unit.from_plan.empty()) {
      requests.push_back({key.second, key.first, target});
      fresh.push_back(&unit);
    }
  if (fresh.empty()) return;
  auto compiled = compile_kernels(requests, options);
  for (std::size_t i = 0; i < fresh.size(); ++i) fresh[i]->compiled = std::move(compiled[i]);
}

Diagnostics compile_failure(const Unit& unit, std::string_view target) {
  Diagnostics errors = with_names(unit.compiled.errors(), *unit.kernel);
  if (errors.front().rule == Rule::compiler_missing)
    errors.push_back({.rule = Rule::plan_target,
                      .attribute = fmt::format("kernel {}", unit.kernel->entry),
                      .seen = fmt::format("a device of target {}", target),
                      .fix = "make the plan with this target where NVRTC is installed"});
  return errors;
}

Status load_module(Unit& unit, const Driver& driver, CUcontext context, std::string_view target) {
  if (!unit.compiled) return compile_failure(unit, target);
  if (auto problem = check_machine_code(unit.machine_code()); !problem.empty())
    return Diagnostic{
        .rule = unit.from_plan.empty() ? Rule::compiler_error : Rule::plan_format,
        .attribute = fmt::format("kernel {}, machine code for {}:", unit.kernel->entry, target),
        .seen = problem};
  auto module = Module::load(driver, context, unit.machine_code());
  SINTER_TRY(module);
  unit.module = std::move(*module);
  return Done{};
}

// The units, with machine code for those that run, and the one of each kernel.
std::pair<Units, std::vector<Unit*>> make_units(const PlanData& plan, const std::string& target,
                                                const PlanOptions& options) {
  std::pair<Units, std::vector<Unit*>> result;
  auto& [units, of_kernel] = result;
  for (const PlanKernel& k : plan.kernels) {
    Unit& unit =
        units.try_emplace(UnitKey{k.entry, canonical_text(k)}, Unit{.kernel = &k}).first->second;
    of_kernel.push_back(&unit);
    unit.shared_bytes = std::max(unit.shared_bytes, k.shared_bytes);
    if (const auto code = k.machine_code.find(target); code != k.machine_code.end())
      if (unit.from_plan.empty()) unit.from_plan = code->second;
  }
  compile_units(units, target, options);
  return result;
}

Status check_maps(const Driver& driver, const PlanKernel& k, const ArgumentImage& image) {
  if (image.maps.empty() || (driver.tensor_map_encode_tiled && driver.tensor_map_encode_im2col))
    return Done{};
  return Diagnostic{.rule = Rule::device_error,
                    .attribute = fmt::format("kernel {} takes tensor maps:", k.entry),
                    .seen = fmt::format("{} has no cuTensorMapEncodeTiled", driver.path),
                    .fix = "install driver 12.0 or later"};
}

// A launch gives only 48 KB unasked, less what the kernel declares itself.
Status allow_shared(const Driver& driver, CUfunction function, const PlanKernel& k,
                    std::uint32_t bytes) {
  if (bytes == 0) return Done{};
  auto allowed =
      check(driver, "cuFuncSetAttribute",
            driver.func_set_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      static_cast<int>(bytes)));
  if (allowed) return allowed;
  Diagnostic d = allowed.error();
  d.attribute = fmt::format("kernel {}, {} bytes of shared memory:", k.entry, bytes);
  return d;
}

Result<LoadedKernel> load_kernel(const Driver& driver, const PlanData& plan, const PlanKernel& k,
                                 const Unit& unit, std::string_view target) {
  auto image = argument_image(plan, k);
  SINTER_TRY(image);
  auto encodable = check_maps(driver, k, *image);
  SINTER_TRY(encodable);
  auto function = unit.module->function(k.entry, k.block, image->bytes.size());
  SINTER_TRY(function);
  auto allowed = allow_shared(driver, *function, k, unit.shared_bytes);
  SINTER_TRY(allowed);
  return LoadedKernel{unit.module, make_launch(driver, k, *function, target), std::move(*image),
                      &k};
}

Result<Executable> load_on_gpu(const Plan& plan, Device device, const PlanOptions& options) {
  auto target = device.target();
  SINTER_TRY(target);
  auto driver = sinter::driver();
  SINTER_TRY(driver);
  Executable::Impl impl(plan, device);
  impl.driver = *driver;
  const PlanData& data = impl.plan.data();
  auto fits = check_architecture(data, *target);
  SINTER_TRY(fits);
  for (const PlanKernel& k : data.kernels) {
    auto checked = check_kernel(k);
    SINTER_TRY(checked);
  }
  const auto [units, of_kernel] = make_units(data, *target, options);
  ContextScope scope;
  auto entered = scope.enter(device.ordinal());
  SINTER_TRY(entered);
  impl.context = scope.context();
  for (std::size_t i = 0; i < data.kernels.size(); ++i) {
    const PlanKernel& k = data.kernels[i];
    Unit& unit = *of_kernel[i];
    if (!unit.module) {
      auto loaded = load_module(unit, **driver, impl.context, *target);
      SINTER_TRY(loaded);
    }
    auto kernel = load_kernel(**driver, data, k, unit, *target);
    SINTER_TRY(kernel);
    impl.kernels.push_back(std::move(*kernel));
  }
  return Executable(Shared<const Executable::Impl>::make(std::move(impl)));
}

// The CPU evaluates the graph: it reads the constants themselves, and not what kernels make of
// them. A graph whose kernels do that alone computes nothing here.
Result<Executable> load_on_cpu(const Plan& plan) {
  PlanData data = plan.data();
  const bool computes = std::any_of(data.tensors.begin(), data.tensors.end(),
                                    [](const PlanTensor& t) { return t.written && !t.kept; });
  Lowered lowered{std::make_unique<Graph>(), {}, {}};
  if (computes) {
    auto graph = graph_from_json(data.graph_json, "the plan's graph");
    SINTER_TRY(graph);
    const TensorNames names(**graph);
    for (PlanTensor& t : data.tensors)
      if (const TensorId id = names.find(t.name); id >= 0 && !t.written)
        t.read = (**graph)[id].read;
    lowered = lower(**graph);
  }
  Executable::Impl impl(Plan(Shared<const PlanData>::make(std::move(data))), Device::cpu());
  impl.lowered = std::move(lowered);
  const TensorNames names(*impl.lowered.graph);
  for (const PlanTensor& t : plan.data().tensors) impl.lowered_ids.push_back(names.find(t.name));
  return Executable(Shared<const Executable::Impl>::make(std::move(impl)));
}

}  // namespace

Result<Executable> load(const Plan& plan, Device device) {
  return device.is_cpu() ? load_on_cpu(plan) : load_on_gpu(plan, device, {});
}

Result<Executable> compile(Graph& graph, Device device, PlanOptions options) {
  if (options.architecture.empty()) {
    auto target = device.target();
    SINTER_TRY(target);
    options.architecture = std::move(*target);
  }
  auto plan = Plan::make(graph, options);
  SINTER_TRY(plan);
  return device.is_cpu() ? load_on_cpu(*plan) : load_on_gpu(*plan, device, options);
}

}  // namespace sinter
