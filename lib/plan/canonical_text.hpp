// The text of a kernel with the user's names numbered. Kernels that differ in names alone (the
// equal layers of a model) have one such text: what is compiled, and what caches look for.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sinter/base/diagnostic.hpp"

namespace sinter {

struct PlanKernel;

// `names`: the identifiers of `source` that stand for the user's names. Each becomes n0_, n1_, ...
// in the order in which they first appear. Generated identifiers do not end in an underscore
// (emit/spelling.cpp), so that none is such a word.
std::string canonical_text(std::string_view source, std::span<const std::string> names);
std::string canonical_text(const PlanKernel& kernel);

// What a compiler says of the kernel's canonical text, with the names of its source.
Diagnostics with_names(Diagnostics errors, const PlanKernel& kernel);

// The identifiers of `named` that `unnamed` has others for: the same kernel's text without the
// user's names. Not those that stand for something else, too, at another place. None where the two
// differ in more than identifiers.
std::vector<std::string> names_in_text(std::string_view named, std::string_view unnamed);

}  // namespace sinter
