// Machine code loaded on a device. The driver is told no length, so what it is given is checked
// first: a damaged file must not make it read past the end.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "runtime/driver.hpp"

namespace sinter {

// Empty when the bytes are a 64-bit ELF file whose tables and sections lie inside them.
std::string check_machine_code(std::string_view bytes);

class Module {
 public:
  // The device's context must be current.
  static Result<std::shared_ptr<const Module>> load(const Driver& driver, CUcontext context,
                                                    std::string_view machine_code);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module();

  // The function, loaded onto the device now rather than at its first launch. `block` threads and
  // `argument_bytes` are checked against what it was compiled for.
  Result<CUfunction> function(const std::string& entry, std::uint32_t block,
                              std::size_t argument_bytes) const;

 private:
  Module(const Driver& driver, CUcontext context, CUmodule module)
      : driver_(driver), context_(context), module_(module) {}
  const Driver& driver_;
  CUcontext context_;
  CUmodule module_;
};

}  // namespace sinter
