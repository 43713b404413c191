#include "runtime/executable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "plan/map_problem.hpp"
#include "reference/reference.hpp"

namespace sinter {
namespace {

constexpr std::size_t kTensorsOnStack = 512;
constexpr std::size_t kMapAlignment = 64;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Status check_argument(const PlanData& plan, const PlanKernel& kernel, const KernelArgument& a) {
  using enum KernelArgument::Kind;
  const auto bad = [&](std::string seen, std::string allowed) {
    return Diagnostic{
        .rule = Rule::plan_format, .seen = std::move(seen), .allowed = std::move(allowed)};
  };
  const bool value = a.kind == scalar || a.kind == number;
  const int bytes = a.kind == tensor_map ? kTensorMapBytes : 8;
  if (value ? a.bytes != 1 && a.bytes != 2 && a.bytes != 4 && a.bytes != 8 : a.bytes != bytes)
    return bad(fmt::format("{} bytes", a.bytes), value ? "1, 2, 4 or 8" : std::to_string(bytes));
  const auto tensors = static_cast<std::int64_t>(plan.tensors.size());
  if (a.kind == tensor && (a.value < 0 || a.value >= tensors))
    return bad(fmt::format("tensor {}", a.value), fmt::format("0 to {}", tensors - 1));
  if (a.kind == number || a.kind == integer) {
    if (a.value < 0 || a.value >= tensors ||
        !plan.tensors[static_cast<std::size_t>(a.value)].by_value || a.bytes < 4)
      return bad(fmt::format("tensor {} of {} bytes", a.value, a.bytes),
                 "a tensor that is passed by value, in 4 or 8 bytes");
  }
  if (a.kind == workspace && (a.value < 0 || a.value > plan.workspace_bytes))
    return bad(fmt::format("workspace offset {}", a.value),
               fmt::format("0 to {}", plan.workspace_bytes));
  if (a.kind != tensor_map) return Done{};
  const auto maps = static_cast<std::int64_t>(kernel.maps.size());
  if (a.value < 0 || a.value >= maps)
    return bad(fmt::format("tensor map {}", a.value), fmt::format("0 to {}", maps - 1));
  const auto problem = map_problem(plan, kernel.maps[static_cast<std::size_t>(a.value)]);
  if (problem) return bad(fmt::format("{} {}", problem->field, problem->seen), problem->allowed);
  return Done{};
}

Diagnostic map_failure(const Driver& driver, const PlanData& plan, const LoadedKernel& k,
                       const MapPatch& patch, CUresult result) {
  Diagnostic d = driver_error(driver, "cuTensorMapEncodeTiled", result);
  d.attribute = fmt::format("kernel {}, tensor map {}", k.source->entry, patch.map);
  if (patch.workspace)
    d.attribute += fmt::format(" of the workspace from {} on:", patch.value);
  else
    d.attribute += ":", d.tensor = plan.tensors[static_cast<std::size_t>(patch.value)].name;
  return d;
}

Status launch_one(const Driver& driver, const LoadedKernel& k, CUstream stream,
                  const std::byte* arguments) {
  auto launched = launch(driver, k.launch, stream, const_cast<std::byte*>(arguments));
  if (launched) return launched;
  Diagnostic d = launched.error();
  d.attribute = fmt::format("kernel {}:", k.source->entry);
  return d;
}

// For very large graphs; allocates once a thread.
void** many_pointers(std::size_t count) {
  static thread_local std::vector<void*> pointers;
  if (pointers.size() < count) pointers.resize(count);
  return pointers.data();
}

}  // namespace

Result<ArgumentImage> argument_image(const PlanData& plan, const PlanKernel& kernel) {
  ArgumentImage image;
  std::size_t largest = 1;
  for (std::size_t i = 0; i < kernel.arguments.size(); ++i) {
    const KernelArgument& a = kernel.arguments[i];
    if (auto checked = check_argument(plan, kernel, a); !checked) {
      Diagnostic d = checked.error();
      d.attribute = fmt::format("kernel {}, argument {}", kernel.entry, i);
      return d;
    }
    const auto bytes = static_cast<std::size_t>(a.bytes);
    const std::size_t alignment = std::min(bytes, kMapAlignment);
    const std::size_t offset = round_up(image.bytes.size(), alignment);
    largest = std::max(largest, alignment);
    image.bytes.resize(offset + bytes);
    if (a.kind == KernelArgument::Kind::scalar)
      std::memcpy(image.bytes.data() + offset, &a.value, bytes);
    else if (a.kind == KernelArgument::Kind::number || a.kind == KernelArgument::Kind::integer)
      image.numbers.push_back({static_cast<std::uint32_t>(offset),
                               static_cast<std::uint32_t>(a.bytes),
                               a.kind == KernelArgument::Kind::integer,
                               plan.tensors[static_cast<std::size_t>(a.value)].type, a.value});
    else if (a.kind == KernelArgument::Kind::tensor_map)
      image.maps.push_back(map_patch(kernel.maps[static_cast<std::size_t>(a.value)],
                                     static_cast<std::uint32_t>(offset), a.value));
    else
      image.patches.push_back(
          {static_cast<std::uint32_t>(offset), a.kind == KernelArgument::Kind::workspace, a.value});
  }
  image.bytes.resize(round_up(image.bytes.size(), largest));
  if (image.bytes.size() > kMaxArgumentBytes)
    return Diagnostic{.rule = Rule::plan_format,
                      .attribute = fmt::format("kernel {}, arguments", kernel.entry),
                      .seen = fmt::format("{} bytes", image.bytes.size()),
                      .allowed = fmt::format("at most {}", kMaxArgumentBytes)};
  return image;
}

void put_numbers(const ArgumentImage& image, std::span<void* const> pointers,
                 std::byte* arguments) {
  for (const auto& patch : image.numbers) {
    const auto& number =
        *static_cast<const Number*>(pointers[static_cast<std::size_t>(patch.tensor)]);
    const auto put = [&](const auto value) {
      std::memcpy(arguments + patch.offset, &value, sizeof value);
    };
    if (patch.integer)
      put(integer(patch.type, number));
    else if (patch.bytes == 4)
      put(static_cast<float>(rounded(patch.type, number)));
    else
      put(rounded(patch.type, number));
  }
}

Executable::Impl::Impl(Plan p, Device d) : plan(p), device(d), bindings(plan.data().tensors) {}

Status Executable::Impl::check(std::span<const Binding> found, Workspace workspace,
                               std::span<void*> pointers) const {
  auto resolved = bindings.resolve(found, pointers);
  SINTER_TRY(resolved);
  auto large = check_workspace(workspace, plan.data().workspace_bytes);
  SINTER_TRY(large);
  return check_overlaps(plan.data().tensors, pointers, workspace, plan.data().workspace_bytes);
}

Status Executable::Impl::complete(const LoadedKernel& k, std::span<void* const> pointers,
                                  Workspace workspace, std::byte* arguments) const {
  const auto memory = [&](const auto& patch) {
    return patch.workspace
               ? static_cast<std::byte*>(workspace.pointer) + patch.value
               : static_cast<std::byte*>(pointers[static_cast<std::size_t>(patch.value)]);
  };
  std::copy(k.arguments.bytes.begin(), k.arguments.bytes.end(), arguments);
  for (const auto& patch : k.arguments.patches) {
    const void* pointer = memory(patch);
    std::memcpy(arguments + patch.offset, &pointer, sizeof pointer);
  }
  put_numbers(k.arguments, pointers, arguments);
  for (const auto& patch : k.arguments.maps) {
    const CUresult r = encode_map(*driver, patch, memory(patch), arguments + patch.offset);
    if (r != CUDA_SUCCESS) return map_failure(*driver, plan.data(), k, patch, r);
  }
  return Done{};
}

Status Executable::Impl::launch(CUstream stream, std::span<void* const> pointers,
                                Workspace workspace) const {
  ContextScope scope;
  auto entered = scope.enter(*driver, context);
  SINTER_TRY(entered);
  alignas(16) std::array<std::byte, kMaxArgumentBytes> buffer;  // left as it is: filled as needed
  for (const LoadedKernel& k : kernels) {
    if (k.source->grid == 0) continue;
    auto complete = this->complete(k, pointers, workspace, buffer.data());
    SINTER_TRY(complete);
    auto launched = launch_one(*driver, k, stream, buffer.data());
    SINTER_TRY(launched);
  }
  return Done{};
}

Status Executable::Impl::launch(CUstream stream, std::span<const std::vector<std::byte>> arguments,
                                std::span<void* const> pointers) const {
  ContextScope scope;
  auto entered = scope.enter(*driver, context);
  SINTER_TRY(entered);
  alignas(16) std::array<std::byte, kMaxArgumentBytes> buffer;  // of the kernels that take numbers
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const LoadedKernel& k = kernels[i];
    if (k.source->grid == 0) continue;
    const std::byte* complete = arguments[i].data();
    if (!pointers.empty() && !k.arguments.numbers.empty()) {
      std::copy(arguments[i].begin(), arguments[i].end(), buffer.data());
      put_numbers(k.arguments, pointers, buffer.data());
      complete = buffer.data();
    }
    auto launched = launch_one(*driver, k, stream, complete);
    SINTER_TRY(launched);
  }
  return Done{};
}

Status Executable::Impl::evaluate_on_cpu(std::span<void* const> pointers) const {
  const auto& tensors = plan.data().tensors;
  HostPointers memory;
  std::vector<std::vector<std::byte>> copies(tensors.size());  // numbers, inputs written in place
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    if (lowered_ids[i] == kNoTensor) continue;
    memory[lowered_ids[i]] = pointers[i];
    if (!tensors[i].by_value || !pointers[i]) continue;
    copies[i].resize(sizeof(double));
    store_number(tensors[i].type, *static_cast<const Number*>(pointers[i]), copies[i].data());
    memory[lowered_ids[i]] = copies[i].data();
  }
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    if (tensors[i].alias < 0) continue;
    const auto in = static_cast<std::size_t>(tensors[i].alias);
    if (pointers[i] != pointers[in] || !pointers[in] || lowered_ids[in] == kNoTensor) continue;
    const auto* const bytes = static_cast<const std::byte*>(pointers[in]);
    copies[in].assign(bytes, bytes + tensors[in].bytes);
    memory[lowered_ids[in]] = copies[in].data();
  }
  return evaluate(*lowered.graph, memory);
}

Status Executable::execute(Stream stream, std::span<const Binding> bindings,
                           Workspace workspace) const {
  const Impl& impl = *impl_;
  const std::size_t tensors = impl.plan.data().tensors.size();
  std::array<void*, kTensorsOnStack> few;
  const std::span<void*> pointers(tensors > few.size() ? many_pointers(tensors) : few.data(),
                                  tensors);
  auto checked = impl.check(bindings, workspace, pointers);
  SINTER_TRY(checked);
  if (impl.device.is_cpu()) return impl.evaluate_on_cpu(pointers);
  return impl.launch(static_cast<CUstream>(stream), pointers, workspace);
}

Status Executable::execute(Stream stream, std::initializer_list<Binding> bindings,
                           Workspace workspace) const {
  return execute(stream, std::span<const Binding>(bindings.begin(), bindings.size()), workspace);
}

Result<BoundExecutable> Executable::bind(std::span<const Binding> bindings,
                                         Workspace workspace) const {
  const Impl& impl = *impl_;
  const auto& tensors = impl.plan.data().tensors;
  BoundExecutable::Impl bound{impl_, {}, std::vector<void*>(tensors.size()), {}};
  auto checked = impl.check(bindings, workspace, bound.pointers);
  SINTER_TRY(checked);
  bound.numbers.resize(tensors.size());  // that live as long as what is bound
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].by_value || !bound.pointers[i]) continue;
    bound.numbers[i] = *static_cast<const Number*>(bound.pointers[i]);
    bound.pointers[i] = &bound.numbers[i];
  }
  ContextScope scope;  // the driver encodes no tensor map without one
  if (!impl.kernels.empty()) {
    auto entered = scope.enter(*impl.driver, impl.context);
    SINTER_TRY(entered);
  }
  for (const LoadedKernel& k : impl.kernels) {
    std::vector<std::byte>& arguments = bound.arguments.emplace_back(k.arguments.bytes.size());
    if (k.source->grid == 0) continue;
    auto complete = impl.complete(k, bound.pointers, workspace, arguments.data());
    SINTER_TRY(complete);
  }
  return BoundExecutable(Shared<const BoundExecutable::Impl>::make(std::move(bound)));
}

Result<BoundExecutable> Executable::bind(std::initializer_list<Binding> bindings,
                                         Workspace workspace) const {
  return bind(std::span<const Binding>(bindings.begin(), bindings.size()), workspace);
}

Status BoundExecutable::execute(Stream stream) const {
  const Executable::Impl& impl = *impl_->executable;
  if (impl.device.is_cpu()) return impl.evaluate_on_cpu(impl_->pointers);
  return impl.launch(static_cast<CUstream>(stream), impl_->arguments, {});
}

Status BoundExecutable::execute(Stream stream, std::span<const Binding> numbers) const {
  const Executable::Impl& impl = *impl_->executable;
  std::array<void*, kTensorsOnStack> few;
  const std::size_t tensors = impl_->pointers.size();
  const std::span<void*> pointers(tensors > few.size() ? many_pointers(tensors) : few.data(),
                                  tensors);
  std::copy(impl_->pointers.begin(), impl_->pointers.end(), pointers.begin());
  auto placed = impl.bindings.renumber(numbers, pointers);
  SINTER_TRY(placed);
  if (impl.device.is_cpu()) return impl.evaluate_on_cpu(pointers);
  return impl.launch(static_cast<CUstream>(stream), impl_->arguments, pointers);
}

Status BoundExecutable::execute(Stream stream, std::initializer_list<Binding> numbers) const {
  return execute(stream, std::span<const Binding>(numbers.begin(), numbers.size()));
}

const Plan& Executable::plan() const { return impl_->plan; }
Device Executable::device() const { return impl_->device; }
std::int64_t Executable::workspace_bytes() const { return impl_->plan.data().workspace_bytes; }

}  // namespace sinter
