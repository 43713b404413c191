// What a loaded plan consists of. Everything here is made by load() and never changes, so execute()
// needs no lock and allocates nothing.
#pragma once
#include <memory>
#include <vector>

#include "lower/lower.hpp"
#include "plan/plan_data.hpp"
#include "runtime/bindings.hpp"
#include "runtime/launch.hpp"
#include "runtime/map_patch.hpp"
#include "runtime/module.hpp"
#include "sinter/compile.hpp"

namespace sinter {

// Larger argument structs are not launched; the number is CUDA's own limit since 12.1.
inline constexpr std::size_t kMaxArgumentBytes = 32764;

// A kernel's argument struct with its scalars in place, and where the pointers go.
struct ArgumentImage {
  struct Patch {
    std::uint32_t offset = 0;
    bool workspace = false;
    std::int64_t value = 0;  // position of the tensor, or byte offset in the workspace
  };
  std::vector<std::byte> bytes;
  struct NumberPatch {  // of a tensor that is passed by value
    std::uint32_t offset = 0;
    std::uint32_t bytes = 8;
    bool integer = false;
    DataType type{};  // of the tensor
    std::int64_t tensor = 0;
  };
  std::vector<Patch> patches;
  std::vector<NumberPatch> numbers;
  std::vector<MapPatch> maps;
};

// plan_format where an argument does not fit the plan.
Result<ArgumentImage> argument_image(const PlanData& plan, const PlanKernel& kernel);

// pointers[i]: to the Number of tensor i, where it is passed by value.
void put_numbers(const ArgumentImage& image, std::span<void* const> pointers, std::byte* arguments);

struct LoadedKernel {
  std::shared_ptr<const Module> module;
  Launch launch;
  ArgumentImage arguments;
  const PlanKernel* source = nullptr;  // in the plan
};

struct Executable::Impl {
  Plan plan;
  Device device;
  BindingTable bindings;
  // GPU
  const Driver* driver = nullptr;
  CUcontext context = nullptr;
  std::vector<LoadedKernel> kernels;
  // CPU
  Lowered lowered;
  std::vector<TensorId> lowered_ids;  // of each plan tensor; kNoTensor where nothing reads it

  Impl(Plan p, Device d);
  // pointers[i] becomes the memory of the plan's tensor i, as execute() promises.
  Status check(std::span<const Binding> found, Workspace workspace,
               std::span<void*> pointers) const;
  // Completes a kernel's argument struct: pointers and tensor maps. `arguments` has room for it.
  Status complete(const LoadedKernel& k, std::span<void* const> pointers, Workspace workspace,
                  std::byte* arguments) const;
  Status launch(CUstream stream, std::span<void* const> pointers, Workspace workspace) const;
  // With complete argument structs, one a kernel; `pointers`, where there are any, to numbers that
  // take the place of those in them.
  Status launch(CUstream stream, std::span<const std::vector<std::byte>> arguments,
                std::span<void* const> pointers) const;
  Status evaluate_on_cpu(std::span<void* const> pointers) const;
};

struct BoundExecutable::Impl {
  Shared<const Executable::Impl> executable;
  std::vector<std::vector<std::byte>> arguments;  // GPU: one a kernel
  std::vector<void*> pointers;                    // one a tensor
  std::vector<Number> numbers;                    // one a tensor, where any is passed by value
};

}  // namespace sinter
