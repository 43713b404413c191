// The smallest bytes that pass as machine code: an ELF header for CUDA and no sections. Only the
// fake driver loads them.
#pragma once
#include <elf.h>

#include <cstring>
#include <string>

inline std::string fake_machine_code() {
  Elf64_Ehdr h{};
  std::memcpy(h.e_ident, ELFMAG, SELFMAG);
  h.e_ident[EI_CLASS] = ELFCLASS64;
  h.e_ident[EI_DATA] = ELFDATA2LSB;
  h.e_machine = 190;
  return {reinterpret_cast<const char*>(&h), sizeof h};
}
