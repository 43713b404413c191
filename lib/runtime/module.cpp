#include "runtime/module.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>

namespace sinter {
namespace {

constexpr std::uint16_t kMachineCuda = 190;  // EM_CUDA

// Whether `count` records of `size` bytes at `offset` lie inside `total` bytes.
bool inside(std::uint64_t offset, std::uint64_t count, std::uint64_t size, std::uint64_t total) {
  return offset <= total && (size == 0 || count <= (total - offset) / size);
}

}  // namespace

std::string check_machine_code(std::string_view bytes) {
  Elf64_Ehdr h;
  if (bytes.size() < sizeof h)
    return fmt::format("{} bytes, less than an ELF header", bytes.size());
  std::memcpy(&h, bytes.data(), sizeof h);
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return "no ELF file";
  if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB)
    return "not a 64-bit little-endian ELF file";
  if (h.e_machine != kMachineCuda) return fmt::format("machine {}, not CUDA", h.e_machine);
  if (h.e_shnum > 0 && h.e_shentsize != sizeof(Elf64_Shdr)) return "a damaged section table";
  if (h.e_phnum > 0 && h.e_phentsize != sizeof(Elf64_Phdr)) return "a damaged segment table";
  if (!inside(h.e_shoff, h.e_shnum, sizeof(Elf64_Shdr), bytes.size()))
    return "a section table past the end";
  if (!inside(h.e_phoff, h.e_phnum, sizeof(Elf64_Phdr), bytes.size()))
    return "a segment table past the end";
  if (h.e_shnum > 0 && h.e_shstrndx >= h.e_shnum) return "a damaged section table";
  for (std::uint64_t i = 0; i < h.e_shnum; ++i) {
    Elf64_Shdr s;
    std::memcpy(&s, bytes.data() + h.e_shoff + i * sizeof s, sizeof s);
    if (s.sh_type != SHT_NOBITS && !inside(s.sh_offset, s.sh_size, 1, bytes.size()))
      return fmt::format("section {} past the end", i);
  }
  return {};
}

Result<std::shared_ptr<const Module>> Module::load(const Driver& driver, CUcontext context,
                                                   std::string_view machine_code) {
  CUmodule module = nullptr;
  auto loaded =
      check(driver, "cuModuleLoadData", driver.module_load_data(&module, machine_code.data()));
  SINTER_TRY(loaded);
  return std::shared_ptr<const Module>(new Module(driver, context, module));
}

// Errors have no reader here: at the end of the process the driver may be gone, and the module with
// it.
Module::~Module() {
  ContextScope scope;
  if (scope.enter(driver_, context_)) driver_.module_unload(module_);
}

Result<CUfunction> Module::function(const std::string& entry, std::uint32_t block,
                                    std::size_t argument_bytes) const {
  CUfunction function = nullptr;
  auto found = check(driver_, "cuModuleGetFunction",
                     driver_.module_get_function(&function, module_, entry.c_str()));
  SINTER_TRY(found);
  // The query also loads the function where the driver loads lazily, which it could not do later in
  // a stream capture.
  int threads = 0;
  auto asked = check(
      driver_, "cuFuncGetAttribute",
      driver_.func_get_attribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  SINTER_TRY(asked);
  if (block > static_cast<std::uint32_t>(threads))
    return Diagnostic{.rule = Rule::plan_format,
                      .attribute = fmt::format("kernel {}, block", entry),
                      .seen = std::to_string(block),
                      .allowed = fmt::format("at most {}", threads)};
  std::size_t offset = 0, bytes = 0;
  if (driver_.func_get_param_info &&
      driver_.func_get_param_info(function, 0, &offset, &bytes) == CUDA_SUCCESS &&
      bytes != argument_bytes)
    return Diagnostic{.rule = Rule::plan_format,
                      .attribute = fmt::format("kernel {}, arguments", entry),
                      .seen = fmt::format("{} bytes", argument_bytes),
                      .allowed = fmt::format("{}, as the machine code says", bytes)};
  return function;
}

}  // namespace sinter
