// The identifiers of one kernel: members of Args, and the structs that describe accesses, gathers
// and reductions.
#pragma once
#include <string>
#include <vector>

#include "emit/emit.hpp"

namespace sinter {

struct KernelNames {
  // `others`: bodies of the kernel that are none of the spec's own.
  explicit KernelNames(const KernelSpec& spec, const std::vector<const Body*>& others = {});

  std::vector<std::string> port;            // member of Args
  std::vector<std::string> access;          // struct in Config
  std::vector<std::string> scalar_value;    // member of Args; empty where not used as a number
  std::vector<std::string> scalar_integer;  // member of Args; empty where not used as an integer
  std::vector<std::string> gather;          // struct in Config
  std::vector<std::string> gathered;        // member of Fragment
  std::vector<std::string> reduction;       // struct beside Config
  std::vector<std::string> cross_row;       // the same, of the cross-row reductions
};

// The members of Args in order, with the values of the scalars.
std::vector<EmittedArgument> kernel_arguments(const KernelSpec& spec, const KernelNames& names);

}  // namespace sinter
